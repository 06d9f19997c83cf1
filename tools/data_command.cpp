// Options in, one call into runtime/data, a short report out.
#include "tools/data_command.h"

#include "tools/data_verbs.h"

#include "runtime/data/dataset_report.h"
#include "runtime/data/gpt_dataset.h"
#include "runtime/data/indexed_writer.h"
#include "runtime/data/tokenize_files.h"

#include <chrono>
#include <fmt/format.h>
#include <glob.h>
#include <unistd.h>

namespace espalier {

using namespace rt;

void addTokenizerOptions(CLI::App &command, TokenizerOptions &options) {
  CLI::Option *kind = command.add_option("--tokenizer,--tokenizer-type", options.kind,
                                         "gpt2, hf, sentencepiece, bytes or null, or Megatron's name of it")
                          ->check(CLI::IsMember(tokenizerKinds()));
  for (CLI::Option *ofKind :
       {command.add_option("--vocab-file", options.vocabFile, "gpt2: vocab.json"),
        command.add_option("--merge-file", options.mergeFile, "gpt2: merges.txt"),
        command.add_option("--tokenizer-model", options.modelFile,
                           "hf: tokenizer.json or its folder; sentencepiece: tokenizer.model"),
        command.add_option("--vocab-size", options.vocabSize, "null: number of ids"),
        command.add_flag("--add-bos", options.addBos, "sentencepiece: begin each document with its token"),
        command.add_option("--eod-token", options.eodText, "hf: text of the token that ends a document"),
        command.add_flag("--special-tokens", options.specialTokens,
                         "as HF does: special tokens in the text become their ids, and the tokens of an hf "
                         "post-processor are added")})
    ofKind->needs(kind); // bytes, the default, has none of these
}

namespace {

/// Prints rate and time left to a terminal, at most ten times a second.
class ProgressLine {
public:
  void show(const TokenizeProgress &now) {
    using namespace std::chrono;
    double seconds = duration<double>(steady_clock::now() - begin).count();
    if (!isTerminal || seconds < lastShown + 0.1)
      return;
    lastShown = seconds;
    double rate = static_cast<double>(now.bytesRead) / seconds;
    std::string left = now.bytesTotal > 0
                           ? fmt::format(", {:.0f} s left", static_cast<double>(now.bytesTotal - now.bytesRead) / rate)
                           : "";
    fmt::print(stderr, "\r{} documents, {} tokens, {:.1f} MB/s{}   ", now.documents, now.tokens, rate / 1e6, left);
  }
  ~ProgressLine() {
    if (isTerminal && lastShown > 0)
      fmt::print(stderr, "\n");
  }

private:
  bool isTerminal = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double lastShown = 0;
};

struct TokenizeArguments {
  TokenizeJob job;
  TokenizerOptions tokenizer;
};

void runTokenize(TokenizeArguments arguments) {
  arguments.job.inputs = expandPatterns(arguments.job.inputs);
  std::unique_ptr<Tokenizer> tokenizer = openTokenizer(arguments.tokenizer);
  ProgressLine line;
  arguments.job.progress = [&line](const TokenizeProgress &now) { line.show(now); };
  TokenizeReport report = tokenizeFiles(*tokenizer, arguments.job);
  if (report.skippedLines > 0)
    fmt::print(stderr, "{}\n{} lines skipped, the first is above\n", report.firstSkipped, report.skippedLines);
  if (!report.firstMark.empty() && arguments.job.separator.empty() && !arguments.tokenizer.specialTokens)
    fmt::print(stderr,
               "{}: note: holds <|endoftext|>, which is tokenized as text; --document-separator '<|endoftext|>' cuts "
               "documents at lines that hold nothing else\n",
               report.firstMark);
  fmt::print("{} documents, {} tokens, {} bytes of text\n", report.documents, report.tokens, report.textBytes);
  for (const std::string &prefix : report.prefixes)
    fmt::print("wrote {}.bin and .idx\n", prefix);
}

void addTokenize(CLI::App &data) {
  auto arguments = std::make_shared<TokenizeArguments>();
  CLI::App *command = data.add_subcommand("tokenize", "text to PREFIX_KEY_document.bin and .idx");
  TokenizeJob &job = arguments->job;
  command->add_option("input,--input", job.inputs, ".jsonl, .txt, each also .gz; patterns; - for standard input")->required();
  command->add_option("--output-prefix", job.outputPrefix, "where the outputs go")->required();
  command->add_option("--json-keys", job.keys, "keys to tokenize, one output for each")->expected(1, -1);
  command->add_option("--document-separator", job.separator,
                      "text files: the line between documents (default: a blank line)");
  command->add_flag("--jsonl", job.readsJson, "standard input and unknown suffixes hold JSON lines");
  command->add_flag("--append-eod", job.appendEod, "end each document with the end token");
  command->add_flag("--skip-bad", job.skipBad, "count bad lines and documents instead of stopping at the first");
  command->add_flag("--overwrite", job.replaces, "replace datasets of the same names");
  command->add_option("--workers", job.workers, "threads that tokenize")->check(CLI::Range(1, 1024));
  command->add_option("--partitions", job.partitions, "parts of the input that are read at the same time and merged")
      ->check(CLI::Range(1, 1024));
  addTokenizerOptions(*command, arguments->tokenizer);
  command->callback(reportingErrors([arguments] { runTokenize(*arguments); }));
}

void addVerify(CLI::App &data) {
  auto prefix = std::make_shared<std::string>();
  auto vocabSize = std::make_shared<int64_t>(0);
  CLI::App *command = data.add_subcommand("verify", "reads a set whole and checks every value");
  command->add_option("prefix", *prefix, "PREFIX of PREFIX.bin and .idx")->required();
  command->add_option("--vocab-size", *vocabSize, "refuse tokens at or above this");
  command->callback(reportingErrors([prefix, vocabSize] {
    IndexedDataset set = IndexedDataset::open(*prefix);
    int64_t largest = verifyTokens(set, *vocabSize);
    fmt::print("{}: sound: {} documents, {} sequences, {} tokens, largest id {}\n", *prefix, set.documentCount(),
               set.sequenceCount(), set.tokenCount(), largest);
  }));
}

void addMerge(CLI::App &data) {
  auto inputs = std::make_shared<std::vector<std::string>>();
  auto output = std::make_shared<std::string>();
  auto replaces = std::make_shared<bool>(false);
  CLI::App *command = data.add_subcommand("merge", "several sets of one token type to one");
  command->add_option("prefix", *inputs, "prefixes, in the order of the result")->required();
  command->add_option("--output-prefix", *output, "PREFIX of the result")->required();
  command->add_flag("--overwrite", *replaces, "replace a dataset of the same name");
  command->callback(reportingErrors([inputs, output, replaces] {
    for (const std::string &input : *inputs)
      if (input == *output)
        throw DataError(input, "is both an input and the output");
    if (!*replaces)
      requireNoDataset(*output);
    // All inputs are checked before anything is written.
    std::vector<IndexedDataset> sets;
    for (const std::string &input : *inputs)
      sets.push_back(IndexedDataset::open(input));
    IndexedWriter writer(*output, sets.front().tokenType());
    for (const IndexedDataset &set : sets)
      writer.addDataset(set);
    writer.commit();
    fmt::print("{} documents, {} tokens in {}.bin and .idx\n", writer.documentCount(), writer.tokenCount(), *output);
  }));
}

struct IndexArguments {
  std::string prefix, split = "train";
  DatasetOptions options;
};

void addIndex(CLI::App &data) {
  auto arguments = std::make_shared<IndexArguments>();
  CLI::App *command = data.add_subcommand("index", "builds the sample index before a run needs it");
  DatasetOptions &options = arguments->options;
  command->add_option("prefix", arguments->prefix, "PREFIX of PREFIX.bin and .idx")->required();
  command->add_option("--seq-length", options.seqLength)->required();
  command->add_option("--samples", options.samples, "samples the run will take (default: one epoch)");
  command->add_option("--seed", options.seed)->check(CLI::NonNegativeNumber);
  command->add_option("--split", options.splitWeights, "weights of train, valid and test");
  command->add_option("--part", arguments->split)->check(CLI::IsMember({"train", "valid", "test"}));
  command->add_option("--cache", options.cacheFolder, "folder of the index")->required();
  command->callback(reportingErrors([arguments] {
    DatasetOptions options = arguments->options;
    options.split = arguments->split == "train"   ? Split::train
                    : arguments->split == "valid" ? Split::valid
                                                  : Split::test;
    auto set = openDataset(arguments->prefix, options);
    fmt::print("{} samples of {} tokens in {}\n", set->sampleCount(), options.seqLength, options.cacheFolder);
  }));
}

std::string prefixOf(const std::string &path) {
  bool hasSuffix = path.ends_with(".idx") || path.ends_with(".bin");
  return hasSuffix ? path.substr(0, path.size() - 4) : path;
}

void addInspect(CLI::App &data) {
  auto prefix = std::make_shared<std::string>();
  auto view = std::make_shared<DatasetView>();
  CLI::App *command = data.add_subcommand("inspect", "counts, lengths and first documents of a set");
  command->add_option("prefix", *prefix, "PREFIX of PREFIX.bin and .idx")->required();
  addDatasetView(*command, *view);
  command->callback(reportingErrors([prefix, view] { inspectDataset(*prefix, *view); }));
}

} // namespace

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

void addDataCommands(CLI::App &app) {
  CLI::App *data = app.add_subcommand("data", "prepare and check training data");
  data->require_subcommand(1);
  addTokenize(*data);
  addVerify(*data);
  addMerge(*data);
  addIndex(*data);
  addTrainTokenizer(*data);
  addInspect(*data);
}

bool isIndexedDataset(const std::string &path) { return isRegularFile(prefixOf(path) + ".idx"); }

void addDatasetView(CLI::App &command, DatasetView &view) {
  command.add_option("--documents", view.documents, "datasets: how many to show")->check(CLI::Range(0, 1000));
  addTokenizerOptions(command, view.tokenizer);
}

void inspectDataset(const std::string &path, const DatasetView &view) {
  std::unique_ptr<Tokenizer> tokenizer;
  if (!view.tokenizer.kind.empty())
    tokenizer = openTokenizer(view.tokenizer);
  IndexedDataset set = IndexedDataset::open(prefixOf(path));
  fmt::print("{}", describeDataset(set, tokenizer.get(), view.documents));
}

} // namespace espalier
