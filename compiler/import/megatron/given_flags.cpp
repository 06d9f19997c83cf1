#include "compiler/import/megatron/given_flags.h"

#include "compiler/import/megatron/flag_table.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <tuple>

namespace espalier {

namespace {

/// Returns " (line N)" if the unknown part of a value stands in another line than the value.
std::string lineOf(const ShellWord &value) {
  bool isElsewhere = value.unknownAt.line > 0 && value.unknownAt.line != value.where.line;
  return isElsewhere ? fmt::format(" (line {})", value.unknownAt.line) : "";
}

bool isFlag(const ShellWord &word) {
  return (word.text.size() > 2 && word.text.starts_with("--") && word.text[2] != '-') ||
         word.text == "-N"; // -N is a flag of srun
}

/// Returns the effect of a flag whose value an option of `espalier run` takes.
std::string atRun(const std::string &option) { return fmt::format("give it at the run: `espalier run {}`", option); }

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

bool GivenFlags::read(const std::string &text, const ShellInputs &inputs) {
  ShellRun run = evaluateShell(file, text, inputs, result.diagnostics);
  if (result.diagnostics.hasErrors())
    return false;
  if (run.launch) {
    const ShellCommand &words = *run.launch;
    auto script = std::ranges::find_if(words, [](const ShellWord &word) { return word.text.ends_with(".py"); });
    readFlags(words.begin(), script, launcher);
    startedByTorchOrPython = isTorchOrPython(words.begin(), script);
    readFlags(script + 1, words.end(), given);
  } else {
    ShellCommand all;
    for (const ShellCommand &command : run.commands)
      all.insert(all.end(), command.begin(), command.end());
    readFlags(all.begin(), all.end(), given);
  }
  for (const auto &[name, flag] : given) {
    reportsPlaceholder(flag);
    reportUnknownWords(flag);
  }
  if (given.empty())
    reportNoFlags(run);
  return !given.empty();
}

void GivenFlags::reportNoFlags(const ShellRun &run) {
  if (run.flagVariables.empty())
    return result.diagnostics.error({file, 0, 0},
                                    "no flags are found: neither a command with a .py file nor words with --");
  std::string variable = run.flagVariables[0];
  result.diagnostics.error(
      {file, 0, 0},
      fmt::format(
          "no command of the script launches a .py file, so that launcher, batch and parallel sizes are missing; "
          "${} holds flags: import the script that uses it, or add a line such as torchrun --nproc_per_node 8 "
          "pretrain_gpt.py ${{{}[@]}} --micro-batch-size 1",
          fmt::join(run.flagVariables, ", $"), variable));
}

void GivenFlags::reportUnknownWords(const Flag &flag) {
  for (size_t i = 1; i < flag.values.size() && !flag.name.ends_with("data-path"); ++i)
    if (!flag.values[i].unknown.empty())
      reportUnknownWord(flag.values[i]);
}

void GivenFlags::reportUnknownWord(const ShellWord &word) {
  result.diagnostics.error(word.where,
                           fmt::format("which flags the launch has depends on {}, which only the shell knows; {}",
                                       word.unknown, word.remedy.empty() ? "write it into the script" : word.remedy));
}

void GivenFlags::noteUnknown(const std::string &flag, const ShellWord &word) {
  UnknownFlags &entry = unknownFlags[word.unknown];
  if (entry.flags.empty())
    entry.value = word;
  if (std::ranges::find(entry.flags, flag) == entry.flags.end())
    entry.flags.push_back(flag);
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
    if (values.size() < 2 || values[1].unknown.empty()) // else it is reported
      error(flag, fmt::format("{} takes one value, got {}", flag, values.size()));
    return std::nullopt;
  }
  if (!values[0].unknown.empty()) {
    noteUnknown(flag, values[0]);
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
  if (!found->second.values.empty() && !found->second.values[0].unknown.empty())
    reportUnknownWord(found->second.values[0]);
  else if (!found->second.values.empty())
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

const ShellWord *GivenFlags::unknownLauncherWord(std::initializer_list<const char *> names) const {
  for (const char *name : names)
    if (auto found = launcher.find(name);
        found != launcher.end() && !found->second.values.empty() && !found->second.values[0].unknown.empty())
      return &found->second.values[0];
  return nullptr;
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
  for (const auto &[cause, entry] : unknownFlags) {
    const std::vector<std::string> &flags = entry.flags;
    const std::string remedy = !entry.value.remedy.empty() ? entry.value.remedy
                               : flags.size() > 1          ? "write them into the script"
                                                           : "write it into the script";
    bool areMany = flags.size() > 3;
    std::string named = fmt::format("{}", fmt::join(flags.begin(), areMany ? flags.begin() + 3 : flags.end(), ", "));
    if (areMany)
      named += fmt::format(" and {} other{}", flags.size() - 3, flags.size() > 4 ? "s" : "");
    result.diagnostics.error(entry.value.where,
                             fmt::format("the value{} of {} depend{} on {}{}, which only the shell knows; {}",
                                         flags.size() > 1 ? "s" : "", named, flags.size() > 1 ? "" : "s", cause,
                                         lineOf(entry.value), remedy));
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
