// The variable `loop` of a for statement.
#pragma once

#include "runtime/jinja/interpreter.h"

namespace espalier::rt::jinja {

class Loop : public Object {
public:
  Loop(Interpreter &interpreter, Run &run, const Stmt &stmt, Value iterable, ScopePtr scope, int64_t depth);
  const char *type() const override { return "LoopContext"; }
  bool isCallable() const override { return true; }
  std::optional<int64_t> length(Run &run) override;
  std::optional<Value> attribute(Run &run, const std::string &name) override;
  /// Executes a recursive loop with other values.
  Value call(Run &run, const Arguments &arguments) override;
  /// Goes to the next value.
  bool next(Run &run, Value &value);
  std::string repr(Run &run) const override;

private:
  bool peek(Run &run);
  Value cycle(const Arguments &arguments) const;
  Value hasChanged(Run &run, const Arguments &arguments);

  Interpreter &interpreter;
  const Stmt &stmt;
  const Value iterable;
  const ScopePtr scope; ///< around the loop
  const int64_t depth;
  std::unique_ptr<Iterator> iterator;
  int64_t index = -1;
  std::optional<int64_t> count;
  std::optional<Value> before, current, after; ///< the values around the current one, as far as they are known
  std::optional<std::vector<Value>> lastCompared;
};

} // namespace espalier::rt::jinja
