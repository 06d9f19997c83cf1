// Splits are gone through from the nearest to the last one on, as far as no cut is too long (cuts.h). A split ends by a
// target only if all cuts do; what is left of a cut behind a stage and the layers above is tabulated, so that most
// splits are ruled out by their first stages. Each split that is left is played and gives a cut.
#include "planner/search/split.h"

#include "planner/search/boundaries.h"
#include "planner/search/bounds.h"
#include "planner/search/climb.h"
#include "planner/search/cut_table.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier::planner {

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kQuickPlays = 2, kQuickBudget = 200'000; // of a first look
constexpr double kSlack = 1 - 1e-9;                        // for rounding
constexpr double kFineGap = 1e-3;                          // behind which the target is the best itself
constexpr int kSlowed = 64; // stages, of very many; with 16, splits of few micro-batches were not proved
constexpr int kRounds = 3;  // of closing boundaries: what one cut closes makes others longer
constexpr double kLongest = std::numeric_limits<double>::max();

class SplitSearch {
public:
  SplitSearch(const Problem &problem, StageOptions &stageOptions, int64_t budget)
      : problem(problem), stageOptions(stageOptions), player(stageOptions), choices(problem, stageOptions, player),
        axes(stageOptions.axes()), stages(axes.pp), layers(static_cast<int>(stageOptions.table().layerKinds.size())),
        perStage(chunksOf(axes.schedule, axes.virtualStages)), isQuick(budget <= 0),
        budget(isQuick ? kQuickBudget : budget), places(choices, stages, layers),
        table(choices, player, places, stages) {}

  SplitResult run(double limitSeconds) {
    limit = std::min(limitSeconds, kLongest);
    given = budget;
    result.lowerBound = std::max(limitSeconds, 0.0);
    double within = limit < kLongest ? limit * kSlack : kLongest;
    if (!places.narrow(within))
      return result;
    low = relaxedBound(sumWork(problem, stageOptions.table()), problem.machine, axes,
                       /*chunksAlike=*/stageOptions.hasOneKind() && !choices.isGiven());
    double relaxed = low;
    std::vector<int> counts = seed(within);
    std::vector<size_t> chosen(stages);
    play(counts, chosen);
    slowDown(counts, chosen);
    for (int64_t plays = 1; (!isQuick || plays < kQuickPlays) && next(counts, chosen); ++plays)
      play(counts, chosen);
    low = std::max(low, std::min(table.leastSeconds(), narrowedTo));
    if (!choices.isComplete())
      low = relaxed;
    result.spent = isQuick ? 0 : given - budget;
    result.lowerBound = std::min(limitSeconds, result.seconds);
    if (low < result.lowerBound * kSlack)
      result.lowerBound = low;
    return result;
  }

private:
  double best() const { return std::min({limit, result.seconds}) * kSlack; }

  // The split whose stages, each alone, end earliest, and are as full as each other within that.
  std::vector<int> seed(double within) {
    double least = low, most = within;
    for (int i = 0; i < 60 && most > least * (1 + 1e-6); ++i) {
      double middle = most >= kLongest ? 2 * least : (least + most) / 2;
      (places.narrow(middle) ? most : least) = middle;
    }
    low = std::max(low, std::min(least, best()));
    return even(most);
  }

  // Stages one after the other with an even share of the work that is left, as far as it ends by `target`.
  std::vector<int> even(double target) {
    const std::vector<double> &work = choices.workBefore();
    std::vector<int> counts;
    double edges = 0;
    for (int stage = 0; stage < stages; ++stage)
      edges += player.edgeOf(stage);
    for (int stage = 0, first = 0; stage < stages; first += counts[stage], edges -= player.edgeOf(stage), ++stage) {
      int least = places.least(stage, first), most = places.highest(stage + 1) - first;
      if (choices.isGiven())
        most = least = places.fewest(stage);
      double share = (work[layers] - work[first] + edges) / (stages - stage) - player.edgeOf(stage);
      auto place = std::ranges::lower_bound(work, work[first] + share);
      int count = std::clamp(static_cast<int>(place - work.begin()) - first, least, std::max(least, most));
      if (count > least && work[first + count] - work[first] - share > share - (work[first + count - 1] - work[first]))
        --count;
      while (count > least && choices.alone(stage, first, count, target) > target)
        --count;
      counts.push_back(count);
    }
    return counts;
  }

  std::vector<const StageOption *> optionsOf(const std::vector<int> &counts, const std::vector<size_t> &chosen) {
    std::vector<const StageOption *> list;
    for (int stage = 0, first = 0; stage < stages; first += counts[stage++])
      list.push_back(&choices.of(stage, first, counts[stage])[chosen[stage]]);
    return list;
  }

  // Plays a split, keeps it when it is faster, and notes its critical path.
  void play(const std::vector<int> &counts, const std::vector<size_t> &chosen) {
    std::vector<const StageOption *> options = optionsOf(counts, chosen);
    budget -= player.actions();
    ++result.played;
    Cut cut = player.play(options);
    if (cut.seconds < result.seconds && cut.seconds < limit) {
      result.seconds = cut.seconds;
      result.counts = choices.isGiven() ? *problem.pins.stageLayers
                      : perStage == 1   ? counts
                                        : spreadOverChunks(axes, counts);
      result.repeated.clear();
      for (const StageOption *option : options)
        result.repeated.push_back(option->repeated);
    }
    table.add(std::move(cut));
  }

  // The critical paths of a split on which one stage after the other takes twice as long: without them splits with a
  // layer more on some stage are ruled out one by one. Of very many stages some are near enough.
  void slowDown(const std::vector<int> &counts, const std::vector<size_t> &chosen) {
    int slowed = std::min(stages, kSlowed);
    if (isQuick || player.actions() * slowed > budget / 4)
      return;
    budget -= player.actions() * slowed;
    for (int i = 0; i < slowed; ++i)
      table.add(player.play(optionsOf(counts, chosen), /*slow=*/i * stages / slowed));
  }

  // The next split, nearest to the last, that no cut rules out below the best. False when there is none, or the budget
  // ends; no split ends by `low` then.
  bool next(std::vector<int> &counts, std::vector<size_t> &chosen) {
    while (budget > 0 && low < best()) {
      bool isNear = isQuick || best() - low <= kFineGap * best() || budget < given / 2 || !choices.isComplete();
      target = isNear ? best() : (low + best()) / 2;
      bool mayEnd = isWithin();
      if (mayEnd && descend(counts, chosen))
        return true;
      if (mayEnd && budget <= 0)
        break;
      low = target;
    }
    return false;
  }

  // Tabulates the cuts within what may end by the target. False when nothing may.
  bool isWithin() {
    bool isNew = target != narrowedTo;
    if (isNew) {
      if (!places.narrow(target))
        return false;
      narrowedTo = target;
      places.findMost(target);
      table.reset();
    }
    for (int round = 0; round < kRounds; ++round) {
      budget -= table.tabulate() / 8;
      if (table.leastSeconds() > target)
        return false;
      if (!isNew || isQuick || !table.close(target))
        break;
    }
    budget -= table.tabulate() / 8;
    return table.leastSeconds() <= target;
  }

  // Depth first over stages, counts nearest to those of the last split first. Leaves what it finds in its arguments.
  bool descend(std::vector<int> &counts, std::vector<size_t> &chosen) {
    near = counts;
    found.clear(), foundChosen.clear();
    strictest = table.size() - 1;
    sums.assign(stages + 1, std::vector<double>(table.size()));
    if (!descend(0))
      return false;
    counts = found, chosen = foundChosen;
    return true;
  }

  bool descend(int first) {
    auto stage = static_cast<int>(found.size());
    if (budget <= 0)
      return false;
    if (stage == stages)
      return true;
    int least = places.least(stage, first), most = places.most(stage, first), here = near[stage];
    auto goOn = [&](int count) { return count >= least && count <= most && descend(stage, first, count); };
    for (int away = 0; away <= std::max(here - least, most - here); ++away)
      if (goOn(here - away) || (away > 0 && goOn(here + away)))
        return true;
    return false;
  }

  // With so many layers on a stage.
  bool descend(int stage, int first, int count) {
    if (!table.isOpen(stage + 1, first + count) ||
        !mayFollow(stage, first + count, table.least(stage, first, count)))
      return false;
    const std::vector<StageOption> &options = choices.of(stage, first, count);
    for (size_t choice = 0; choice < options.size(); ++choice) {
      bool isOnly = options.size() == 1; // whose cuts are those
      if (!options[choice].fits ||
          !(isOnly || mayFollow(stage, first + count, table.of(stage, first, count, choice))))
        continue;
      found.push_back(count), foundChosen.push_back(choice);
      if (descend(first + count))
        return true;
      found.pop_back(), foundChosen.pop_back();
    }
    return false;
  }

  // Whether no cut is too long that takes `own` on a stage whose layers end before `end`; notes what all take so far.
  // The cut that ruled out the last one is asked first.
  bool mayFollow(int stage, int end, const double *own) {
    const double *above = sums[stage].data(), *rest = table.rest(stage + 1, end);
    double *with = sums[stage + 1].data();
    --budget;
    if (above[strictest] + own[strictest] + rest[strictest] > target)
      return false;
    constexpr size_t block = 16;
    for (size_t first = 0; first < table.size(); first += block) {
      size_t last = std::min(first + block, table.size());
      budget -= static_cast<int64_t>(last - first);
      bool isTooLong = false;
      for (size_t i = first; i < last; ++i) {
        with[i] = above[i] + own[i];
        isTooLong |= with[i] + rest[i] > target;
      }
      if (!isTooLong)
        continue;
      for (strictest = first; with[strictest] + rest[strictest] <= target;)
        ++strictest;
      return false;
    }
    return true;
  }

  const Problem &problem;
  StageOptions &stageOptions;
  SplitPlayer player;
  StageChoices choices;
  const Axes &axes;
  int stages, layers, perStage;
  bool isQuick;
  int64_t budget, given = 0;
  double limit = kInfinity;
  double low = 0; // no split ends by it
  double target = 0, narrowedTo = -1;
  Boundaries places;
  CutTable table;
  std::vector<int> near, found; // layers of each stage: of the last split, of the descent
  std::vector<size_t> foundChosen;
  std::vector<std::vector<double>> sums; // [stage][cut]: on the stages above
  size_t strictest = 0;                  // the cut that ruled the last one out
  SplitResult result;
};

} // namespace

SplitResult bestSplit(const Problem &problem, StageOptions &options, double limitSeconds, int64_t budget) {
  bool hasChunks = chunksOf(options.axes().schedule, options.axes().virtualStages) > 1;
  if (hasChunks && !options.hasOneKind() && !problem.pins.stageLayers)
    return climb(problem, options, limitSeconds, budget);
  return SplitSearch(problem, options, budget).run(limitSeconds);
}

} // namespace espalier::planner
