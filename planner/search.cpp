// Solves the split of layers for each candidate, by rising bound, until the bound passes the best plans. Batches of
// fixed size see the same best plans whatever the number of threads, so the result does not depend on it.
#include "planner/search.h"

#include "planner/diagnose.h"
#include "planner/parallel.h"
#include "planner/search_space.h"
#include "planner/split_chunks.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <tuple>

namespace espalier::planner {

namespace {

using KindKey = std::tuple<int, int, int, int, int>; ///< plans differ in kind when their axes do

KindKey kindOf(const Plan &plan) { return {plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}; }

// The best plan of each kind; the k-th best of them is the limit that others must beat to be
// reported.
class Leaders {
public:
  explicit Leaders(int wanted) : wanted(std::max(wanted, 1)) {}

  void offer(const Plan &axes, const SplitResult &result) {
    auto [place, inserted] = best.try_emplace(kindOf(axes), axes, result);
    if (!inserted && result.seconds < place->second.second.seconds)
      place->second = {axes, result};
  }

  // A plan of a kind that has a leader must beat it; of a new kind, the last that is reported.
  double limitFor(const Plan &axes) const {
    double limit = kthSeconds();
    auto place = best.find(kindOf(axes));
    return place == best.end() ? limit : std::min(limit, place->second.second.seconds);
  }

  double bestSeconds() const {
    double seconds = std::numeric_limits<double>::infinity();
    for (const auto &[key, leader] : best)
      seconds = std::min(seconds, leader.second.seconds);
    return seconds;
  }

  double kthSeconds() const {
    if (static_cast<int>(best.size()) < wanted)
      return std::numeric_limits<double>::infinity();
    std::vector<double> seconds;
    for (const auto &[key, leader] : best)
      seconds.push_back(leader.second.seconds);
    std::ranges::nth_element(seconds, seconds.begin() + wanted - 1);
    return seconds[wanted - 1];
  }

  // Fastest first; of equally fast plans the order of the axes decides.
  std::vector<std::pair<Plan, SplitResult>> sorted() const {
    std::vector<std::pair<Plan, SplitResult>> list;
    for (const auto &[key, leader] : best)
      list.push_back(leader);
    std::sort(list.begin(), list.end(),
              [](const auto &a, const auto &b) { return a.second.seconds < b.second.seconds; });
    if (static_cast<int>(list.size()) > wanted)
      list.resize(wanted);
    return list;
  }

private:
  int wanted;
  std::map<KindKey, std::pair<Plan, SplitResult>> best;
};

// Turns a split into stages with what each layer keeps.
Plan withStages(const Problem &problem, Plan plan, const SplitResult &split) {
  plan.splitsExperts = problem.pins.splitsExperts.value_or(true);
  StageOptions options(problem, plan);
  plan.stages = layStages(problem, options, split.counts, split.repeated).stages;
  return plan;
}

// Costs of plans with `threads` threads; table i belongs to plans[i]. Plans of the same axes, by `choices`, share a
// table where their schedules split backward alike.
std::vector<std::shared_ptr<const CostTable>> costTables(const Problem &problem, const std::vector<Plan> &plans,
                                                         const std::vector<uint32_t> &choices, int threads) {
  std::map<std::pair<uint32_t, bool>, std::vector<size_t>> alike;
  for (size_t i = 0; i < plans.size(); ++i)
    alike[{choices[i], splitsBackward(plans[i].schedule)}].push_back(i);
  std::vector<const std::vector<size_t> *> groups;
  for (const auto &[key, members] : alike)
    groups.push_back(&members);
  std::vector<std::shared_ptr<const CostTable>> tables(plans.size());
  forEachParallel(groups.size(), threads, [&](size_t i) {
    auto table = std::make_shared<const CostTable>(buildCostTable(problem, plans[groups[i]->front()]));
    for (size_t member : *groups[i])
      tables[member] = table;
  });
  return tables;
}

// Two passes in batches of fixed size. The first plays the split of least bound of each candidate;
// the second goes through what the bounds of the first leave open below the best plan.
class BranchAndBound {
public:
  BranchAndBound(const Problem &problem, const SearchOptions &options)
      : problem(problem), options(options), space(problem, options), leaders(options.alternatives + 1) {}

  SearchStatistics run() {
    SearchStatistics statistics;
    statistics.space = space.plans();
    std::vector<std::pair<double, size_t>> open; // (bound, place of the candidate) that may beat the best
    double bound = std::numeric_limits<double>::infinity();
    if (!space.hasOneKind())
      offerProportional(statistics);
    size_t next = 0;
    for (const Candidate *first; (first = space.at(next)) && first->bound < leaders.kthSeconds();) {
      if (!options.prove && next >= quickCandidates && leaders.bestSeconds() < bound) {
        bound = first->bound;
        break;
      }
      // The first ones are few: what they find spares the others work.
      size_t end = next + std::clamp<size_t>(next, 2, std::clamp<size_t>(next / 8, batch, mostBatch));
      std::vector<size_t> which;
      for (; next < end && space.at(next); ++next)
        which.push_back(next);
      solveBatch(which, /*budget=*/0, statistics, open);
    }
    std::sort(open.begin(), open.end());
    int64_t left = wholeBudget;
    if (!options.prove && open.size() > batch) {
      bound = std::min(bound, open[batch].first);
      open.resize(batch);
    }
    for (size_t begin = 0; begin < open.size() && open[begin].first < leaders.bestSeconds() * (1 - 1e-9);
         begin += batch) {
      std::vector<size_t> which;
      for (size_t i = begin; i < std::min(begin + batch, open.size()); ++i)
        which.push_back(open[i].second);
      int64_t each = std::max(left / static_cast<int64_t>(which.size()), leastBudget);
      std::vector<std::pair<double, size_t>> unproved;
      left -= solveBatch(which, options.prove ? each : quickBudget, statistics, unproved);
      for (const auto &[seconds, index] : unproved)
        bound = std::min(bound, seconds);
    }
    statistics.lowerBoundSeconds = std::min(bound, leaders.bestSeconds());
    statistics.optimal = statistics.lowerBoundSeconds >= leaders.bestSeconds() * (1 - 1e-8);
    return statistics;
  }

  /// All that may be chosen, by the order of bounds.
  std::vector<SizedPlan> axes() {
    std::vector<SizedPlan> list;
    for (size_t i = 0; const Candidate *candidate = space.at(i); ++i)
      list.push_back({space.leastBytes(*candidate), space.axes(*candidate)});
    return list;
  }

  std::vector<std::pair<Plan, SplitResult>> best() const { return leaders.sorted(); }

private:
  static constexpr size_t kinds = 32;
  static constexpr int64_t mostPlayed = 1 << 17;       // stages times micro-batches that take no time to play
  static constexpr size_t batch = 16, mostBatch = 128; // late ones find little, and threads wait for each other less
  static constexpr int64_t leastBudget = 4'000'000;    // actions per candidate
  static constexpr int64_t wholeBudget = 400'000'000;  // of all together, where they are few
  static constexpr int64_t quickBudget = 200'000;      // where nothing is to be proved
  static constexpr size_t quickCandidates = 1000;

  // Splits of unlike layers take long to search without a plan to beat: one for each of the most promising kinds of
  // plan.
  void offerProportional(SearchStatistics &statistics) {
    std::map<KindKey, Plan> seeds;
    for (size_t i = 0; i < 16 * kinds && seeds.size() < kinds && space.at(i); ++i)
      if (Plan plan = space.axes(*space.at(i));
          chunksOf(plan.schedule, plan.virtualStages) == 1 && plan.pp * plan.microBatches < mostPlayed)
        seeds.try_emplace(kindOf(plan), plan);
    std::vector<Plan> plans;
    for (const auto &[kind, plan] : seeds)
      plans.push_back(plan);
    std::vector<SplitResult> results(plans.size());
    forEachParallel(plans.size(), options.threads, [&](size_t i) {
      StageOptions stages(problem, plans[i], schedules);
      results[i] = proportionalSplit(problem, stages);
    });
    for (size_t i = 0; i < plans.size(); ++i)
      if (!results[i].counts.empty()) {
        ++statistics.evaluated;
        leaders.offer(plans[i], results[i]);
      }
  }

  // Returns the actions that were spent.
  int64_t solveBatch(const std::vector<size_t> &which, int64_t budget, SearchStatistics &statistics,
                     std::vector<std::pair<double, size_t>> &open) {
    std::vector<Plan> plans;
    std::vector<uint32_t> choices;
    std::vector<double> limits;
    for (size_t i : which) {
      choices.push_back(space.at(i)->choice);
      plans.push_back(space.axes(*space.at(i)));
      limits.push_back(budget > 0 ? leaders.bestSeconds() : leaders.limitFor(plans.back()));
    }
    std::vector<std::shared_ptr<const CostTable>> tables = costTables(problem, plans, choices, options.threads);
    std::vector<SplitResult> results(plans.size());
    forEachParallel(plans.size(), options.threads, [&](size_t i) {
      StageOptions stages(problem, plans[i], schedules, tables[i]);
      results[i] = bestSplit(problem, stages, limits[i], budget);
    });
    int64_t spent = 0;
    for (size_t i = 0; i < which.size(); ++i) {
      spent += results[i].spent;
      statistics.evaluated += results[i].played;
      if (!results[i].counts.empty())
        leaders.offer(plans[i], results[i]);
      if (results[i].lowerBound < leaders.bestSeconds())
        open.push_back({results[i].lowerBound, which[i]});
    }
    return spent;
  }

  const Problem &problem;
  const SearchOptions &options;
  SearchSpace space;
  Leaders leaders;
  std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>();
};

} // namespace

SearchResult search(const Problem &given, const SearchOptions &options) {
  auto start = std::chrono::steady_clock::now();
  SearchResult result;
  Problem problem = given;
  if (options.devices > 0) {
    Machine &machine = problem.machine;
    machine.devicesPerHost = std::min(machine.devicesPerHost, options.devices);
    machine.hosts = (options.devices + machine.devicesPerHost - 1) / std::max(1, machine.devicesPerHost);
    if (machine.devices() != options.devices)
      result.errors.push_back(std::to_string(options.devices) + " devices do not fill hosts of " +
                              std::to_string(machine.devicesPerHost));
  }
  for (const std::string &fault : checkProblem(problem))
    result.errors.push_back(fault);
  if (!result.errors.empty())
    return result;

  BranchAndBound solver(problem, options);
  result.statistics = solver.run();
  for (const auto &[axes, solved] : solver.best())
    result.plans.push_back(pricePlan(problem, withStages(problem, axes, solved)));
  // A price is the same sum as the search's, in another order: the last digits may differ.
  if (!result.plans.empty())
    result.statistics.lowerBoundSeconds =
        std::min(result.statistics.lowerBoundSeconds, result.plans.front().prediction.stepSeconds);
  if (result.plans.empty() && options.diagnose)
    diagnose(problem, options, solver.axes(), result);
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace espalier::planner
