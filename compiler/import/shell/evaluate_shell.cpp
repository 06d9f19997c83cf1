#include "compiler/import/shell/evaluate_shell.h"

#include "compiler/import/shell/evaluator.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace espalier {

namespace {

using shell::Cause;
using shell::Text;

ShellCommand wordsOf(const std::vector<Text> &texts) {
  ShellCommand words;
  for (const Text &text : texts) {
    ShellWord word{text.bytes(), text.placeOf(0).location()};
    std::erase(word.text, Text::unknownByte);
    if (Cause cause = text.unknown()) {
      word.unknown = cause->name;
      word.remedy = cause->remedy;
      word.unknownAt = cause->place.location();
    }
    words.push_back(std::move(word));
  }
  return words;
}

/// Reports that the flags of a launch, not only their values, depend on unknown values.
bool reportUnknownFlags(const std::string &file, const shell::Launch &launch, Diagnostics &diagnostics) {
  std::set<std::string> reported;
  auto report = [&](const Cause &cause) {
    if (!reported.insert(cause->name).second)
      return;
    SourceLocation where = cause->place.file ? cause->place.location() : SourceLocation{file, 0, 0};
    diagnostics.error(
        where, fmt::format("the flags of the launch depend on {}, which only the shell knows; {}", cause->name,
                           cause->remedy.empty() ? "write the branch that you mean into the script" : cause->remedy));
  };
  if (launch.conflict)
    report(launch.conflict);
  for (const Text &word : launch.words)
    if (Cause cause = word.unknown(); cause && cause->mayBeFlags && word[0] == Text::unknownByte)
      report(cause);
  return !reported.empty();
}

/// Returns the variables that hold words with --.
std::vector<std::string> flagVariables(const shell::State &state) {
  std::vector<std::string> names;
  for (const auto &[name, variable] : state.variables)
    if (std::ranges::any_of(variable->elements, [](const auto &element) {
          size_t begin = element.second.bytes().find_first_not_of(" \t\n\\");
          return begin != std::string::npos && element.second.bytes().compare(begin, 2, "--") == 0;
        }))
      names.push_back(name);
  return names;
}

} // namespace

ShellRun evaluateShell(const std::string &file, std::string_view text, const ShellInputs &inputs,
                       Diagnostics &diagnostics) {
  ShellRun run;
  if (text.size() > mostScriptBytes) {
    diagnostics.error({file, 0, 0}, fmt::format("{} bytes, at most {} are read", text.size(), mostScriptBytes));
    return run;
  }
  diagnostics.addSource(file, text);
  // Without arguments, a script uses its defaults, or ends because it needs some. In the latter case, their number is
  // unknown.
  for (bool hasNoArguments : {true, false}) {
    Diagnostics warnings;
    shell::Evaluator evaluator(inputs, [&](const shell::Place &place, std::string message) {
      warnings.warning(place.location(), std::move(message));
    });
    try {
      evaluator.run(Text::ofFile(text, &file), hasNoArguments);
    } catch (const shell::Fault &fault) {
      diagnostics.error(fault.place.file ? fault.place.location() : SourceLocation{file, 0, 0}, fault.what());
      return {};
    }
    const shell::State &state = evaluator.result();
    if (!state.launch && hasNoArguments && inputs.arguments.empty())
      continue;
    diagnostics.add(warnings);
    if (state.launch && !reportUnknownFlags(file, *state.launch, diagnostics))
      run.launch = wordsOf(state.launch->words);
    for (const std::vector<Text> &command : evaluator.commands)
      run.commands.push_back(wordsOf(command));
    run.flagVariables = flagVariables(state);
    break;
  }
  return run;
}

} // namespace espalier
