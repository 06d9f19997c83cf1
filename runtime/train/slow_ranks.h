// Finds ranks that compute slower than others with the same work, such as a rank on a throttled or shared processor.
#pragma once

#include <span>
#include <string>
#include <vector>

namespace espalier::rt {

/// The position of a rank: its pipeline stage, whose ranks do the same work, and its host.
struct RankSite {
  int stage = 0;
  std::string host;
};

/// A rank that is slower than the median of its stage.
struct SlowRank {
  int rank = 0;
  double ratio = 1;               ///< its time over the median, in the last window
  double seconds = 0, median = 0; ///< compute seconds of a step: of this rank, and of the median rank of its stage
  bool isWholeHost = false;       ///< every rank of its host is slow, and other hosts are not
};

/// Compares the compute times of all ranks, window by window. A window is a number of steps. Every rank holds one and
/// gets the same times, so the results are equal on all ranks.
class SlowRanks {
public:
  static constexpr double namedRatio = 1.15; ///< of a slow rank to the median
  static constexpr int windows = 3;          ///< in a row, after which a rank is named

  explicit SlowRanks(std::vector<RankSite> sites) : sites(std::move(sites)), slowWindows(this->sites.size()) {}

  /// Adds a window: the compute seconds of a step of each rank. A stage with one rank has nothing to compare with.
  void add(std::span<const double> seconds);

  /// Returns the ranks that were slow in the last three windows, the slowest first.
  const std::vector<SlowRank> &slow() const { return found; }
  /// Returns the ranks of slow() that were not slow before the last window.
  std::vector<SlowRank> news() const;
  /// Returns the ranks that were slow before the last window and are not any more.
  const std::vector<int> &recovered() const { return theRecovered; }

private:
  std::vector<RankSite> sites;
  std::vector<int> slowWindows; ///< by rank: slow windows in a row
  std::vector<SlowRank> found;
  std::vector<int> theRecovered;
};

/// Returns a sentence about a rank, with the number of steps of a window.
std::string describeSlow(const SlowRank &rank, const std::string &host, int64_t windowSteps);

} // namespace espalier::rt
