// Messages between ranks outside of an entry, sent over the communicator, so threads and processes use the same code.
#pragma once

#include "runtime/comm/comm.h"

#include <string>
#include <vector>

namespace espalier::rt {

/// One rank's endpoint.
class Agreement {
public:
  /// The size of a rank's message in bytes; longer messages are cut.
  static constexpr size_t messageBytes = 4096;

  /// `isFirstHere`: this is the lowest rank of its process, so it alone changes state that the ranks of the process
  /// share. All ranks construct their Agreements in the same order while loading. The communicator must outlive this
  /// object.
  Agreement(Communicator &communicator, bool isFirstHere, int spins);

  /// All-gathers one message per rank; returns them by rank. Throws RankStopped after an abort.
  std::vector<std::string> tell(const std::string &mine);

  /// Returns the first non-empty message in rank order, the same on all ranks.
  std::string first(const std::string &mine);

  bool isFirstHere() const { return isFirst; }
  bool isLeader() const { return communicator.rank() == 0; }

  /// Returns the shared memory in bytes that the Agreements of `ranks` ranks need together.
  static size_t sharedBytes(size_t ranks) { return ranks * ranks * messageBytes; }

private:
  Communicator &communicator;
  const bool isFirst;
  const int spins;
  const uint32_t group;
  std::byte *const messages; ///< receive buffer of all ranks' messages
};

} // namespace espalier::rt
