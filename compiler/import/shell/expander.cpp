#include "compiler/import/shell/expander.h"

#include "compiler/import/shell/arithmetic.h"
#include "compiler/import/shell/braces.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <fmt/format.h>

namespace espalier::shell {

Cause Expander::makeCause(std::string name, std::string remedy, const Place &place, bool isNotGiven) const {
  return std::make_shared<UnknownCause>(UnknownCause{std::move(name), std::move(remedy), place, isNotGiven, false});
}

std::string Expander::describe(const Text &text) {
  std::string name;
  for (size_t i = 0; i < text.size() && name.size() < 60 && text[i] != '\n'; ++i)
    name += text[i] == Text::unknownByte ? text.slice(i, i + 1).unknown()->name : std::string(1, text[i]);
  return name.size() < 60 ? name : name.substr(0, 57) + "...";
}

Text Expander::notGiven(const std::string &name, const Place &place) const {
  bool isArgument = std::isdigit(static_cast<unsigned char>(name[0])) != 0;
  std::string remedy = isArgument ? fmt::format("give --arg {}=VALUE", name) : fmt::format("give --env {}=VALUE", name);
  return {makeCause("$" + name, remedy, place, /*isNotGiven=*/true), place};
}

Text Expander::number(int64_t value, const Place &place) const { return {fmt::format("{}", value), place}; }

std::string Expander::separators() const {
  auto found = state.variables.find("IFS");
  if (found == state.variables.end() || found->second->elements.empty())
    return " \t\n";
  return found->second->elements.begin()->second.bytes();
}

Variable &Expander::variable(const std::string &name) {
  std::shared_ptr<const Variable> &entry = state.variables[name];
  if (!entry) {
    entry = std::make_shared<Variable>();
  } else if (entry.use_count() > 1) { // another state shares the variable
    budget.step(entry->elements.size() * 10, {});
    entry = std::make_shared<Variable>(*entry);
  }
  return const_cast<Variable &>(*entry); // made above without const
}

void Expander::assign(const std::string &name, const Index &index, Text value) {
  if (auto found = given.find(name); found != given.end() && value.unknown())
    value = Text(found->second, value.placeOf(0));
  budget.hold(value.cost(), value.placeOf(0));
  variable(name).elements[index] = std::move(value);
}

Index Expander::indexOf(const std::string &name, const Text &subscript, const Place &place) {
  auto found = state.variables.find(name);
  if (found != state.variables.end() && found->second->isAssociative)
    return {0, subscript.bytes()};
  Cause unknown;
  int64_t index = evaluate(subscript, place, unknown);
  if (index < 0 && found != state.variables.end() && !found->second->elements.empty())
    index += found->second->elements.rbegin()->first.first + 1;
  return {index, ""};
}

int64_t Expander::evaluate(const Text &expression, const Place &place, Cause &unknown) {
  budget.step(expression.size() + 50, place);
  ArithmeticVariables variables;
  variables.read = [&](const std::string &name, const std::string &index) -> Text {
    budget.step(50, place);
    Word subscript(index.empty() ? 0 : 1);
    if (!index.empty())
      subscript[0].text = Text(index, place);
    Values values = valuesOf(name, index.empty() ? "" : "=", subscript, place);
    return values.list.empty() ? Text() : values.list[0];
  };
  variables.write = [&](const std::string &name, const std::string &index, Text value) {
    assign(name, index.empty() ? Index() : indexOf(name, Text(index, place), place),
           value.unknown() ? value : Text(value.bytes(), place));
  };
  ArithmeticResult result = evaluateArithmetic(expression, variables);
  unknown = result.cause;
  if (!result.fault.empty())
    unknown = makeCause(fmt::format("$(({})), which bash refuses: {}", describe(expression), result.fault), "", place);
  return result.value;
}

std::vector<Text> Expander::fieldsOf(const std::vector<Word> &words) {
  Output output{Mode::Fields, {}, {}, false};
  for (const Word &written : words)
    for (const Word &word : expandBraces(written, budget)) {
      expand(output, word, /*isOperand=*/false);
      finish(output);
    }
  return std::move(output.fields);
}

Text Expander::textOf(const Word &word) {
  Output output{Mode::Text, {}, {}, false};
  expand(output, word, /*isOperand=*/false);
  return std::move(output.current);
}

Pattern Expander::patternOf(const Word &word, Cause &unknown) {
  Output output{Mode::Pattern, {}, {}, false};
  expand(output, word, /*isOperand=*/false);
  unknown = output.current.unknown();
  Place place = word.empty() ? Place() : word[0].place;
  Pattern pattern(output.current.bytes(), budget, place);
  if (!unknown && pattern.isExtended())
    unknown = makeCause("the extended pattern " + describe(output.current), "", place);
  return pattern;
}

std::vector<Text> Expander::split(const Text &text) {
  Output output{Mode::Fields, {}, {}, false};
  addSplit(output, text);
  finish(output);
  return std::move(output.fields);
}

void Expander::finish(Output &output) {
  if (output.isOpen && output.mode == Mode::Fields) {
    budget.hold(output.current.cost(), output.current.placeOf(0));
    output.fields.push_back(std::exchange(output.current, {}));
    output.isOpen = false;
  }
}

void Expander::add(Output &output, const Text &text, bool isQuoted) {
  budget.hold(text.cost(), text.placeOf(0));
  output.isOpen = true;
  if (output.mode != Mode::Pattern || !isQuoted)
    return output.current.append(text);
  for (size_t i = 0; i < text.size(); ++i) {
    if (std::string_view("*?[]\\(|)!@+-^").find(text[i]) != std::string_view::npos)
      output.current.append(Text("\\", text.placeOf(i)));
    output.current.append(text, i, i + 1);
  }
}

void Expander::addSplit(Output &output, const Text &text) {
  if (output.mode != Mode::Fields)
    return add(output, text, /*isQuoted=*/false);
  const std::string signs = separators();
  bool isAfterBlank = false;
  for (size_t i = 0; i < text.size();) {
    size_t end = i;
    while (end < text.size() && (text[end] == Text::unknownByte || signs.find(text[end]) == std::string::npos))
      ++end;
    if (end > i) {
      add(output, text.slice(i, end), /*isQuoted=*/false);
      isAfterBlank = false;
    }
    if (end == text.size())
      break;
    bool isBlank = std::isspace(static_cast<unsigned char>(text[end])) != 0;
    output.isOpen |= !isBlank && !isAfterBlank; // each other separator ends a field, which may be empty
    isAfterBlank = isBlank && (output.isOpen || isAfterBlank);
    finish(output);
    i = end + 1;
  }
}

void Expander::expand(Output &output, const Word &word, bool isOperand) {
  for (size_t i = 0; i < word.size(); ++i) {
    const Part &part = word[i];
    budget.step(10, part.place);
    switch (part.kind) {
    case Part::Literal: {
      bool isHome = i == 0 && !part.isQuoted && part.text[0] == '~' && !part.text.empty() &&
                    output.mode != Mode::Pattern &&
                    (part.text[1] == '/' || (part.text.size() == 1 && word.size() == 1));
      if (isHome)
        addValues(output, Part{.isQuoted = true}, valuesOf("HOME", "", {}, part.place));
      Text text = isHome ? part.text.slice(1, part.text.size()) : part.text;
      isOperand && !part.isQuoted ? addSplit(output, text) : add(output, text, part.isQuoted);
      break;
    }
    case Part::Parameter:
      expandParameter(output, part);
      break;
    case Part::Arithmetic: {
      Cause unknown;
      int64_t value = evaluate(textOf(part.operands[0]), part.place, unknown);
      add(output, unknown ? Text(unknown, part.place) : number(value, part.place), part.isQuoted);
      break;
    }
    case Part::Command: {
      size_t begin = part.text.bytes().find_first_not_of("$(` \t\n");
      if (begin == std::string::npos || part.text[begin] == '#' || part.text[begin] == ')') // `# a comment`
        break;
      std::string remedy = assigning.empty() ? "" : fmt::format("give --env {}=VALUE", assigning);
      add(output, {makeCause("the output of a command, " + describe(part.text), remedy, part.place), part.place},
          part.isQuoted);
      break;
    }
    }
  }
}

void Expander::expandParameter(Output &output, const Part &part) {
  Values values = valuesOf(part);
  const std::string &operation = part.operation;
  output.isOpen |= part.isQuoted && !values.isList; // "" is a field
  bool isColon = operation.size() == 2 && operation[0] == ':';
  char sign = operation.empty() || operation == ":" ? '\0' : operation.back();
  if (part.operands.empty() || std::string_view("-=+?").find(sign) == std::string_view::npos) {
    change(values, part);
    return addValues(output, part, std::move(values));
  }
  Text first = values.list.empty() ? Text() : values.list[0];
  bool isKnownToBe = !first.unknown() || first.size() > 1 || values.list.size() > 1; // its emptiness is known
  bool isNotGiven = first.isUnknown() && first.unknown()->isNotGiven && (isColon || values.isUnset);
  bool isMissing = isNotGiven || values.isUnset || values.list.empty() ||
                   (isColon && isKnownToBe && values.list.size() == 1 && first.empty());
  if (sign == '+') {
    if (isMissing)
      return;
    if (isColon && !isKnownToBe) {
      Text operand = textOf(part.operands[0]);
      bool mayBeFlags = operand[0] == '-';
      return add(output, {differing(first.unknown(), mayBeFlags), part.place}, part.isQuoted);
    }
    return expand(output, part.operands[0], /*isOperand=*/!part.isQuoted);
  }
  if (!isMissing)
    return addValues(output, part, std::move(values));
  if (sign == '?') {
    if (!isNotGiven) // the script ends here
      state.flow = State::Exit;
    return isNotGiven ? addValues(output, part, std::move(values)) : void();
  }
  if (sign == '=') {
    Text value = textOf(part.operands[0]);
    assign(part.name, part.index == "=" ? indexOf(part.name, textOf(part.subscript), part.place) : Index(), value);
    return part.isQuoted ? add(output, value, true) : addSplit(output, value);
  }
  expand(output, part.operands[0], /*isOperand=*/!part.isQuoted);
}

void Expander::addValues(Output &output, const Part &part, Values values) {
  if (values.unknownSize)
    values.list = {Text(values.unknownSize, part.place)};
  std::string signs = separators();
  bool joins = output.mode != Mode::Fields || (values.isStar && part.isQuoted);
  for (size_t i = 0; i < values.list.size(); ++i) {
    if (i > 0 && joins && (!values.isStar || !signs.empty()))
      add(output, Text(values.isStar ? signs.substr(0, 1) : " ", part.place), part.isQuoted);
    else if (i > 0 && !joins)
      finish(output);
    part.isQuoted ? add(output, values.list[i], true) : addSplit(output, values.list[i]);
  }
  output.isOpen |= part.isQuoted && values.isStar;
}

Expander::Values Expander::argumentsOf(const std::string &name, const Place &place) {
  Values values;
  if (name == "@" || name == "*") {
    values = {state.arguments, true, name == "*", state.arguments.empty(), state.unknownArguments};
  } else if (name == "#") {
    auto count = static_cast<int64_t>(state.arguments.size());
    Cause unknown = state.unknownArguments ? state.unknownArguments : state.unknownCount;
    values.list = {unknown ? Text(unknown, place) : number(count, place)};
  } else if (name == "?") {
    bool isKnown = state.status.value == Truth::Yes; // another status may be any number
    values.list = {isKnown ? number(0, place) : Text(makeCause("the status $?", "", place), place)};
  } else {
    int64_t position = -1;
    std::from_chars(name.data(), name.data() + name.size(), position);
    if (position > 0 && position <= static_cast<int64_t>(state.arguments.size()))
      values.list = {state.arguments[position - 1]};
    else if (position > 0 && state.unknownArguments)
      values.list = {Text(state.unknownArguments, place)};
    else if (position > 0 && state.areAllArguments)
      values.isUnset = true;
    else
      values = {{notGiven(name, place)}, false, false, position > 0, nullptr};
  }
  return values;
}

Expander::Values Expander::valuesOf(const std::string &name, const std::string &index, const Word &subscript,
                                    const Place &place) {
  if (!isName(name))
    return argumentsOf(name, place);
  Values values;
  values.isList = index == "@" || index == "*";
  values.isStar = index == "*";
  auto found = state.variables.find(name);
  if (found == state.variables.end()) {
    values.isUnset = true;
    if (!own.contains(name))
      values.list = {notGiven(name, place)};
    return values;
  }
  std::shared_ptr<const Variable> variable = found->second;
  values.unknownSize = variable->unknownSize;
  if (values.isList) {
    for (const auto &[key, text] : variable->elements)
      values.list.push_back(text);
  } else {
    Text written = index == "=" ? textOf(subscript) : Text();
    if (Cause unknown = written.unknown())
      values.list = {Text(unknown, place)};
    else if (auto element = variable->elements.find(index == "=" ? indexOf(name, written, place) : Index());
             element != variable->elements.end())
      values.list = {element->second};
  }
  values.isUnset = values.list.empty();
  return values;
}

Expander::Values Expander::valuesOf(const Part &part) {
  Values values = valuesOf(part.name, part.index, part.subscript, part.place);
  if (part.operation == "indirect") {
    Text name = values.list.empty() ? Text() : values.list[0];
    std::string bytes = name.bytes(), index;
    if (bytes.ends_with("[@]") || bytes.ends_with("[*]")) {
      index = bytes.substr(bytes.size() - 2, 1);
      bytes.resize(bytes.size() - 3);
    }
    if (!bytes.empty() && !name.unknown())
      values = valuesOf(bytes, index, {}, part.place);
  } else if (part.operation == "keys") {
    values.list.clear();
    if (auto found = state.variables.find(part.name); found != state.variables.end())
      for (const auto &[key, text] : found->second->elements)
        values.list.push_back(found->second->isAssociative ? Text(key.second, part.place)
                                                           : number(key.first, part.place));
  }
  return values;
}

void Expander::change(Values &values, const Part &part) {
  const std::string &operation = part.operation;
  if (operation.empty() || operation == "indirect" || operation == "keys")
    return;
  if (operation == "length") {
    Text text = values.list.empty() ? Text() : values.list[0];
    auto count = static_cast<int64_t>(values.isList ? values.list.size() : text.size());
    Cause unknown = values.unknownSize ? values.unknownSize : values.isList ? nullptr : text.unknown();
    values = {{unknown ? Text(unknown, part.place) : number(count, part.place)}, false, false, false, nullptr};
    return;
  }
  if (operation == ":")
    return takeSlice(values, part);
  bool isEvaluated = std::string_view("#%/^,").find(operation[0]) != std::string_view::npos;
  Cause unknown;
  Word written = part.operands.empty() ? Word() : part.operands[0];
  Pattern pattern = patternOf(written, unknown);
  Text replacement = part.operands.size() > 1 ? textOf(part.operands[1]) : Text();
  for (Text &text : values.list) {
    Cause cause = text.unknown() ? text.unknown() : unknown;
    if (!isEvaluated && !cause)
      cause = makeCause(fmt::format("${{{}{}...}}", part.name, operation), "", part.place);
    text = cause ? Text(cause, part.place) : changed(text, part, pattern, replacement);
  }
}

void Expander::takeSlice(Values &values, const Part &part) {
  Cause unknown, unknownLength;
  int64_t begin = evaluate(textOf(part.operands[0]), part.place, unknown), length = 0;
  bool hasLength = part.operands.size() > 1;
  if (hasLength)
    length = evaluate(textOf(part.operands[1]), part.place, unknownLength);
  unknown = unknown ? unknown : unknownLength;
  bool areArguments = part.name == "@" || part.name == "*";
  Text text = values.list.empty() ? Text() : values.list[0];
  if (!values.isList)
    unknown = unknown ? unknown : text.unknown();
  if (unknown) {
    values.list = {Text(unknown, part.place)};
    return;
  }
  if (areArguments) // ${@:0} begins with the name of the script
    values.list.insert(values.list.begin(), notGiven("0", part.place));
  auto size = static_cast<int64_t>(values.isList ? values.list.size() : text.size());
  begin = std::min(begin < 0 ? begin + size : begin, size);
  int64_t end = !hasLength ? size : length < 0 ? size + length : begin + std::min(length, size - begin);
  if (begin < 0 || end < begin)
    begin = end = 0;
  if (values.isList)
    values.list = {values.list.begin() + begin, values.list.begin() + end};
  else
    values.list = {text.slice(begin, end)};
}

Text Expander::changed(const Text &text, const Part &part, const Pattern &pattern, const Text &replacement) {
  const std::string &sign = part.operation;
  bool isLongest = sign.size() == 2;
  if (sign[0] == '#')
    return text.slice(pattern.prefix(text.bytes(), isLongest).value_or(0), text.size());
  if (sign[0] == '%')
    return text.slice(0, text.size() - pattern.suffix(text.bytes(), isLongest).value_or(0));
  if (sign[0] == '/')
    return replaced(text, sign, pattern, replacement);
  Text result;
  bool isAny = part.operands.empty() || part.operands[0].empty();
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if ((i == 0 || isLongest) && (isAny || pattern.matches({&c, 1})))
      c = static_cast<char>(sign[0] == '^' ? std::toupper(static_cast<unsigned char>(c))
                                           : std::tolower(static_cast<unsigned char>(c)));
    result.append(Text({&c, 1}, text.placeOf(i)));
  }
  return result;
}

Text Expander::replaced(const Text &text, std::string_view sign, const Pattern &pattern, const Text &replacement) {
  Text result;
  std::string_view bytes = text.bytes();
  if (pattern.isAnchored('#') || pattern.isAnchored('%')) {
    bool isAtBegin = pattern.isAnchored('#');
    Pattern rest = pattern.withoutAnchor();
    std::optional<size_t> length = isAtBegin ? rest.prefix(bytes, true) : rest.suffix(bytes, true);
    if (!length)
      return text;
    result = isAtBegin ? replacement : text.slice(0, text.size() - *length);
    result.append(isAtBegin ? text.slice(*length, text.size()) : replacement);
    return result;
  }
  bool isDone = false;
  for (size_t i = 0; i < text.size();) {
    std::optional<size_t> length = isDone ? std::nullopt : pattern.prefix(bytes.substr(i), true);
    if (!length || *length == 0) {
      result.append(text, i, i + 1);
      ++i;
      continue;
    }
    budget.hold(replacement.cost(), text.placeOf(i));
    result.append(replacement);
    i += *length;
    isDone = sign == "/";
  }
  return result;
}

} // namespace espalier::shell
