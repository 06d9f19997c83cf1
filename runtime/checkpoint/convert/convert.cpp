// A path is told by what its writers never leave out.
#include "runtime/checkpoint/convert/convert.h"

#include "format/path_kind.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/convert/dcp.h"
#include "runtime/checkpoint/convert/foreign_weights.h"
#include "runtime/checkpoint/convert/gguf.h"
#include "runtime/checkpoint/convert/peft.h"
#include "runtime/status.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

bool hasEntry(const Path &folder, const std::function<bool(const std::string &)> &isIt) {
  std::error_code error;
  return std::ranges::any_of(std::filesystem::directory_iterator(folder, error),
                             [&](const auto &entry) { return isIt(entry.path().filename().string()); });
}

bool isMindSpore(const Path &path) { return path.extension() == ".ckpt"; }

bool isDistributed(const Path &folder) {
  auto isFile = [&](const char *name) { return std::filesystem::exists(folder / name); };
  return isFile(".metadata") || isFile("metadata.json") ||
         hasEntry(folder, [](const std::string &name) { return name.ends_with(".distcp"); });
}

bool isMegatron(const Path &folder) {
  return std::filesystem::exists(folder / "latest_checkpointed_iteration.txt") ||
         hasEntry(folder, [](const std::string &name) { return name.starts_with("mp_rank_"); });
}

/// Whether each of Megatron's iterations in a folder is of torch's distributed format.
bool holdsDistributedIterations(const Path &folder) {
  auto isIteration = [](const std::string &name) { return name.starts_with("iter_") || name == "release"; };
  auto isOfFormat = [&](bool wanted) {
    return hasEntry(
        folder, [&](const std::string &name) { return isIteration(name) && isDistributed(folder / name) == wanted; });
  };
  return isOfFormat(true) && !isOfFormat(false);
}

/// The weights of an adapter, as peft names them.
bool isAdapter(const std::string &name) { return name.starts_with("adapter_model") || name == "adapter_config.json"; }

/// The weights themselves, as transformers and peft name them.
bool isHfWeights(const std::string &name) {
  return name.starts_with("pytorch_model") || name.starts_with("adapter_model") ||
         (name.starts_with("model") && name.find(".safetensors") != std::string::npos);
}

/// As transformers calls it.
std::string typeWord(pb::DataType type) {
  return type == pb::BF16 ? "bfloat16" : type == pb::F16 ? "float16" : "float32";
}

/// Adds the parameters of one call. Tied ones are known by the parameter whose values they share.
void addParameters(const pb::WeightNames::Run &run, int64_t layer, ConvertedModel &converted) {
  WeightModel &model = converted.model, &adapters = converted.adapters.model;
  std::string call = fmt::format("{}.{}", run.kind(), layer < 0 ? "" : fmt::format("{}.", layer));
  for (const pb::WeightNames::Parameter &parameter : run.parameters()) {
    if (!parameter.tied_to().empty()) {
      model.ties[parameter.name()] = parameter.tied_to();
      continue;
    }
    WeightParameter added{
        call + parameter.name(), parameter.name(), layer, {parameter.dims().begin(), parameter.dims().end()}, {}};
    for (const std::string &dim : added.dims) {
      auto size = model.dims.find(dim);
      if (size == model.dims.end())
        throw PlanError(fmt::format("parameter '{}' has a dimension '{}' of no size", added.name, dim));
      added.sizes.push_back(size->second);
    }
    if (!parameter.adapter_a().empty())
      converted.adapters.products[added.name] = {call + parameter.adapter_a(), call + parameter.adapter_b()};
    (parameter.is_adapter() ? adapters : model).parameters.push_back(std::move(added));
  }
}

/// Returns the values of a checkpoint as parameters to write.
std::vector<NewParameter> parametersIn(const WeightModel &model, const NativeSource &source) {
  std::vector<NewParameter> parameters;
  for (size_t i = 0; i < model.parameters.size(); ++i)
    parameters.push_back({source.type(i), [&source, i] { return *source.read(i); }});
  return parameters;
}

/// Writes adapters of peft and the weights at `base` as one checkpoint.
Path joinAdapters(const ConvertedModel &model, const Path &source, const Path &target, const Path &base,
                  const std::vector<SideFile> &kept) {
  PeftAdapters adapters(model, source);
  WeightModel all = model.model;
  std::ranges::copy(model.adapters.model.parameters, std::back_inserter(all.parameters));
  auto write = [&](std::vector<NewParameter> parameters) {
    std::ranges::copy(adapters.parameters(), std::back_inserter(parameters));
    return writeNative(all, target, parameters, kept);
  };
  if (WeightSystem system = systemAt(base); system == WeightSystem::Peft) {
    throw PlanError(fmt::format("{}: holds adapters, wanted the weights that they are added to", base.string()));
  } else if (system != WeightSystem::Espalier) {
    ForeignWeights weights(model, system, base);
    return write(weights.parameters());
  }
  NativeSource weights(model.model, base, &model.adapters.model);
  return write(parametersIn(model.model, weights));
}

} // namespace

void refuseDistributed(const Path &folder) {
  if (isDistributed(folder) || holdsDistributedIterations(folder))
    throw PlanError(fmt::format(
        "{}: a distributed checkpoint without the file .metadata of torch (torch_dist) is not read; let Megatron write "
        "it with --ckpt-convert-format torch_dist --ckpt-convert-save FOLDER and give that folder",
        folder.string()));
}

WeightSystem systemAt(const Path &path) {
  auto isFile = [&](const char *name) { return std::filesystem::exists(path / name); };
  if (isMindSpore(path) || hasEntry(path, [&](const std::string &name) {
        return isMindSpore(name) || (name.starts_with("rank_") && hasEntry(path / name, isMindSpore));
      }))
    throw PlanError(fmt::format("{}: MindSpore's .ckpt files are not read; export them as safetensors "
                                "(load_ckpt_format of MindFormers 1.3 and later) with the names of transformers",
                                path.string()));
  if (pathKind(path) == PathKind::Gguf)
    return WeightSystem::Gguf;
  if (!std::filesystem::is_directory(path))
    refuseOther(path, std::filesystem::exists(path) ? "is no folder" : "is no folder: " + whyNotOpened(path, ENOENT));
  if (dcpFolderAt(path))
    return WeightSystem::Dcp;
  refuseDistributed(path);
  if (isFile(manifestName) || !checkpointNames(path).empty())
    return WeightSystem::Espalier;
  if (isMegatron(path))
    return WeightSystem::Megatron;
  if (hasEntry(path, isAdapter))
    return WeightSystem::Peft;
  if (isFile("config.json") || hasEntry(path, [](const std::string &name) {
        return name.ends_with(".safetensors") || name.starts_with("pytorch_model");
      }))
    return WeightSystem::Hf;
  refuseOther(path, "holds no weights that are known: no checkpoint of Espalier, no folder of transformers, no "
                    "mp_rank_* of Megatron, no .metadata of torch");
}

std::vector<SideFile> tokenizerOfWeights(const Path &weights) {
  return pathKind(weights) == PathKind::Gguf ? tokenizerFilesInGguf(weights) : tokenizerFilesIn(sideFolderOf(weights));
}

std::string foreignWeightsAt(const Path &folder) {
  if (!checkpointNames(folder).empty())
    return "";
  if (isMegatron(folder) || isDistributed(folder))
    return "Megatron";
  return hasEntry(folder, isHfWeights) ? "transformers" : "";
}

ConvertedModel convertedModel(const pb::Plan &plan) {
  if (plan.weights().runs().empty())
    throw PlanError("the plan does not say what others call its parameters; compile it anew");
  return convertedModel(plan.weights(), plan.model());
}

ConvertedModel convertedModel(const pb::WeightNames &names, const std::string &name) {
  ConvertedModel converted{{}, {}, names.file()};
  WeightModel &model = converted.model;
  model.name = name;
  for (const pb::WeightNames::Dim &dim : names.dims())
    model.dims[dim.name()] = dim.size();
  for (const pb::WeightNames::Run &run : names.runs())
    for (int64_t call = 0; call < run.count(); ++call) {
      int64_t layer = run.is_layers() ? model.layers++ : -1;
      addParameters(run, layer, converted);
    }
  ModelAdapters &adapters = converted.adapters;
  adapters.rank = names.adapter().rank();
  adapters.alpha = names.adapter().alpha();
  adapters.dropout = names.adapter().dropout();
  adapters.model.name = name;
  adapters.model.dims = model.dims;
  adapters.model.layers = model.layers;
  for (const pb::WeightNames::System &system : names.systems())
    for (const pb::WeightNames::Rule &rule : system.rules())
      converted.rules[system.name()].emplace_back(rule.pattern(), rule.holds());
  return converted;
}

NameMap ConvertedModel::names(const std::string &system) const {
  auto found = rules.find(system);
  if (found == rules.end())
    throw PlanError(
        fmt::format("{}: has no names of weights for {}: `weights: {}:` would say them", place, model.name, system));
  return NameMap(model, found->second, fmt::format("{}: weights: {}", place, system));
}

Path convertToNative(const ConvertedModel &model, WeightSystem from, const Path &source, const Path &target,
                     const Path &base, const std::vector<SideFile> &kept) {
  if (from == WeightSystem::Peft)
    return joinAdapters(model, source, target, base, kept);
  ForeignWeights weights(model, from, source);
  weights.printNote(source);
  return writeNative(weights.model(), target, weights.parameters(), kept);
}

void convertToHf(const ConvertedModel &model, const Path &source, const Path &target, HfExport options,
                 const std::function<std::string(const std::string &)> &config) {
  NameMap names = model.names("hf");
  std::unique_ptr<NativeSource> held = options.mergesAdapters ? std::make_unique<MergedSource>(model, source)
                                                              : std::make_unique<NativeSource>(model.model, source);
  const NativeSource &native = *held;
  options.config = config(typeWord(native.type(0)));
  std::vector<ForeignTensor> tensors = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
  writeHfFolder(target, tensorsOf(names, native, tensors, /*writesTied=*/false), options);
}

void convertToDcp(const ConvertedModel &model, const Path &source, const Path &target) {
  NameMap names = model.names("hf");
  NativeSource native(model.model, source);
  std::vector<ForeignTensor> tensors = names.tensors({0, model.model.layers, true, true, {}}, 0, {});
  writeDcpFolder(target, tensorsOf(names, native, tensors, /*writesTied=*/true));
}

void convertToMegatron(const ConvertedModel &model, const Path &source, const Path &target, const std::string &names,
                       const MegatronExport &options) {
  NativeSource native(model.model, source);
  writeMegatron(target, model.names(names), native, options);
}

} // namespace espalier::rt
