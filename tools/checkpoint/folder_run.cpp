#include "tools/checkpoint/folder_run.h"

#include "compiler/import/huggingface/hf_config.h"
#include "compiler/import/run/import_run.h"
#include "compiler/import/yaml/yaml_text.h"
#include "tools/command_line/exit_code.h"

#include "runtime/checkpoint/convert/convert.h"
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

constexpr uint64_t mostBytes = uint64_t(1) << 24;

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
std::string hfSections(const fs::path &folder) {
  std::string file = folder / "config.json";
  ImportedHf imported = importHfConfig(file, rt::readText(file, uint64_t(1) << 20), {});
  requireNone(imported.diagnostics);
  return modelSections(file, imported.yaml);
}

} // namespace

bool keepsRun(const fs::path &checkpoint) { return fs::exists(rt::sideFolderOf(checkpoint) / rt::keptRunName); }

FolderRun writeFolderRun(const fs::path &weights, const fs::path &place) {
  fs::path run = place / rt::keptRunName;
  fs::create_directories(place);
  fs::remove_all(place / "models");
  if (rt::systemAt(weights) == rt::WeightSystem::Hf) {
    rt::writeWhole(run, hfSections(weights));
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
