#include "planner/search/cut_table.h"

#include <algorithm>

namespace espalier::planner {

CutTable::CutTable(StageRanges &ranges, const SplitPlayer &player, const Boundaries &boundaries, int stages)
    : ranges(ranges), player(player), boundaries(boundaries), stages(stages), rows(stages) {}

void CutTable::reset() {
  tabulated = 0;
  costsToGo.assign(stages + 1, {});
  open.clear();
  for (int stage = 0; stage <= stages; ++stage) {
    costsToGo[stage].resize(boundaries.width(stage));
    open.emplace_back(boundaries.width(stage), true);
  }
}

CutTable::Row &CutTable::rowOf(int stage, int first, int count) {
  std::vector<std::vector<Row>> &byFirst = rows[stage];
  size_t place = ranges.areUnlike() ? first : 0, size = count;
  if (byFirst.size() <= place)
    byFirst.resize(place + 1);
  if (byFirst[place].size() <= size)
    byFirst[place].resize(size + 1);
  Row &row = byFirst[place][size];
  if (row.least.size() < cuts.size())
    extend(row, stage, first, count);
  return row;
}

void CutTable::extend(Row &row, int stage, int first, int count) {
  const std::vector<StageOption> &options = ranges.options(stage, first, count);
  size_t from = row.least.size();
  row.least.resize(cuts.size(), kInfinity);
  row.options.resize(options.size());
  for (size_t option = 0; option < options.size(); ++option) {
    row.options[option].resize(cuts.size(), kInfinity);
    if (!options[option].fits)
      continue;
    for (size_t i = from; i < cuts.size(); ++i) {
      row.options[option][i] = player.seconds(cuts[i], stage, options[option]);
      row.least[i] = std::min(row.least[i], row.options[option][i]);
    }
  }
}

// Calls visit(count, least seconds of each cut on `count` layers) for all open boundaries that may follow `first`.
template <typename Visit> void CutTable::visitOpen(int stage, int first, Visit visit) {
  int most = boundaries.mostLayers(stage, first);
  for (int count = boundaries.leastLayers(stage, first); count <= most; ++count)
    if (isOpen(stage + 1, first + count))
      visit(count, least(stage, first, count));
}

int64_t CutTable::tabulate() {
  int64_t sums = 0;
  for (int stage = stages; stage >= 0; --stage)
    for (int first = boundaries.lowest(stage); first <= boundaries.highest(stage); ++first) {
      std::vector<double> &here = costsToGo[stage][first - boundaries.lowest(stage)];
      here.resize(cuts.size());
      std::fill(here.begin() + static_cast<std::ptrdiff_t>(tabulated), here.end(), stage == stages ? 0 : kInfinity);
      if (stage == stages || !isOpen(stage, first))
        continue;
      visitOpen(stage, first, [&](int count, const double *own) {
        const double *below = costToGo(stage + 1, first + count);
        for (size_t i = tabulated; i < cuts.size(); ++i)
          here[i] = std::min(here[i], own[i] + below[i]);
        sums += static_cast<int64_t>(cuts.size() - tabulated);
      });
    }
  tabulated = cuts.size();
  return sums;
}

// Descends the stages with the least seconds of each cut above a boundary. Added to the cost-to-go, this is the least
// over all splits with this boundary.
bool CutTable::close(double target) {
  std::vector<std::vector<double>> above = {std::vector<double>(cuts.size())}, next; // [first - lowest][cut]
  bool isAny = false;
  for (int stage = 0; stage < stages; ++stage) {
    next.assign(boundaries.width(stage + 1), std::vector<double>(cuts.size(), kInfinity));
    for (int first = boundaries.lowest(stage); first <= boundaries.highest(stage); ++first) {
      if (!isOpen(stage, first))
        continue;
      const std::vector<double> &here = above[first - boundaries.lowest(stage)];
      const double *toGo = costToGo(stage, first);
      bool isTooLong = false;
      for (size_t i = 0; i < cuts.size(); ++i)
        isTooLong |= here[i] + toGo[i] > target;
      if (isTooLong) {
        open[stage][first - boundaries.lowest(stage)] = false;
        isAny = true;
        continue;
      }
      visitOpen(stage, first, [&](int count, const double *own) {
        std::vector<double> &there = next[first + count - boundaries.lowest(stage + 1)];
        for (size_t i = 0; i < cuts.size(); ++i)
          there[i] = std::min(there[i], here[i] + own[i]);
      });
    }
    std::swap(above, next);
  }
  if (isAny)
    tabulated = 0;
  return isAny;
}

double CutTable::lowerBound() const {
  double most = 0;
  for (size_t i = 0; i < tabulated; ++i)
    most = std::max(most, costsToGo[0][0][i]);
  return most;
}

} // namespace espalier::planner
