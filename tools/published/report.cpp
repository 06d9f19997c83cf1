// Errors are |predicted / measured - 1|.
#include "tools/published/report.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <numeric>
#include <random>

namespace espalier {

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

// Seconds per sample of one plan: the prediction and each measurement.
struct MeasuredPlan {
  double predicted = 0;
  std::vector<double> measured;
  double mean() const {
    return std::accumulate(measured.begin(), measured.end(), 0.0) / static_cast<double>(measured.size());
  }
};

std::string commandOf(const PublishedRun &run) {
  bool isRange = run.microBatchSizes.size() != 1; // the row is priced with several micro-batches
  std::string text =
      fmt::format("espalier plan configs/{}.yaml --cluster {} --system {} --pin {}{}", run.base, run.cluster,
                  run.system, run.pin, isRange ? "" : fmt::format(",mbs={}", run.microBatchSizes.front()));
  for (const std::string &set : run.sets)
    text += fmt::format(" --set '{}'", set);
  return text;
}

using Group = std::map<std::string, MeasuredPlan>; // by plan

std::string groupName(const PublishedRow &row) {
  return row.text("model") + ", " + row.text("layers") + " x " + row.text("hidden") +
         (row.text("heads").empty() ? "" : " with " + row.text("heads") + " heads") + ", " + row.text("n_gpus") + " " +
         row.text("gpu").substr(0, 10) + ", seq " + row.text("seq") + ", " + row.text("precision");
}

std::string planName(const PublishedRow &row) {
  std::string name;
  for (const char *column : {"tp", "pp", "vpp", "cp", "dp", "ep", "zero", "sp", "mbs", "gbs", "recompute"})
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

std::string describe(const planner::Plan &plan) {
  int full = 0, layers = 0;
  for (const planner::StagePlan &stage : plan.stages) {
    layers += stage.layers;
    full += static_cast<int>(std::count(stage.recompute.begin(), stage.recompute.end(), planner::Recompute::Full));
  }
  return fmt::format("tp {}, pp {}, dp {}, micro-batch {}, full recompute of {} of {} layers", plan.tp, plan.pp,
                     plan.dp, plan.microBatchSize, full, layers);
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

TableReport evaluateTable(const std::string &name, const std::vector<PublishedRow> &rows, RunPricer &pricer) {
  TableReport report;
  report.name = name;
  std::map<std::string, Group> groups;
  double logRate = 0;
  report.rows = static_cast<int>(rows.size());
  for (const PublishedRow &row : rows) {
    PublishedRun run = runOf(row);
    PricedRun priced;
    if (run.reason.empty())
      priced = pricer.price(run);
    if (const std::string &reason = run.reason.empty() ? priced.reason : run.reason; !reason.empty()) {
      ++report.skipped[reason];
      continue;
    }
    for (const std::string &what : run.assumed)
      ++report.assumed[what];
    if (run.withoutPlan) {
      report.searched.push_back({row.line, row.text("model"), describe(priced.plan), run.seconds, priced.seconds});
      continue;
    }
    PricedRow result{row.line, row.text("model"), run.cluster.substr(0, run.cluster.find(':')), run.system,
                     commandOf(run)};
    result.isRange = run.microBatchSizes.size() > 1;
    result.outOfMemory = run.outOfMemory;
    result.refused = !priced.fits;
    result.predictedGibibytes = priced.gibibytes;
    result.flops = priced.flops;
    bool ran = !run.outOfMemory && !run.isAnalytic;
    report.outOfMemory += run.outOfMemory;
    report.outOfMemoryRefused += run.outOfMemory && result.refused;
    report.fits += ran;
    report.fitsRefused += ran && result.refused;
    if (run.gibibytes > 0 && !run.outOfMemory) {
      result.gibibytes = run.gibibytes;
      report.memory.add(std::abs(result.predictedGibibytes / result.gibibytes - 1));
    }
    if (priced.measuredSeconds > 0 && ran) {
      result.seconds = priced.measuredSeconds;
      result.predictedSeconds = priced.seconds;
      result.timeError = priced.timeError;
      result.contents = priced.contents;
      report.ranges += result.isRange;
      report.inRange += result.isRange && priced.leastSeconds <= result.seconds && result.seconds <= priced.mostSeconds;
      if (!result.isRange) {
        double error = result.predictedSeconds / result.seconds - 1;
        report.time.add(std::abs(error));
        report.bias.add(error);
        logRate += std::log(priced.flops / result.seconds);
      }
      double samples = static_cast<double>(run.globalBatch);
      MeasuredPlan &plan = groups[groupName(row)][planName(row)];
      plan.measured.push_back(result.seconds / samples);
      plan.predicted = result.predictedSeconds / samples;
    }
    report.priced.push_back(result);
  }
  double rate = report.time.rows ? std::exp(logRate / report.time.rows) : 1;
  for (const PricedRow &row : report.priced)
    if (row.seconds > 0 && !row.isRange)
      report.nullTime.add(std::abs(row.flops / rate / row.seconds - 1));
  measureNoise(groups, report);
  for (const auto &[name, group] : groups)
    if (group.size() >= 3)
      report.groups.push_back(rankGroup(name, group, report.noise));
  return report;
}

std::string printReport(const TableReport &report, bool perRow) {
  auto mean = [](const MeanError &error) { // without measurements there is no error
    return error.rows ? fmt::format("{:.2f} % over {}", 100 * error.mean(), error.rows) : std::string("of no row");
  };
  std::string null = report.nullTime.rows ? fmt::format(" (null model {:.2f} %, bias {:+.1f} %)",
                                                        100 * report.nullTime.mean(), 100 * report.bias.mean())
                                          : "";
  std::string text = fmt::format("{}: {} rows; time {}{}; memory {}; out-of-memory rows refused {} of {}; fits refused "
                                 "{} of {}\n",
                                 report.name, report.rows, mean(report.time), null, mean(report.memory),
                                 report.outOfMemoryRefused, report.outOfMemory, report.fitsRefused, report.fits);
  for (const auto &[reason, rows] : report.skipped)
    text += fmt::format("  not evaluated: {} rows, {}\n", rows, reason);
  if (report.ranges > 0)
    text += fmt::format("  no micro-batch published: {} rows, {} of them within the range of the possible ones\n",
                        report.ranges, report.inRange);
  for (const auto &[what, rows] : report.assumed)
    text += fmt::format("  not published and assumed: {} rows, {}\n", rows, what);
  for (const SearchedRow &row : report.searched)
    text += fmt::format("  line {:3} {:22.22} no plan published: measured {:8.3f}, best found {:8.3f} ({})\n", row.line,
                        row.name, row.seconds, row.predictedSeconds, row.plan);
  if (report.noise > 0)
    text += fmt::format("  {} plans were measured again: one measurement deviates by {:.1f} %\n", report.repeats,
                        100 * report.noise);
  for (const RankedGroup &group : report.groups) {
    text += fmt::format("  {} plans of {}: Spearman {:.2f}, regret {:.1f} %", group.plans, group.name, group.spearman,
                        100 * group.regret);
    if (report.noise > 0)
      text +=
          fmt::format("; exactly right, in the mean: {:.2f}, {:.1f} %", group.exactSpearman, 100 * group.exactRegret);
    text += "\n";
  }
  for (const PricedRow &row : perRow ? report.priced : std::vector<PricedRow>())
    text +=
        fmt::format("  line {:3} {:22.22} time {:8.3f} predicted {:8.3f} ({:+6.1f} %)  memory {:6.1f} predicted "
                    "{:6.1f}{}{}\n    {}\n",
                    row.line, row.name, row.seconds, row.predictedSeconds,
                    row.seconds > 0 ? 100 * (row.predictedSeconds / row.seconds - 1) : 0, row.gibibytes,
                    row.predictedGibibytes, row.outOfMemory ? " OOM" : "", row.refused ? " refused" : "", row.command);
  return text;
}

} // namespace espalier
