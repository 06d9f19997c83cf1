#include "runtime/run/kept_of_run.h"

#include "runtime/checkpoint/convert/convert.h"
#include "runtime/dataset/text_source.h"
#include "runtime/files/mapped_file.h"
#include "runtime/status.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

TokenizerOptions optionsOf(const std::string &kind, const Path &file) {
  TokenizerOptions options;
  options.kind = kind;
  options.modelFile = file.string();
  return options;
}

/// Returns the files of a tokenizer that the user names: its folder, or one of its files.
std::vector<SideFile> namedTokenizer(const Path &path) {
  Path folder = std::filesystem::is_directory(path) ? path : path.has_parent_path() ? path.parent_path() : Path(".");
  if (path.extension() == ".tiktoken" || path.filename() == "tekken.json")
    return tokenizerFilesOf(optionsOf("tiktoken", path));
  if (path.extension() == ".json" && path.filename() != "tokenizer.json" && isRegularFile(path.string()))
    return tokenizerFilesOf(optionsOf("hf", path));
  if (path.extension() == ".model" && path.filename() != "tokenizer.model" && isRegularFile(path.string()))
    return tokenizerFilesOf(optionsOf("sentencepiece", path));
  if (!std::filesystem::exists(path) || !tokenizerIn(folder))
    throw PlanError(fmt::format("--tokenizer {}: holds no tokenizer: no tokenizer.json, no tokenizer.model, no "
                                "vocab.json with merges.txt",
                                path.string()));
  return tokenizerFilesIn(folder);
}

/// Returns the files of the tokenizer that made the data. Text that is read as bytes has one if the model has no fewer
/// ids.
std::vector<SideFile> dataTokenizer(const pb::Plan &plan, const RunOptions &options, bool isText) {
  for (const std::string &path : dataPaths(plan, options.data)) {
    bool isPart = path.ends_with(".idx") || path.ends_with(".bin");
    std::string prefix = isPart ? path.substr(0, path.size() - 4) : path;
    bool isDataset = isRegularFile(prefix + ".idx");
    if (!isText && isDataset)
      if (std::vector<SideFile> files = tokenizerFilesIn(tokenizerFolderOf(prefix)); !files.empty())
        return files;
    if (isText && !isDataset && isRegularFile(path) && plan.settings().vocabulary() >= byteVocabSize)
      return byteTokenizerFiles(/*endsDocuments=*/false);
  }
  return {};
}

std::vector<SideFile> tokenizerOfRun(const pb::Plan &plan, const RunOptions &options) {
  if (!options.tokenizer.empty())
    return namedTokenizer(options.tokenizer);
  std::vector<SideFile> files;
  if (!options.dataset)
    files = dataTokenizer(plan, options, /*isText=*/false);
  for (const Path &weights :
       {options.load, Path(plan.settings().load_checkpoint()), options.resume ? options.checkpoint : Path()})
    if (files.empty() && !weights.empty())
      files = tokenizerOfWeights(weights);
  if (files.empty() && !options.dataset)
    files = dataTokenizer(plan, options, /*isText=*/true);
  return files;
}

} // namespace

std::vector<SideFile> keptOfRun(const pb::Plan &plan, const RunOptions &options) {
  Path weights = options.load;
  if (options.resume && weights.empty() && plan.settings().load_checkpoint().empty())
    weights = keptWeights(sideFolderOf(options.checkpoint));
  std::vector<SideFile> files = keptTexts(plan.run_text(), plan.weights().file(), plan.model_text(), weights);
  for (SideFile &file : tokenizerOfRun(plan, options))
    files.push_back(std::move(file));
  return files;
}

} // namespace espalier::rt
