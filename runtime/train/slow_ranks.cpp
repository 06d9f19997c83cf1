#include "runtime/train/slow_ranks.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

void SlowRanks::add(std::span<const double> seconds) {
  std::vector<SlowRank> now(sites.size());
  for (size_t rank = 0; rank < sites.size(); ++rank) {
    std::vector<double> peers;
    for (size_t other = 0; other < sites.size(); ++other)
      if (sites[other].stage == sites[rank].stage)
        peers.push_back(seconds[other]);
    auto middle = peers.begin() + (std::ssize(peers) - 1) / 2; // of two ranks, the faster one
    std::ranges::nth_element(peers, middle);
    double ratio = *middle > 0 ? seconds[rank] / *middle : 1;
    now[rank] = {static_cast<int>(rank), ratio, seconds[rank], *middle};
    slowWindows[rank] = ratio > namedRatio ? slowWindows[rank] + 1 : 0;
  }
  theRecovered.clear();
  for (const SlowRank &before : found)
    if (slowWindows[static_cast<size_t>(before.rank)] == 0)
      theRecovered.push_back(before.rank);
  auto isSlow = [&](size_t rank) { return slowWindows[rank] >= windows; };
  found.clear();
  for (size_t rank = 0; rank < sites.size(); ++rank) {
    if (!isSlow(rank))
      continue;
    bool isWhole = true, hasOthers = false;
    for (size_t other = 0; other < sites.size(); ++other) {
      bool isHere = sites[other].host == sites[rank].host;
      isWhole &= isHere == isSlow(other);
      hasOthers |= !isHere;
    }
    now[rank].isWholeHost = isWhole && hasOthers;
    found.push_back(now[rank]);
  }
  std::ranges::sort(found, [](const SlowRank &a, const SlowRank &b) {
    return std::pair(-a.ratio, a.rank) < std::pair(-b.ratio, b.rank); // the slowest first
  });
}

std::vector<SlowRank> SlowRanks::news() const {
  std::vector<SlowRank> ranks;
  for (const SlowRank &one : found)
    if (slowWindows[static_cast<size_t>(one.rank)] == windows)
      ranks.push_back(one);
  return ranks;
}

std::string describeSlow(const SlowRank &rank, const std::string &host, int64_t windowSteps) {
  return fmt::format("rank {} on {} is slow: it computes {:.4g} s a step, the median rank of its stage {:.4g} s "
                     "({:+.0f} %), in {} windows of {} steps{}",
                     rank.rank, host, rank.seconds, rank.median, 100 * (rank.ratio - 1), SlowRanks::windows,
                     windowSteps, rank.isWholeHost ? fmt::format("; all ranks of {} are slow", host) : "");
}

} // namespace espalier::rt
