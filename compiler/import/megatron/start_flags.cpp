#include "compiler/import/megatron/flag_table.h"
#include "compiler/import/megatron/section_flags.h"

#include <algorithm>
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
  // A script that loads from the folder it saves to resumes its own run: `espalier run --resume`.
  bool isOwn = given.haveOneValue("--load", "--save") && !evaluates && !finetunes && !isWithoutState;
  bool isKnown = given.isKnown("--load");
  std::optional<std::string> from;
  if (isOwn && isKnown)
    given.values("--load", "`espalier run --resume`, once there is a checkpoint");
  else if (isKnown)
    from = given.value("--load", "load_checkpoint");
  else // without this option, the run starts from new weights
    given.leaveToRun("--load", isOwn ? "--checkpoint DIR --resume" : "--load FOLDER");
  if (evaluates)
    yaml.put("run_mode", "eval", "--skip-train");
  else if (finetunes && isKnown)
    yaml.put("run_mode", "finetune", "--finetune");
  if (!given.isGiven("--load") && finetunes && !evaluates)
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

std::string startLine(GivenFlags &given, const ScriptSizes &sizes) {
  std::string words;
  for (const FlagRow &row : flagTable()) {
    bool isEvaluation = row.name == "--eval-iters" && words.find(" --eval-every ") == std::string::npos;
    if (row.use != FlagUse::AtRun || !given.isStated(row.name) || isEvaluation)
      continue;
    const std::string option = row.text.substr(0, row.text.find(' ')), wanted = row.text.substr(option.size() + 1),
                      effect = fmt::format("`espalier run {}`", option);
    std::optional<std::string> text = given.value(row.name, effect);
    if (text && row.type == 's') {
      std::optional<std::string> word = shellWord(*text);
      if (wanted.find('|') != std::string::npos &&
          fmt::format("|{}|", wanted).find(fmt::format("|{}|", *text)) == std::string::npos)
        given.error(row.name, fmt::format("{} is {} here, got {}", row.name, wanted, *text));
      else if (word)
        words += fmt::format(" {} {}", option, *word);
    } else if (text && *text != "0") {                                     // 0 means never
      int64_t times = row.name == "--eval-iters" ? sizes.microBatches : 1; // per replica
      if (std::optional<int64_t> count = given.count(row.name, effect)) {
        int64_t number = row.name == "--train-samples" ? sizes.stepsOf(*count) : *count;
        words += fmt::format(" {} {}", option, std::clamp<int64_t>(number, 1, mostCount / times) * times);
      }
    }
  }
  return words.empty() || given.isGiven("--skip-train") ? "" : "espalier run RUN.plan" + words;
}

} // namespace espalier
