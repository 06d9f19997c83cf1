#include "runtime/jinja/macro.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt::jinja {

bool Macro::takesCaller() const {
  return std::ranges::any_of(stmt.signature.parameters, [](const auto &one) { return *one.first == "caller"; });
}

std::optional<Value> Macro::attribute(Run &run, const std::string &asked) {
  const Signature &signature = stmt.signature;
  if (asked == "name")
    return makeText(run, name);
  if (asked == "catch_kwargs")
    return signature.usesKwargs;
  if (asked == "catch_varargs")
    return signature.usesVarargs;
  if (asked == "caller")
    return signature.usesCaller;
  if (asked != "arguments")
    return std::nullopt;
  std::vector<Value> names;
  for (const auto &[parameter, byDefault] : signature.parameters)
    names.push_back(makeText(run, *parameter));
  return makeList(run, std::move(names), /*isTuple=*/true);
}

Value Macro::call(Run &run, const Arguments &given) {
  const Signature &signature = stmt.signature;
  std::vector<std::pair<std::string, Value>> named = given.named;
  auto takeNamed = [&](const std::string &wanted) -> std::optional<Value> {
    auto found = std::ranges::find(named, wanted, [](const auto &one) { return one.first; });
    if (found == named.end())
      return std::nullopt;
    Value value = found->second;
    named.erase(found);
    return value;
  };
  auto inner = std::make_shared<Scope>(scope);
  auto define = [&](const char *special, Value value) {
    inner->set(&*interpreter.tree.symbols.find(special), std::move(value));
  };
  size_t count = signature.parameters.size();
  for (size_t i = 0; i < count; ++i) {
    const auto &[parameter, byDefault] = signature.parameters[i];
    std::optional<Value> value = i < given.positional.size() ? given.positional[i] : takeNamed(*parameter);
    if (!value)
      value = byDefault ? interpreter.evaluate(*byDefault, inner)
                        : undefined(fmt::format("parameter '{}' was not provided", *parameter));
    inner->set(parameter, std::move(*value));
  }
  if (signature.usesCaller && !takesCaller())
    define("caller", takeNamed("caller").value_or(undefined("No caller defined")));
  if (signature.usesKwargs) {
    Dict rest;
    for (auto &[key, value] : named)
      rest.set(run, makeText(run, key), value);
    define("kwargs", makeDict(run, std::move(rest)));
  } else if (!named.empty()) {
    throw Fault(fmt::format("macro '{}' takes no keyword argument '{}'", name, named.front().first));
  }
  if (signature.usesVarargs) {
    auto first = given.positional.begin() + static_cast<std::ptrdiff_t>(std::min(count, given.positional.size()));
    define("varargs", makeList(run, {first, given.positional.end()}, /*isTuple=*/true));
  } else if (given.positional.size() > count) {
    throw Fault(fmt::format("macro '{}' takes not more than {} argument(s)", name, count));
  }
  return makeText(run, interpreter.textOf(stmt.body, inner));
}

} // namespace espalier::rt::jinja
