// Parses options, makes one call into runtime/dataset or runtime/tokenizer, and prints a short report.
#include "tools/data/data_command.h"

#include "tools/data/data_verbs.h"

#include "format/path_kind.h"
#include "messages/data_error.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/dataset_report.h"
#include "runtime/dataset/gpt_dataset.h"
#include "runtime/dataset/indexed_writer.h"
#include "runtime/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <fmt/format.h>
#include <glob.h>
#include <nlohmann/json.hpp>

namespace espalier {

using namespace rt;

void addTokenizerOptions(const Verb &command, TokenizerOptions &options) {
  Option kind = command
                    .option("--tokenizer,--tokenizer-type", options.kind,
                            "gpt2, hf, sentencepiece, tiktoken, bytes or null, or Megatron's name of it")
                    .oneOf(tokenizerKinds());
  for (const Option &ofKind :
       {command.option("--vocab-file", options.vocabFile, "gpt2: vocab.json"),
        command.option("--merge-file", options.mergeFile, "gpt2: merges.txt"),
        command.option("--tokenizer-model", options.modelFile,
                       "hf: tokenizer.json or its folder; sentencepiece: tokenizer.model; tiktoken: rank file or "
                       "tekken.json"),
        command.option("--tiktoken-pattern", options.pattern,
                       "tiktoken: encoding (cl100k_base, o200k_base, llama3, qwen ...) or regular expression; by "
                       "default by the number of ranks"),
        command.option("--vocab-size", options.vocabSize, "null: number of ids"),
        command.flag("--add-bos", options.addBos, "sentencepiece, tiktoken: begin each document with its token"),
        command.option("--eod-token", options.eodText, "hf, tiktoken: text of the token that ends a document"),
        command.flag("--special-tokens", options.specialTokens,
                     "as HF does: special tokens in the text become their ids, and the tokens of an hf "
                     "post-processor are added")})
    ofKind.needs(kind); // these options do not apply to bytes, the default
}

namespace {

/// Returns name, counts and token type of a dataset.
nlohmann::ordered_json describeDatasetJson(const IndexedDataset &set) {
  return {{"name", set.name()},         {"documents", set.documentCount()},       {"sequences", set.sequenceCount()},
          {"tokens", set.tokenCount()}, {"type", tokenTypeName(set.tokenType())}, {"multimodal", set.isMultimodal()}};
}

/// Opens an indexed dataset. For other kinds of files, the error names the command that accepts them.
IndexedDataset openIndexed(const std::string &prefix) {
  PathKind kind = pathKind(prefix);
  if (kind != PathKind::Dataset && kind != PathKind::Unknown)
    throw DataError(prefix, wayOf(prefix));
  return IndexedDataset::open(prefix);
}

void addVerify(const Verb &data) {
  auto prefix = std::make_shared<std::string>();
  auto vocabSize = std::make_shared<int64_t>(0);
  Verb command = data.verb("verify", "reads a set whole and checks every value");
  command.option("prefix", *prefix, "PREFIX of PREFIX.bin and .idx").required();
  auto json = std::make_shared<bool>(false);
  command.option("--vocab-size", *vocabSize, "refuse tokens at or above this");
  addJsonFlag(command, *json);
  command.action([prefix, vocabSize, json] {
    IndexedDataset set = openIndexed(*prefix);
    int64_t largest = verifyTokens(set, *vocabSize);
    verifyLossMask(set, findLossMask(*prefix));
    if (*json) {
      nlohmann::ordered_json report = describeDatasetJson(set);
      report["largest_id"] = largest;
      return printJson(report);
    }
    fmt::print("{}: sound: {} documents, {} sequences, {} tokens, largest id {}\n", *prefix, set.documentCount(),
               set.sequenceCount(), set.tokenCount(), largest);
  });
}

/// Returns the loss masks of datasets; none if no dataset has one. Throws DataError if only some have.
std::vector<std::string> masksOf(const std::vector<std::string> &prefixes) {
  std::vector<std::string> masks, without;
  for (const std::string &prefix : prefixes)
    if (std::string mask = findLossMask(prefix); mask.empty())
      without.push_back(prefix);
    else
      masks.push_back(mask);
  if (!masks.empty() && !without.empty())
    throw DataError(without[0], fmt::format("has no loss mask, {} is one; a run blends such sets (--data WEIGHT PATH "
                                            "WEIGHT PATH), a merged set has a mask for all tokens or for none",
                                            masks[0]));
  return masks;
}

std::vector<IndexedDataset> openAll(const std::vector<std::string> &prefixes) {
  std::vector<IndexedDataset> sets;
  for (const std::string &prefix : prefixes)
    sets.push_back(openIndexed(prefix));
  return sets;
}

/// Writes the sets one after the other.
void mergeSets(const std::vector<IndexedDataset> &sets, IndexedWriter &writer) {
  for (const IndexedDataset &set : sets)
    writer.addDataset(set);
  writer.commit();
}

/// Returns the files of the tokenizer of all sets, or none if they differ.
std::vector<SideFile> commonTokenizer(const std::vector<std::string> &prefixes) {
  std::vector<SideFile> common = tokenizerFilesIn(tokenizerFolderOf(prefixes.front()));
  auto isCommon = [&](const std::string &prefix) {
    return std::ranges::equal(common, tokenizerFilesIn(tokenizerFolderOf(prefix)),
                              [](auto &a, auto &b) { return a.name == b.name && a.bytes == b.bytes; });
  };
  return std::ranges::all_of(prefixes, isCommon) ? common : std::vector<SideFile>();
}

void addMerge(const Verb &data) {
  auto inputs = std::make_shared<std::vector<std::string>>();
  auto output = std::make_shared<std::string>();
  auto replaces = std::make_shared<bool>(false);
  Verb command = data.verb("merge", "several sets of one token type to one");
  command.option("prefix", *inputs, "prefixes, in the order of the result").required();
  command.option("--output-prefix", *output, "PREFIX of the result").required();
  auto json = std::make_shared<bool>(false);
  command.flag("--overwrite", *replaces, "replace a dataset of the same name");
  addJsonFlag(command, *json);
  command.action([inputs, output, replaces, json] {
    for (const std::string &input : *inputs)
      if (input == *output)
        throw DataError(input, "is both an input and the output");
    for (const std::string &prefix : {*output, lossMaskPrefix(*output)})
      if (!*replaces)
        requireNoDataset(prefix);
    std::vector<std::string> masks = masksOf(*inputs);
    // All inputs are checked before anything is written. A mask is written before its tokens.
    std::vector<IndexedDataset> sets = openAll(*inputs), maskSets = openAll(masks);
    if (!masks.empty()) {
      IndexedWriter maskWriter(lossMaskPrefix(*output), TokenType::u8);
      mergeSets(maskSets, maskWriter);
    }
    IndexedWriter writer(*output, sets.front().tokenType());
    mergeSets(sets, writer);
    writeTokenizerFolder(tokenizerFolderOf(*output), commonTokenizer(*inputs));
    if (*json)
      return printJson({{"documents", writer.documentCount()}, {"tokens", writer.tokenCount()}, {"prefix", *output}});
    fmt::print("{} documents, {} tokens in {}.bin and .idx\n", writer.documentCount(), writer.tokenCount(), *output);
  });
}

struct IndexArguments {
  std::string prefix, split = "train";
  DatasetOptions options;
  bool json = false;
};

void addIndex(const Verb &data) {
  auto arguments = std::make_shared<IndexArguments>();
  Verb command = data.verb("index", "builds the sample index before a run needs it");
  DatasetOptions &options = arguments->options;
  command.option("prefix", arguments->prefix, "PREFIX of PREFIX.bin and .idx").required();
  command.option("--seq-length", options.seqLength).required();
  command.option("--samples", options.samples, "samples the run will take (default: one epoch)");
  command.option("--seed", options.seed).range(0, std::numeric_limits<int64_t>::max());
  command.option("--split", options.splitWeights, "weights of train, valid and test");
  command.option("--part", arguments->split).oneOf({"train", "valid", "test"});
  command.option("--cache", options.cacheFolder, "folder of the index").required();
  addJsonFlag(command, arguments->json);
  command.action([arguments] {
    DatasetOptions options = arguments->options;
    options.split = arguments->split == "train"   ? Split::train
                    : arguments->split == "valid" ? Split::valid
                                                  : Split::test;
    auto set = openDataset(arguments->prefix, options);
    if (arguments->json)
      return printJson(
          {{"samples", set->sampleCount()}, {"seq_length", options.seqLength}, {"cache", options.cacheFolder}});
    fmt::print("{} samples of {} tokens in {}\n", set->sampleCount(), options.seqLength, options.cacheFolder);
  });
}

std::string prefixOf(const std::string &path) {
  bool hasSuffix = path.ends_with(".idx") || path.ends_with(".bin");
  return hasSuffix ? path.substr(0, path.size() - 4) : path;
}

void addInspect(const Verb &data) {
  auto prefix = std::make_shared<std::string>();
  auto view = std::make_shared<DatasetView>();
  Verb command = data.verb("inspect", "counts, lengths and first documents of a set");
  command.option("prefix", *prefix, "PREFIX of PREFIX.bin and .idx").required();
  addDatasetView(command, *view);
  addJsonFlag(command, view->json);
  command.action([prefix, view] { inspectDataset(*prefix, *view); });
}

} // namespace

void addJsonFlag(const Verb &command, bool &json) { command.flag("--json", json, "print the report as JSON"); }

void printJson(nlohmann::ordered_json report) {
  nlohmann::ordered_json json = {{"schema", 1}};
  json.update(report);
  fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

std::vector<std::string> expandPatterns(const std::vector<std::string> &patterns) {
  std::vector<std::string> names;
  for (const std::string &pattern : patterns) {
    if (pattern.find_first_of("*?[") == std::string::npos) {
      names.push_back(pattern);
      continue;
    }
    glob_t found = {};
    int status = ::glob(pattern.c_str(), 0, nullptr, &found);
    for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i)
      names.emplace_back(found.gl_pathv[i]);
    ::globfree(&found);
    if (status != 0)
      throw DataError(pattern, "matches no file");
  }
  return names;
}

void addDataCommands(const Verb &app) {
  Verb data = app.verb("data", "prepare and check training data");
  data.requireVerb();
  addTokenize(data);
  addVerify(data);
  addMerge(data);
  addIndex(data);
  addTrainTokenizer(data);
  addInspect(data);
}

bool isIndexedDataset(const std::string &path) { return isRegularFile(prefixOf(path) + ".idx"); }

void addDatasetView(const Verb &command, DatasetView &view) {
  command.option("--documents", view.documents, "datasets: how many to show").range(0, 1000);
  addTokenizerOptions(command, view.tokenizer);
}

std::vector<std::string> datasetFaults(const std::string &path) {
  try {
    verifyTokens(openIndexed(prefixOf(path)), /*vocabSize=*/0);
  } catch (const DataError &error) {
    return {error.what()};
  }
  return {};
}

void inspectDataset(const std::string &path, const DatasetView &view) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!view.tokenizer.kind.empty())
    tokenizer = openTokenizer(view.tokenizer);
  IndexedDataset set = openIndexed(prefixOf(path));
  if (view.json)
    return printJson(describeDatasetJson(set));
  fmt::print("{}", describeDataset(set, tokenizer.get(), view.documents));
}

} // namespace espalier
