// Dynamic programming over cuts: what each takes at least on a stage, and from a boundary on (its cost-to-go), under a
// target. All cuts are asked at once, so that a row holds one number for each, side by side. Example: a cut takes 3 s a
// layer on stage 0 and 2 s a layer on stage 1; of 4 layers, of which stage 1 may begin at layer 1 or 2, its cost-to-go
// there is 6 s or 4 s, and at layer 0 of stage 0 min(3 + 6, 6 + 4) = 9 s: no split ends earlier.
#pragma once

#include "planner/search/boundaries.h"
#include "planner/search/cuts.h"

#include <vector>

namespace espalier::planner {

class CutTable {
public:
  /// All must outlive this.
  CutTable(StageRanges &ranges, const SplitPlayer &player, const Boundaries &boundaries, int stages);

  void add(Cut cut) { cuts.push_back(std::move(cut)); }
  size_t size() const { return cuts.size(); }

  /// Forgets what was tabulated and opens all boundaries: their domains were narrowed to another target.
  void reset();

  /// Tabulates the cuts that are not yet; returns how many sums that took.
  int64_t tabulate();

  /// Closes the boundaries by which some cut takes longer than `target`, whatever the others are; then forgets what was
  /// tabulated. Whether there are any.
  bool close(double target);

  /// No split has all its boundaries open and ends earlier than this; 0 as long as nothing is tabulated.
  double lowerBound() const;

  bool isOpen(int stage, int first) const { return open[stage][first - boundaries.lowest(stage)]; }

  /// What each cut takes on a stage with layers first .. first + count - 1 under its best option, at least; and under
  /// one of the options.
  const double *least(int stage, int first, int count) { return rowOf(stage, first, count).least.data(); }
  const double *under(int stage, int first, int count, size_t option) {
    return rowOf(stage, first, count).options[option].data();
  }

  /// What each cut takes at least on a stage whose layers begin at `first` and on all below it.
  const double *costToGo(int stage, int first) const {
    return costsToGo[stage][first - boundaries.lowest(stage)].data();
  }

private:
  /// Of a stage with given layers, one number for each cut.
  struct Row {
    std::vector<double> least;
    std::vector<std::vector<double>> options;
  };

  Row &rowOf(int stage, int first, int count);
  void extend(Row &row, int stage, int first, int count);
  template <typename Visit> void visitOpen(int stage, int first, Visit visit);

  StageRanges &ranges;
  const SplitPlayer &player;
  const Boundaries &boundaries;
  int stages;
  std::vector<Cut> cuts;
  size_t tabulated = 0;                                    // cuts of which all is tabulated
  std::vector<std::vector<std::vector<Row>>> rows;         // [stage][first][count]; of like layers first is 0
  std::vector<std::vector<std::vector<double>>> costsToGo; // [stage][first - lowest][cut]
  std::vector<std::vector<char>> open;                     // [stage][first - lowest]
};

} // namespace espalier::planner
