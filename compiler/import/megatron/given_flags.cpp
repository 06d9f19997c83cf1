#include "compiler/import/megatron/given_flags.h"

#include "compiler/import/megatron/flag_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <regex>
#include <tuple>

namespace espalier {

namespace {

/// Splits a word that holds a whole command, as in `sh -c "..."`, into its words.
ShellCommand withSplitWords(const ShellCommand &command) {
  ShellCommand words;
  for (const ShellWord &word : command) {
    if (word.text.find(".py ") == std::string::npos) {
      words.push_back(word);
      continue;
    }
    for (size_t begin = 0; begin < word.text.size();) {
      size_t end = std::min(word.text.find_first_of(" \t\n", begin), word.text.size());
      if (end > begin)
        words.push_back({word.text.substr(begin, end - begin), word.where, word.unknown});
      begin = end + 1;
    }
  }
  return words;
}

bool isFlag(const ShellWord &word) {
  return (word.text.size() > 2 && word.text.starts_with("--") && word.text[2] != '-') ||
         word.text == "-N"; // -N is a flag of srun
}

/// Returns the effect of a flag whose value an option of `espalier run` takes.
std::string atRun(const std::string &option) { return fmt::format("give it at the run: `espalier run {}`", option); }

/// Returns the name of a variable whose value begins with a flag, or an empty string.
std::string variableOfFlags(const std::string &text) {
  static const std::regex assignment(R"re(([A-Za-z_]\w*)\+?=[("'\s\\]*--[a-z])re");
  std::smatch match;
  return std::regex_search(text, match, assignment) ? match[1].str() : "";
}

/// Returns whether the words before the script name torch's launcher, or only an interpreter.
bool isTorchOrPython(ShellCommand::const_iterator begin, ShellCommand::const_iterator script) {
  auto nameOf = [](const ShellWord &word) { return word.text.substr(word.text.rfind('/') + 1); };
  bool isTorch = std::any_of(begin, script, [&](const ShellWord &word) {
    return nameOf(word) == "torchrun" || word.text == "torch.distributed.launch" ||
           word.text == "torch.distributed.run";
  });
  return isTorch || std::all_of(begin, script, [&](const ShellWord &word) {
           bool isSwitch = word.text.size() == 2 && word.text[0] == '-' && word.text != "-m";
           bool isAssignment = word.text.find('=') != std::string::npos;
           return word.unknown.empty() && (nameOf(word).starts_with("python") || isSwitch || isAssignment);
         });
}

} // namespace

void GivenFlags::readFlags(Words begin, Words end, Flags &flags) {
  Flag *open = nullptr;
  for (Words word = begin; word != end; ++word) {
    if (!isFlag(*word)) {
      if (open)
        open->values.push_back(*word);
      continue;
    }
    size_t equals = word->text.find('=');
    std::string name = word->text.substr(0, equals);
    open = &flags[currentFlag(name)]; // the last occurrence wins, as in Megatron
    *open = {name, word->where, {}};
    if (equals != std::string::npos) {
      SourceLocation where = word->where;
      where.column += static_cast<int>(equals) + 1;
      open->values.push_back({word->text.substr(equals + 1), where, word->unknown});
      open = nullptr;
    }
  }
}

bool GivenFlags::read(const std::string &text) {
  std::vector<ShellCommand> commands = readShell(file, text, result.diagnostics);
  ShellCommand words, all;
  for (const ShellCommand &unsplit : commands) {
    ShellCommand command = withSplitWords(unsplit);
    all.insert(all.end(), command.begin(), command.end());
    if (std::any_of(command.begin(), command.end(), [](const ShellWord &word) { return word.text.ends_with(".py"); }))
      words = command;
  }
  auto script =
      std::find_if(words.begin(), words.end(), [](const ShellWord &word) { return word.text.ends_with(".py"); });
  if (words.empty()) {
    readFlags(all.begin(), all.end(), given);
  } else {
    readFlags(words.begin(), script, launcher);
    startedByTorchOrPython = isTorchOrPython(words.begin(), script);
    readFlags(script + 1, words.end(), given);
  }
  for (const auto &[name, flag] : given)
    reportsPlaceholder(flag);
  if (!given.empty() || result.diagnostics.hasErrors())
    return !given.empty();
  std::string variable = variableOfFlags(text);
  result.diagnostics.error(
      {file, 0, 0},
      variable.empty()
          ? "no flags are found: neither a command with a .py file nor words with --"
          : fmt::format("no command uses the flags of {0}, so that the launch and the sizes of the run are "
                        "missing; add `torchrun --nnodes N --nproc_per_node N pretrain_gpt.py ${{{0}[@]}} "
                        "--micro-batch-size N --seq-length N`",
                        variable));
  return false;
}

SourceLocation GivenFlags::placeOf(const std::string &flag) const {
  auto found = given.find(flag);
  return found == given.end() ? SourceLocation{file, 0, 0} : found->second.where;
}

void GivenFlags::error(const std::string &flag, std::string message) {
  result.diagnostics.error(placeOf(flag), std::move(message));
}

void GivenFlags::warning(const std::string &flag, std::string message) {
  result.diagnostics.warning(placeOf(flag), std::move(message));
}

void GivenFlags::use(const std::string &flag, const std::string &effect) {
  auto found = given.find(flag);
  if (found != given.end() && used.insert(flag).second)
    result.flags.push_back({found->second.name, found->second.where, effect, true});
}

std::optional<std::string> GivenFlags::value(const std::string &flag, const std::string &effect) {
  auto found = given.find(flag);
  if (found == given.end())
    return std::nullopt;
  use(flag, effect);
  const std::vector<ShellWord> &values = found->second.values;
  if (reportsPlaceholder(found->second))
    return std::nullopt;
  if (values.size() != 1) {
    error(flag, fmt::format("{} takes one value, got {}", flag, values.size()));
    return std::nullopt;
  }
  if (!values[0].unknown.empty()) {
    std::vector<std::string> &flags = unknownFlags[values[0].unknown];
    if (std::find(flags.begin(), flags.end(), flag) == flags.end())
      flags.push_back(flag);
    return std::nullopt;
  }
  return values[0].text;
}

bool GivenFlags::isKnown(const std::string &flag) const {
  auto found = given.find(flag);
  return found != given.end() &&
         std::ranges::all_of(found->second.values, [](const ShellWord &word) { return word.unknown.empty(); });
}

bool GivenFlags::reportsPlaceholder(const Flag &flag) const {
  std::string text;
  for (const ShellWord &word : flag.values)
    text += (text.empty() ? "" : " ") + word.text;
  if (!isPlaceholder(text))
    return false;
  result.diagnostics.error(
      flag.values.front().where,
      fmt::format("the value of {} is a placeholder, {}; write yours in its place", flag.name, text));
  return true;
}

std::vector<std::string> GivenFlags::values(const std::string &flag, const std::string &effect) {
  use(flag, effect);
  std::vector<std::string> texts;
  if (reportsPlaceholder(given.at(flag)))
    return texts;
  if (given.at(flag).values.empty())
    error(flag, fmt::format("{} takes a value, got none", flag));
  for (const ShellWord &word : given.at(flag).values)
    texts.push_back(word.text);
  return texts;
}

bool GivenFlags::haveOneValue(const std::string &one, const std::string &other) const {
  auto first = given.find(one), second = given.find(other);
  if (first == given.end() || second == given.end() || first->second.values.size() != 1 ||
      second->second.values.size() != 1)
    return false;
  const ShellWord &a = first->second.values[0], &b = second->second.values[0];
  return a.text == b.text && a.unknown == b.unknown;
}

bool GivenFlags::isSet(const std::string &flag, const std::string &effect) {
  auto found = given.find(flag);
  if (found == given.end())
    return false;
  use(flag, effect);
  if (!found->second.values.empty())
    error(flag, fmt::format("{} takes no value, got '{}'", flag, found->second.values[0].text));
  return true;
}

std::optional<int64_t> GivenFlags::count(const std::string &flag, const std::string &effect, int64_t least) {
  std::optional<std::string> text = value(flag, effect);
  if (!text)
    return std::nullopt;
  int64_t number = 0;
  auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), number);
  if (code == std::errc() && end == text->data() + text->size() && number >= least && number <= 1000000000000)
    return number;
  error(flag, fmt::format("{} must be a whole number of at least {}, got {}", flag, least, *text));
  return std::nullopt;
}

std::optional<std::string> GivenFlags::number(const std::string &flag, const std::string &effect) {
  std::optional<std::string> text = value(flag, effect);
  if (!text)
    return std::nullopt;
  char *end = nullptr;
  double parsed = std::strtod(text->c_str(), &end);
  if (!text->empty() && *end == '\0' && std::isfinite(parsed) && parsed >= 0)
    return fmt::format("{}", parsed);
  error(flag, fmt::format("{} must be a number of at least 0, got {}", flag, *text));
  return std::nullopt;
}

int64_t GivenFlags::launcherCount(std::initializer_list<const char *> names, int64_t otherwise) const {
  for (const char *name : names) {
    auto found = launcher.find(name);
    if (found == launcher.end())
      continue;
    bool isKnown = !found->second.values.empty() && found->second.values[0].unknown.empty();
    return isKnown ? std::clamp<int64_t>(std::atoll(found->second.values[0].text.c_str()), 0, 1000000) : 0;
  }
  return otherwise;
}

void GivenFlags::ignore(const std::vector<std::string> &names) {
  for (const std::string &name : names) {
    auto found = given.find(currentFlag(name));
    if (found == given.end()) {
      result.diagnostics.error({file, 0, 0},
                               fmt::format("--ignore-flags names {}, which the script does not have", name));
      continue;
    }
    result.flags.push_back({name, found->second.where, "--ignore-flags", false});
    given.erase(found);
  }
}

void GivenFlags::refuse(const std::vector<std::string> &built) {
  for (const auto &[name, flag] : given) {
    const FlagRow *row = findFlag(name);
    if (!row || row->use != FlagUse::Refused || std::ranges::count(built, name) > 0)
      continue;
    bool hasNeutral = !row->neutral.empty();
    std::optional<std::string> text = hasNeutral ? value(name, "as here") : std::nullopt;
    if (hasNeutral ? text && !row->isOff(*text) : true)
      error(name, fmt::format("{} has no counterpart here: {}; leave it out{}", flag.name, row->text,
                              hasNeutral ? " or say " + row->neutral : ""));
  }
}

void GivenFlags::leaveToRun(const std::string &flag, const std::string &option) {
  if (auto found = given.find(flag); found != given.end() && used.insert(flag).second)
    result.flags.push_back({found->second.name, found->second.where, atRun(option), false});
}

void GivenFlags::reportRest() {
  for (const auto &[cause, flags] : unknownFlags) {
    bool areMany = flags.size() > 3;
    std::string named = fmt::format("{}", fmt::join(flags.begin(), areMany ? flags.begin() + 3 : flags.end(), ", "));
    if (areMany)
      named += fmt::format(" and {} other{}", flags.size() - 3, flags.size() > 4 ? "s" : "");
    result.diagnostics.error(
        given.at(flags.front()).values.front().where,
        fmt::format("the value{} of {} depend{} on {}, which only the shell knows; write {} into the "
                    "script",
                    flags.size() > 1 ? "s" : "", named, flags.size() > 1 ? "" : "s", cause,
                    flags.size() > 1 ? "them" : "it"));
  }
  std::vector<std::string> known;
  for (const FlagRow &row : flagTable())
    known.push_back(row.name);
  for (const auto &[name, flag] : given) {
    if (used.count(name))
      continue;
    const FlagRow *row = findFlag(name);
    if (!row)
      error(name, fmt::format("unknown flag {}{}", name, didYouMean(name, known)));
    else if (row->type && flag.values.empty())
      error(name, fmt::format("{} takes a value, got none", flag.name));
    else
      result.flags.push_back({flag.name, flag.where,
                              row->use == FlagUse::Written ? "has no effect with the other flags"
                              : row->use == FlagUse::AtRun ? atRun(row->text)
                                                           : row->text,
                              false});
  }
  std::sort(result.flags.begin(), result.flags.end(), [](const ImportedKey &a, const ImportedKey &b) {
    return std::tie(a.where.line, a.where.column, a.key) < std::tie(b.where.line, b.where.column, b.key);
  });
}

} // namespace espalier
