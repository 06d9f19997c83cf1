// Compares predictions with a table of published runs: errors of time and memory, a null model, refusals, and the
// ranking of plans of one model.
#pragma once

#include "tools/published/price_run.h"

#include <map>
#include <string>
#include <vector>

namespace espalier {

/// Mean absolute relative error over `rows` rows.
struct MeanError {
  int rows = 0;
  double sum = 0;
  void add(double error) { ++rows, sum += error; }
  /// Returns the mean, or 0 without rows.
  double mean() const { return rows ? sum / rows : 0; }
};

/// Plans of one model (equal shapes) on one machine. Repeated measurements of a plan are averaged.
struct RankedGroup {
  std::string name;
  int plans = 0, rows = 0;
  double spearman = 0;
  double regret = 0; ///< time of the plan predicted best over that of the fastest, minus 1
  /// The expected values of an exact model if each measurement has the table's `noise`, from 4,000 simulations. 1 and
  /// 0 if no plan of the table has repeated measurements.
  double exactSpearman = 1, exactRegret = 0;
};

/// One priced row.
struct PricedRow {
  int line = 0;
  std::string name, cluster, system, command; ///< the command prices the same run
  bool isRange = false;                       ///< no micro-batch is published
  double seconds = 0, predictedSeconds = 0;
  double timeError = 0;                   ///< planner::Prediction::timeError
  std::vector<std::string> contents = {}; ///< planner::Content
  double flops = 0;                       ///< the null model's work
  double gibibytes = 0, predictedGibibytes = 0;
  bool outOfMemory = false, refused = false;
};

/// A run with an unpublished plan: the best plan that the search finds for its model, devices and batch.
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
  MeanError bias;              ///< signed errors of time
  int ranges = 0, inRange = 0; ///< rows without a micro-batch, and those measured between the possible predictions
  int outOfMemory = 0, outOfMemoryRefused = 0, fits = 0, fitsRefused = 0;
  std::map<std::string, int> skipped; ///< reason -> rows
  std::vector<RankedGroup> groups;
  int repeats = 0;  ///< repeated measurements of a plan
  double noise = 0; ///< relative deviation of one measurement, from repeated measurements
  std::vector<PricedRow> priced;
  std::vector<SearchedRow> searched;  ///< not included in the errors
  std::map<std::string, int> assumed; ///< unpublished part of a shape -> priced or searched rows
};

/// Prices every row. The null model is a single FLOP/s rate for the whole table, fitted by geometric mean, with
/// recompute counted.
TableReport evaluateTable(const std::string &name, const std::vector<PublishedRow> &rows, RunPricer &pricer);

/// Spearman rank correlation. Ties get their mean rank.
double spearman(const std::vector<double> &a, const std::vector<double> &b);

/// Formats the report as text. `perRow` adds one line per row.
std::string printReport(const TableReport &report, bool perRow);

} // namespace espalier
