// Executes the tree of a template.
#pragma once

#include "runtime/jinja/nodes.h"

#include <functional>

namespace espalier::rt::jinja {

class Macro;
class Namespace;

/// The variables of a part of a template. A loop makes one for each iteration, a macro one for each call.
struct Scope {
  explicit Scope(std::shared_ptr<Scope> parent) : parent(std::move(parent)) {}
  void set(Symbol name, Value value);

  const std::shared_ptr<Scope> parent;
  std::vector<std::pair<Symbol, Value>> values;
  bool isCaptured = false; ///< by a macro
};
using ScopePtr = std::shared_ptr<Scope>;

class Interpreter {
public:
  Interpreter(Run &run, const Tree &tree) : run(run), tree(tree) {}
  ~Interpreter();
  Interpreter(const Interpreter &) = delete;

  /// Returns the text of the template with these variables.
  std::string render(const std::vector<std::pair<std::string, Value>> &variables);

  /// The positions of the generation blocks in the text, in bytes.
  std::vector<std::pair<size_t, size_t>> generated;
  int line = 1; ///< of the last statement or expression

private:
  friend class Loop;
  friend class Macro;
  enum class Flow { Next, Break, Continue };

  Flow execute(const Body &body, const ScopePtr &scope, std::string &out);
  Flow execute(const Stmt &stmt, const ScopePtr &scope, std::string &out);
  Flow executeIf(const Stmt &stmt, const ScopePtr &scope, std::string &out);
  void executeFor(const Stmt &stmt, const ScopePtr &scope, std::string &out);
  void loopOver(const Stmt &stmt, Value iterable, const ScopePtr &scope, int64_t depth, std::string &out);
  void executeSetBlock(const Stmt &stmt, const ScopePtr &scope);
  void executeCall(const Stmt &stmt, const ScopePtr &scope, std::string &out);
  void executeWith(const Stmt &stmt, const ScopePtr &scope, std::string &out);
  void executeGeneration(const Stmt &stmt, const ScopePtr &scope, std::string &out);
  std::string textOf(const Body &body, const ScopePtr &scope);
  void print(const std::string &text, std::string &out);
  void assign(const Target &target, const Value &value, const ScopePtr &scope);
  std::shared_ptr<Macro> makeMacro(const Stmt &stmt, const std::string &name, const ScopePtr &scope);
  Value makeNamespace(const Arguments &arguments);

  Value lookUp(Symbol name, const ScopePtr &scope) const;
  Value evaluate(const Expr &expr, const ScopePtr &scope);
  Value evaluateSlice(const Expr &expr, const ScopePtr &scope);
  Value evaluateCollection(const Expr &expr, const ScopePtr &scope);
  Value evaluateFilter(const Expr &expr, const Value &value, const ScopePtr &scope);
  Value evaluateFilters(const Expr &expr, const Value &block, const ScopePtr &scope);
  Value evaluateTest(const Expr &expr, const ScopePtr &scope);
  Value evaluateCompare(const Expr &expr, const ScopePtr &scope);
  Value evaluateConcat(const Expr &expr, const ScopePtr &scope);
  Arguments evaluateArguments(const Expr &call, const ScopePtr &scope);
  bool isTrue(const Expr &expr, const ScopePtr &scope) { return jinja::isTrue(run, evaluate(expr, scope)); }

  Run &run;
  const Tree &tree;
  ScopePtr root;
  std::string text; ///< of the whole template, until now
  // Scopes and namespaces may refer to themselves. The destructor empties them, so that their memory is freed.
  std::vector<ScopePtr> captured;
  std::vector<std::shared_ptr<Namespace>> namespaces;
};

} // namespace espalier::rt::jinja
