// Branch and bound over candidates. Solves the split of layers of each candidate, by ascending lower bound, until the
// bound exceeds the incumbents. Batches of fixed size see the same incumbents whatever the number of threads, so that
// the result does not depend on it.
#include "planner/search.h"

#include "planner/model/simplicity.h"
#include "planner/price.h"
#include "planner/search/diagnose.h"
#include "planner/search/incumbents.h"
#include "planner/search/parallel.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <tuple>

namespace espalier::planner {

namespace {

// Converts a split to stages, with what each layer keeps.
Plan withStages(const Problem &problem, ParallelConfig config, const SplitResult &split) {
  config.splitsExperts = problem.pins.splitsExperts.value_or(true);
  StageOptions options(problem, config);
  return {config, layStages(options, split.counts, split.recomputed).stages};
}

// Builds cost tables of plans with `threads` threads; table i belongs to plans[i]. Configs of the same choice share a
// table if their schedules split backward in the same way.
std::vector<std::shared_ptr<const CostTable>> costTables(const Problem &problem,
                                                         const std::vector<ParallelConfig> &plans,
                                                         const std::vector<uint32_t> &choices, int threads) {
  std::map<std::pair<uint32_t, bool>, size_t> firsts; // plan that builds the shared table
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

Simplicity simplicityOfIncumbent(const Incumbent &one, const Machine &machine) {
  bool recomputes = std::ranges::any_of(one.result.recomputed, [](const std::vector<RecomputedLayers> &stage) {
    return std::ranges::any_of(stage, [](const RecomputedLayers &kind) { return kind.full + kind.selective > 0; });
  });
  return simplicityOf(one.config, machine, recomputes);
}

// Returns the longest step of a plan that is as fast as the fastest one within the error of their comparison.
double equalSeconds(const ModelError &error, const ParallelConfig &config, const Incumbent &fastest) {
  return (1 + comparisonError(error, config, fastest.config)) * fastest.result.seconds;
}

// Searches in two passes. The first examines a few splits of each candidate. The second completes the search of the
// candidates whose lower bounds are still below the best plan.
class BranchAndBound {
public:
  BranchAndBound(const Problem &problem, const SearchOptions &options)
      : problem(problem), options(options), space(problem, options),
        incumbents(options.alternatives + 1, options.belowSeconds) {}

  void run() {
    statistics.space = space.plans();
    statistics.configs = space.configs();
    statistics.tooLarge = space.tooLarge();
    firstPass();
    secondPass();
    statistics.fastestSeconds = incumbents.bestSeconds();
    statistics.lowerBoundSeconds = std::min(bound, incumbents.bestSeconds());
    statistics.optimal = statistics.lowerBoundSeconds >= incumbents.bestSeconds() * (1 - 1e-8);
  }

  /// Returns all candidates with their least bytes, by bound.
  std::vector<SizedConfig> sizedConfigs() {
    std::vector<SizedConfig> list;
    for (size_t i = 0; const Candidate *candidate = space.at(i); ++i)
      list.push_back({space.leastBytes(*candidate), space.config(*candidate)});
    return list;
  }

  const SearchStatistics &sizes() const { return statistics; }
  const ParallelConfig &fastest() const { return fastestConfig; } ///< after best()

  /// Returns the plans to report, in order.
  std::vector<Incumbent> best() {
    std::vector<Incumbent> list = incumbents.sorted();
    if (!list.empty())
      fastestConfig = list.front().config;
    bool prefersSimple = options.simplest && problem.error.comparison > 0 && !list.empty();
    if (prefersSimple) {
      Incumbent fastest = list.front(), simple = simplest(list);
      std::erase_if(list, [&](const Incumbent &other) { return other.config == simple.config; });
      list.push_back(std::move(simple));
      auto order = [&](const Incumbent &one) {
        bool isEqual = one.result.seconds <= equalSeconds(problem.error, one.config, fastest);
        return std::tuple(!isEqual, isEqual ? simplicityOfIncumbent(one, problem.machine) : Simplicity{},
                          one.result.seconds, one.place);
      };
      std::ranges::sort(list.begin(), list.end() - 1, {}, order);
      std::rotate(list.begin(), list.end() - 1, list.end()); // the chosen plan comes first
    }
    incumbents.shorten(list);
    return list;
  }

private:
  static constexpr size_t batch = 16,
                          mostBatch =
                              128; // later candidates find little, and large batches reduce waiting between threads
  static constexpr int64_t leastBudget = 4'000'000;        // actions per candidate
  static constexpr int64_t wholeBudget = 400'000'000;      // in all, if there are few candidates
  static constexpr double mostWork = 2e8;                  // actions of schedules of several options in the first pass
  static constexpr double unlikeLayerWork = 1e4;           // what an unlike layer takes to lay on chunks, in actions
  static constexpr int64_t quickBudget = 200'000;          // where nothing is to be proved
  static constexpr int64_t mostOptionWork = 1'000'000'000; // visited chunks in recompute choices
  static constexpr size_t quickCandidates = 1000;

  using Open = std::vector<std::pair<double, size_t>>; ///< bounds of candidates that may be reported, with their places
  void firstPass() {
    size_t next = 0;
    for (const Candidate *first; (first = space.at(next)) && first->bound < incumbents.lastSeconds();) {
      if (!options.prove && next >= quickCandidates && incumbents.bestSeconds() < bound) {
        bound = first->bound;
        break;
      }
      // The first batches are small, because their results save work for later ones.
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

  // Schedules of many chunks take long to build and to simulate. After `mostWork` such candidates are dropped, and
  // their bounds count in the gap. Models of a hundred layers on a thousand devices need less than a fifth of it.
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

  // Chooses among the plans that equal the fastest one: first the simplest layout, with its fastest plan, and then the
  // simplest plan of this layout that equals that plan within the error of plans with the same axes.
  Incumbent simplest(const std::vector<Incumbent> &known) {
    const Incumbent &fastest = known.front();
    auto limit = [&](const ParallelConfig &config) { return equalSeconds(problem.error, config, fastest); };
    Incumbent best = least(known, fastest, &Simplicity::layout, limit);
    const Simplicity layout = simplicityOfIncumbent(best, problem.machine).layout();
    const double near = (1 + problem.error.comparison) * best.result.seconds;
    auto nearLimit = [&](const ParallelConfig &config) {
      bool isOther = simplicityOf(config, problem.machine, /*recomputes=*/false).layout() != layout;
      return isOther ? 0 : std::min(limit(config), near);
    };
    return least(known, best, std::identity(), nearLimit);
  }

  // Returns the plan with the least `keyOf` its simplicity, or `best`; of equal ones, the fastest. Plans may take
  // `limitOf` their config. Visits candidates by ascending complexity, as far as it is known without a split (recompute
  // is not). Unequal layers on several chunks are slow to solve and not simple, so that only their incumbents count.
  template <typename KeyOf, typename LimitOf>
  Incumbent least(const std::vector<Incumbent> &known, Incumbent best, KeyOf keyOf, LimitOf limitOf) {
    auto simple = [&](const Incumbent &one) { return std::invoke(keyOf, simplicityOfIncumbent(one, problem.machine)); };
    auto key = [&](const Incumbent &one) { return std::pair(simple(one), one.result.seconds); };
    for (const Incumbent &one : known)
      if (one.result.seconds <= limitOf(one.config) && key(one) < key(best))
        best = one;
    const ModelError &error = problem.error;
    const double most = (1 + std::max({error.comparison, error.family, error.unmeasured})) * incumbents.bestSeconds();
    std::vector<std::pair<Simplicity, size_t>> order;
    for (size_t i = 0; space.at(i) && space.at(i)->bound <= most; ++i)
      if (ParallelConfig config = space.config(*space.at(i));
          space.at(i)->bound <= limitOf(config) && (space.hasOneKind() || !hasSeveralOptions(problem, config)))
        order.emplace_back(std::invoke(keyOf, simplicityOf(config, problem.machine, /*recomputes=*/false)), i);
    std::ranges::sort(order);
    for (size_t begin = 0, end; begin < order.size() && order[begin].first <= simple(best); begin = end) {
      bool isTie = simple(best) == order[begin].first;
      std::vector<size_t> which;
      std::vector<double> wanted;
      for (end = begin; end < order.size() && end < begin + batch && order[end].first == order[begin].first; ++end) {
        const Candidate &candidate = *space.at(order[end].second);
        double most = limitOf(space.config(candidate)), limit = isTie ? std::min(most, best.result.seconds) : most;
        if (candidate.bound >= limit)
          continue;
        which.push_back(order[end].second);
        wanted.push_back(limit);
      }
      for (Incumbent &found : solve(which, wanted, /*budget=*/0))
        if (!found.result.counts.empty() && key(found) < key(best))
          best = std::move(found);
    }
    return best;
  }

  // Returns whether the candidate at a rank may still be faster than the best.
  bool isOpen(size_t place) const {
    return place < open.size() && open[place].first < incumbents.bestSeconds() * (1 - kSameStep);
  }

  // Removes candidates from the second pass and records their bounds. Without proof, removes all but the first ones.
  // Removes unequal layers on several chunks, because their proof takes long and is useless once other candidates are
  // dropped.
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

  // Searches for plans as fast as the reported ones, or (`onlyBest`) faster than the best. Appends candidates whose
  // lower bound is still below that to `stillOpen`. Returns the number of simulated actions.
  int64_t solveBatch(const std::vector<size_t> &which, int64_t budget, bool onlyBest, Open &stillOpen) {
    std::vector<double> limits;
    for (size_t i : which)
      limits.push_back(onlyBest ? incumbents.bestSeconds()
                                : incumbents.limitFor(space.config(*space.at(i))) * (1 + kSameStep));
    std::vector<Incumbent> found = solve(which, limits, budget);
    int64_t spent = 0;
    for (size_t i = 0; i < which.size(); ++i) {
      SplitResult &result = found[i].result;
      result.lowerBound = std::min(std::max(result.lowerBound, space.at(which[i])->bound), result.seconds);
      spent += result.spent;
      optionWork += result.optionWork;
      if (!result.counts.empty())
        incumbents.offer(found[i].config, result, *space.at(which[i]));
    }
    for (size_t i = 0; i < which.size(); ++i)
      if (found[i].result.lowerBound < (onlyBest ? incumbents.bestSeconds() : incumbents.limitFor(found[i].config)))
        stillOpen.push_back({found[i].result.lowerBound, which[i]});
    return spent;
  }

  // Returns the best split of each candidate that has one below its limit.
  std::vector<Incumbent> solve(const std::vector<size_t> &which, const std::vector<double> &limits, int64_t budget) {
    std::vector<ParallelConfig> plans;
    std::vector<uint32_t> choices;
    std::vector<Incumbent> found(which.size());
    for (size_t i = 0; i < which.size(); ++i) {
      const Candidate &candidate = *space.at(which[i]);
      found[i].config = space.config(candidate);
      found[i].place = {candidate.choice, candidate.schedule};
      choices.push_back(candidate.choice);
      plans.push_back(found[i].config);
    }
    statistics.examined += static_cast<int64_t>(which.size());
    std::vector<std::shared_ptr<const CostTable>> tables = costTables(problem, plans, choices, options.threads);
    forEachParallel(plans.size(), options.threads, [&](size_t i) {
      StageOptions stages(problem, plans[i], schedules, tables[i]);
      SplitResult &result = found[i].result = bestSplit(problem, stages, limits[i], budget);
      if (problem.machine.devicesPerCore() > 1 && !result.counts.empty()) // splits are played with a core per device
        result.seconds = pricePlan(problem, withStages(problem, plans[i], result)).prediction.stepSeconds;
    });
    for (const Incumbent &one : found)
      statistics.evaluated += one.result.played;
    return found;
  }

  const Problem &problem;
  const SearchOptions &options;
  SearchSpace space;
  Incumbents incumbents;
  SearchStatistics statistics;
  ParallelConfig fastestConfig;
  int64_t optionWork = 0;   // of all candidates so far
  double work = 0;          // of candidates with several options per stage
  double bound = kInfinity; // of dropped or unproved candidates
  Open open;                // by rising bound after each pass
  std::shared_ptr<ScheduleCache> schedules = std::make_shared<ScheduleCache>();
};

// Adds the fastest plan of plain 1F1B.
void addPlain(const Problem &problem, SearchOptions options, SearchResult &result) {
  Problem plain = problem;
  plain.pins.schedule = Schedule::OneFOneB;
  options.alternatives = 0;
  options.simplest = options.diagnose = options.prove = false; // takes a share of the first search's time
  SearchResult found = search(plain, options);
  if (found.plans.empty())
    return;
  result.plain = std::move(found.plans.front());
  result.plainStatistics = found.statistics;
}

} // namespace

double SearchResult::errorOf(const Plan &plan) const { return comparisonError(error, plan, fastest); }

bool SearchResult::isEqual(const PricedPlan &plan) const {
  return plan.prediction.stepSeconds <= (1 + errorOf(plan.plan)) * statistics.fastestSeconds;
}

SearchResult search(const Problem &problem, const SearchOptions &options) {
  auto start = std::chrono::steady_clock::now();
  SearchResult result;
  result.errors = checkProblem(problem);
  if (!result.errors.empty())
    return result;

  BranchAndBound solver(problem, options);
  solver.run();
  std::vector<Incumbent> best = solver.best();
  result.error = problem.error;
  result.fastest = solver.fastest();
  result.statistics = solver.sizes();
  SearchStatistics &statistics = result.statistics;
  for (const Incumbent &one : best) {
    PricedPlan priced = pricePlan(problem, withStages(problem, one.config, one.result));
    // The price sums the same terms as the search in another order, so that the last digits may differ.
    if (one.result.seconds <= statistics.fastestSeconds)
      statistics.fastestSeconds = priced.prediction.stepSeconds;
    result.plans.push_back(std::move(priced));
  }
  statistics.lowerBoundSeconds = std::min(statistics.lowerBoundSeconds, statistics.fastestSeconds);
  if (options.diagnose && options.prove && statistics.gap() > kWideGap && !problem.pins.schedule)
    addPlain(problem, options, result);
  if (result.plans.empty() && options.diagnose)
    diagnose(problem, options, solver.sizedConfigs(), result);
  statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace espalier::planner
