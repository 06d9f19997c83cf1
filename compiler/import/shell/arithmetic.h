// Evaluates the integer arithmetic of a shell.
#pragma once

#include "compiler/import/shell/text.h"

#include <cstdint>
#include <functional>
#include <string>

namespace espalier::shell {

/// The variables of an expression. An element of an array has an index text; that of a scalar is empty.
struct ArithmeticVariables {
  std::function<Text(const std::string &name, const std::string &index)> read;
  std::function<void(const std::string &name, const std::string &index, Text value)> write;
};

/// The result of an expression. `cause` is set if the value is unknown. `fault` is a text if bash refuses it.
struct ArithmeticResult {
  int64_t value = 0;
  Cause cause;
  std::string fault;
};

/// Evaluates an expression, with its assignments. Integers have 64 bits and wrap around. An empty text is 0.
ArithmeticResult evaluateArithmetic(const Text &expression, const ArithmeticVariables &variables);

} // namespace espalier::shell
