// Decides which of the reported failures of a run was the first. Counts polls, not wall time, as Watch does.
#pragma once

#include "runtime/status.h"

#include <optional>

namespace espalier::rt::launch {

/// Collects failures and selects the first one.
class FirstFailure {
public:
  /// Starts without a failure. A failure that may be a consequence of another one counts only after `patience`
  /// polls.
  explicit FirstFailure(int patience = 2) : patience(patience) {}

  /// Adds a reported failure. A failure that is a cause replaces one that may be a consequence.
  void consider(const Failure &failure) {
    if (!first || (first->isEcho && !failure.isEcho && !isDecided()))
      first = failure;
  }

  /// Counts one poll of the supervisor.
  void poll() { polls += first.has_value(); }

  /// Returns whether the first failure is final.
  bool isDecided() const { return first && (!first->isEcho || polls >= patience); }

  /// Returns the first failure so far.
  const std::optional<Failure> &failure() const { return first; }

private:
  int patience, polls = 0;
  std::optional<Failure> first;
};

} // namespace espalier::rt::launch
