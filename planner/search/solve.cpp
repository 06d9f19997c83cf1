// Branch and bound over candidates: the split of layers is solved for each, by rising lower bound, until the bound is
// above the incumbents. Batches of fixed size see the same incumbents whatever the number of threads, so that the
// result does not depend on it.
#include "planner/search.h"

#include "planner/answer/diagnose.h"
#include "planner/search/parallel.h"
#include "planner/search/space.h"
#include "planner/search/split.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <tuple>

namespace espalier::planner {

namespace {

using Mesh = std::tuple<int, int, int, int, int>; ///< plans differ in kind when their meshes do

constexpr double equal = 1e-9; ///< steps that differ by less, relatively, are equally fast

Mesh meshOf(const ParallelConfig &plan) { return {plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}; }

// The best plan of each mesh; the k-th best of them is what others must beat to be reported.
class Incumbents {
public:
  explicit Incumbents(int wanted) : wanted(std::max(wanted, 1)) {}

  // Of equally fast plans of a mesh the first in the order of enumeration, the simplest, is kept.
  void offer(const ParallelConfig &config, const SplitResult &result, const Candidate &candidate) {
    std::pair place(candidate.choice, candidate.schedule);
    Incumbent &incumbent = best.try_emplace(meshOf(config), Incumbent{config, result, place}).first->second;
    double known = incumbent.result.seconds;
    if (result.seconds < known * (1 - equal) || (result.seconds < known * (1 + equal) && place < incumbent.place))
      incumbent = {config, result, place};
  }

  // A plan must beat that of its mesh, or of a new mesh the last one that is reported.
  double limitFor(const ParallelConfig &config) const {
    double limit = kthSeconds();
    auto place = best.find(meshOf(config));
    return place == best.end() ? limit : std::min(limit, place->second.result.seconds);
  }

  double bestSeconds() const { return nthSeconds(1); }
  double kthSeconds() const { return nthSeconds(wanted); }

  // Fastest first; of equally fast plans the order of meshes decides.
  std::vector<std::pair<ParallelConfig, SplitResult>> sorted() const {
    std::vector<std::pair<ParallelConfig, SplitResult>> list;
    for (const auto &[mesh, incumbent] : best)
      list.emplace_back(incumbent.config, incumbent.result);
    std::sort(list.begin(), list.end(),
              [](const auto &a, const auto &b) { return a.second.seconds < b.second.seconds; });
    if (static_cast<int>(list.size()) > wanted)
      list.resize(wanted);
    return list;
  }

private:
  double nthSeconds(size_t n) const {
    std::vector<double> seconds;
    for (const auto &[mesh, incumbent] : best)
      seconds.push_back(incumbent.result.seconds);
    if (seconds.size() < n)
      return std::numeric_limits<double>::infinity();
    std::ranges::nth_element(seconds, seconds.begin() + static_cast<std::ptrdiff_t>(n) - 1);
    return seconds[n - 1];
  }

  struct Incumbent {
    ParallelConfig config;
    SplitResult result;
    std::pair<uint32_t, uint32_t> place; ///< choice and schedule
  };

  int wanted;
  std::map<Mesh, Incumbent> best;
};

// Turns a split into stages with what each layer keeps.
Plan withStages(const Problem &problem, ParallelConfig config, const SplitResult &split) {
  config.splitsExperts = problem.pins.splitsExperts.value_or(true);
  StageOptions options(problem, config);
  return {config, layStages(options, split.counts, split.recomputed).stages};
}

// Costs of plans with `threads` threads; table i belongs to plans[i]. Configs of the same choice share a
// table where their schedules split backward alike.
std::vector<std::shared_ptr<const CostTable>> costTables(const Problem &problem,
                                                         const std::vector<ParallelConfig> &plans,
                                                         const std::vector<uint32_t> &choices, int threads) {
  std::map<std::pair<uint32_t, bool>, size_t> firsts; // plan that builds the table
  std::vector<size_t> firstOf;
  for (size_t i = 0; i < plans.size(); ++i)
    firstOf.push_back(firsts.try_emplace({choices[i], splitsBackward(plans[i].schedule)}, i).first->second);
  std::vector<std::shared_ptr<const CostTable>> tables(plans.size());
  forEachParallel(plans.size(), threads, [&](size_t i) {
    if (firstOf[i] == i)
      tables[i] = std::make_shared<const CostTable>(buildCostTable(problem, plans[i]));
  });
  for (size_t i = 0; i < plans.size(); ++i)
    tables[i] = tables[firstOf[i]];
  return tables;
}

// Two passes. The first looks at a few splits of each candidate; the second searches those candidates to the end whose
// lower bounds are still below the best plan.
class BranchAndBound {
public:
  BranchAndBound(const Problem &problem, const SearchOptions &options)
      : problem(problem), options(options), space(problem, options), incumbents(options.alternatives + 1) {}

  SearchStatistics run() {
    statistics.space = space.plans();
    firstPass();
    secondPass();
    statistics.lowerBoundSeconds = std::min(bound, incumbents.bestSeconds());
    statistics.optimal = statistics.lowerBoundSeconds >= incumbents.bestSeconds() * (1 - 1e-8);
    return statistics;
  }

  /// All that may be chosen, by the order of bounds.
  std::vector<SizedConfig> sizedConfigs() {
    std::vector<SizedConfig> list;
    for (size_t i = 0; const Candidate *candidate = space.at(i); ++i)
      list.push_back({space.leastBytes(*candidate), space.config(*candidate)});
    return list;
  }

  std::vector<std::pair<ParallelConfig, SplitResult>> best() const { return incumbents.sorted(); }

private:
  static constexpr size_t batch = 16, mostBatch = 128; // late ones find little, and threads wait for each other less
  static constexpr int64_t leastBudget = 4'000'000;    // actions per candidate
  static constexpr int64_t wholeBudget = 400'000'000;  // of all together, where they are few
  static constexpr double mostWork = 2e8;              // actions of schedules of several options in the first pass
  static constexpr double unlikeLayerWork = 1e4;       // what an unlike layer takes to lay on chunks, in actions
  static constexpr int64_t quickBudget = 200'000;      // where nothing is to be proved
  static constexpr int64_t mostOptionWork = 1'000'000'000; // visits of chunks to choose what layers keep
  static constexpr size_t quickCandidates = 1000;

  using Open = std::vector<std::pair<double, size_t>>; ///< bounds of candidates that may be reported, with their places
  void firstPass() {
    size_t next = 0;
    for (const Candidate *first; (first = space.at(next)) && first->bound < incumbents.kthSeconds();) {
      if (!options.prove && next >= quickCandidates && incumbents.bestSeconds() < bound) {
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

  // Schedules of many chunks take long to build and to play: once they took `mostWork`, such candidates are left out,
  // with their bounds. Models of a hundred layers on a thousand devices take less than a fifth of it.
  bool isWorthwhile(const Candidate &candidate) {
    ParallelConfig plan = space.config(candidate);
    if (!hasSeveralOptions(problem, plan))
      return true;
    double chunks = static_cast<double>(plan.pp) * chunksOf(plan.schedule, plan.virtualStages);
    work += 3 * chunks * static_cast<double>(plan.microBatches);
    if (!space.hasOneKind())
      work += unlikeLayerWork * problem.layerCount();
    return work <= mostWork && optionWork <= mostOptionWork;
  }

  void secondPass() {
    leaveOut();
    int64_t left = wholeBudget;
    for (size_t begin = 0; isOpen(begin); begin += batch) {
      if (left < 0 || optionWork > mostOptionWork) {
        bound = std::min(bound, open[begin].first);
        break;
      }
      std::vector<size_t> which;
      for (size_t i = begin; i < std::min(begin + batch, open.size()); ++i)
        which.push_back(open[i].second);
      int64_t each = std::max(left / static_cast<int64_t>(which.size()), leastBudget);
      Open unproved;
      left -= solveBatch(which, options.prove ? each : quickBudget, /*onlyBest=*/true, unproved);
      for (const auto &[seconds, index] : unproved)
        bound = std::min(bound, seconds);
    }
  }

  // Whether the candidate at a place may still be faster than the best.
  bool isOpen(size_t place) const {
    return place < open.size() && open[place].first < incumbents.bestSeconds() * (1 - equal);
  }

  // Leaves candidates out of the second pass, with their bounds: all but the first ones where nothing is to be proved;
  // and unlike layers on several chunks, as their proof takes long and is in vain where some were left out before.
  void leaveOut() {
    if (!space.hasOneKind() && bound < incumbents.bestSeconds())
      std::erase_if(open, [&](const auto &one) {
        bool isLeftOut = hasSeveralOptions(problem, space.config(*space.at(one.second)));
        if (isLeftOut)
          bound = std::min(bound, one.first);
        return isLeftOut;
      });
    if (!options.prove && open.size() > batch) {
      bound = std::min(bound, open[batch].first);
      open.resize(batch);
    }
  }

  // Looks for plans as fast as those that are reported, or faster than the best alone; candidates whose lower bound is
  // still below that go to `stillOpen`. Returns the actions that were spent.
  int64_t solveBatch(const std::vector<size_t> &which, int64_t budget, bool onlyBest, Open &stillOpen) {
    std::vector<ParallelConfig> plans;
    std::vector<uint32_t> choices;
    std::vector<double> limits;
    for (size_t i : which) {
      choices.push_back(space.at(i)->choice);
      plans.push_back(space.config(*space.at(i)));
      limits.push_back(onlyBest ? incumbents.bestSeconds() : incumbents.limitFor(plans.back()) * (1 + equal));
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
      optionWork += results[i].optionWork;
      statistics.evaluated += results[i].played;
      if (!results[i].counts.empty())
        incumbents.offer(plans[i], results[i], *space.at(which[i]));
    }
    for (size_t i = 0; i < which.size(); ++i)
      if (results[i].lowerBound < (onlyBest ? incumbents.bestSeconds() : incumbents.limitFor(plans[i])))
        stillOpen.push_back({results[i].lowerBound, which[i]});
    return spent;
  }

  const Problem &problem;
  const SearchOptions &options;
  SearchSpace space;
  Incumbents incumbents;
  SearchStatistics statistics;
  int64_t optionWork = 0;                                 // of all candidates so far
  double work = 0;                                        // of candidates with several options per stage
  double bound = std::numeric_limits<double>::infinity(); // of what was left out or unproved
  Open open;                                              // by rising bound after each pass
  std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>();
};

} // namespace

SearchResult search(const Problem &problem, const SearchOptions &options) {
  auto start = std::chrono::steady_clock::now();
  SearchResult result;
  result.errors = checkProblem(problem);
  if (!result.errors.empty())
    return result;

  BranchAndBound solver(problem, options);
  result.statistics = solver.run();
  for (const auto &[config, solved] : solver.best())
    result.plans.push_back(pricePlan(problem, withStages(problem, config, solved)));
  // A price is the same sum as the search's, in another order: the last digits may differ.
  if (!result.plans.empty())
    result.statistics.lowerBoundSeconds =
        std::min(result.statistics.lowerBoundSeconds, result.plans.front().prediction.stepSeconds);
  if (result.plans.empty() && options.diagnose)
    diagnose(problem, options, solver.sizedConfigs(), result);
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace espalier::planner
