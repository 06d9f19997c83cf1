// `espalier convert`: the run file names the model of the weights, and its model file maps names to other systems.
#include "tools/checkpoint/convert_command.h"

#include "tools/checkpoint/folder_run.h"
#include "tools/commands.h"

#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/run/describe_weights.h"

#include "runtime/checkpoint/convert/gguf.h"
#include "runtime/checkpoint/convert/peft.h"
#include "runtime/checkpoint/kept_files.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier {
namespace {

struct ConvertArguments {
  std::string source, target, to, run, base, names = "mcore", format = "safetensors", reference, dtype = "f16";
  bool merges = false, json = false;
  int64_t tp = 1, pp = 1, shards = 0;
};

/// Prints the diagnostics and throws if there are errors.
void requireNone(const Diagnostics &diagnostics) {
  fmt::print(stderr, "{}", diagnostics.render());
  if (diagnostics.hasErrors())
    throw rt::ReportedElsewhere(UserError);
}

std::string configText(const ConvertArguments &arguments, const ImportedRun &run, const std::string &type) {
  Diagnostics diagnostics;
  std::string text;
  if (arguments.reference.empty()) {
    text = hfConfigText(run, type, diagnostics);
  } else {
    std::string file = arguments.reference + "/config.json";
    text = agreeingHfConfig(run, type, file, rt::readText(file, uint64_t(1) << 20), diagnostics);
  }
  requireNone(diagnostics);
  return text;
}

void toHf(const ConvertArguments &arguments, const ImportedRun &run, const rt::ConvertedModel &model,
          const std::vector<rt::SideFile> &tokenizer) {
  rt::HfExport options;
  options.format = arguments.format == "bin" ? rt::WeightFormat::Bin : rt::WeightFormat::Safetensors;
  options.shards = arguments.shards;
  options.reference = arguments.reference;
  options.files = tokenizer;
  options.mergesAdapters = arguments.merges;
  rt::convertToHf(model, arguments.source, arguments.target, options,
                  [&](const std::string &type) { return configText(arguments, run, type); });
}

void toGguf(const ConvertArguments &arguments, const ImportedRun &run, const rt::ConvertedModel &model,
            const std::vector<rt::SideFile> &tokenizer) {
  static const std::map<std::string, rt::GgufType> types = {{"f32", rt::GgufType::F32},
                                                            {"f16", rt::GgufType::F16},
                                                            {"bf16", rt::GgufType::BF16},
                                                            {"q8_0", rt::GgufType::Q8_0}};
  rt::convertToGguf(model, arguments.source, arguments.target, configText(arguments, run, "float32"), tokenizer,
                    types.at(arguments.dtype));
}

/// Checks that the options fit the adapters of the model and the source.
void checkAdapters(const ConvertArguments &arguments, const rt::ConvertedModel &model, rt::WeightSystem from) {
  bool hasAdapters = !model.adapters.model.parameters.empty(), isAdapter = from == rt::WeightSystem::Peft;
  if (isAdapter == arguments.base.empty() && arguments.to != "peft")
    throw rt::PlanError(
        isAdapter
            ? fmt::format("{}: holds adapters alone; --base names the weights beside which they lie", arguments.source)
            : fmt::format("--base is of a source with adapters of peft, {} has none", arguments.source));
  if (arguments.to == "espalier" || arguments.to == "peft")
    return;
  if (hasAdapters && !arguments.merges)
    throw rt::PlanError(
        fmt::format("{}: its adapters are lost in {}; --merge with --to hf adds them to the weights, --to "
                    "peft writes them alone",
                    arguments.source, arguments.to));
  if (arguments.merges && !hasAdapters)
    throw rt::PlanError(fmt::format("--merge adds adapters to weights, and {} has no pet_config",
                                    arguments.run.empty() ? "the model" : arguments.run));
}

/// Refuses files of transformers if the norms of the run count their weights from another number.
void checkNorms(const ConvertArguments &arguments, const ImportedRun &run, rt::WeightSystem from) {
  const std::string name = "layernorm_zero_centered_gamma";
  auto size = run.sizes.find(name);
  bool hasHf = std::ranges::find(run.config.weights, "hf", &WeightRules::system) != run.config.weights.end();
  bool isFromOne = size != run.sizes.end() && size->second.number.value_or(0) != 0;
  if (isFromOne && !hasHf && (arguments.to == "hf" || from == rt::WeightSystem::Hf))
    throw rt::PlanError(
        fmt::format("{}: {} is True, and norms of transformers' {} count from 0; --to megatron converts "
                    "the weights",
                    arguments.run, name, run.config.model.name));
}

/// A temporary folder beside the target, for the files of one conversion. The destructor removes it.
class ScratchFolder {
public:
  explicit ScratchFolder(const std::filesystem::path &target)
      : path(target.parent_path() / fmt::format(".{}.{}.convert", target.filename().string(), ::getpid())) {
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error)
      throw rt::PlanError(fmt::format("{}: cannot create it: {}", path.string(), error.message()));
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
  ScratchFolder(const ScratchFolder &) = delete;
  const std::filesystem::path path;
};

/// Imports the run file, or else the model that the source or --reference tells.
ImportedRun importModel(const ConvertArguments &arguments, rt::WeightSystem from, const ScratchFolder &scratch) {
  if (!arguments.run.empty())
    return importRun(arguments.run);
  bool isKnown = from == rt::WeightSystem::Espalier ? keepsRun(arguments.source)
                                                    : from == rt::WeightSystem::Hf || from == rt::WeightSystem::Gguf;
  std::string folder = isKnown ? arguments.source : arguments.reference;
  if (folder.empty())
    throw UsageError("the model is not known; --model names its run file, --reference its folder of transformers");
  return importRun(writeFolderRun(folder, scratch.path).run);
}

/// Returns the name of the weights beside which adapters lie: --base, or the weights that the run started from.
std::string baseOf(const ConvertArguments &arguments, const ImportedRun &run) {
  if (!arguments.base.empty())
    return arguments.base;
  std::filesystem::path weights = rt::keptWeights(rt::sideFolderOf(arguments.source));
  std::string name = rt::baseModelNameOf(weights.empty() ? std::filesystem::path(run.config.loadCheckpoint) : weights);
  if (name.empty())
    fmt::print(stderr,
               "{}: note: adapter_config.json names no base model, because the run did not start from a folder of "
               "transformers; --base NAME names it\n",
               arguments.target);
  return name;
}

/// Returns what a checkpoint keeps: the run file and the model file, and the tokenizer of the weights.
std::vector<rt::SideFile> keptOf(const ConvertArguments &arguments, const ImportedRun &run) {
  const std::string &weights = arguments.base.empty() ? arguments.source : arguments.base;
  std::vector<rt::SideFile> files = rt::keptTexts(run.runText, run.config.modelFile, run.modelText);
  for (rt::SideFile &file : rt::tokenizerOfWeights(weights))
    files.push_back(std::move(file));
  return files;
}

/// Writes the checkpoint that `arguments.source` is converted to on the way to another system, and makes it the source.
void convertFirst(ConvertArguments &arguments, const rt::ConvertedModel &model, rt::WeightSystem from,
                  const ScratchFolder &scratch) {
  std::filesystem::path checkpoint = scratch.path / "checkpoint";
  rt::convertToNative(model, from, arguments.source, checkpoint, arguments.base);
  arguments.source = checkpoint;
}

void convert(ConvertArguments arguments) {
  rt::WeightSystem from = rt::systemAt(arguments.source);
  std::vector<rt::SideFile> tokenizer;
  if (arguments.to == "hf" || arguments.to == "peft" || arguments.to == "gguf")
    tokenizer = rt::tokenizerOfWeights(arguments.source);
  ScratchFolder scratch(arguments.target);
  ImportedRun run = importModel(arguments, from, scratch);
  requireNone(run.diagnostics);
  checkNorms(arguments, run, from);
  rt::ConvertedModel model = convertedModel(run);
  bool isToOurs = arguments.to == "espalier";
  bool isFromOurs = from == rt::WeightSystem::Espalier;
  if (isToOurs && isFromOurs)
    throw rt::PlanError(fmt::format("{}: is a checkpoint of Espalier already", arguments.source));
  if (arguments.to == "peft" && !isFromOurs)
    throw rt::PlanError(
        fmt::format("{}: is no checkpoint of Espalier, and only such a checkpoint has adapters that --to "
                    "peft writes",
                    arguments.source));
  checkAdapters(arguments, model, from);
  if (!isToOurs && !isFromOurs)
    convertFirst(arguments, model, from, scratch);
  std::string written = arguments.target;
  if (isToOurs)
    written =
        rt::convertToNative(model, from, arguments.source, arguments.target, arguments.base, keptOf(arguments, run))
            .string();
  else if (arguments.to == "hf")
    toHf(arguments, run, model, tokenizer);
  else if (arguments.to == "peft")
    rt::writePeftFolder(model, arguments.source, arguments.target, baseOf(arguments, run), tokenizer);
  else if (arguments.to == "gguf")
    toGguf(arguments, run, model, tokenizer);
  else if (arguments.to == "dcp")
    rt::convertToDcp(model, arguments.source, arguments.target);
  else
    rt::convertToMegatron(model, arguments.source, arguments.target, arguments.names, {arguments.tp, arguments.pp});
  uint64_t weights = model.model.parameterCount(), adapters = model.adapters.model.parameterCount();
  bool hasAdapters = arguments.to == "peft" || from == rt::WeightSystem::Peft;
  uint64_t parameters = (arguments.to == "peft" ? 0 : weights) + (hasAdapters ? adapters : 0);
  if (arguments.json)
    fmt::print("{}\n", nlohmann::ordered_json({{"schema", 1},
                                               {"folder", written},
                                               {"format", arguments.to},
                                               {"model", model.model.name},
                                               {"parameters", parameters}})
                           .dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
  else
    fmt::print("{}: {} parameters of {}\n", written, parameters, model.model.name);
}

} // namespace

rt::ConvertedModel convertedModel(const ImportedRun &run) {
  rt::pb::WeightNames names;
  describeWeights(run.config, names);
  rt::ConvertedModel converted = rt::convertedModel(names, run.config.model.name);
  converted.place = run.config.modelFile;
  for (const WeightRules &rules : run.config.weights)
    converted.rules[rules.system] = rules.rules;
  return converted;
}

void writeHf(const std::filesystem::path &checkpoint, const std::filesystem::path &target) {
  ScratchFolder scratch(target);
  ImportedRun run = importRun(writeFolderRun(checkpoint, scratch.path).run);
  if (!run.ok())
    requireNone(run.diagnostics);
  rt::ConvertedModel model = convertedModel(run);
  ConvertArguments arguments;
  arguments.source = checkpoint;
  arguments.target = target;
  arguments.merges = !model.adapters.model.parameters.empty();
  toHf(arguments, run, model, rt::tokenizerFilesIn(checkpoint));
}

void addConvertCommand(const Verb &app) {
  auto arguments = std::make_shared<ConvertArguments>();
  Verb command = app.verb("convert", "Turn weights of transformers, Megatron or llama.cpp into a checkpoint, or back");
  command
      .option("SRC", arguments->source,
              "a checkpoint, a folder of transformers, Megatron, torch (DCP) or peft, or a .gguf file of llama.cpp")
      .required();
  command.option("DST,-o,--output", arguments->target, "folder to write; with --to gguf, a file").required();
  command.option("--to", arguments->to, "what to write")
      .required()
      .oneOf({"espalier", "hf", "megatron", "dcp", "peft", "gguf"});
  command.option(
      "--model", arguments->run,
      "run file of the model; default: the one that a checkpoint keeps, or the config.json of SRC or --reference");
  command.option(
      "--base", arguments->base,
      "weights beside which the adapters of a folder of peft lie; with --to peft, their name for transformers");
  command.flag("--json", arguments->json, "print the folder, the model and its size as JSON");
  Verb megatron = command.group("megatron", "with --to megatron");
  megatron.option("--tp", arguments->tp, "tensor-parallel ranks").range(1, 100000);
  megatron.option("--pp", arguments->pp, "pipeline stages").range(1, 100000);
  megatron.option("--names", arguments->names, "generation of names").oneOf({"mcore", "legacy"});
  Verb hf = command.group("hf", "with --to hf");
  hf.option("--shards", arguments->shards, "files of weights; default: of 5 GB each").range(1, 100000);
  hf.flag("--merge", arguments->merges, "add low-rank adapters to the weights");
  hf.option("--format", arguments->format, "form of the files").oneOf({"safetensors", "bin"});
  hf.option("--reference", arguments->reference, "folder whose config, tokenizer files and README are copied");
  Verb gguf = command.group("gguf", "with --to gguf");
  gguf.option("--dtype", arguments->dtype, "type of the matrices").oneOf({"f32", "f16", "bf16", "q8_0"});
  command.action([=] {
    for (auto [to, group] : {std::pair("megatron", megatron), std::pair("hf", hf), std::pair("gguf", gguf)})
      for (const Option &option : group.given())
        if (arguments->to != to)
          throw rt::PlanError(
              fmt::format("{} is of --to {}; with --to {} it has no effect", option.name(), to, arguments->to));
    convert(*arguments);
  });
}

} // namespace espalier
