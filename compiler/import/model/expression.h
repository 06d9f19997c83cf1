// Evaluates small arithmetic expressions of model files, such as "first_of(intermediate_size, 4 * hidden_size)". Sizes
// may be unset. An unset operand makes its expression unset, and first_of skips it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace espalier {

/// The result of an evaluation. `fault` is a lower-case error text, or empty on success.
struct ExpressionValue {
  std::optional<double> value; ///< unset if an operand is unset
  std::string fault;
  std::set<std::string> names; ///< names that were read, in alphabetical order
};

/// Returns the value of a name. Sets `known` to false if the name does not exist.
using NameLookup = std::function<std::optional<double>(const std::string &name, bool &known)>;

/// Evaluates + - * /, parentheses, numbers, names, first_of(a, ...), floor, ceil, sqrt, log, min and max. Values
/// are doubles, so integers are exact up to 2^53. Nesting is limited to 32 levels.
ExpressionValue evaluateExpression(std::string_view text, const NameLookup &lookup);

} // namespace espalier
