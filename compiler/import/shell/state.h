// The variables of a shell and the launch that it has reached, and the join of two states after a branch that may go
// either way.
#pragma once

#include "compiler/import/shell/syntax.h"

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::shell {

/// The index of an array element: a number, or the key of an associative array.
using Index = std::pair<int64_t, std::string>;

/// A variable. A scalar is element 0. Without elements it is set to nothing, as after `unset` or `local NAME`.
struct Variable {
  std::map<Index, Text> elements;
  bool isAssociative = false, isExported = false;
  Cause unknownSize; ///< set if the number of elements is unknown
};

/// The status of a command, or a condition.
struct Truth {
  enum { No, Yes, Unknown } value = Yes;
  Cause cause; ///< of Unknown
  static Truth of(bool isTrue) { return {isTrue ? Yes : No, nullptr}; }
  static Truth unknown(Cause cause) { return {Unknown, std::move(cause)}; }
  Truth negated() const { return value == Unknown ? *this : of(value == No); }
};

/// A command that starts a .py file. `conflict` is set if another branch starts one with more or fewer words.
struct Launch {
  std::vector<Text> words;
  Cause conflict;
};

/// The state of a shell between two commands.
struct State {
  std::map<std::string, std::shared_ptr<const Variable>> variables;
  std::vector<Text> arguments;  ///< $1, $2, ...
  Cause unknownArguments;       ///< set if there may be more of them, after a branch
  Cause unknownCount;           ///< set if $# is unknown, because nobody gives arguments
  bool areAllArguments = false; ///< the arguments behind the last one are empty, not unknown
  std::map<std::string, const Node *> functions;
  std::optional<Launch> launch;
  Truth status;
  /// The command that interrupts the script, if any. `levels` counts the loops that `break` or `continue` leaves.
  enum Flow { Normal, Break, Continue, Return, Exit } flow = Normal;
  int64_t levels = 0;
};

/// Returns a cause for values that differ between the branches of a condition.
Cause differing(const Cause &condition, bool mayBeFlags);

/// Makes `state` the join of itself and the state of the other branch: values that differ are unknown because of the
/// condition. The flow stays.
void join(State &state, const State &other, const Cause &condition);
void join(std::optional<Launch> &launch, const std::optional<Launch> &other, const Cause &condition);

} // namespace espalier::shell
