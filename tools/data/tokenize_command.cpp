// `espalier data tokenize`: text or conversations to indexed datasets.
#include "tools/data/data_command.h"
#include "tools/data/data_verbs.h"

#include "format/path_kind.h"
#include "messages/data_error.h"
#include "runtime/dataset/tokenize_files.h"
#include "runtime/dataset/tokenize_ranges.h"
#include "runtime/tokenizer/tokenizer_files.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <nlohmann/json.hpp>
#include <unistd.h>

namespace espalier {

using namespace rt;

namespace {

/// Prints progress rate and remaining time to a terminal, at most ten times a second, or a line each time that so many
/// documents more are done.
class ProgressLine {
public:
  explicit ProgressLine(int64_t interval) : interval(interval) {}
  void show(const TokenizeProgress &now) {
    using namespace std::chrono;
    double seconds = duration<double>(steady_clock::now() - begin).count();
    if (interval > 0 ? now.documents < lastDocuments + interval : !isTerminal || seconds < lastShown + 0.1)
      return;
    lastShown = seconds;
    lastDocuments = interval > 0 ? now.documents / interval * interval : 0;
    double rate = static_cast<double>(now.bytesRead) / seconds;
    std::string left = now.bytesTotal > 0
                           ? fmt::format(", {:.0f} s left", static_cast<double>(now.bytesTotal - now.bytesRead) / rate)
                           : "";
    std::string line =
        fmt::format("{} documents, {} tokens, {:.1f} MB/s{}", now.documents, now.tokens, rate / 1e6, left);
    fmt::print(stderr, "{}", interval > 0 ? line + "\n" : "\r" + line + "   ");
  }
  ~ProgressLine() {
    if (isTerminal && interval == 0 && lastShown > 0)
      fmt::print(stderr, "\n");
  }

private:
  const int64_t interval; ///< in documents; 0: by time
  int64_t lastDocuments = 0;
  bool isTerminal = ::isatty(STDERR_FILENO) == 1;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
  double lastShown = 0;
};

struct TokenizeArguments {
  TokenizeJob job;
  TokenizerOptions tokenizer;
  ChatJob chat;
  std::string templateName, bos, eos;
  Option keys, appendEod; ///< options that conversations do not take
  Verb conversations;
  int64_t logInterval = 0;
  bool json = false;
};

/// Returns the template of the name, or else that of the tokenizer itself.
ChatTemplatePtr chosenTemplate(const TokenizeArguments &arguments) {
  if (!arguments.templateName.empty())
    return chatTemplateNamed(arguments.templateName);
  FoundChatTemplate own = findChatTemplate(arguments.tokenizer.modelFile);
  if (!own.chat)
    throw UsageError(fmt::format("{}; give --template {}", own.whyNot, fmt::join(chatTemplateNames(), "|")));
  return own.chat;
}

/// Makes the job one of conversations if an option of them was given.
void prepareChat(TokenizeArguments &arguments) {
  if (arguments.conversations.given().empty())
    return;
  for (const Option &other : {arguments.keys, arguments.appendEod})
    if (other.count() > 0)
      throw UsageError(fmt::format("{} excludes {}, which selects conversations; --eos yes ends them with the token",
                                   other.name(), arguments.conversations.given()[0].name()));
  ChatJob &chat = arguments.chat;
  bool hasPairs = !chat.promptKey.empty() || !chat.completionKey.empty();
  if (hasPairs && (chat.promptKey.empty() || chat.completionKey.empty()))
    throw UsageError("--prompt-key and --completion-key are given together");
  if (chat.messagesKey.empty() && !hasPairs)
    chat.messagesKey = "messages";
  arguments.tokenizer = withOwnKind(arguments.tokenizer);
  chat.chat = chosenTemplate(arguments);
  if (!chat.inputKey.empty() && chat.chat->name != "alpaca")
    throw UsageError(fmt::format("--input-key is for template alpaca, the template is {}", chat.chat->name));
  auto yes = [](const std::string &given) { return given.empty() ? std::nullopt : std::optional(given == "yes"); };
  chat.addsBos = yes(arguments.bos);
  chat.addsEos = yes(arguments.eos);
  // A template has all tokens that it needs. The hf tokenizer finds them in the text anyway.
  arguments.tokenizer.specialTokens = arguments.tokenizer.kind == "gpt2";
  arguments.tokenizer.addBos = false;
  arguments.job.keys = {hasPairs ? chat.promptKey : chat.messagesKey};
  arguments.job.chat = chat;
}

/// Adds the options of conversations.
void addChatOptions(const Verb &command, TokenizeArguments &arguments) {
  arguments.conversations = command.group("conversations", "tokens and a loss mask, PREFIX_KEY_document_loss_mask");
  const Verb &group = arguments.conversations;
  ChatJob &chat = arguments.chat;
  Option messages = group.option("--messages", chat.messagesKey,
                                 "key of a list of {role, content}; default: messages, with another option of "
                                 "conversations");
  Option prompt = group.option("--prompt-key", chat.promptKey, "key of an instruction; KEY of the output");
  group.option("--completion-key", chat.completionKey, "key of the answer to the instruction").needs(prompt);
  group.option("--input-key", chat.inputKey, "alpaca: key of the input of the instruction; lines may lack it")
      .needs(prompt);
  group.option("--template", arguments.templateName, "format of the text; default: the tokenizer's chat_template")
      .oneOf(chatTemplateNames());
  group.option("--bos", arguments.bos, "begin each document with the token; default: as the template")
      .oneOf({"yes", "no"});
  group.option("--eos", arguments.eos, "end each document with the token; default: as the template")
      .oneOf({"yes", "no"});
  prompt.excludes(messages);
}

/// Throws DataError for a file of another command. Run files and scripts may be texts to learn.
void refuseOthers(const std::vector<std::string> &inputs) {
  constexpr std::array others = {PathKind::Plan, PathKind::HfConfig, PathKind::RankTable, PathKind::Dataset};
  for (const std::string &input : inputs)
    if (std::ranges::find(others, pathKind(input)) != others.end())
      throw DataError(input, wayOf(input));
}

void runTokenize(TokenizeArguments arguments) {
  arguments.job.inputs = expandPatterns(arguments.job.inputs);
  refuseOthers(arguments.job.inputs);
  prepareChat(arguments);
  std::unique_ptr<Tokenizer> tokenizer = openTokenizer(arguments.tokenizer);
  ProgressLine line(arguments.logInterval);
  arguments.job.progress = [&line](const TokenizeProgress &now) { line.show(now); };
  const TokenizeJob &job = arguments.job;
  std::vector<SideFile> files = tokenizerFilesOf(arguments.tokenizer, job.chat ? job.chat->chat : nullptr);
  TokenizeReport report = tokenizeFiles(*tokenizer, job);
  for (const std::string &key : job.keys) // so that a checkpoint trained on the data keeps them
    writeTokenizerFolder(tokenizerFolderOf(documentPrefix(job, key)), files);
  if (report.skippedLines > 0)
    fmt::print(stderr, "{}\n{} lines skipped, the first is above\n", report.firstSkipped, report.skippedLines);
  if (!report.firstMark.empty() && arguments.job.separator.empty() && !arguments.tokenizer.specialTokens)
    fmt::print(stderr,
               "{}: note: holds <|endoftext|>, which is tokenized as text; --document-separator '<|endoftext|>' cuts "
               "documents at lines that hold nothing else\n",
               report.firstMark);
  if (arguments.json) {
    nlohmann::ordered_json json = {{"documents", report.documents},
                                   {"tokens", report.tokens},
                                   {"text_bytes", report.textBytes},
                                   {"skipped_lines", report.skippedLines},
                                   {"prefixes", report.prefixes}};
    if (arguments.job.chat)
      json["loss_tokens"] = report.lossTokens;
    return printJson(json);
  }
  fmt::print("{} documents, {} tokens{}, {} bytes of text\n", report.documents, report.tokens,
             arguments.job.chat ? fmt::format(" ({} count in the loss)", report.lossTokens) : "", report.textBytes);
  for (const std::string &prefix : report.prefixes)
    fmt::print("wrote {}.bin and .idx\n", prefix);
}

} // namespace

void addTokenize(const Verb &data) {
  auto arguments = std::make_shared<TokenizeArguments>();
  Verb command = data.verb("tokenize", "text to PREFIX_KEY_document.bin and .idx");
  TokenizeJob &job = arguments->job;
  command.option("input,--input", job.inputs, ".jsonl, .txt, each also .gz; patterns; - for standard input").required();
  command.option("--output-prefix", job.outputPrefix, "where the outputs go").required();
  arguments->keys = command.option("--json-keys", job.keys, "keys to tokenize, one output for each");
  command.option("--document-separator", job.separator,
                 "text files: the line between documents (default: a blank line)");
  command.flag("--jsonl", job.readsJson, "standard input and unknown suffixes hold JSON lines");
  arguments->appendEod = command.flag("--append-eod", job.appendEod, "end each document with the end token");
  command.flag("--skip-bad", job.skipBad, "count bad lines and documents instead of stopping at the first");
  command.flag("--overwrite", job.replaces, "replace datasets of the same names");
  command.option("--workers", job.workers, "threads that tokenize").range(1, 1024);
  command.option("--partitions", job.partitions, "parts of the input that are read at the same time and merged")
      .range(1, 1024);
  command
      .option("--log-interval", arguments->logInterval,
              "documents between lines of progress; default: one line, on a terminal")
      .range(1, int64_t{1} << 40);
  addTokenizerOptions(command, arguments->tokenizer);
  addChatOptions(command, *arguments);
  addJsonFlag(command, arguments->json);
  command.action([arguments] { runTokenize(*arguments); });
}

} // namespace espalier
