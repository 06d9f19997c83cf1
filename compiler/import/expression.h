// Small arithmetic for model files: "first_of(intermediate_size, 4 * hidden_size)".
// Sizes may be unset; an unset operand makes its expression unset, and first_of skips it.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>

namespace espalier {

/// Outcome of an evaluation. `fault` is a lower-case sentence, empty when all is well.
struct ExpressionValue {
  std::optional<double> value; ///< unset when an operand is unset
  std::string fault;
  std::set<std::string> names; ///< names that were read, in order of the alphabet
};

/// Gives the value of a name; `known` is set to false for a name that does not exist.
using NameLookup = std::function<std::optional<double>(const std::string &name, bool &known)>;

/// What a quotient is: exact, or the whole part as in a shell, which has the remainder % beside it.
enum class Division { Exact, Whole };

/// Evaluates + - * /, parentheses, numbers, names and first_of(a, ...), floor, ceil, sqrt, min,
/// max. Values are doubles: integers are exact to 2^53. Depth is bounded by 32.
ExpressionValue evaluateExpression(std::string_view text, const NameLookup &lookup,
                                   Division division = Division::Exact);

} // namespace espalier
