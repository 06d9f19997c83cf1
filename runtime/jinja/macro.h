// A macro, or the body of a call block, which a template calls like a function.
#pragma once

#include "runtime/jinja/interpreter.h"

namespace espalier::rt::jinja {

class Macro : public Object {
public:
  Macro(Interpreter &interpreter, const Stmt &stmt, std::string name, ScopePtr scope)
      : interpreter(interpreter), stmt(stmt), name(std::move(name)), scope(std::move(scope)) {}
  const char *type() const override { return "Macro"; }
  bool isCallable() const override { return true; }
  std::optional<Value> attribute(Run &run, const std::string &name) override;
  Value call(Run &run, const Arguments &arguments) override;
  std::string repr(Run &) const override { return "<Macro '" + name + "'>"; }

private:
  bool takesCaller() const; ///< whether `caller` is a parameter

  Interpreter &interpreter;
  const Stmt &stmt;
  const std::string name;
  const ScopePtr scope; ///< where the macro was defined
};

} // namespace espalier::rt::jinja
