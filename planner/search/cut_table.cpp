#include "planner/search/cut_table.h"

#include <algorithm>
#include <limits>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

} // namespace

CutTable::CutTable(StageChoices &choices, const SplitPlayer &player, const Boundaries &places, int stages)
    : choices(choices), player(player), places(places), stages(stages), rows(stages) {}

void CutTable::reset() {
  tabulated = 0;
  rests.assign(stages + 1, {});
  open.clear();
  for (int stage = 0; stage <= stages; ++stage) {
    rests[stage].resize(places.width(stage));
    open.emplace_back(places.width(stage), true);
  }
}

CutTable::Row &CutTable::rowOf(int stage, int first, int count) {
  std::vector<std::vector<Row>> &byFirst = rows[stage];
  size_t place = choices.areUnlike() ? first : 0, size = count;
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
  const std::vector<StageOption> &options = choices.of(stage, first, count);
  size_t from = row.least.size();
  row.least.resize(cuts.size(), kInfinity);
  row.choices.resize(options.size());
  for (size_t choice = 0; choice < options.size(); ++choice) {
    row.choices[choice].resize(cuts.size(), kInfinity);
    if (!options[choice].fits)
      continue;
    for (size_t i = from; i < cuts.size(); ++i) {
      row.choices[choice][i] = player.seconds(cuts[i], stage, options[choice]);
      row.least[i] = std::min(row.least[i], row.choices[choice][i]);
    }
  }
}

int64_t CutTable::tabulate() {
  int64_t sums = 0;
  for (int stage = stages; stage >= 0; --stage)
    for (int first = places.lowest(stage); first <= places.highest(stage); ++first) {
      std::vector<double> &here = rests[stage][first - places.lowest(stage)];
      here.resize(cuts.size());
      std::fill(here.begin() + static_cast<std::ptrdiff_t>(tabulated), here.end(), stage == stages ? 0 : kInfinity);
      if (stage == stages || !isOpen(stage, first))
        continue;
      int fewest = places.least(stage, first), most = places.most(stage, first);
      for (int count = fewest; count <= most; ++count) {
        if (!isOpen(stage + 1, first + count))
          continue;
        const double *own = least(stage, first, count), *behind = rest(stage + 1, first + count);
        for (size_t i = tabulated; i < cuts.size(); ++i)
          here[i] = std::min(here[i], own[i] + behind[i]);
        sums += static_cast<int64_t>(cuts.size() - tabulated);
      }
    }
  tabulated = cuts.size();
  return sums;
}

bool CutTable::close(double target) {
  std::vector<std::vector<double>> above = {std::vector<double>(cuts.size())}, below; // [first - lowest][cut]
  bool isAny = false;
  for (int stage = 0; stage < stages; ++stage) {
    below.assign(places.width(stage + 1), std::vector<double>(cuts.size(), kInfinity));
    for (int first = places.lowest(stage); first <= places.highest(stage); ++first) {
      const std::vector<double> &here = above[first - places.lowest(stage)];
      const double *behind = rest(stage, first);
      char &isHereOpen = open[stage][first - places.lowest(stage)];
      bool isTooLong = false;
      for (size_t i = 0; i < cuts.size(); ++i)
        isTooLong |= here[i] + behind[i] > target;
      if (isHereOpen && isTooLong) {
        isHereOpen = false;
        isAny = true;
      }
      if (!isHereOpen)
        continue;
      int fewest = places.least(stage, first), most = places.most(stage, first);
      for (int count = fewest; count <= most; ++count) {
        if (!isOpen(stage + 1, first + count))
          continue;
        std::vector<double> &next = below[first + count - places.lowest(stage + 1)];
        const double *own = least(stage, first, count);
        for (size_t i = 0; i < cuts.size(); ++i)
          next[i] = std::min(next[i], here[i] + own[i]);
      }
    }
    std::swap(above, below);
  }
  if (isAny)
    tabulated = 0;
  return isAny;
}

double CutTable::leastSeconds() const {
  double most = 0;
  for (size_t i = 0; i < tabulated; ++i)
    most = std::max(most, rests[0][0][i]);
  return most;
}

} // namespace espalier::planner
