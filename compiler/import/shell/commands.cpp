// Simple commands: assignments, builtins, functions, and the commands that a shell would start.
#include "compiler/import/shell/evaluator.h"

#include "compiler/import/shell/conditions.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <fmt/format.h>
#include <utility>

namespace espalier::shell {

namespace {

bool isOneOf(std::string_view text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

std::string_view baseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool isScript(const Text &word) { return word.bytes().ends_with(".py"); }

/// Returns whether a word holds a whole command, as in `ssh HOST "python x.py ..."`.
bool holdsCommand(const Text &word) { return word.bytes().find(".py ") != std::string::npos; }

/// Returns the first number among the fields, or `otherwise`.
int64_t numberOf(const std::vector<Text> &fields, int64_t otherwise) {
  if (fields.size() > 1)
    std::from_chars(fields[1].bytes().data(), fields[1].bytes().data() + fields[1].size(), otherwise);
  return otherwise;
}

} // namespace

void Evaluator::runSimple(const Node &node) {
  std::vector<Text> fields = shell.fieldsOf(node.words);
  bool declares = !fields.empty() && isOneOf(fields[0].bytes(), {"export", "local", "readonly", "declare", "typeset"});
  if (shell.state.flow != State::Normal) // ${NAME:?} ends the script
    return;
  if (declares)
    return declare(fields, node);
  if (fields.empty()) {
    shell.state.status = {};
    for (const Assignment &assignment : node.assignments)
      assign(assignment);
    return;
  }
  // Assignments before a command hold for this command alone.
  std::map<std::string, std::shared_ptr<const Variable>> before;
  for (const Assignment &assignment : node.assignments) {
    auto found = shell.state.variables.find(assignment.name);
    before.emplace(assignment.name, found == shell.state.variables.end() ? nullptr : found->second);
    assign(assignment);
    shell.variable(assignment.name).isExported = true;
  }
  runCommand(std::move(fields), node);
  for (auto &[name, variable] : before) {
    if (variable)
      shell.state.variables[name] = variable;
    else
      shell.state.variables.erase(name);
  }
}

void Evaluator::runCommand(std::vector<Text> fields, const Node &node) {
  std::string name = fields[0].bytes();
  if (auto found = shell.state.functions.find(name); found != shell.state.functions.end())
    return callFunction(*found->second, fields);
  if (isOneOf(name, {"exec", "command", "builtin"}) && fields.size() > 1 && !fields[1].bytes().starts_with("-")) {
    fields.erase(fields.begin());
    runCommand(std::move(fields), node);
    if (name == "exec")
      shell.state.flow = State::Exit;
    return;
  }
  if (!runBuiltin(name, fields, node))
    runExternal(fields, node);
}

bool Evaluator::runBuiltin(const std::string &name, std::vector<Text> &fields, const Node &node) {
  State &state = shell.state;
  if (name == "test" || name == "[") {
    std::vector<Text> arguments(fields.begin() + 1, fields.end());
    if (name == "[" && !arguments.empty())
      arguments.pop_back();
    state.status = evaluateTest(shell, arguments, node.place);
  } else if (isOneOf(name, {":", "true", "false", "echo", "shopt", "trap", "ulimit", "umask", "wait", "exec"})) {
    state.status = Truth::of(name != "false");
  } else if (name == "printf") {
    state.status = {};
    if (fields.size() > 2 && fields[1].bytes() == "-v")
      setUnknown({fields[0], fields[2]}, node.place);
  } else if (name == "set") {
    setArguments(fields);
  } else if (name == "shift") {
    shift(fields);
  } else if (name == "unset") {
    for (size_t i = 1; i < fields.size(); ++i) {
      if (isName(fields[i].bytes()))
        shell.variable(fields[i].bytes()) = {};
      state.functions.erase(fields[i].bytes());
    }
    state.status = {};
  } else if (name == "let") {
    for (size_t i = 1; i < fields.size(); ++i)
      state.status = truthOf(fields[i], node.place);
  } else if (name == "eval") {
    Text script;
    for (size_t i = 1; i < fields.size(); ++i) {
      script.append(fields[i]);
      script.append(Text(" ", fields[i].placeOf(fields[i].size())));
    }
    runText(std::move(script));
  } else if (name == "source" || name == ".") {
    source(fields, node.place);
  } else if (name == "read") {
    read(fields, node);
  } else if (name == "mapfile" || name == "readarray" || name == "getopts") {
    bool isEnd = name == "getopts" && state.arguments.empty() && !state.unknownArguments && !state.unknownCount;
    state.status = Truth::of(!isEnd);
    if (!isEnd)
      setUnknown(fields, node.place);
  } else if (isOneOf(name, {"exit", "return", "break", "continue"})) {
    leave(name == "exit"     ? State::Exit
          : name == "return" ? State::Return
          : name == "break"  ? State::Break
                             : State::Continue,
          fields);
  } else {
    return false;
  }
  return true;
}

void Evaluator::leave(State::Flow flow, const std::vector<Text> &fields) {
  State &state = shell.state;
  bool leavesLoop = flow == State::Break || flow == State::Continue;
  bool isInside = flow == State::Exit || std::any_of(frames.begin(), frames.end(), [&](const Frame &frame) {
                    return frame.kind == (leavesLoop ? Frame::Loop : Frame::Function);
                  });
  if (!isInside) // bash reports an error and goes on
    return;
  if (!leavesLoop && fields.size() > 1)
    state.status = fields[1].unknown() ? Truth::unknown(fields[1].unknown()) : Truth::of(numberOf(fields, 0) == 0);
  state.flow = flow;
  state.levels = leavesLoop ? std::clamp<int64_t>(numberOf(fields, 1), 1, 1000) : 0;
}

void Evaluator::setArguments(const std::vector<Text> &fields) {
  size_t begin = 1;
  while (begin < fields.size() && fields[begin].size() > 1 && isOneOf(fields[begin].bytes().substr(0, 1), {"-", "+"}) &&
         fields[begin].bytes() != "--")
    begin += fields[begin].bytes() == "-o" || fields[begin].bytes() == "+o" ? 2 : 1;
  shell.state.status = {};
  if (begin >= fields.size())
    return;
  begin += fields[begin].bytes() == "--";
  shell.state.arguments.assign(fields.begin() + static_cast<std::ptrdiff_t>(begin), fields.end());
  shell.state.unknownArguments = shell.state.unknownCount = nullptr;
  shell.state.areAllArguments = true;
}

void Evaluator::shift(const std::vector<Text> &fields) {
  State &state = shell.state;
  int64_t count = numberOf(fields, 1);
  bool isPossible = count >= 0 && count <= static_cast<int64_t>(state.arguments.size());
  state.status = Truth::of(isPossible);
  if (!isPossible)
    return;
  state.arguments.erase(state.arguments.begin(), state.arguments.begin() + count);
  state.areAllArguments |= count > 0; // who shifts takes the arguments as a list with an end
}

void Evaluator::setUnknown(const std::vector<Text> &fields, const Place &place) {
  for (size_t i = 1; i < fields.size(); ++i) {
    const std::string &name = fields[i].bytes();
    if (!isName(name))
      continue;
    Cause cause = shell.makeCause("the input of " + fields[0].bytes(), fmt::format("give --env {}=VALUE", name), place);
    bool isArray =
        isOneOf(fields[0].bytes(), {"mapfile", "readarray"}) || (i > 1 && fields[i - 1].bytes().ends_with("a"));
    shell.variable(name).elements.clear();
    shell.assign(name, {}, Text(cause, place));
    shell.variable(name).unknownSize = isArray ? cause : nullptr;
    shell.state.status = Truth::unknown(cause);
  }
}

void Evaluator::read(const std::vector<Text> &fields, const Node &node) {
  bool isArray = std::any_of(fields.begin() + 1, fields.end(), [](const Text &field) {
    return field[0] == '-' && field.bytes().find('a') != std::string::npos;
  });
  bool hasValue = std::any_of(fields.begin() + 1, fields.end(), [](const Text &field) { // -p, -d, -t, -n
    return field[0] == '-' && field.bytes().find_first_of("pdtnNui") != std::string::npos;
  });
  Text line = node.input ? shell.textOf(*node.input) : Text();
  if (!node.input || line.unknown() || hasValue)
    return setUnknown(fields, node.place);
  line = line.slice(0, line.bytes().find('\n'));
  std::vector<Text> values = shell.split(line);
  std::vector<std::string> names;
  for (size_t i = 1; i < fields.size(); ++i)
    if (isName(fields[i].bytes()))
      names.push_back(fields[i].bytes());
  shell.state.status = {};
  for (size_t i = 0; i < names.size(); ++i) {
    shell.variable(names[i]).elements.clear();
    bool takesRest = i + 1 == names.size();
    Text value = i < values.size() ? values[i] : Text();
    for (size_t j = i + 1; j < values.size() && takesRest && !isArray; ++j) {
      value.append(Text(" ", node.place));
      value.append(values[j]);
    }
    for (size_t j = 0; j < values.size() && isArray; ++j)
      shell.assign(names[i], {static_cast<int64_t>(j), ""}, values[j]);
    if (!isArray)
      shell.assign(names[i], {}, value);
  }
}

void Evaluator::hide(const std::string &name) {
  for (auto frame = frames.rbegin(); frame != frames.rend() && frame->kind != Frame::Process; ++frame) {
    if (frame->kind != Frame::Function)
      continue;
    auto found = shell.state.variables.find(name);
    frame->locals.emplace(name, found == shell.state.variables.end() ? nullptr : found->second);
    return;
  }
}

void Evaluator::declare(const std::vector<Text> &fields, const Node &node) {
  std::string options;
  for (size_t i = 1; i < fields.size() && fields[i][0] == '-'; ++i)
    options += fields[i].bytes();
  const std::string &command = fields[0].bytes();
  bool isLocal = isOneOf(command, {"local", "declare", "typeset"}) && options.find('g') == std::string::npos;
  bool isExport = command == "export" || options.find('x') != std::string::npos;
  auto prepare = [&](const std::string &name) {
    if (isLocal)
      hide(name);
    if (options.find('A') != std::string::npos) {
      shell.variable(name) = {};
      shell.variable(name).isAssociative = true;
    }
  };
  for (const Assignment &assignment : node.assignments) {
    prepare(assignment.name);
    assign(assignment);
    shell.variable(assignment.name).isExported |= isExport;
  }
  for (size_t i = 1; i < fields.size(); ++i) {
    size_t equals = fields[i].bytes().find('=');
    std::string name = fields[i].bytes().substr(0, equals);
    if (!isName(name))
      continue;
    prepare(name);
    if (equals != std::string::npos)
      shell.assign(name, {}, fields[i].slice(equals + 1, fields[i].size()));
    else if (isLocal && options.find('A') == std::string::npos)
      shell.variable(name) = {};
    if (isExport && shell.state.variables.contains(name))
      shell.variable(name).isExported = true;
  }
  shell.state.status = {};
}

void Evaluator::assign(const Assignment &assignment) {
  if (assignment.isList)
    return assignList(assignment);
  Index index;
  if (assignment.index)
    index = shell.indexOf(assignment.name, shell.textOf(*assignment.index), assignment.place);
  shell.assigning = assignment.name;
  Text value = shell.textOf(assignment.elements[0].value);
  shell.assigning.clear();
  if (value.unknown() && value.unknown()->name.starts_with("the output")) // of a command, whose status is unknown, too
    shell.state.status = Truth::unknown(value.unknown());
  if (assignment.adds) {
    Variable &variable = shell.variable(assignment.name);
    Text whole = std::exchange(variable.elements[index], {}); // moved, so that repeated additions are linear
    whole.append(value);
    shell.budget.step(value.cost(), assignment.place);
    variable.elements[index] = std::move(whole);
    return;
  }
  Variable &variable = shell.variable(assignment.name);
  if (!assignment.index && !variable.isAssociative && variable.elements.size() <= 1)
    variable.unknownSize = nullptr;
  shell.assign(assignment.name, index, std::move(value));
}

void Evaluator::assignList(const Assignment &assignment) {
  std::vector<std::pair<std::optional<Index>, Text>> elements; // expanded before the variable changes: A=(x "${A[@]}")
  Cause unknownSize;
  for (const Assignment::Element &element : assignment.elements) {
    if (element.index) {
      Text subscript = shell.textOf(*element.index);
      elements.emplace_back(shell.indexOf(assignment.name, subscript, assignment.place), shell.textOf(element.value));
      continue;
    }
    for (Text &field : shell.fieldsOf({element.value}))
      elements.emplace_back(std::nullopt, std::move(field));
  }
  Variable &variable = shell.variable(assignment.name);
  if (!assignment.adds) {
    variable.elements.clear();
    variable.unknownSize = nullptr;
  }
  int64_t next = variable.elements.empty() ? 0 : variable.elements.rbegin()->first.first + 1;
  for (auto &[index, text] : elements) {
    Index at = index.value_or(Index(next, ""));
    next = at.first + 1;
    shell.budget.hold(text.cost() + 64, assignment.place);
    variable.elements[at] = std::move(text);
  }
}

void Evaluator::callFunction(const Node &body, const std::vector<Text> &fields) {
  State &state = shell.state;
  std::vector<Text> outer(fields.begin() + 1, fields.end());
  std::swap(state.arguments, outer);
  Cause unknownArguments = std::exchange(state.unknownArguments, nullptr);
  Cause unknownCount = std::exchange(state.unknownCount, nullptr);
  bool areAll = std::exchange(state.areAllArguments, true);
  frames.push_back({Frame::Function});
  run(body);
  Frame frame = std::move(frames.back());
  frames.pop_back();
  if (state.flow == State::Return)
    state.flow = State::Normal;
  rejoin(frame.returns, frame.cause);
  for (auto &[name, variable] : frame.locals) {
    if (variable)
      state.variables[name] = variable;
    else
      state.variables.erase(name);
  }
  state.arguments = std::move(outer);
  state.unknownArguments = unknownArguments;
  state.unknownCount = unknownCount;
  state.areAllArguments = areAll;
}

void Evaluator::source(const std::vector<Text> &fields, const Place &place) {
  if (fields.size() < 2)
    return;
  // The folder of the script is often the output of a command: $(dirname "$0")/env.sh.
  std::string path = fields[1].bytes();
  size_t known = path.rfind(Text::unknownByte);
  if (known != std::string::npos)
    path.erase(0, std::min(path.find_first_not_of('/', known + 1), path.size()));
  std::optional<std::string> content;
  if (inputs.readBeside && !path.empty())
    content = inputs.readBeside(path);
  shell.state.status = Truth::unknown(shell.makeCause("the status of " + Expander::describe(fields[1]), "", place));
  if (!content)
    return warn(place, fmt::format("{} is not found beside the script: what it sets is unknown, unless you give it by "
                                   "--env NAME=VALUE",
                                   Expander::describe(fields[1])));
  warn(place, fmt::format("{} is read beside the script", path));
  frames.push_back({Frame::Function});
  runText(Text::ofFile(*content, &*files.insert(path).first));
  Frame frame = std::move(frames.back());
  frames.pop_back();
  if (shell.state.flow == State::Return)
    shell.state.flow = State::Normal;
  rejoin(frame.returns, frame.cause);
}

void Evaluator::runInner(const std::vector<Text> &words, const Text &script, bool keepsExports,
                         std::optional<std::vector<Text>> arguments) {
  std::vector<Text> outer = prefix;
  prefix.insert(prefix.end(), words.begin(), words.end());
  runProcess(
      [&] {
        if (!keepsExports)
          shell.state.variables.clear();
        shell.state.functions.clear();
        if (arguments)
          shell.state.arguments = std::move(*arguments);
        shell.state.areAllArguments = true;
        runText(script);
      },
      /*isWithoutVariables=*/true);
  prefix = std::move(outer);
}

bool Evaluator::runInnerShell(const std::vector<Text> &fields, const Node &node) {
  for (size_t i = 0; i < fields.size(); ++i) {
    if (!isOneOf(baseName(fields[i].bytes()), {"bash", "sh", "zsh", "dash"}))
      continue;
    std::vector<Text> words(fields.begin(), fields.begin() + static_cast<std::ptrdiff_t>(i));
    bool takesText = false;
    for (++i; i < fields.size() && fields[i].size() > 1 && (fields[i][0] == '-' || fields[i][0] == '+'); ++i)
      takesText |= fields[i][1] != '-' && fields[i].bytes().find('c') != std::string::npos;
    std::optional<std::string> content;
    if (!takesText && i < fields.size() && inputs.readBeside)
      content = inputs.readBeside(fields[i].bytes());
    Text script = takesText && i < fields.size()     ? fields[i]
                  : content                          ? Text::ofFile(*content, &*files.insert(fields[i].bytes()).first)
                  : i == fields.size() && node.input ? shell.textOf(*node.input)
                                                     : Text();
    if (script.empty())
      return false;
    size_t first = std::min(i + (takesText ? 2 : 1), fields.size()); // bash -c TEXT NAME ARGUMENTS
    std::vector<Text> arguments(fields.begin() + static_cast<std::ptrdiff_t>(first), fields.end());
    runInner(words, script, /*keepsExports=*/true, std::move(arguments));
    return true;
  }
  return false;
}

void Evaluator::runExternal(const std::vector<Text> &fields, const Node &node) {
  if (runInnerShell(fields, node))
    return;
  bool startsScript = std::any_of(fields.begin(), fields.end(), isScript);
  auto whole = std::find_if(fields.begin(), fields.end(), holdsCommand);
  if (!startsScript && whole != fields.end()) { // the shell of another host has none of the variables
    size_t begin = whole->bytes().starts_with("--") ? whole->bytes().find('=') + 1 : 0;
    return runInner({fields.begin(), whole}, whole->slice(begin, whole->size()), /*keepsExports=*/false, std::nullopt);
  }
  std::vector<Text> words = prefix;
  words.insert(words.end(), fields.begin(), fields.end());
  for (const Text &word : words)
    shell.budget.hold(word.cost(), node.place);
  // A .py file without arguments, such as a check of the installation, does not replace a launch.
  bool hasArguments = !isScript(words.back());
  if (startsScript && (hasArguments || !shell.state.launch))
    shell.state.launch = {words, nullptr};
  commands.push_back(std::move(words));
  shell.state.status =
      Truth::unknown(shell.makeCause("the status of the command " + Expander::describe(fields[0]), "", node.place));
}

} // namespace espalier::shell
