// Measures the ranks of a run and the links between them before the run, and finds those that are slower than others.
#pragma once

#include "runtime/comm/comm.h"
#include "tools/machine/calibrate.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// The figures of one rank, measured while all ranks measure.
struct RankFigures {
  std::string host;
  MeasuredMachine machine; ///< of one thread; without a link
};

/// The link between two ranks, measured while no other rank works.
struct PairFigures {
  int first = 0, second = 0;
  double bytesPerSecond = 0, latencySeconds = 0;
};

/// The measurements, which are equal on all ranks.
struct Preflight {
  std::vector<RankFigures> ranks;
  std::vector<PairFigures> pairs;

  /// Returns whether a pair has its ranks on two hosts.
  bool isBetweenHosts(const PairFigures &pair) const;
};

/// Returns the pairs whose links are measured: all ranks at distances 1, 2, 4, ..., so that each rank has several links
/// and n ranks have n log n.
std::vector<std::pair<int, int>> measuredPairs(int ranks);

/// Returns the shared memory in bytes that the ranks' communicators need together.
size_t preflightBytes(int ranks);

/// Measures as one rank. All ranks call it at the same time. Each measurement takes at least `seconds`. Throws
/// RankStopped if another rank has failed.
Preflight measureRanks(rt::Communicator &communicator, bool isFirstHere, double seconds);

/// Returns a sentence for each rank whose product or memory is 15 % slower than the median, and for each link that is
/// 30 % slower than the median of links of its kind (within a host, or between hosts).
std::vector<std::string> outliersOf(const Preflight &preflight);

/// Returns the medians as one machine for clusterYaml().
MeasuredMachine typicalMachine(const Preflight &preflight);

} // namespace espalier
