// What ranks tell each other outside of an entry: words, over the communicator, hence the same between threads and
// between processes.
#pragma once

#include "runtime/comm/comm.h"

#include <string>
#include <vector>

namespace espalier::rt {

/// One rank's end.
class Agreement {
public:
  /// Bytes of a rank's words; longer ones are cut.
  static constexpr size_t wordBytes = 4096;

  /// `isFirstHere`: no rank below this one is in its process, so that it alone changes what they share. All ranks make
  /// theirs in the same order as they load. The communicator outlives it.
  Agreement(Communicator &communicator, bool isFirstHere, int spins);

  /// What each rank says, by rank; returns once all have said it. Throws RankStopped after an abort.
  std::vector<std::string> tell(const std::string &mine);

  /// The first words, in the order of ranks, that are not empty: the same on all ranks.
  std::string first(const std::string &mine);

  bool isFirstHere() const { return isFirst; }
  bool isLeader() const { return communicator.rank() == 0; }

  /// Bytes that it takes where `ranks` share memory, for all of them.
  static size_t sharedBytes(size_t ranks) { return ranks * ranks * wordBytes; }

private:
  Communicator &communicator;
  const bool isFirst;
  const int spins;
  const uint32_t group;
  std::byte *const words; ///< of all ranks
};

} // namespace espalier::rt
