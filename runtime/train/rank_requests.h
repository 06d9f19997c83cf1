// The requests that all ranks sum in every entry, in the scalar StopRequests. The sum tells all ranks the same at the
// same step border, without a message of its own.
#pragma once

namespace espalier::rt {

/// The requests of one rank, or those of any rank.
struct RankRequests {
  bool stops = false;  ///< the rank's process was asked to stop
  bool writes = false; ///< the rank's thread writes a checkpoint

  /// Returns the rank's summand.
  float summand() const { return (stops ? stopRequest : 0) + (writes ? 1.0F : 0); }

  /// Returns the requests of all ranks from their sum. If any rank stops, all count as writing.
  static RankRequests ofSum(float sum) { return {sum >= stopRequest, sum > 0}; }

private:
  /// More than the number of ranks, so that the summands of writing ranks never reach it. A sum beyond 2^24 is rounded,
  /// but not below this number.
  static constexpr float stopRequest = 1 << 20;
};

} // namespace espalier::rt
