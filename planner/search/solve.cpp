// Solves the split of layers for each candidate, by rising bound, until the bound passes the best plans. Batches of
// fixed size see the same best plans whatever the number of threads, so the result does not depend on it.
#include "planner/search.h"

#include "planner/answer/diagnose.h"
#include "planner/search/parallel.h"
#include "planner/search/space.h"
#include "planner/search/split.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <tuple>

namespace espalier::planner {

namespace {

using KindKey = std::tuple<int, int, int, int, int>; ///< plans differ in kind when their sizes of axes do

KindKey kindOf(const Axes &plan) { return {plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}; }

// The best plan of each kind; the k-th best of them is the limit that others must beat to be
// reported.
class Leaders {
public:
  explicit Leaders(int wanted) : wanted(std::max(wanted, 1)) {}

  // Of equally fast plans of a kind the first in the space is kept.
  void offer(const Axes &axes, const SplitResult &result, size_t place) {
    auto [known, inserted] = best.try_emplace(kindOf(axes), Leader{axes, result, place});
    Leader &leader = known->second;
    if (!inserted && std::tie(result.seconds, place) < std::tie(leader.result.seconds, leader.place))
      leader = {axes, result, place};
  }

  // A plan of a kind that has a leader must beat it; of a new kind, the last that is reported.
  double limitFor(const Axes &axes) const {
    double limit = kthSeconds();
    auto place = best.find(kindOf(axes));
    return place == best.end() ? limit : std::min(limit, place->second.result.seconds);
  }

  double bestSeconds() const {
    double seconds = std::numeric_limits<double>::infinity();
    for (const auto &[key, leader] : best)
      seconds = std::min(seconds, leader.result.seconds);
    return seconds;
  }

  double kthSeconds() const {
    if (static_cast<int>(best.size()) < wanted)
      return std::numeric_limits<double>::infinity();
    std::vector<double> seconds;
    for (const auto &[key, leader] : best)
      seconds.push_back(leader.result.seconds);
    std::ranges::nth_element(seconds, seconds.begin() + wanted - 1);
    return seconds[wanted - 1];
  }

  // Fastest first; of equally fast plans the order of the axes decides.
  std::vector<std::pair<Axes, SplitResult>> sorted() const {
    std::vector<std::pair<Axes, SplitResult>> list;
    for (const auto &[key, leader] : best)
      list.emplace_back(leader.axes, leader.result);
    std::sort(list.begin(), list.end(),
              [](const auto &a, const auto &b) { return a.second.seconds < b.second.seconds; });
    if (static_cast<int>(list.size()) > wanted)
      list.resize(wanted);
    return list;
  }

private:
  struct Leader {
    Axes axes;
    SplitResult result;
    size_t place = 0; // of the candidate
  };

  int wanted;
  std::map<KindKey, Leader> best;
};

// Turns a split into stages with what each layer keeps.
Plan withStages(const Problem &problem, Axes axes, const SplitResult &split) {
  axes.splitsExperts = problem.pins.splitsExperts.value_or(true);
  StageOptions options(problem, axes);
  return {axes, layStages(options, split.counts, split.repeated).stages};
}

// Costs of plans with `threads` threads; table i belongs to plans[i]. Plans of the same axes, by `choices`, share a
// table where their schedules split backward alike.
std::vector<std::shared_ptr<const CostTable>> costTables(const Problem &problem, const std::vector<Axes> &plans,
                                                         const std::vector<uint32_t> &choices, int threads) {
  std::map<std::pair<uint32_t, bool>, size_t> groups; // -> place among those that are built
  std::vector<Axes> built;
  std::vector<size_t> groupOf;
  for (size_t i = 0; i < plans.size(); ++i) {
    auto [group, isNew] = groups.try_emplace({choices[i], splitsBackward(plans[i].schedule)}, built.size());
    if (isNew)
      built.push_back(plans[i]);
    groupOf.push_back(group->second);
  }
  std::vector<std::shared_ptr<const CostTable>> shared;
  for (CostTable &table : buildCostTables(problem, built, threads))
    shared.push_back(std::make_shared<const CostTable>(std::move(table)));
  std::vector<std::shared_ptr<const CostTable>> tables;
  for (size_t group : groupOf)
    tables.push_back(shared[group]);
  return tables;
}

// Two passes in batches of fixed size. The first looks at the first few splits of each candidate; the second goes
// through what bounds leave open below the best plan.
class BranchAndBound {
public:
  BranchAndBound(const Problem &problem, const SearchOptions &options)
      : problem(problem), options(options), space(problem, options), leaders(options.alternatives + 1) {}

  SearchStatistics run() {
    statistics.space = space.plans();
    solveSpace();
    proveOpen();
    statistics.lowerBoundSeconds = std::min(bound, leaders.bestSeconds());
    statistics.optimal = statistics.lowerBoundSeconds >= leaders.bestSeconds() * (1 - 1e-8);
    return statistics;
  }

  /// All that may be chosen, by the order of bounds.
  std::vector<SizedAxes> axes() {
    std::vector<SizedAxes> list;
    for (size_t i = 0; const Candidate *candidate = space.at(i); ++i)
      list.push_back({space.leastBytes(*candidate), space.axes(*candidate)});
    return list;
  }

  std::vector<std::pair<Axes, SplitResult>> best() const { return leaders.sorted(); }

private:
  static constexpr size_t batch = 16, mostBatch = 128; // late ones find little, and threads wait for each other less
  static constexpr int64_t leastBudget = 4'000'000;    // actions per candidate
  static constexpr int64_t wholeBudget = 400'000'000;  // of all together, where they are few
  static constexpr double mostWork = 2e8;              // actions of tables of the first pass
  static constexpr double unlikeLayerWork = 1e4;       // what an unlike layer takes to lay on chunks, in actions
  static constexpr int64_t quickBudget = 200'000;      // where nothing is to be proved
  static constexpr size_t quickCandidates = 1000;

  using Open = std::vector<std::pair<double, size_t>>; ///< bounds of candidates that may be reported, with their places
  void solveSpace() {
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
        if (isWorthwhile(*space.at(next)))
          which.push_back(next);
        else
          bound = std::min(bound, space.at(next)->bound);
      solveBatch(which, /*budget=*/0, /*onlyBest=*/false, open);
    }
    std::sort(open.begin(), open.end());
  }

  // Tables of many chunks take long to build and to play: behind some work the candidates that come later are left out,
  // with their bounds. Models of a hundred layers on a thousand devices take less than a fifth of it.
  bool isWorthwhile(const Candidate &candidate) {
    Axes plan = space.axes(candidate);
    if (!hasSeveralChoices(problem, plan))
      return true;
    double chunks = static_cast<double>(plan.pp) * chunksOf(plan.schedule, plan.virtualStages);
    work += 3 * chunks * static_cast<double>(plan.microBatches);
    if (!space.hasOneKind())
      work += unlikeLayerWork * problem.layerCount();
    return work <= mostWork;
  }

  void proveOpen() {
    int64_t left = wholeBudget;
    // A proof of unlike layers on several chunks takes long, and is in vain where such candidates were left out.
    if (!space.hasOneKind() && bound < leaders.bestSeconds())
      std::erase_if(open, [&](const auto &one) {
        bool isLeftOut = hasSeveralChoices(problem, space.axes(*space.at(one.second)));
        if (isLeftOut)
          bound = std::min(bound, one.first);
        return isLeftOut;
      });
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
      Open unproved;
      left -= solveBatch(which, options.prove ? each : quickBudget, /*onlyBest=*/true, unproved);
      for (const auto &[seconds, index] : unproved)
        bound = std::min(bound, seconds);
      if (left < 0 && begin + batch < open.size()) {
        bound = std::min(bound, open[begin + batch].first);
        break;
      }
    }
  }

  // Looks for plans as fast as those that are reported, or faster than the best alone; what bounds leave open of that
  // goes to `stillOpen`. Returns the actions that were spent.
  int64_t solveBatch(const std::vector<size_t> &which, int64_t budget, bool onlyBest, Open &stillOpen) {
    std::vector<Axes> plans;
    std::vector<uint32_t> choices;
    std::vector<double> limits;
    for (size_t i : which) {
      choices.push_back(space.at(i)->choice);
      plans.push_back(space.axes(*space.at(i)));
      limits.push_back(onlyBest ? leaders.bestSeconds() : leaders.limitFor(plans.back()) * (1 + 1e-12));
    }
    std::vector<std::shared_ptr<const CostTable>> tables = costTables(problem, plans, choices, options.threads);
    std::vector<SplitResult> results(plans.size());
    forEachParallel(plans.size(), options.threads, [&](size_t i) {
      StageOptions stages(problem, plans[i], schedules, tables[i]);
      results[i] = bestSplit(problem, stages, limits[i], budget);
    });
    int64_t spent = 0;
    for (size_t i = 0; i < which.size(); ++i) {
      SplitResult &result = results[i];
      result.lowerBound = std::min(std::max(result.lowerBound, space.at(which[i])->bound), result.seconds);
      spent += results[i].spent;
      statistics.evaluated += results[i].played;
      if (!results[i].counts.empty())
        leaders.offer(plans[i], results[i], which[i]);
    }
    for (size_t i = 0; i < which.size(); ++i)
      if (results[i].lowerBound < (onlyBest ? leaders.bestSeconds() : leaders.limitFor(plans[i])))
        stillOpen.push_back({results[i].lowerBound, which[i]});
    return spent;
  }

  const Problem &problem;
  const SearchOptions &options;
  SearchSpace space;
  Leaders leaders;
  SearchStatistics statistics;
  double work = 0;                                        // of candidates with several choices per stage
  double bound = std::numeric_limits<double>::infinity(); // of what was left unproved
  Open open;                                              // by rising bound after each pass
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
