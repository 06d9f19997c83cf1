// The part of the interpreter that evaluates expressions.
#include "runtime/jinja/filters.h"
#include "runtime/jinja/interpreter.h"
#include "runtime/jinja/operators.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt::jinja {

Value Interpreter::evaluate(const Expr &expr, const ScopePtr &scope) {
  run.step();
  Run::Level level(run);
  line = expr.line;
  auto part = [&](size_t i) { return evaluate(*expr.parts[i], scope); };
  switch (expr.kind) {
  case ExprKind::Constant:
    return expr.constant;
  case ExprKind::Name:
    return lookUp(expr.symbol, scope);
  case ExprKind::List:
  case ExprKind::Tuple:
  case ExprKind::Dict:
    return evaluateCollection(expr, scope);
  case ExprKind::Attribute:
    return attributeOf(run, part(0), *expr.symbol);
  case ExprKind::Item: {
    Value object = part(0);
    return itemOf(run, object, part(1));
  }
  case ExprKind::Slice:
    return evaluateSlice(expr, scope);
  case ExprKind::Call: {
    Value function = part(0);
    return callValue(run, function, evaluateArguments(expr, scope));
  }
  case ExprKind::Filter:
    return evaluateFilter(expr, part(0), scope);
  case ExprKind::Test:
    return evaluateTest(expr, scope);
  case ExprKind::Not:
    return !isTrue(*expr.parts[0], scope);
  case ExprKind::Negative:
    return negative(part(0));
  case ExprKind::Positive:
    return positive(part(0));
  case ExprKind::And:
  case ExprKind::Or: {
    Value left = part(0);
    return jinja::isTrue(run, left) == (expr.kind == ExprKind::And) ? part(1) : left;
  }
  case ExprKind::Binary: {
    Value left = part(0);
    return binary(run, *expr.symbol, left, part(1));
  }
  case ExprKind::Compare:
    return evaluateCompare(expr, scope);
  case ExprKind::Concat:
    return evaluateConcat(expr, scope);
  case ExprKind::Conditional:
    if (isTrue(*expr.parts[0], scope))
      return part(1);
    return expr.parts[2] ? part(2)
                         : undefined(fmt::format("the inline if-expression on line {} evaluated to false and no else "
                                                 "section was defined.",
                                                 expr.line));
  }
  return {};
}

Value Interpreter::evaluateCollection(const Expr &expr, const ScopePtr &scope) {
  std::vector<Value> items;
  for (const ExprPtr &part : expr.parts)
    items.push_back(evaluate(*part, scope));
  if (expr.kind != ExprKind::Dict)
    return makeList(run, std::move(items), expr.kind == ExprKind::Tuple);
  Dict dict;
  for (size_t i = 0; i < items.size(); i += 2)
    dict.set(run, items[i], items[i + 1]);
  return makeDict(run, std::move(dict));
}

Value Interpreter::evaluateSlice(const Expr &expr, const ScopePtr &scope) {
  Value parts[4];
  for (size_t i = 0; i < 4; ++i)
    if (expr.parts[i])
      parts[i] = evaluate(*expr.parts[i], scope);
  return sliceOf(run, parts[0], parts[1], parts[2], parts[3]);
}

Value Interpreter::evaluateFilter(const Expr &expr, const Value &value, const ScopePtr &scope) {
  Filter filter = findFilter(*expr.symbol);
  if (!filter)
    throw Fault(fmt::format("No filter named '{}'.", *expr.symbol));
  return filter(run, value, evaluateArguments(expr, scope));
}

/// Applies the filters of a block to its text.
Value Interpreter::evaluateFilters(const Expr &expr, const Value &block, const ScopePtr &scope) {
  return evaluateFilter(expr, expr.parts[0] ? evaluateFilters(*expr.parts[0], block, scope) : block, scope);
}

Value Interpreter::evaluateTest(const Expr &expr, const ScopePtr &scope) {
  Value value = evaluate(*expr.parts[0], scope);
  Test test = findTest(*expr.symbol);
  if (!test)
    throw Fault(fmt::format("No test named '{}'.", *expr.symbol));
  return test(run, value, evaluateArguments(expr, scope));
}

Value Interpreter::evaluateCompare(const Expr &expr, const ScopePtr &scope) {
  Value left = evaluate(*expr.parts[0], scope);
  for (size_t i = 0; i < expr.symbols.size(); ++i) {
    Value right = evaluate(*expr.parts[i + 1], scope);
    if (!compare(run, *expr.symbols[i], left, right))
      return false;
    left = std::move(right);
  }
  return true;
}

Value Interpreter::evaluateConcat(const Expr &expr, const ScopePtr &scope) {
  std::string all;
  for (const ExprPtr &part : expr.parts) {
    all += str(run, evaluate(*part, scope));
    run.take(all.size() / expr.parts.size());
  }
  return makeText(run, std::move(all));
}

Arguments Interpreter::evaluateArguments(const Expr &call, const ScopePtr &scope) {
  Arguments arguments;
  for (const ExprPtr &argument : call.arguments)
    arguments.positional.push_back(evaluate(*argument, scope));
  for (const auto &[name, argument] : call.named)
    arguments.named.emplace_back(*name, evaluate(*argument, scope));
  if (call.star)
    for (const Value &value : listOf(run, evaluate(*call.star, scope)))
      arguments.positional.push_back(value);
  if (!call.stars)
    return arguments;
  Value mapping = evaluate(*call.stars, scope);
  if (!mapping.dict())
    throw Fault(fmt::format("argument after ** must be a mapping, not {}", typeOf(mapping)));
  for (const auto &[key, value] : mapping.dict()->items) {
    bool isNew = key.text() && std::ranges::find(arguments.named, key.text()->bytes,
                                                 [](const auto &one) { return one.first; }) == arguments.named.end();
    if (!isNew)
      throw Fault("keywords of a call must be strings that differ");
    arguments.named.emplace_back(key.text()->bytes, value);
  }
  return arguments;
}

} // namespace espalier::rt::jinja
