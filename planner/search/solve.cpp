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
Plan withStages(const Problem &problem, const ParallelConfig &config, const SplitResult &split) {
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

// Finds the split of the layers of one config, and of software that cannot choose for each layer, what layers keep.
class ConfigSolver {
public:
  ConfigSolver(const Problem &problem, std::shared_ptr<ScheduleCache> schedules)
      : problem(problem), schedules(std::move(schedules)) {}

  // Returns the best split below the limit. Sets the layers that recompute in full in equally many layers of each
  // chunk.
  SplitResult solve(ParallelConfig &config, const std::shared_ptr<const CostTable> &table, double limit,
                    int64_t budget) const {
    return config.fullLayers > 0 ? blockSplit(config, table, limit, budget) : splitOf(config, table, limit, budget);
  }

private:
  using Table = std::shared_ptr<const CostTable>;

  /// Whether every stage fits.
  bool fits(const LaidStages &laid) const {
    for (size_t stage = 0; stage < laid.bytes.size(); ++stage)
      if (memoryShare(problem.machine, laid.bytes[stage], laid.hostBytes[stage]) > 1)
        return false;
    return true;
  }

  SplitResult splitOf(const ParallelConfig &config, const Table &table, double limit, int64_t budget) const {
    StageOptions stages(problem, config, schedules, table);
    if (!problem.software.hasEvenStages || problem.pins.stageLayers)
      return bestSplit(problem, stages, limit, budget);
    SplitResult even{.played = 1};
    std::vector<int> counts = evenChunks(problem, config);
    LaidStages laid = layStages(stages, counts);
    if (fits(laid))
      even.lowerBound = pricePlan(problem, {config, std::move(laid.stages)}).prediction.stepSeconds;
    if (even.lowerBound < limit)
      even.seconds = even.lowerBound, even.counts = std::move(counts);
    return even;
  }

  // Finds the best split with any number of leading layers of each chunk that recompute in full, and sets this number.
  // More of them need less memory, so that the fewest with which equal stages fit are bisected. One less may fit
  // unequal stages, and more may allow better stages.
  SplitResult blockSplit(ParallelConfig &config, const Table &table, double limit, int64_t budget) const {
    int chunks = config.pp * chunksOf(config.schedule, config.virtualStages);
    const int all = (problem.layerCount() + chunks - 1) / chunks;
    ParallelConfig tried = config;
    auto fitsEvenly = [&](int layers) {
      tried.fullLayers = layers;
      StageOptions stages(problem, tried, schedules, table);
      return fits(layStages(stages, evenChunks(problem, tried)));
    };
    int fewest = 1;
    for (int most = all; fewest < most;) {
      int middle = (fewest + most) / 2;
      if (fitsEvenly(middle))
        most = middle;
      else
        fewest = middle + 1;
    }
    SplitResult best;
    bool isBetter = true;
    int64_t played = 0, spent = 0, work = 0;
    for (int layers = std::max(1, fewest - 1); layers <= all && (layers <= fewest || isBetter); ++layers) {
      tried.fullLayers = layers;
      SplitResult found = splitOf(tried, table, std::min(limit, best.seconds), budget);
      played += found.played, spent += found.spent, work += found.optionWork;
      isBetter = found.seconds < best.seconds;
      if (isBetter)
        best = std::move(found), config = tried;
    }
    best.played = played, best.spent = spent, best.optionWork = work;
    best.lowerBound = 0; // only the bound of the candidate holds for all numbers
    return best;
  }

  const Problem &problem;
  std::shared_ptr<ScheduleCache> schedules;
};

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
  const std::optional<Incumbent> &simpler() const { return nextSimpler; } ///< after best()

  /// Returns the plans to report: the answer, and then the others by ascending time.
  std::vector<Incumbent> best() {
    std::vector<Incumbent> list = incumbents.sorted();
    if (options.simplest && problem.preferSimple > 0 && !list.empty()) {
      Incumbent answer = simplest(list);
      std::erase_if(list, [&](const Incumbent &other) { return other.config == answer.config; });
      list.insert(list.begin(), std::move(answer));
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
  static constexpr size_t mostSimple = 100'000; // candidates among which a simpler plan is looked for

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
    if (!hasSeveralOptions(plan))
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

  // A plan with its simplicity and time, which is its rank in the choice of the answer.
  using Ranked = std::pair<Simplicity, double>;
  Ranked rankOf(const Incumbent &one) const {
    return {simplicityOf(pricePlan(problem, withStages(problem, one.config, one.result)), problem.machine),
            one.result.seconds};
  }

  // Returns the simplest plan that is at most `preferSimple` slower than the fastest one; of equally simple plans, the
  // fastest. Sets `nextSimpler`. Visits candidates by ascending complexity, as far as it is known without a split.
  // Unequal layers on several chunks are slow to solve and not simple, so that only their incumbents count.
  Incumbent simplest(const std::vector<Incumbent> &known) {
    const double limit = (1 + problem.preferSimple) * incumbents.bestSeconds();
    Incumbent answer = known.front();
    Ranked rank = rankOf(answer);
    std::vector<std::pair<Incumbent, Ranked>> others;
    auto offer = [&](const Incumbent &one) {
      Ranked own = rankOf(one);
      if (one.result.seconds <= limit && own < rank)
        answer = one, rank = own;
      others.emplace_back(one, own);
    };
    std::ranges::for_each(known, offer);
    std::vector<std::pair<Simplicity, size_t>> order;
    const double most = std::max(limit, Incumbents::mostSlower * incumbents.bestSeconds());
    for (size_t i = 0; i < mostSimple && space.at(i) && space.at(i)->bound <= most; ++i)
      if (ParallelConfig config = space.config(*space.at(i)); space.hasOneKind() || !hasSeveralOptions(config))
        order.emplace_back(simplicityOf(config, problem.machine), i);
    std::ranges::sort(order);
    double nextSeconds = most;
    for (size_t begin = 0, end; begin < order.size() && order[begin].first <= rank.first; begin = end) {
      std::vector<size_t> which;
      std::vector<double> wanted;
      for (end = begin; end < order.size() && end < begin + batch && order[end].first == order[begin].first; ++end) {
        bool isTie = order[end].first == rank.first; // a slower plan would be no answer, and is not simpler
        double least = isTie ? std::min(limit, rank.second) : nextSeconds;
        if (space.at(order[end].second)->bound >= least)
          continue;
        which.push_back(order[end].second);
        wanted.push_back(least);
      }
      for (const Incumbent &found : solve(which, wanted, /*budget=*/0))
        if (!found.result.counts.empty()) {
          offer(found);
          if (found.result.seconds > limit)
            nextSeconds = std::min(nextSeconds, found.result.seconds);
        }
    }
    for (const auto &[one, own] : others)
      if (own.first < rank.first && (!nextSimpler || one.result.seconds < nextSimpler->result.seconds))
        nextSimpler = one;
    return answer;
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
        bool isLeftOut = hasSeveralOptions(space.config(*space.at(one.second)));
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
      SplitResult &result = found[i].result = configs.solve(plans[i], tables[i], limits[i], budget);
      found[i].config = plans[i];
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
  std::optional<Incumbent> nextSimpler; // the fastest of the plans that are simpler than the answer
  int64_t optionWork = 0;               // of all candidates so far
  double work = 0;                      // of candidates with several options per stage
  double bound = kInfinity;             // of dropped or unproved candidates
  Open open;                            // by rising bound after each pass
  ConfigSolver configs{problem, std::make_shared<ScheduleCache>()};
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
  result.preferSimple = options.simplest ? problem.preferSimple : 0;
  auto priced = [&](const Incumbent &one) { return pricePlan(problem, withStages(problem, one.config, one.result)); };
  if (solver.simpler())
    result.simpler = priced(*solver.simpler());
  result.statistics = solver.sizes();
  SearchStatistics &statistics = result.statistics;
  for (const Incumbent &one : best) {
    result.plans.push_back(priced(one));
    // The price sums the same terms as the search in another order, so that the last digits may differ.
    if (one.result.seconds <= statistics.fastestSeconds)
      statistics.fastestSeconds = result.plans.back().prediction.stepSeconds;
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
