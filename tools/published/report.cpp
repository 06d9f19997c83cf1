// Errors are |predicted / measured - 1|.
#include "tools/published/report.h"

#include "planner/answer/format.h"
#include "planner/search.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

namespace espalier::planner {

namespace {

std::vector<double> ranks(const std::vector<double> &values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> result(values.size());
  for (size_t i = 0; i < order.size();) {
    size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]])
      ++end;
    for (size_t j = i; j < end; ++j)
      result[order[j]] = static_cast<double>(i + end - 1) / 2;
    i = end;
  }
  return result;
}

void add(MeanError &error, double predicted, double measured) {
  ++error.rows;
  error.sum += std::abs(predicted / measured - 1);
}

// Seconds per sample of one plan: the prediction and each measurement.
struct MeasuredPlan {
  double predicted = 0;
  std::vector<double> measured;
  double mean() const {
    return std::accumulate(measured.begin(), measured.end(), 0.0) / static_cast<double>(measured.size());
  }
};

using Group = std::map<std::string, MeasuredPlan>; // by plan

std::string groupName(const PublishedRow &row) {
  return row.text("model") + ", " + row.text("layers") + " x " + row.text("hidden") +
         (row.text("heads").empty() ? "" : " with " + row.text("heads") + " heads") + ", " + row.text("n_gpus") + " " +
         row.text("gpu").substr(0, 10) + ", seq " + row.text("seq") + ", " + row.text("precision");
}

std::string planName(const PublishedRow &row, const Plan &plan) {
  std::string name = plan.offloadParameters ? "parameters and state on hosts/"
                     : plan.offloads()      ? "state on hosts/"
                                            : "";
  for (const char *column : {"tp", "pp", "vpp", "cp", "dp", "zero", "sp", "mbs", "gbs", "recompute"})
    name += row.text(column) + "/";
  return name;
}

// Sets the noise, pooled over all plans with repeated measurements.
void measureNoise(const std::map<std::string, Group> &groups, TableReport &report) {
  double squares = 0;
  for (const auto &[name, group] : groups)
    for (const auto &[plan, found] : group) {
      report.repeats += static_cast<int>(found.measured.size()) - 1;
      for (double seconds : found.measured)
        squares += std::pow(seconds / found.mean() - 1, 2);
    }
  report.noise = report.repeats > 0 ? std::sqrt(squares / report.repeats) : 0;
}

// Returns the time of the plan predicted best over that of the fastest, minus 1.
double regretOf(const std::vector<double> &measured, const std::vector<double> &predicted) {
  size_t chosen = std::min_element(predicted.begin(), predicted.end()) - predicted.begin();
  return measured[chosen] / *std::min_element(measured.begin(), measured.end()) - 1;
}

// Simulates noisy measurements around the predictions and ranks the predictions against them.
void rankDraws(const Group &group, double noise, RankedGroup &result) {
  constexpr int draws = 4000;
  std::mt19937 random(1);
  std::normal_distribution<double> deviation(0, noise);
  double spearmans = 0, regrets = 0;
  for (int draw = 0; draw < draws; ++draw) {
    std::vector<double> drawn, predicted;
    for (const auto &[plan, found] : group) {
      double error = deviation(random) / std::sqrt(static_cast<double>(found.measured.size())); // error of their mean
      drawn.push_back(found.predicted * (1 + error));
      predicted.push_back(found.predicted);
    }
    spearmans += spearman(drawn, predicted);
    regrets += regretOf(drawn, predicted);
  }
  result.exactSpearman = spearmans / draws;
  result.exactRegret = regrets / draws;
}

RankedGroup rankGroup(const std::string &name, const Group &group, double noise) {
  std::vector<double> measured, predicted;
  RankedGroup result{name, static_cast<int>(group.size())};
  for (const auto &[plan, found] : group) {
    measured.push_back(found.mean());
    predicted.push_back(found.predicted);
    result.rows += static_cast<int>(found.measured.size());
  }
  result.spearman = spearman(measured, predicted);
  result.regret = regretOf(measured, predicted);
  if (noise > 0)
    rankDraws(group, noise, result);
  return result;
}

// Searches the plan of a row. Sets `reason` if none is found.
std::optional<SearchedRow> searchPlan(const PublishedRow &row, const PublishedCase &published, std::string &reason) {
  SearchResult found = search(published.problem, {.prove = false, .diagnose = false, .relax = false});
  if (found.plans.empty()) {
    reason = found.errors.empty() ? "no plan fits" : found.errors.front();
    return std::nullopt;
  }
  const auto &[plan, prediction, executable] = found.plans.front();
  int full = 0, layers = 0;
  for (const StagePlan &stage : plan.stages) {
    layers += stage.layers;
    full += static_cast<int>(std::count(stage.recompute.begin(), stage.recompute.end(), Recompute::Full));
  }
  return SearchedRow{row.line, row.text("model"),
                     format("tp %d, pp %d, dp %d, micro-batch %d, full recompute of %d of %d layers", plan.tp, plan.pp,
                            plan.dp, static_cast<int>(plan.microBatchSize), full, layers),
                     published.seconds, prediction.stepSeconds};
}

} // namespace

double spearman(const std::vector<double> &a, const std::vector<double> &b) {
  std::vector<double> x = ranks(a), y = ranks(b);
  double n = static_cast<double>(x.size()), mean = (n - 1) / 2, xy = 0, xx = 0, yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

double shownGibibytes(const PublishedCase &published, const Prediction &prediction) {
  constexpr double gibibyte = 1073741824;
  const StageMemory &first = prediction.memory.front();
  if (published.analytic)
    return (first.parameters + first.gradients + first.optimizer + first.activations) / gibibyte;
  double bytes = prediction.peakBytes - published.unseenBytes;
  return (published.outOfMemory ? bytes : std::min(bytes, published.problem.machine.memoryBytes)) / gibibyte;
}

TableReport evaluateTable(const std::string &name, const std::vector<PublishedRow> &rows) {
  TableReport report;
  report.name = name;
  std::map<std::string, Group> groups;
  double logRate = 0;
  std::vector<double> nullFlops;
  report.rows = static_cast<int>(rows.size());
  for (const PublishedRow &row : rows) {
    PublishedCase published = caseOf(row);
    if (!published.reason.empty()) {
      ++report.skipped[published.reason];
      continue;
    }
    for (const std::string &what : published.assumed)
      ++report.assumed[what];
    if (published.withoutPlan) {
      std::string reason;
      if (std::optional<SearchedRow> found = searchPlan(row, published, reason))
        report.searched.push_back(*found);
      else
        ++report.skipped[reason];
      continue;
    }
    PricedPlan priced = pricePlan(published.problem, published.plan);
    PricedRow result{row.line, row.text("model")};
    result.outOfMemory = published.outOfMemory;
    result.refused = !pricePlan(published.needs, published.plan).prediction.fits();
    result.predictedGibibytes = shownGibibytes(published, priced.prediction);
    bool ran = !published.outOfMemory && !published.analytic;
    report.outOfMemory += published.outOfMemory;
    report.outOfMemoryRefused += published.outOfMemory && result.refused;
    report.fits += ran;
    report.fitsRefused += ran && result.refused;
    if (published.gibibytes > 0 && !published.outOfMemory) {
      result.gibibytes = published.gibibytes;
      add(report.memory, result.predictedGibibytes, result.gibibytes);
    }
    if (published.seconds > 0 && ran) {
      result.seconds = published.seconds;
      result.predictedSeconds = priced.prediction.stepSeconds;
      add(report.time, result.predictedSeconds, result.seconds);
      logRate += std::log(published.nullFlops / result.seconds);
      double samples = static_cast<double>(published.problem.globalBatch);
      MeasuredPlan &plan = groups[groupName(row)][planName(row, published.plan)];
      plan.measured.push_back(result.seconds / samples);
      plan.predicted = result.predictedSeconds / samples;
    }
    nullFlops.push_back(published.nullFlops);
    report.priced.push_back(result);
  }
  double rate = report.time.rows ? std::exp(logRate / report.time.rows) : 1;
  for (size_t i = 0; i < report.priced.size(); ++i)
    if (PricedRow &row = report.priced[i]; row.seconds > 0) {
      row.nullSeconds = nullFlops[i] / rate;
      add(report.nullTime, row.nullSeconds, row.seconds);
    }
  measureNoise(groups, report);
  for (const auto &[name, group] : groups)
    if (group.size() >= 3)
      report.groups.push_back(rankGroup(name, group, report.noise));
  return report;
}

std::string printReport(const TableReport &report, bool perRow) {
  auto mean = [](const MeanError &error) { // without measurements there is no error
    return error.rows ? format("%.2f %% over %d", 100 * error.mean(), error.rows) : std::string("of no row");
  };
  std::string null = report.nullTime.rows ? format(" (null model %.2f %%)", 100 * report.nullTime.mean()) : "";
  std::string text =
      format("%s: %d rows; time %s%s; memory %s; out-of-memory rows refused %d of %d; fits refused %d of "
             "%d\n",
             report.name.c_str(), report.rows, mean(report.time).c_str(), null.c_str(), mean(report.memory).c_str(),
             report.outOfMemoryRefused, report.outOfMemory, report.fitsRefused, report.fits);
  for (const auto &[reason, rows] : report.skipped)
    text += format("  not evaluated: %d rows, %s\n", rows, reason.c_str());
  for (const auto &[what, rows] : report.assumed)
    text += format("  not published and assumed: %d rows, %s\n", rows, what.c_str());
  for (const SearchedRow &row : report.searched)
    text += format("  line %3d %-22s no plan published: measured %8.3f, best found %8.3f (%s)\n", row.line,
                   row.name.substr(0, 22).c_str(), row.seconds, row.predictedSeconds, row.plan.c_str());
  if (report.noise > 0)
    text += format("  %d plans were measured again: one measurement deviates by %.1f %%\n", report.repeats,
                   100 * report.noise);
  for (const RankedGroup &group : report.groups) {
    text += format("  %d plans of %s: Spearman %.2f, regret %.1f %%", group.plans, group.name.c_str(), group.spearman,
                   100 * group.regret);
    text += report.noise > 0
                ? format("; exactly right, in the mean: %.2f, %.1f %%\n", group.exactSpearman, 100 * group.exactRegret)
                : "\n";
  }
  if (perRow)
    for (const PricedRow &row : report.priced)
      text += format("  line %3d %-22s time %8.3f predicted %8.3f (%+6.1f %%)  memory %6.1f "
                     "predicted %6.1f%s%s\n",
                     row.line, row.name.substr(0, 22).c_str(), row.seconds, row.predictedSeconds,
                     row.seconds > 0 ? 100 * (row.predictedSeconds / row.seconds - 1) : 0, row.gibibytes,
                     row.predictedGibibytes, row.outOfMemory ? " OOM" : "", row.refused ? " refused" : "");
  return text;
}

} // namespace espalier::planner
