// `espalier data train-tokenizer`: reads texts and writes tokenizer.json.
#include "tools/data/data_verbs.h"

#include "messages/data_error.h"
#include "runtime/dataset/json_fields.h"
#include "runtime/dataset/line_reader.h"
#include "runtime/files/atomic_file.h"
#include "runtime/tokenizer/train_bpe.h"

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace espalier {

namespace {

using namespace rt;

struct TrainArguments {
  std::vector<std::string> inputs;
  std::string output, vocabFile, mergeFile, key = "text";
  TrainBpeOptions options;
  bool json = false;
};

bool isJson(const std::string &path) { return path.ends_with(".jsonl") || path.ends_with(".jsonl.gz"); }

/// Counts the words of a file. In JSON lines a text is the value of `key`; in other files it is a line with its line
/// end.
void countFile(const std::string &path, const std::string &key, WordCounts &words) {
  LineReader reader(path);
  std::string_view line;
  std::vector<JsonField> fields;
  while (reader.next(line)) {
    if (!isJson(path)) {
      words.add(reader.endsWithNewline() ? std::string(line) + '\n' : std::string(line));
      continue;
    }
    if (isBlankLine(line))
      continue;
    std::string reason = readJsonFields(line, {key}, fields);
    if (reason.empty() && fields[0].isIds)
      reason = fmt::format("key \"{}\" holds token ids, want a string", key);
    if (!reason.empty())
      throw DataError(path, reason, reader.lineNumber());
    words.add(fields[0].text);
  }
}

void writeFile(const std::string &path, const std::string &text) {
  if (!path.empty())
    writeWhole(path, text);
}

} // namespace

void addTrainTokenizer(const Verb &data) {
  auto arguments = std::make_shared<TrainArguments>();
  Verb command = data.verb("train-tokenizer", "trains a byte-level BPE on text");
  TrainBpeOptions &options = arguments->options;
  command.option("input", arguments->inputs, ".jsonl or text, each also .gz; patterns").required();
  Verb outputs = command.group("outputs");
  outputs.option("--output", arguments->output, "tokenizer.json to write");
  Option vocabulary = outputs.option("--vocab-file", arguments->vocabFile, "GPT-2's form: vocab.json to write");
  Option merges = outputs.option("--merge-file", arguments->mergeFile, "GPT-2's form: merges.txt to write");
  vocabulary.needs(merges);
  merges.needs(vocabulary);
  outputs.requireOption();
  command.option("--vocab-size", options.vocabSize).range(257, 100000000);
  command.option("--min-frequency", options.minFrequency, "stop at pairs rarer than this")
      .range(0, std::numeric_limits<int64_t>::max());
  command.option("--special-token", options.specialTokens, "tokens that take the first ids");
  command.option("--json-key", arguments->key, "JSON lines: the key that holds the text");
  command.flag("--json", arguments->json, "print the report as JSON");
  command.action([arguments] {
    WordCounts words;
    for (const std::string &input : expandPatterns(arguments->inputs))
      countFile(input, arguments->key, words);
    TrainedBpe trained = trainBpe(words, arguments->options);
    writeFile(arguments->output, toTokenizerJson(trained));
    writeFile(arguments->vocabFile, toVocabJson(trained));
    writeFile(arguments->mergeFile, toMergeLines(trained));
    if (arguments->json)
      fmt::print("{}\n", nlohmann::ordered_json(
                             {{"schema", 1},
                              {"tokens", trained.tokens.size()},
                              {"merges", trained.merges.size()},
                              {"output", arguments->output.empty() ? arguments->vocabFile : arguments->output}})
                             .dump(2));
    else
      fmt::print("{} tokens, {} merges in {}\n", trained.tokens.size(), trained.merges.size(),
                 arguments->output.empty() ? arguments->vocabFile : arguments->output);
    if (static_cast<int64_t>(trained.tokens.size()) < arguments->options.vocabSize)
      fmt::print(stderr, "the text holds no more pairs: {} of {} tokens were made\n", trained.tokens.size(),
                 arguments->options.vocabSize);
  });
}

} // namespace espalier
