#include "compiler/import/megatron/start_flags.h"

#include <algorithm>
#include <fmt/format.h>
#include <utility>

namespace espalier {

namespace {

constexpr int64_t mostCount = 1000000000000; // limit of a flag's value, and of micro-batches

/// Returns the word quoted for a shell. Returns nothing if it contains a line break.
std::optional<std::string> shellWord(std::string word) {
  constexpr const char *plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_./";
  if (word.find_first_of("\r\n") != std::string::npos)
    return std::nullopt;
  if (!word.empty() && word.find_first_not_of(plain) == std::string::npos)
    return word;
  for (size_t at = 0; (at = word.find('\'', at)) != std::string::npos; at += 4)
    word.replace(at, 1, "'\\''");
  return "'" + word + "'";
}

/// Returns the script's data paths. --mock-data takes precedence. Both flags may be given, because conditions are not
/// followed and a script may choose one of them.
std::vector<std::string> dataPaths(GivenFlags &given, const std::string &key) {
  if (!given.isSet("--mock-data", key))
    return given.isKnown("--data-path") ? given.values("--data-path", key) : std::vector<std::string>();
  if (given.isGiven("--data-path"))
    given.warning("--data-path", "--mock-data wins over --data-path, as in Megatron-LM; where the other branch of the "
                                 "script is meant, use `espalier run --data PATH`");
  return {"mock"};
}

/// Removes the quotes that scripts with strings of flags leave in '99,1,0'. Megatron reads only the numbers.
std::string withoutQuotes(const std::string &text) {
  bool isQuoted = text.size() >= 2 && (text.front() == '\'' || text.front() == '"') && text.back() == text.front();
  return isQuoted ? text.substr(1, text.size() - 2) : text;
}

} // namespace

void writeStart(GivenFlags &given, RunFileWriter &yaml) {
  bool evaluates = given.isSet("--skip-train", "run_mode"), finetunes = given.isSet("--finetune", "run_mode");
  bool isWithoutState = given.isSet("--no-load-optim", "resume_training");
  // A script that loads from the folder it saves to resumes its own run: `espalier run --resume`. Only the shell may
  // know which folder that is.
  bool isOwn = given.haveOneValue("--load", "--save") && !evaluates && !finetunes && !isWithoutState;
  std::optional<std::string> from;
  if (!isOwn)
    from = given.value("--load", "load_checkpoint");
  else if (given.isKnown("--load"))
    given.values("--load", "`espalier run --resume`, once there is a checkpoint");
  if (evaluates)
    yaml.put("run_mode", "eval", "--skip-train");
  else if (finetunes)
    yaml.put("run_mode", "finetune", "--finetune");
  if (!from && finetunes && !evaluates)
    given.error("--finetune", "--finetune without --load has no weights to start from; add --load DIR or leave it out");
  if (!from)
    return;
  yaml.put("load_checkpoint", quotedYaml(*from), "--load");
  if (!evaluates && !finetunes && !isWithoutState)
    yaml.put("resume_training", "True", "--load");
}

void writeData(GivenFlags &given, RunFileWriter &yaml, std::optional<int64_t> endOfDocument) {
  const std::string section = "train_dataset.data_loader.config.";
  std::vector<std::string> paths = dataPaths(given, section + "data_path");
  for (std::string &path : paths)
    path = quotedYaml(path);
  if (!paths.empty())
    yaml.put(section + "data_path", fmt::format("[{}]", fmt::join(paths, ", ")),
             given.isGiven("--mock-data") ? "--mock-data" : "--data-path");
  if (given.isStated("--split"))
    if (std::optional<std::string> split = given.value("--split", section + "split"))
      yaml.put(section + "split", quotedYaml(withoutQuotes(*split)), "--split");
  for (auto [flag, key] : {std::pair("--eod-mask-loss", "eod_mask_loss"),
                           {"--reset-position-ids", "reset_position_ids"},
                           {"--reset-attention-mask", "reset_attention_mask"}})
    if (given.isSet(flag, section + key) && !endOfDocument) {
      bool isOfRun = key != std::string_view("reset_attention_mask"); // the plan of the others does not depend on them
      std::string way = isOfRun ? fmt::format("espalier run --eod-token ID {}", flag)
                                : fmt::format("espalier compile --set {0}eod=ID --set {0}{1}=True", section, key);
      given.error(flag, fmt::format("which token ends a document is not known of the script's tokenizer: leave {} out "
                                    "and use `{}`",
                                    flag, way));
    } else if (given.isGiven(flag)) {
      yaml.put(section + "eod", fmt::format("{}", *endOfDocument));
      yaml.put(section + key, "True", flag);
    }
}

std::string startLine(GivenFlags &given, int64_t globalBatch, int64_t microBatches) {
  if (given.isGiven("--skip-train"))
    return "";
  std::string words;
  auto add = [&](const char *flag, const char *option, int64_t times, int64_t parts) {
    const std::string effect = fmt::format("`espalier run {}`", option);
    if (!given.isStated(flag) || given.value(flag, effect) == "0") // 0 means never
      return;
    if (std::optional<int64_t> count = given.count(flag, effect))
      words += fmt::format(" {} {}", option, std::clamp<int64_t>(*count / parts, 1, mostCount / times) * times);
  };
  add("--train-iters", "--steps", 1, 1);
  add("--train-samples", "--steps", 1, globalBatch);
  if (given.isStated("--save"))
    if (std::optional<std::string> folder = given.value("--save", "`espalier run --checkpoint`"))
      if (std::optional<std::string> word = shellWord(*folder))
        words += " --checkpoint " + *word;
  add("--save-interval", "--save-every", 1, 1);
  const std::string training = words;
  add("--eval-interval", "--eval-every", 1, 1);
  bool evaluates = words != training;
  add("--eval-iters", "--eval-batches", microBatches, 1); // per replica
  if (!evaluates)                                         // without evaluations, their size has no effect
    words = training;
  return words.empty() ? "" : "espalier run RUN.plan" + words;
}

} // namespace espalier
