// Limits of the evaluation of a script.
#pragma once

#include "compiler/import/shell/word_reader.h"

#include <cstddef>

namespace espalier::shell {

/// Counts work and memory, so that a script of any kind ends soon.
class Budget {
public:
  static constexpr size_t mostSteps = 100000000, stepsPerCommand = 1000; ///< a step is one character compared or copied
  static constexpr size_t mostBytes = 8 << 20;

  void step(size_t count, const Place &place) {
    if ((steps += count) > mostSteps)
      throw Fault(place, "the script is not evaluated to its end, because it takes more than 100000 commands");
  }
  /// Counts the memory of a value that was made. Values that are gone count, too.
  void hold(size_t count, const Place &place) {
    step(count, place);
    if ((bytes += count) > mostBytes)
      throw Fault(place, "the script expands to more than 8 MiB");
  }

private:
  size_t steps = 0, bytes = 0;
};

} // namespace espalier::shell
