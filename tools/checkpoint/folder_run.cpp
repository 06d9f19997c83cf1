#include "tools/checkpoint/folder_run.h"

#include "compiler/import/huggingface/gguf_config.h"
#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/yaml_text.h"
#include "tools/command_line/exit_code.h"

#include "runtime/checkpoint/convert/convert.h"
#include "runtime/checkpoint/convert/gguf_file.h"
#include "runtime/checkpoint/kept_files.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>

namespace espalier {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t mostBytes = uint64_t(1) << 24, mostConfigBytes = uint64_t(1) << 20;

void requireNone(const Diagnostics &diagnostics) {
  fmt::print(stderr, "{}", diagnostics.render());
  if (diagnostics.hasErrors())
    throw rt::ReportedElsewhere(UserError);
}

/// Returns the sections of a run file that describe the model and its weights.
std::string modelSections(const std::string &file, const std::string &text) {
  Diagnostics diagnostics;
  YamlPtr root = parseYaml(file, text, diagnostics);
  requireNone(diagnostics);
  YamlNode sections = *root;
  std::erase_if(sections.entries, [](const YamlEntry &entry) {
    constexpr std::array kept = {"model", "moe_config", "seed", "load_checkpoint"};
    return std::ranges::find(kept, entry.key) == kept.end();
  });
  return yamlText(sections);
}

/// Returns the run file of a config.json.
std::string hfSections(const ConfigText &config) {
  ImportedHf imported = importHfConfig(config.file, config.text, {});
  requireNone(imported.diagnostics);
  return modelSections(config.file, imported.yaml);
}

GgufModel describe(const rt::GgufFile &file) {
  GgufModel model;
  model.architecture = file.text("general.architecture");
  for (const auto &[key, value] : file.keys())
    if (value.isList)
      model.lists.insert(key);
    else if (value.number)
      model.numbers[key] = *value.number;
  for (const auto &[name, tensor] : file.tensors())
    model.tensors.insert(name);
  auto table = file.tensors().find("token_embd.weight");
  if (table == file.tensors().end())
    throw rt::PlanError(fmt::format("{}: has no tensor token_embd.weight", file.file().path().string()));
  model.vocab = table->second.shape.front();
  model.dtype = table->second.type == rt::GgufType::F16    ? "float16"
                : table->second.type == rt::GgufType::BF16 ? "bfloat16"
                                                           : "float32";
  model.ropeScaling = rt::ropeScalingOf(file);
  return model;
}

} // namespace

ConfigText configOf(const fs::path &weights) {
  if (rt::systemAt(weights) == rt::WeightSystem::Gguf)
    return {weights, ggufConfigText(weights, describe(rt::GgufFile(weights)))};
  fs::path file = weights / "config.json";
  return {file, rt::readText(file, mostConfigBytes)};
}

bool keepsRun(const fs::path &checkpoint) { return fs::exists(rt::sideFolderOf(checkpoint) / rt::keptRunName); }

FolderRun writeFolderRun(const fs::path &weights, const fs::path &place) {
  fs::path run = place / rt::keptRunName;
  fs::create_directories(place);
  fs::remove_all(place / "models");
  if (rt::WeightSystem system = rt::systemAt(weights);
      system == rt::WeightSystem::Hf || system == rt::WeightSystem::Gguf) {
    rt::writeWhole(run, hfSections(configOf(weights)));
    // The model file is one of those that are installed. A copy shows whether it has changed.
    ImportedRun imported = importRun(run); // whoever reads the run file reports its errors
    return {run, imported.runText + imported.modelText};
  }
  fs::path checkpoint = rt::sideFolderOf(weights);
  std::string text = rt::readText(checkpoint / rt::keptRunName, mostBytes);
  rt::writeWhole(run, modelSections(checkpoint / rt::keptRunName, text));
  std::string texts = rt::readText(run, mostBytes);
  fs::create_directories(place / "models");
  for (const auto &file : fs::directory_iterator(checkpoint / "models")) {
    std::string model = rt::readText(file.path(), mostBytes);
    rt::writeWhole(place / "models" / file.path().filename(), model);
    texts += model;
  }
  return {run, texts};
}

} // namespace espalier
