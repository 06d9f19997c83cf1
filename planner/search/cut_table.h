// Dynamic programming over cuts under a target. For each cut it tabulates the least seconds on a stage, and from a
// boundary on (the cost-to-go). A row stores one number per cut, so that all cuts are evaluated together. Example: a
// cut takes 3 s per layer on stage 0 and 2 s per layer on stage 1. There are 4 layers, and stage 1 may begin at layer
// 1 or 2. Its cost-to-go there is 6 s or 4 s. At layer 0 of stage 0 it is min(3 + 6, 6 + 4) = 9 s: no split ends
// earlier.
#pragma once

#include "planner/search/boundaries.h"
#include "planner/search/cuts.h"

#include <vector>

namespace espalier::planner {

/// The tabulated seconds of all cuts, and the boundaries that are still open.
class CutTable {
public:
  /// All arguments must outlive the table.
  CutTable(StageRanges &ranges, const SplitPlayer &player, const Boundaries &boundaries, int stages);

  /// Adds a cut. tabulate() fills its entries.
  void add(Cut cut) { cuts.push_back(std::move(cut)); }
  /// Number of cuts.
  size_t size() const { return cuts.size(); }

  /// Clears the table and opens all boundaries. Required when their domains were narrowed to another target.
  void reset();

  /// Tabulates new cuts. Returns the number of sums that this took.
  int64_t tabulate();

  /// Closes each boundary at which some cut exceeds `target` under every choice of the other boundaries, and clears
  /// the table. Returns whether any was closed.
  bool close(double target);

  /// Returns a lower bound of all splits through open boundaries; 0 until the table is filled.
  double lowerBound() const;

  /// Whether a stage may still begin at layer `first`.
  bool isOpen(int stage, int first) const { return open[stage][first - boundaries.lowest(stage)]; }

  /// The seconds of each cut on a stage with layers first .. first + count - 1: the least over its options, and under
  /// one option.
  const double *least(int stage, int first, int count) { return rowOf(stage, first, count).least.data(); }
  const double *under(int stage, int first, int count, size_t option) {
    return rowOf(stage, first, count).options[option].data();
  }

  /// The least seconds of each cut on the stage that begins at `first` and on all stages below.
  const double *costToGo(int stage, int first) const {
    return costsToGo[stage][first - boundaries.lowest(stage)].data();
  }

private:
  /// The seconds of a stage with given layers, one number per cut.
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
  size_t tabulated = 0;                                    // number of fully tabulated cuts
  std::vector<std::vector<std::vector<Row>>> rows;         // [stage][first][count]; first is 0 for equal layers
  std::vector<std::vector<std::vector<double>>> costsToGo; // [stage][first - lowest][cut]
  std::vector<std::vector<char>> open;                     // [stage][first - lowest]
};

} // namespace espalier::planner
