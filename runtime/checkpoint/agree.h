// What ranks decide together outside of an entry.
#pragma once

#include "runtime/executor.h"

#include <array>
#include <atomic>
#include <cstdint>
#include <vector>

namespace espalier::rt {

/// Shared by the ranks of a process.
class Agreement {
public:
  explicit Agreement(int ranks) : asked(ranks) {}

  /// Whether `mine` is true on any rank: the same answer on all, once all have asked. Throws RankStopped after an
  /// abort.
  bool isTrueOnAny(Executor &executor, bool mine) {
    // Questions are numbered, and two of them take turns: who asks the next but one has left the meeting of the next,
    // and with it all have read the answer to this one.
    uint64_t question = ++asked[executor.rankProgram().rank];
    std::atomic<uint64_t> &answer = affirmed[question % affirmed.size()];
    if (mine)
      answer = question;
    executor.meet();
    return answer == question;
  }

private:
  std::vector<uint64_t> asked; ///< questions of each rank
  std::array<std::atomic<uint64_t>, 2> affirmed{};
};

} // namespace espalier::rt
