// Explains plans as text: descriptions, the table of the best plans, and the binding limits. All numbers come from
// Prediction.
#pragma once

#include "planner/search.h"

#include <string>
#include <utility>
#include <vector>

namespace espalier::planner {

/// Formats a plan: "dp 8, tp 2, pp 4, micro-batch 1 x 96, 1f1b, zero 1, sequence parallel, full recompute in 3 of 40
/// layers".
std::string describePlan(const Plan &plan);

/// Same, with "not executable yet" appended if the executor cannot run the plan.
std::string describePlan(const PricedPlan &priced);

/// Formats bytes in binary units, as run files do (1GB = 2^30): "1.50 GB", "12.25 MB" or "80 B".
std::string describeBytes(double bytes);

/// Formats the run-file setting that uses all device memory: "max_device_memory=78.00GB, without a margin".
std::string withoutMargin(double bytes);

/// Formats a time with the known model error: "15.62 s ± 12 %". If the error is unknown (0): "15.62 s".
std::string describeSeconds(double seconds, double error);

/// Formats the time of the predicted step.
inline std::string describeSeconds(const Prediction &prediction) {
  return describeSeconds(prediction.stepSeconds, prediction.timeError);
}

/// The role of the first plan of a result: the planner's choice, the run file's own plan before the planner's choice,
/// or both at once.
enum class FirstPlan { Best, Own, OwnAndBest };

/// Returns the planner's own choice, or null if there is none.
const PricedPlan *answerOf(const SearchResult &result, FirstPlan first = FirstPlan::Best);

/// Returns the places of the plans by ascending time.
std::vector<size_t> rowsByTime(const std::vector<PricedPlan> &plans);

/// Formats the question: model, parameters, machine, software, global batch and sequence.
std::string headline(const Problem &problem);

/// Prints a table of the plans by ascending time, with two lines for each: step time, difference to the answer, tokens
/// per second, MFU, bubble, exposed communication and peak memory; then the plan. Below the table, a line says why the
/// answer wins, and another one has `howToUse`. Then prints the memory of the stages of the first plan by class, with
/// the limit and the margin, the binding limits, and the certificate. Lines have at most 100 columns. Memory that the
/// machine's software reserves is included in the totals but has no column: the limit of a run file excludes it.
std::string explainPlans(const SearchResult &result, FirstPlan first = FirstPlan::Best,
                         const std::string &howToUse = "");

/// Formats why the answer wins over the fastest and the next simpler plan: "the simplest plan within 3 % of the
/// fastest, which takes 1.2 % less with a pipeline; no simpler plan is nearly as fast".
std::string whyChosen(const SearchResult &result, FirstPlan first = FirstPlan::Best);

/// Prints what limits a plan: all non-compute shares of the step, largest first, with the exposed communication of
/// each axis, and the memory use.
std::string whatBinds(const Prediction &prediction);

/// Returns the causes of step time by name, in a fixed order. The entries sum to the step.
std::vector<std::pair<std::string, double>> timeEntries(const TimeBreakdown &time);

/// Breaks a line after commas and semicolons at 100 columns. Continuation lines are indented.
std::string wrapped(const std::string &line, size_t indent);

/// Formats "global batch 64" as its own line, because all compared plans have the same one.
std::string batchLine(const Plan &plan);

} // namespace espalier::planner
