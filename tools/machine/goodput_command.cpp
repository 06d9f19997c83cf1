// `espalier bench goodput`: simulates a long run whose ranks fail, and prints the share of its time in steps that
// count.
#include "tools/commands.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <vector>

namespace espalier {
namespace {

/// The pre-training of Llama 3 405B: 419 unexpected interruptions of 16,384 GPUs in 54 days (Llama 3, 2024, table 5).
constexpr double llama3Failures = 419.0 / (54.0 * 24 * 16384);
constexpr double secondsPerHour = 3600;
constexpr int64_t mostSegments = 2'000'000; ///< of one simulation: steps between two saves, or a part of them
constexpr double widest = 8;                ///< tried intervals reach from 1 / 8 to 8 times Daly's

/// The run. Seconds of a step hold for all ranks; fewer ranks take longer by their share.
struct GoodputArguments {
  int64_t ranks = 0, lostRanks = 8;
  double stepSeconds = 0, failuresPerRankHour = llama3Failures, saveSeconds = 1, writeSeconds = 0,
         recoverySeconds = 600, repairHours = 0;
  std::optional<int64_t> saveEvery;
  int64_t failures = 10'000; ///< simulated
  uint64_t seed = 1;
};

/// Seconds of a simulated run by what they were spent on.
struct Spent {
  double counted = 0;  ///< steps that count, at the speed of all ranks
  double slower = 0;   ///< the same steps: more time because ranks are missing
  double saves = 0;    ///< steps wait for a copy
  double repeated = 0; ///< steps after the last finished checkpoint before a failure
  double recovery = 0; ///< from a failure, or from the return of ranks, to the next step
  int64_t failed = 0;  ///< number of failures
  double total() const { return counted + slower + saves + repeated + recovery; }
};

/// Simulates a run that saves every `interval` steps, until `arguments.failures` failures. A checkpoint is finished
/// `writeSeconds` after its copy. A failure during a recovery starts the recovery again. Ranks that failed return after
/// `repairHours`, at the next save, which costs a recovery without lost steps.
class GoodputRun {
public:
  GoodputRun(const GoodputArguments &arguments, int64_t interval)
      : arguments(arguments), interval(static_cast<double>(interval)), random(arguments.seed) {
    drawFailure();
  }

  Spent run() {
    for (int64_t segment = 0; segment < mostSegments && spent.failed < arguments.failures; ++segment)
      advance();
    count(writing); // the run ends here, with a last save
    count(unsaved);
    return spent;
  }

private:
  /// Steps in seconds of all ranks, and the seconds that missing ranks added.
  struct Steps {
    double full = 0, slower = 0, saves = 0;
  };

  double present() const {
    auto away = static_cast<double>(returns.size()) * static_cast<double>(arguments.lostRanks);
    return std::max(1.0, static_cast<double>(arguments.ranks) - away);
  }
  void drawFailure() {
    double perSecond = present() * arguments.failuresPerRankHour / secondsPerHour;
    failure = now + std::exponential_distribution(perSecond)(random);
  }
  void count(Steps &steps) {
    spent.counted += steps.full;
    spent.slower += steps.slower;
    spent.saves += steps.saves;
    steps = {};
  }

  /// Runs the steps to the next save and the save, or up to the next failure.
  void advance() {
    double slowness = static_cast<double>(arguments.ranks) / present(), full = interval * arguments.stepSeconds;
    double end = now + full * slowness;
    finishWrite(std::min(end, failure));
    if (failure < end) {
      double whole = std::floor((failure - now) / (arguments.stepSeconds * slowness)) * arguments.stepSeconds;
      unsaved.full += whole;
      unsaved.slower += failure - now - whole; // includes the step that the failure has ended
      fail();
      return;
    }
    now = end;
    unsaved.full += full;
    unsaved.slower += full * slowness - full;
    if (written) // the write of the last save still takes the thread, so that this save is left out
      return;
    if (failure < now + arguments.saveSeconds) {
      unsaved.saves += failure - now;
      fail();
      return;
    }
    now += arguments.saveSeconds;
    unsaved.saves += arguments.saveSeconds;
    written = now + arguments.writeSeconds;
    writing = unsaved;
    unsaved = {};
    takeBack();
  }

  /// Counts the steps of a checkpoint that is finished by a time.
  void finishWrite(double by) {
    if (written && *written <= by) {
      count(writing);
      written.reset();
    }
  }

  void fail() {
    now = failure;
    for (Steps *lost : {&writing, &unsaved}) {
      spent.repeated += lost->full + lost->slower + lost->saves;
      *lost = {};
    }
    written.reset();
    bool isLost = arguments.repairHours > 0 && present() > static_cast<double>(arguments.lostRanks);
    if (isLost)
      returns.push_back(now + arguments.repairHours * secondsPerHour);
    ++spent.failed;
    recover();
  }

  void recover() {
    drawFailure();
    while (failure < now + arguments.recoverySeconds && spent.failed < arguments.failures) {
      spent.recovery += failure - now;
      now = failure;
      ++spent.failed;
      drawFailure();
    }
    now += arguments.recoverySeconds;
    spent.recovery += arguments.recoverySeconds;
    failure = std::max(failure, now);
  }

  /// Restarts with the ranks that have returned. The restart waits until the checkpoint is finished.
  void takeBack() {
    if (std::erase_if(returns, [&](double at) { return at <= now; }) == 0)
      return;
    now += arguments.writeSeconds;
    spent.recovery += arguments.writeSeconds;
    count(writing);
    written.reset();
    recover();
  }

  const GoodputArguments &arguments;
  const double interval; ///< steps
  std::mt19937_64 random;
  double now = 0, failure = 0;
  std::optional<double> written; ///< when the last checkpoint is finished
  Steps writing, unsaved;        ///< of that checkpoint, and after it
  std::vector<double> returns;   ///< when the ranks of each failure return
  Spent spent;
};

/// Returns the best seconds between saves by Young (1974) and Daly (2006), for failures every `mean` seconds.
double youngSeconds(double save, double mean) { return std::sqrt(2 * save * mean); }
double dalySeconds(double save, double mean) {
  double ratio = save / (2 * mean);
  return ratio >= 1 ? mean : youngSeconds(save, mean) * (1 + std::sqrt(ratio) / 3 + ratio / 9) - save;
}

int64_t stepsOf(const GoodputArguments &arguments, double seconds) {
  return std::max<int64_t>(1, std::llround(seconds / arguments.stepSeconds));
}

/// Returns the interval with the highest goodput. All intervals see the same sequence of random numbers.
int64_t bestInterval(const GoodputArguments &arguments, double mean) {
  double middle = std::max(dalySeconds(arguments.saveSeconds, mean), arguments.stepSeconds);
  int64_t best = 1, last = 0;
  double most = -1;
  for (double factor = 1 / widest; factor <= widest; factor *= 1.1) {
    int64_t interval = stepsOf(arguments, factor * middle);
    if (interval == last)
      continue;
    last = interval;
    Spent spent = GoodputRun(arguments, interval).run();
    if (double goodput = spent.counted / spent.total(); goodput > most)
      most = goodput, best = interval;
  }
  return best;
}

void print(const char *name, const GoodputArguments &arguments, int64_t interval) {
  Spent spent = GoodputRun(arguments, interval).run();
  auto share = [&](double seconds) { return 100 * seconds / spent.total(); };
  fmt::print("{}: a save every {} steps ({:.0f} s): goodput {:.2f} % over {} failures\n", name, interval,
             static_cast<double>(interval) * arguments.stepSeconds, share(spent.counted), spent.failed);
  for (const auto &[term, seconds] : {std::pair("saves", spent.saves), std::pair("repeated steps", spent.repeated),
                                      std::pair("recovery", spent.recovery), std::pair("fewer ranks", spent.slower)})
    fmt::print("  {:<15}{:6.2f} %\n", term, share(seconds));
}

void checkPositive(const char *name, double value, bool mayBeZero) {
  if (!(value > 0 || (mayBeZero && value == 0)) || !std::isfinite(value))
    throw UsageError(fmt::format("{} is {}, must be {} 0", name, value, mayBeZero ? "at least" : "above"));
}

int benchGoodput(const GoodputArguments &arguments) {
  checkPositive("--step-seconds", arguments.stepSeconds, false);
  checkPositive("--failures-per-rank-hour", arguments.failuresPerRankHour, false);
  checkPositive("--save-seconds", arguments.saveSeconds, true);
  checkPositive("--write-seconds", arguments.writeSeconds, true);
  checkPositive("--recovery-seconds", arguments.recoverySeconds, true);
  checkPositive("--repair-hours", arguments.repairHours, true);
  double mean = secondsPerHour / (static_cast<double>(arguments.ranks) * arguments.failuresPerRankHour);
  if (mean <= arguments.recoverySeconds + arguments.stepSeconds + arguments.saveSeconds)
    throw UsageError(fmt::format("{} ranks fail every {:.0f} s on average, which is less than a recovery, a step and a "
                                 "save: such a run makes no progress; give fewer --ranks or a shorter recovery",
                                 arguments.ranks, mean));
  fmt::print("{} ranks, a failure every {:.2f} h on average\n", arguments.ranks, mean / secondsPerHour);
  if (arguments.saveEvery)
    print("as given", arguments, *arguments.saveEvery);
  print("best", arguments, bestInterval(arguments, mean));
  fmt::print("Young {} steps, Daly {} steps\n", stepsOf(arguments, youngSeconds(arguments.saveSeconds, mean)),
             stepsOf(arguments, dalySeconds(arguments.saveSeconds, mean)));
  return Success;
}

} // namespace

void addGoodputCommand(const Verb &bench) {
  Verb goodput = bench.verb("goodput", "The share of time in steps that count, if ranks fail (simulated)");
  auto arguments = std::make_shared<GoodputArguments>();
  goodput.option("--ranks", arguments->ranks, "ranks of the run").required().range(1, 10'000'000);
  goodput.option("--step-seconds", arguments->stepSeconds, "seconds of a step").required();
  goodput.option("--failures-per-rank-hour", arguments->failuresPerRankHour,
                 "failures of one rank in an hour; default: Llama 3, 419 of 16,384 GPUs in 54 days");
  goodput.option("--save-every", arguments->saveEvery, "steps between saves; the best interval is printed in any case")
      .range(1, 1'000'000'000);
  goodput.option("--save-seconds", arguments->saveSeconds, "seconds that a save blocks the steps");
  goodput.option("--write-seconds", arguments->writeSeconds, "seconds after that until the checkpoint is finished");
  goodput.option("--recovery-seconds", arguments->recoverySeconds, "seconds from a failure to the next step");
  goodput.option("--repair-hours", arguments->repairHours,
                 "hours that an elastic run goes on without the lost ranks; 0: others replace them");
  goodput.option("--lost-ranks", arguments->lostRanks, "ranks that a failure takes away, such as those of a host")
      .range(1, 1'000'000);
  goodput.option("--failures", arguments->failures, "failures to simulate").range(1, 1'000'000);
  goodput.option("--seed", arguments->seed, "seed of the random numbers");
  goodput.action([arguments] { return benchGoodput(*arguments); });
}

} // namespace espalier
