#include "runtime/jinja/interpreter.h"

#include "runtime/jinja/loop.h"
#include "runtime/jinja/macro.h"
#include "runtime/jinja/objects.h"
#include "runtime/jinja/operators.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt::jinja {

void Scope::set(Symbol name, Value value) {
  auto found = std::ranges::find(values, name, [](const auto &one) { return one.first; });
  if (found != values.end())
    found->second = std::move(value);
  else
    values.emplace_back(name, std::move(value));
}

Interpreter::~Interpreter() {
  for (const std::shared_ptr<Namespace> &one : namespaces)
    one->clear();
  for (const ScopePtr &scope : captured)
    scope->values.clear();
}

std::string Interpreter::render(const std::vector<std::pair<std::string, Value>> &variables) {
  auto globals = std::make_shared<Scope>(nullptr);
  auto define = [&](const std::string &name, const Value &value) {
    if (auto symbol = tree.symbols.find(name); symbol != tree.symbols.end())
      globals->set(&*symbol, value);
  };
  for (const auto &[name, value] : globalFunctions(run))
    define(name, value);
  define("namespace", makeObject<Function>(run, 1, [this](Run &, const Arguments &all) { return makeNamespace(all); }));
  for (const auto &[name, value] : variables)
    define(name, value);
  root = std::make_shared<Scope>(globals);
  execute(tree.body, root, text);
  return std::move(text);
}

Value Interpreter::makeNamespace(const Arguments &arguments) {
  run.take(sizeof(Namespace));
  auto made = std::make_shared<Namespace>();
  namespaces.push_back(made);
  for (const auto &[key, value] : dictOf(run, arguments).items)
    made->set(run, str(run, key), value);
  return std::shared_ptr<Object>(std::move(made));
}

std::shared_ptr<Macro> Interpreter::makeMacro(const Stmt &stmt, const std::string &name, const ScopePtr &scope) {
  run.take(sizeof(Macro));
  if (!std::exchange(scope->isCaptured, true))
    captured.push_back(scope);
  return std::make_shared<Macro>(*this, stmt, name, scope);
}

void Interpreter::print(const std::string &more, std::string &out) {
  run.take(more.size());
  out += more;
}

Interpreter::Flow Interpreter::execute(const Body &body, const ScopePtr &scope, std::string &out) {
  Run::Level level(run);
  for (const auto &stmt : body)
    if (Flow flow = execute(*stmt, scope, out); flow != Flow::Next)
      return flow;
  return Flow::Next;
}

std::string Interpreter::textOf(const Body &body, const ScopePtr &scope) {
  std::string out;
  execute(body, scope, out);
  return out;
}

Interpreter::Flow Interpreter::execute(const Stmt &stmt, const ScopePtr &scope, std::string &out) {
  run.step();
  line = stmt.line;
  switch (stmt.kind) {
  case StmtKind::Text:
    print(stmt.text, out);
    break;
  case StmtKind::Print:
    for (const ExprPtr &value : stmt.values)
      print(str(run, evaluate(*value, scope)), out);
    break;
  case StmtKind::For:
    executeFor(stmt, scope, out);
    break;
  case StmtKind::If:
    return executeIf(stmt, scope, out);
  case StmtKind::Set:
    assign(stmt.target, evaluate(*stmt.value, scope), scope);
    break;
  case StmtKind::SetBlock:
    executeSetBlock(stmt, scope);
    break;
  case StmtKind::Macro:
    scope->set(stmt.name, Value(std::shared_ptr<Object>(makeMacro(stmt, *stmt.name, scope))));
    break;
  case StmtKind::CallBlock:
    executeCall(stmt, scope, out);
    break;
  case StmtKind::FilterBlock: {
    Value inside = makeText(run, textOf(stmt.body, std::make_shared<Scope>(scope)));
    print(str(run, evaluateFilters(*stmt.value, inside, scope)), out);
    break;
  }
  case StmtKind::With:
    executeWith(stmt, scope, out);
    break;
  case StmtKind::Block:
    return execute(stmt.body, std::make_shared<Scope>(stmt.isScoped ? scope : root), out);
  case StmtKind::Generation:
    executeGeneration(stmt, scope, out);
    break;
  case StmtKind::Break:
    return Flow::Break;
  case StmtKind::Continue:
    return Flow::Continue;
  case StmtKind::Template:
    throw Fault(fmt::format("`{}` is refused: a chat template has no other templates", stmt.text));
  }
  return Flow::Next;
}

Interpreter::Flow Interpreter::executeIf(const Stmt &stmt, const ScopePtr &scope, std::string &out) {
  for (const auto &[condition, body] : stmt.branches)
    if (isTrue(*condition, scope))
      return execute(body, scope, out);
  return execute(stmt.otherwise, scope, out);
}

void Interpreter::executeFor(const Stmt &stmt, const ScopePtr &scope, std::string &out) {
  Value iterable = evaluate(*stmt.value, scope);
  if (!stmt.isRecursive)
    return loopOver(stmt, std::move(iterable), scope, 0, out);
  std::string inside; // the text of a recursive loop is complete before it is printed
  loopOver(stmt, std::move(iterable), scope, 0, inside);
  print(inside, out);
}

void Interpreter::loopOver(const Stmt &stmt, Value iterable, const ScopePtr &scope, int64_t depth, std::string &out) {
  if (stmt.test)
    iterable = filtered(run, iterable, [this, &stmt, scope](Run &, Value &item) {
      auto inner = std::make_shared<Scope>(scope);
      assign(stmt.target, item, inner);
      return isTrue(*stmt.test, inner);
    });
  auto loop = std::make_shared<Loop>(*this, run, stmt, std::move(iterable), scope, depth);
  auto symbol = tree.symbols.find("loop");
  bool isDone = false; // whether the body came to its end in any iteration; jinja2 decides the else part by this
  for (Value item; loop->next(run, item);) {
    auto inner = std::make_shared<Scope>(scope);
    run.take(sizeof(Scope));
    if (stmt.usesLoop)
      inner->set(&*symbol, Value(std::shared_ptr<Object>(loop)));
    assign(stmt.target, item, inner);
    Flow flow = execute(stmt.body, inner, out);
    if (flow == Flow::Break)
      break;
    isDone |= flow == Flow::Next;
  }
  if (!isDone)
    execute(stmt.otherwise, std::make_shared<Scope>(scope), out);
}

void Interpreter::executeSetBlock(const Stmt &stmt, const ScopePtr &scope) {
  Value value = makeText(run, textOf(stmt.body, std::make_shared<Scope>(scope)));
  assign(stmt.target, stmt.value ? evaluateFilters(*stmt.value, value, scope) : value, scope);
}

void Interpreter::executeCall(const Stmt &stmt, const ScopePtr &scope, std::string &out) {
  Value function = evaluate(*stmt.value->parts[0], scope);
  Arguments arguments = evaluateArguments(*stmt.value, scope);
  arguments.named.emplace_back("caller", Value(std::shared_ptr<Object>(makeMacro(stmt, "caller", scope))));
  print(str(run, callValue(run, function, arguments)), out);
}

void Interpreter::executeWith(const Stmt &stmt, const ScopePtr &scope, std::string &out) {
  auto inner = std::make_shared<Scope>(scope);
  for (const auto &[target, value] : stmt.bindings)
    assign(target, evaluate(*value, scope), inner);
  execute(stmt.body, inner, out);
}

void Interpreter::executeGeneration(const Stmt &stmt, const ScopePtr &scope, std::string &out) {
  std::string inside = textOf(stmt.body, std::make_shared<Scope>(scope));
  generated.emplace_back(text.size(), text.size() + inside.size());
  print(inside, out);
}

void Interpreter::assign(const Target &target, const Value &value, const ScopePtr &scope) {
  if (target.isTuple) {
    std::vector<Value> values = listOf(run, value);
    if (values.size() != target.parts.size())
      throw Fault(fmt::format("{} values are unpacked, got {}", target.parts.size(), values.size()));
    for (size_t i = 0; i < values.size(); ++i)
      assign(target.parts[i], values[i], scope);
  } else if (!target.attribute) {
    scope->set(target.name, value);
  } else if (auto *space = lookUp(target.name, scope).as<Namespace>()) {
    space->set(run, *target.attribute, value);
  } else {
    throw Fault(fmt::format("cannot assign attribute on non-namespace object '{}'", *target.name));
  }
}

Value Interpreter::lookUp(Symbol name, const ScopePtr &from) const {
  for (const Scope *scope = from.get(); scope; scope = scope->parent.get())
    for (const auto &[symbol, value] : scope->values)
      if (symbol == name)
        return value;
  return undefined(fmt::format("'{}' is undefined", *name));
}

} // namespace espalier::rt::jinja
