// Which failure was the first of a run, of those that its launchers tell of. Counts looks and no clock, as Watch does.
#pragma once

#include "runtime/status.h"

#include <optional>

namespace espalier::rt::launch {

class Verdict {
public:
  /// `patience`: looks for which one that may follow from another is held back.
  explicit Verdict(int patience = 2) : patience(patience) {}

  void consider(const Failure &failure) {
    if (!first || (first->isEcho && !failure.isEcho && !isDecided()))
      first = failure;
  }

  /// A look of the watcher passes.
  void look() { looks += first.has_value(); }

  bool isDecided() const { return first && (!first->isEcho || looks >= patience); }

  /// The first failure so far.
  const std::optional<Failure> &failure() const { return first; }

private:
  int patience, looks = 0;
  std::optional<Failure> first;
};

} // namespace espalier::rt::launch
