// Enumerates axes, micro-batches and schedules; sorts them by a bound that needs no split; solves
// the split of layers for each in that order until the bound passes the best plans. Batches of
// fixed size see the same best plans whatever the number of threads, so the result does not depend
// on it.
#include "planner/search.h"

#include "planner/diagnose.h"
#include "planner/split_chunks.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <thread>
#include <tuple>

namespace espalier::planner {

namespace {

std::vector<int> divisors(int value, const std::optional<int> &pin) {
  std::vector<int> list;
  for (int i = 1; i <= value; ++i)
    if (value % i == 0 && (!pin || *pin == i))
      list.push_back(i);
  return list;
}

// A choice of everything but the split of layers: one of the choices of axes, and the schedule. There are many.
struct Candidate {
  double bound = 0;
  uint32_t choice = 0, order = 0; ///< equal bounds keep the order of enumeration
  Schedule schedule = Schedule::OneFOneB;
  int virtualStages = 1;
};

// All choices, candidates by rising bound.
struct Space {
  std::vector<Plan> choices; ///< all but the schedule
  std::vector<Candidate> candidates;
  double plans = 0; ///< candidates times the ways to spread the layers, at most 1e300

  Plan axes(size_t candidate) const {
    const Candidate &which = candidates[candidate];
    Plan plan = choices[which.choice];
    plan.schedule = which.schedule;
    plan.virtualStages = which.virtualStages;
    return plan;
  }
};

using KindKey = std::tuple<int, int, int, int, int>; ///< plans differ in kind when their axes do

KindKey kindOf(const Plan &plan) { return {plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}; }

double binomial(int n, int k) {
  double value = 1;
  for (int i = 1; i <= k; ++i)
    value = value * (n - k + i) / i;
  return value;
}

// Calls work(i) for i below `count`, each on any of the threads.
template <typename Work> void forEachParallel(size_t count, int threads, const Work &work) {
  std::atomic<size_t> next = 0;
  auto loop = [&] {
    for (size_t i = next++; i < count; i = next++)
      work(i);
  };
  std::vector<std::jthread> pool;
  for (size_t i = 1; i < std::min(static_cast<size_t>(std::max(threads, 1)), count); ++i)
    pool.emplace_back(loop);
  loop();
}

class Enumerator {
public:
  Enumerator(const Problem &problem, const SearchOptions &options) : problem(problem), options(options) {}

  // First the choices whose costs differ, then, in parallel, the work of each, then its schedules.
  Space run() {
    enumerateAxes();
    std::vector<Plan> &choices = space.choices;
    std::vector<std::optional<WorkSum>> works(choices.size());
    constexpr size_t block = 256;
    forEachParallel((choices.size() + block - 1) / block, options.threads, [&](size_t i) {
      size_t begin = i * block;
      std::span<const Plan> part(choices.begin() + begin, std::min(block, choices.size() - begin));
      std::ranges::move(sumWorks(problem, part, [&](int stages) { return mostChunks(stages); }), works.begin() + begin);
    });
    for (size_t i = 0; i < choices.size(); ++i)
      if (works[i])
        addSchedules(static_cast<uint32_t>(i), *works[i]);
    std::sort(space.candidates.begin(), space.candidates.end(), [](const Candidate &a, const Candidate &b) {
      return std::tie(a.bound, a.order) < std::tie(b.bound, b.order);
    });
    return std::move(space);
  }

private:
  // Chunks on a stage of any plan of the space; the executor runs one.
  int mostChunks(int stages) const {
    const auto &pinned = problem.pins.stageLayers; // chunks without layers make them more than the layers
    int chunks = pinned ? static_cast<int>(pinned->size()) : problem.layerCount();
    return options.all ? std::max(1, chunks / stages) : 1;
  }

  void enumerateAxes() {
    int devices = problem.machine.devices();
    const Pins &pins = problem.pins;
    bool hasExperts = std::ranges::any_of(problem.limits, [](const Divisibility &d) { return d.axis == Axis::Ep; });
    for (int tp : divisors(devices, pins.tp))
      for (int pp : divisors(devices / tp, pins.pp))
        for (int cp : divisors(devices / tp / pp, pins.cp))
          for (int ep : divisors(hasExperts ? devices / tp / pp / cp : 1, pins.ep)) {
            Plan plan;
            plan.tp = tp, plan.pp = pp, plan.cp = cp, plan.ep = ep;
            plan.dp = devices / tp / pp / cp / ep;
            if (!pins.dp || *pins.dp == plan.dp)
              addMicroBatches(plan);
          }
  }

  void addMicroBatches(Plan plan) {
    if (problem.globalBatch % plan.replicas() != 0 || plan.pp > problem.layerCount())
      return;
    if (problem.pins.stageLayers && problem.pins.stageLayers->size() % static_cast<size_t>(plan.pp) != 0)
      return;
    int64_t perReplica = problem.globalBatch / plan.replicas();
    for (int64_t size = 1; size <= perReplica; ++size) {
      if (perReplica % size != 0 || perReplica / size > (1 << 16))
        continue;
      plan.microBatchSize = size;
      plan.microBatches = perReplica / size;
      const Pins &pins = problem.pins;
      if ((!pins.microBatchSize || *pins.microBatchSize == size) &&
          (!pins.microBatches || *pins.microBatches == plan.microBatches))
        addFlags(plan);
    }
  }

  void addFlags(Plan plan) {
    for (bool sequenceParallel : {false, true})
      for (bool vocabParallel : {true, false})
        for (int zero = 0; zero <= 3; ++zero) {
          const Pins &pins = problem.pins;
          if (vocabParallel != pins.vocabParallel.value_or(true) ||
              (pins.sequenceParallel && plan.tp > 1 && *pins.sequenceParallel != sequenceParallel) ||
              (sequenceParallel && plan.tp == 1) || (pins.zero && *pins.zero != zero) ||
              (!pins.zero && zero > 0 && plan.replicas() * plan.cp == 1))
            continue;
          plan.sequenceParallel = sequenceParallel;
          plan.vocabParallel = vocabParallel;
          plan.zero = zero;
          // Costs do not depend on the schedule.
          plan.schedule = Schedule::OneFOneB;
          if ((options.all || isExecutable(problem, plan)) && structuralViolations(problem, plan).empty())
            addOffloads(plan);
        }
  }

  // The ways to offload under a choice, none first. Offloaded activations make forward depend on what is kept, so there
  // each class of recompute is a way of its own.
  void addOffloads(Plan plan) {
    const Pins &pins = problem.pins;
    bool mayOffload = options.all && problem.machine.canOffload();
    for (bool optimizer : {false, true})
      for (bool activations : {false, true})
        for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
          if (((optimizer || activations) && !mayOffload) || pins.offloadOptimizer.value_or(optimizer) != optimizer ||
              pins.offloadActivations.value_or(activations) != activations ||
              (activations ? pins.recompute.value_or(recompute) != recompute : recompute != Recompute::None))
            continue;
          plan.offloadOptimizer = optimizer;
          plan.offloadActivations = activations;
          plan.commonRecompute = activations ? std::optional(recompute) : std::nullopt;
          space.choices.push_back(plan);
        }
  }

  void addSchedules(uint32_t choice, const WorkSum &work) {
    Plan plan = space.choices[choice];
    for (Schedule schedule : kSchedules) {
      if (problem.pins.schedule ? schedule != *problem.pins.schedule : plan.pp == 1 && schedule != Schedule::OneFOneB)
        continue;
      int most = schedule == Schedule::Interleaved ? mostChunks(plan.pp) : 1;
      for (int virtualStages = schedule == Schedule::Interleaved ? 2 : 1; virtualStages <= most; ++virtualStages) {
        plan.schedule = schedule;
        plan.virtualStages = isVShaped(schedule) ? 2 : virtualStages;
        if (problem.pins.virtualStages && *problem.pins.virtualStages != plan.virtualStages)
          continue;
        add(choice, plan, work);
      }
    }
  }

  // Memory for actions of a table is bounded before one is built.
  static constexpr double mostActions = 4e6;

  // Only one of several chunks of a stage may be without layers.
  static bool maySplit(const std::vector<int> &pinned, int stages, int chunks) {
    return static_cast<int>(pinned.size()) == chunks && (chunks > stages || std::ranges::count(pinned, 0) == 0);
  }

  void add(uint32_t choice, const Plan &plan, const WorkSum &work) {
    int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages), layers = problem.layerCount();
    bool even = chunks > plan.pp, pinned = problem.pins.stageLayers.has_value();
    if (pinned && !maySplit(*problem.pins.stageLayers, plan.pp, chunks))
      return;
    if ((!options.all && !isExecutable(problem, plan)) ||
        (!pinned && (chunks > layers || (even && layers % chunks != 0))) ||
        static_cast<double>(plan.microBatches) * chunks > mostActions ||
        !whyNotSchedulable(plan.schedule, plan.pp, static_cast<int>(plan.microBatches), plan.virtualStages).empty() ||
        !whyNotOffloadable(problem.machine, plan).empty())
      return;
    double splits = even || problem.pins.stageLayers ? 1 : binomial(layers - 1, plan.pp - 1);
    space.plans = std::min(space.plans + splits, 1e300);
    space.candidates.push_back({relaxedBound(work, problem.machine, plan, /*evenChunks=*/!pinned), choice,
                                static_cast<uint32_t>(space.candidates.size()), plan.schedule, plan.virtualStages});
  }

  const Problem &problem;
  const SearchOptions &options;
  Space space;
};

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
    std::vector<std::pair<Plan, SplitResult>> list = sorted();
    return static_cast<int>(list.size()) < wanted ? std::numeric_limits<double>::infinity()
                                                  : list[wanted - 1].second.seconds;
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

// Turns counts into stages with what each layer keeps.
Plan withStages(const Problem &problem, Plan plan, const std::vector<int> &counts) {
  StageOptions options(problem, plan);
  plan.stages = layChunks(options, counts);
  return plan;
}

// Solves the candidates named by `which` with `threads` threads; result i belongs to which[i].
std::vector<SplitResult> solve(const Problem &problem, const Space &space, const std::vector<size_t> &which,
                               const std::vector<double> &limits, int64_t budget, int threads) {
  std::vector<SplitResult> results(which.size());
  forEachParallel(which.size(), threads, [&](size_t i) {
    StageOptions options(problem, space.axes(which[i]));
    results[i] = bestSplit(problem, options, limits[i], budget);
  });
  return results;
}

// Two passes in batches of fixed size. The first plays the split of least bound of each candidate;
// the second goes through what the bounds of the first leave open below the best plan.
class BranchAndBound {
public:
  BranchAndBound(const Problem &problem, const SearchOptions &options, Space space)
      : problem(problem), options(options), space(std::move(space)), leaders(options.alternatives + 1) {}

  SearchStatistics run() {
    SearchStatistics statistics;
    statistics.space = space.plans;
    const std::vector<Candidate> &candidates = space.candidates;
    std::vector<std::pair<double, size_t>> open; // (bound, candidate) that may beat the best
    double bound = std::numeric_limits<double>::infinity();
    for (size_t begin = 0, end = 0; begin < candidates.size() && candidates[begin].bound < leaders.kthSeconds();
         begin = end) {
      if (!options.prove && begin >= quickCandidates && leaders.bestSeconds() < bound) {
        bound = candidates[begin].bound;
        break;
      }
      // The first ones are few: what they find spares the others work.
      end = std::min(begin + std::clamp<size_t>(begin, 2, batch), candidates.size());
      std::vector<size_t> which;
      for (size_t i = begin; i < end; ++i)
        which.push_back(i);
      solveBatch(which, /*budget=*/0, statistics, open);
    }
    std::sort(open.begin(), open.end());
    int64_t budget = options.prove ? actionBudget : quickBudget;
    if (!options.prove && open.size() > batch) {
      bound = std::min(bound, open[batch].first);
      open.resize(batch);
    }
    for (size_t begin = 0; begin < open.size() && open[begin].first < leaders.bestSeconds() * (1 - 1e-9);
         begin += batch) {
      std::vector<size_t> which;
      for (size_t i = begin; i < std::min(begin + batch, open.size()); ++i)
        which.push_back(open[i].second);
      std::vector<std::pair<double, size_t>> left;
      solveBatch(which, budget, statistics, left);
      for (const auto &[seconds, index] : left)
        bound = std::min(bound, seconds);
    }
    statistics.lowerBoundSeconds = std::min(bound, leaders.bestSeconds());
    statistics.optimal = statistics.lowerBoundSeconds >= leaders.bestSeconds() * (1 - 1e-8);
    return statistics;
  }

  std::vector<Plan> axes() const {
    std::vector<Plan> list;
    for (size_t i = 0; i < space.candidates.size(); ++i)
      list.push_back(space.axes(i));
    return list;
  }

  std::vector<std::pair<Plan, SplitResult>> best() const { return leaders.sorted(); }

private:
  static constexpr size_t batch = 16;
  static constexpr int64_t actionBudget = 4'000'000; // per candidate
  static constexpr int64_t quickBudget = 200'000;    // where nothing is to be proved
  static constexpr size_t quickCandidates = 500;

  void solveBatch(const std::vector<size_t> &which, int64_t budget, SearchStatistics &statistics,
                  std::vector<std::pair<double, size_t>> &open) {
    std::vector<double> limits;
    for (size_t i : which)
      limits.push_back(budget > 0 ? leaders.bestSeconds() : leaders.limitFor(space.axes(i)));
    std::vector<SplitResult> results = solve(problem, space, which, limits, budget, options.threads);
    for (size_t i = 0; i < which.size(); ++i) {
      statistics.evaluated += results[i].played;
      if (!results[i].counts.empty())
        leaders.offer(space.axes(which[i]), results[i]);
      if (results[i].lowerBound < leaders.bestSeconds())
        open.push_back({results[i].lowerBound, which[i]});
    }
  }

  const Problem &problem;
  const SearchOptions &options;
  Space space;
  Leaders leaders;
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

  BranchAndBound solver(problem, options, Enumerator(problem, options).run());
  result.statistics = solver.run();
  for (const auto &[axes, solved] : solver.best())
    result.plans.push_back(pricePlan(problem, withStages(problem, axes, solved.counts)));
  if (result.plans.empty() && options.diagnose)
    diagnose(problem, options, solver.axes(), result);
  result.statistics.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

} // namespace espalier::planner
