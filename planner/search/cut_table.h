// What the cuts of one choice of axes take under a target, stage by stage: on one stage at least, and on it and all
// behind it. All cuts are asked at once, so that a row holds one number for each, side by side.
#pragma once

#include "planner/search/boundaries.h"
#include "planner/search/cuts.h"

#include <vector>

namespace espalier::planner {

class CutTable {
public:
  /// All must outlive this.
  CutTable(StageChoices &choices, const SplitPlayer &player, const Boundaries &places, int stages);

  void add(Cut cut) { cuts.push_back(std::move(cut)); }
  size_t size() const { return cuts.size(); }

  /// Forgets what was tabulated and closed: `places` were narrowed to another target.
  void reset();

  /// Tabulates the cuts that are not yet; returns how many sums that took.
  int64_t tabulate();

  /// Closes the boundaries by which some cut takes longer than `target`, and forgets what was tabulated when there are
  /// any. Whether there are.
  bool close(double target);

  /// No split has all its boundaries open and ends earlier than this; 0 as long as nothing is tabulated.
  double leastSeconds() const;

  bool isOpen(int stage, int first) const { return open[stage][first - places.lowest(stage)]; }

  /// What each cut takes at least on a stage with layers first .. first + count - 1, under the best choice for it; and
  /// under one of them.
  const double *least(int stage, int first, int count) { return rowOf(stage, first, count).least.data(); }
  const double *of(int stage, int first, int count, size_t choice) {
    return rowOf(stage, first, count).choices[choice].data();
  }

  /// What each cut takes at least on a stage whose layers begin at `first` and on all behind it.
  const double *rest(int stage, int first) const { return rests[stage][first - places.lowest(stage)].data(); }

private:
  /// Of a stage with given layers, one number for each cut.
  struct Row {
    std::vector<double> least;
    std::vector<std::vector<double>> choices;
  };

  Row &rowOf(int stage, int first, int count);
  void extend(Row &row, int stage, int first, int count);

  StageChoices &choices;
  const SplitPlayer &player;
  const Boundaries &places;
  int stages;
  std::vector<Cut> cuts;
  size_t tabulated = 0;                                // cuts of which all is tabulated
  std::vector<std::vector<std::vector<Row>>> rows;     // [stage][first][count]; of like layers first is 0
  std::vector<std::vector<std::vector<double>>> rests; // [stage][first - lowest][cut]
  std::vector<std::vector<char>> open;                 // [stage][first - lowest]
};

} // namespace espalier::planner
