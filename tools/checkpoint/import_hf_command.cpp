// `espalier import-hf`: converts the folder of a transformers model or a GGUF file to a run file.
#include "tools/checkpoint/convert_command.h"
#include "tools/checkpoint/folder_run.h"

#include "tools/commands.h"

#include "compiler/import/huggingface/hf_config.h"

#include "format/path_kind.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <filesystem>
#include <fmt/format.h>
#include <memory>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

constexpr uint64_t mostConfigBytes = uint64_t(1) << 20;

struct ImportHfArguments {
  std::string folder, output;
  bool json = false;
};

ExitCode importHf(const ImportHfArguments &arguments) {
  std::string file = arguments.folder;
  bool isGguf = rt::pathKind(file) == rt::PathKind::Gguf;
  if (std::filesystem::is_directory(arguments.folder)) {
    rt::WeightSystem system = rt::systemAt(arguments.folder);
    if (system == rt::WeightSystem::Peft)
      throw rt::PlanError(arguments.folder +
                          ": holds an adapter (LoRA); give the folder of the weights beside which it lies");
    if (system != rt::WeightSystem::Hf)
      rt::refuseOther(arguments.folder, "is no folder of transformers");
  } else if (rt::PathKind kind = rt::pathKind(file);
             kind != rt::PathKind::HfConfig && kind != rt::PathKind::Unknown && !isGguf) {
    rt::refuseOther(file, "is no config.json of transformers");
  }
  bool isFile = !isGguf && !std::filesystem::is_directory(file);
  ConfigText config = isFile ? ConfigText{file, rt::readText(file, mostConfigBytes)} : configOf(file);
  ImportedHf imported = importHfConfig(config.file, config.text, {});
  if (isGguf) // the plan then has llama.cpp's names of the weights
    imported.yaml += fmt::format("load_checkpoint: {}\n", nlohmann::json(std::filesystem::absolute(file)).dump());
  fmt::print(stderr, "{}", imported.diagnostics.render());
  if (arguments.json)
    fmt::print("{}",
               importJson(arguments.folder, arguments.output, imported.yaml, imported.keys, imported.diagnostics));
  else if (!imported.diagnostics.hasErrors())
    fmt::print(stderr, "{}", importText(imported.keys));
  if (imported.diagnostics.hasErrors())
    return UserError;
  if (arguments.output.empty()) {
    fmt::print("{}", arguments.json ? "" : imported.yaml);
    return Success;
  }
  rt::writeWhole(arguments.output, imported.yaml);
  // Validate the result like any run file.
  ImportedRun run = importRun(arguments.output);
  fmt::print(stderr, "{}", run.diagnostics.render());
  return run.ok() ? Success : UserError;
}

} // namespace

void addImportHfCommand(const Verb &app) {
  auto arguments = std::make_shared<ImportHfArguments>();
  Verb command = app.verb("import-hf", "Turn a config.json of transformers or a .gguf file into a run file");
  command.option("DIR", arguments->folder, "folder with a config.json, or the file; or a .gguf file of llama.cpp")
      .required();
  command.option("-o,--output", arguments->output, "the run file to write; default: standard output");
  command.flag("--json", arguments->json, "print the effect of each key and the run file as JSON");
  command.action([arguments] { return importHf(*arguments); });
}

} // namespace espalier
