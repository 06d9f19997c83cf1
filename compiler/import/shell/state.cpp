#include "compiler/import/shell/state.h"

#include <algorithm>

namespace espalier::shell {

namespace {

bool holdsFlag(const Text &text) {
  size_t begin = text.bytes().find_first_not_of(" \t\n");
  Cause cause = text.unknown();
  return (begin != std::string::npos && text[begin] == '-' && text[begin + 1] == '-') || (cause && cause->mayBeFlags);
}

bool holdsFlag(const Variable &variable) {
  return std::ranges::any_of(variable.elements, [](const auto &element) { return holdsFlag(element.second); });
}

Text joined(const Text &text, const Text &other, const Cause &condition) {
  if (text == other)
    return text;
  return {differing(condition, holdsFlag(text) || holdsFlag(other)), text.empty() ? other.placeOf(0) : text.placeOf(0)};
}

bool haveSameKeys(const Variable &one, const Variable &other) {
  return std::ranges::equal(
      one.elements, other.elements, {}, [](const auto &element) { return element.first; },
      [](const auto &element) { return element.first; });
}

/// Returns the join of two variables. One that is set in one branch only is null in the other.
std::shared_ptr<const Variable> joined(const Variable *one, const Variable *other, const Cause &condition) {
  auto result = std::make_shared<Variable>(one ? *one : *other);
  if (one && other && haveSameKeys(*one, *other)) {
    for (auto &[index, text] : result->elements)
      text = joined(text, other->elements.at(index), condition);
    if (!result->unknownSize)
      result->unknownSize = other->unknownSize;
    return result;
  }
  bool isScalar = (!one || one->elements.size() <= 1) && (!other || other->elements.size() <= 1);
  Cause cause = differing(condition, (one && holdsFlag(*one)) || (other && holdsFlag(*other)));
  Place place;
  for (const Variable *variable : {one, other})
    if (variable && !variable->elements.empty() && !place.file)
      place = variable->elements.begin()->second.placeOf(0);
  result->elements = {{Index(), Text(cause, place)}};
  result->unknownSize = isScalar ? nullptr : cause;
  return result;
}

} // namespace

Cause differing(const Cause &condition, bool mayBeFlags) {
  auto cause = std::make_shared<UnknownCause>(*condition);
  cause->isNotGiven = false;
  cause->mayBeFlags = mayBeFlags;
  return cause;
}

void join(std::optional<Launch> &launch, const std::optional<Launch> &other, const Cause &condition) {
  if (!launch || !other) {
    launch = launch ? launch : other;
    return;
  }
  if (launch->words.size() != other->words.size()) {
    launch->conflict = condition;
    return;
  }
  for (size_t i = 0; i < launch->words.size(); ++i)
    launch->words[i] = joined(launch->words[i], other->words[i], condition);
  launch->conflict = launch->conflict ? launch->conflict : other->conflict;
}

void join(State &state, const State &other, const Cause &condition) {
  for (auto &[name, variable] : state.variables) {
    auto found = other.variables.find(name);
    if (found == other.variables.end())
      variable = joined(variable.get(), nullptr, condition);
    else if (variable != found->second)
      variable = joined(variable.get(), found->second.get(), condition);
  }
  for (const auto &[name, variable] : other.variables)
    if (!state.variables.contains(name))
      state.variables[name] = joined(nullptr, variable.get(), condition);
  auto holdsText = [](const Text &text) { return holdsFlag(text); };
  if (state.arguments.size() != other.arguments.size()) {
    state.unknownArguments = differing(condition, std::ranges::any_of(state.arguments, holdsText) ||
                                                      std::ranges::any_of(other.arguments, holdsText));
    state.arguments.resize(std::min(state.arguments.size(), other.arguments.size()));
  }
  for (size_t i = 0; i < state.arguments.size(); ++i)
    state.arguments[i] = joined(state.arguments[i], other.arguments[i], condition);
  state.unknownArguments = state.unknownArguments ? state.unknownArguments : other.unknownArguments;
  std::erase_if(state.functions, [&](const auto &entry) { // bash may call either; a call of neither is no launch
    auto found = other.functions.find(entry.first);
    return found != other.functions.end() && found->second != entry.second;
  });
  state.functions.insert(other.functions.begin(), other.functions.end());
  join(state.launch, other.launch, condition);
  if (state.status.value != other.status.value)
    state.status = Truth::unknown(condition);
}

} // namespace espalier::shell
