// How well the planner predicts a table of published runs: errors of time and memory, the null
// model beside them, refusals, and how well it ranks plans of one model.
#pragma once

#include "tools/published/rows.h"

#include <map>
#include <string>
#include <vector>

namespace espalier::planner {

/// Mean absolute relative error over `rows` rows.
struct MeanError {
  int rows = 0;
  double sum = 0;
  double mean() const { return rows ? sum / rows : 0; }
};

/// Plans of one model (equal shapes) on one machine; a plan that was measured more than once counts with its mean.
struct RankedGroup {
  std::string name;
  int plans = 0, rows = 0;
  double spearman = 0;
  double regret = 0; ///< time of the plan predicted best over that of the best, minus 1
  /// What a model that is exactly right and equal to ours would reach if each measurement had the table's `noise`, in
  /// the mean of 4,000 draws; 1 and 0 where no plan of the table was measured twice.
  double exactSpearman = 1, exactRegret = 0;
};

/// One priced row.
struct PricedRow {
  int line = 0;
  std::string name;
  double seconds = 0, predictedSeconds = 0, nullSeconds = 0;
  double gibibytes = 0, predictedGibibytes = 0;
  bool outOfMemory = false, refused = false;
};

/// A run whose plan is not published: the best one that the search finds for its model, devices and batch.
struct SearchedRow {
  int line = 0;
  std::string name, plan;
  double seconds = 0, predictedSeconds = 0;
};

/// The result for one table.
struct TableReport {
  std::string name;
  int rows = 0;
  MeanError time, nullTime, memory;
  int outOfMemory = 0, outOfMemoryRefused = 0, fits = 0, fitsRefused = 0;
  std::map<std::string, int> skipped; ///< reason -> rows
  std::vector<RankedGroup> groups;
  int repeats = 0;  ///< measurements of plans that were measured before
  double noise = 0; ///< relative deviation of one measurement, from plans that were measured more than once
  std::vector<PricedRow> priced;
  std::vector<SearchedRow> searched;  ///< not part of the errors
  std::map<std::string, int> assumed; ///< what is not published of a shape -> priced or searched rows
};

/// What a monitor shows of a run on its fullest device. That is at most what the device has: PyTorch's allocator gives
/// back the blocks that it keeps before it fails (`release_cached_blocks`). Of an analytic row, what its formula
/// counts.
double shownGibibytes(const PublishedCase &published, const Prediction &prediction);

/// Prices every row. The null model is one rate of operations for the whole table, fitted on it
/// (its geometric mean), with recompute counted.
TableReport evaluateTable(const std::string &name, const std::vector<PublishedRow> &rows);

/// Rank correlation; ties share their mean rank.
double spearman(const std::vector<double> &a, const std::vector<double> &b);

/// For people; `perRow` adds a line per row.
std::string printReport(const TableReport &report, bool perRow);

} // namespace espalier::planner
