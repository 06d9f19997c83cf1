// A recursive-descent evaluator. It evaluates while parsing and builds no tree.
#include "compiler/import/model/expression.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <fmt/format.h>
#include <vector>

namespace espalier {
namespace {

using Value = std::optional<double>;

class Evaluator {
public:
  Evaluator(std::string_view text, const NameLookup &lookup) : text(text), lookup(lookup) {}

  ExpressionValue run() {
    result.value = sum();
    skipSpace();
    if (result.fault.empty() && at < text.size())
      fail(fmt::format("unexpected '{}'", text[at]));
    if (result.fault.empty() && result.value && !std::isfinite(*result.value))
      fail("result is not a finite number");
    if (!result.fault.empty())
      result.value.reset();
    return result;
  }

private:
  void fail(std::string message) {
    if (result.fault.empty())
      result.fault = fmt::format("in expression '{}': {}", text, message);
    at = text.size();
  }
  void skipSpace() {
    while (at < text.size() && text[at] == ' ')
      ++at;
  }
  bool take(char c) {
    skipSpace();
    if (at >= text.size() || text[at] != c)
      return false;
    ++at;
    return true;
  }

  Value sum() {
    Value left = product();
    while (true) {
      if (take('+'))
        left = combine(left, product(), [](double a, double b) { return a + b; });
      else if (take('-'))
        left = combine(left, product(), [](double a, double b) { return a - b; });
      else
        return left;
    }
  }
  Value product() {
    Value left = factor();
    while (true) {
      if (take('*')) {
        left = combine(left, factor(), [](double a, double b) { return a * b; });
      } else if (take('/')) {
        Value right = factor();
        if (right && *right == 0)
          fail("division by zero");
        left = combine(left, right, [](double a, double b) { return a / b; });
      } else {
        return left;
      }
    }
  }
  template <typename Function> Value combine(Value a, Value b, Function function) {
    return a && b ? Value(function(*a, *b)) : std::nullopt;
  }

  Value factor() {
    if (++depth > 32)
      fail("nested deeper than 32 levels");
    Value value = unguardedFactor();
    --depth;
    return value;
  }
  Value unguardedFactor() {
    skipSpace();
    if (take('-')) {
      Value value = factor();
      return value ? Value(-*value) : value;
    }
    if (take('(')) {
      Value value = sum();
      if (!take(')'))
        fail("')' is missing");
      return value;
    }
    if (at < text.size() && (std::isdigit(static_cast<unsigned char>(text[at])) || text[at] == '.'))
      return number();
    return nameOrCall();
  }
  Value number() {
    double value = 0;
    auto [end, fault] = std::from_chars(text.data() + at, text.data() + text.size(), value);
    if (fault != std::errc())
      fail("number expected");
    else
      at = static_cast<size_t>(end - text.data());
    return value;
  }
  Value nameOrCall() {
    size_t begin = at;
    while (at < text.size() && (std::isalnum(static_cast<unsigned char>(text[at])) || text[at] == '_'))
      ++at;
    std::string name(text.substr(begin, at - begin));
    if (name.empty()) {
      fail("a number or a name is missing");
      return std::nullopt;
    }
    if (take('('))
      return call(name);
    bool known = true;
    Value value = lookup(name, known);
    if (!known)
      fail(fmt::format("'{}' is not defined", name));
    result.names.insert(name);
    return value;
  }
  Value call(const std::string &name) {
    std::vector<Value> arguments;
    do
      arguments.push_back(sum());
    while (take(','));
    if (!take(')'))
      fail("')' is missing");
    if (name == "first_of") {
      for (const Value &argument : arguments)
        if (argument)
          return argument;
      return std::nullopt;
    }
    bool pair = name == "min" || name == "max";
    if (!pair && name != "floor" && name != "ceil" && name != "sqrt" && name != "log")
      fail(fmt::format("no function '{}', there are first_of, floor, ceil, sqrt, log, min, max", name));
    else if (arguments.size() != (pair ? 2u : 1u))
      fail(fmt::format("{} takes {} argument{}, got {}", name, pair ? 2 : 1, pair ? "s" : "", arguments.size()));
    else
      return apply(name, arguments);
    return std::nullopt;
  }
  Value apply(const std::string &name, const std::vector<Value> &arguments) {
    for (const Value &argument : arguments)
      if (!argument)
        return std::nullopt;
    double a = *arguments[0];
    if (name == "floor")
      return std::floor(a);
    if (name == "ceil")
      return std::ceil(a);
    if (name == "sqrt")
      return std::sqrt(a);
    if (name == "log")
      return std::log(a);
    return name == "min" ? std::min(a, *arguments[1]) : std::max(a, *arguments[1]);
  }

  std::string_view text;
  const NameLookup &lookup;
  ExpressionValue result;
  size_t at = 0;
  int depth = 0;
};

} // namespace

ExpressionValue evaluateExpression(std::string_view text, const NameLookup &lookup) {
  if (text.size() > 1000)
    return {std::nullopt, "expression is longer than 1000 characters", {}};
  return Evaluator(text, lookup).run();
}

} // namespace espalier
