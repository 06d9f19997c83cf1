// `espalier data train-tokenizer`: texts in, tokenizer.json out.
#include "tools/data_verbs.h"

#include "runtime/data/atomic_file.h"
#include "runtime/data/json_fields.h"
#include "runtime/data/line_reader.h"
#include "runtime/data/train_bpe.h"

#include <fmt/format.h>

namespace espalier {

namespace {

using namespace rt;

struct TrainArguments {
  std::vector<std::string> inputs;
  std::string output, vocabFile, mergeFile, key = "text";
  TrainBpeOptions options;
};

bool isJson(const std::string &path) { return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz"); }

/// JSON lines give their key's texts; other files give their lines, each with its line end.
void countFile(const std::string &path, const std::string &key, WordCounts &words) {
  LineReader reader(path);
  std::string_view line;
  std::vector<std::string> values;
  while (reader.next(line)) {
    if (!isJson(path)) {
      words.add(reader.endsWithNewline() ? std::string(line) + '\n' : std::string(line));
      continue;
    }
    std::string reason = readJsonFields(line, {key}, values);
    if (!reason.empty())
      throw DataError(path, reason, reader.lineNumber());
    words.add(values[0]);
  }
}

void writeFile(const std::string &path, const std::string &text) {
  if (!path.empty())
    writeWhole(path, text);
}

} // namespace

void addTrainTokenizer(CLI::App &data) {
  auto arguments = std::make_shared<TrainArguments>();
  CLI::App *command = data.add_subcommand("train-tokenizer", "trains a byte-level BPE on text");
  TrainBpeOptions &options = arguments->options;
  command->add_option("input", arguments->inputs, ".jsonl or text, each also .gz; patterns")->required();
  CLI::Option_group *outputs = command->add_option_group("outputs");
  outputs->add_option("--output", arguments->output, "tokenizer.json to write");
  CLI::Option *vocabulary =
      outputs->add_option("--vocab-file", arguments->vocabFile, "GPT-2's form: vocab.json to write");
  CLI::Option *merges = outputs->add_option("--merge-file", arguments->mergeFile, "GPT-2's form: merges.txt to write");
  vocabulary->needs(merges);
  merges->needs(vocabulary);
  outputs->require_option(1, 3);
  command->add_option("--vocab-size", options.vocabSize)->check(CLI::Range(257, 100000000));
  command->add_option("--min-frequency", options.minFrequency, "stop at pairs rarer than this")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--special-token", options.specialTokens, "tokens that take the first ids");
  command->add_option("--json-key", arguments->key, "JSON lines: the key that holds the text");
  command->callback(reportingErrors([arguments] {
    WordCounts words;
    for (const std::string &input : expandPatterns(arguments->inputs))
      countFile(input, arguments->key, words);
    TrainedBpe trained = trainBpe(words, arguments->options);
    writeFile(arguments->output, toTokenizerJson(trained));
    writeFile(arguments->vocabFile, toVocabJson(trained));
    writeFile(arguments->mergeFile, toMergeLines(trained));
    fmt::print("{} tokens, {} merges in {}\n", trained.tokens.size(), trained.merges.size(),
               arguments->output.empty() ? arguments->vocabFile : arguments->output);
    if (static_cast<int64_t>(trained.tokens.size()) < arguments->options.vocabSize)
      fmt::print(stderr, "the text holds no more pairs: {} of {} tokens were made\n", trained.tokens.size(),
                 arguments->options.vocabSize);
  }));
}

} // namespace espalier
