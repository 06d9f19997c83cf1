// GPU plans whose ranks are processes, each with an emulated device. Also back ends with deliberate faults, which the
// emulated device must detect. This process never starts a driver, because a driver does not survive a fork.
#include "test/equivalence/emulated_rows.h"

#include "runtime/run/run.h"
#include "runtime/status.h"
#include "test/emulator/mutant.h"
#include "test/host_options.h"
#include "test/sanitizer.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <map>
#include <regex>
#include <set>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier {
namespace {

constexpr int64_t steps = 3;

[[maybe_unused]] const int devices = setenv("ESPALIER_EMULATOR_DEVICES", "4", /*overwrite=*/1);

rt::pb::Plan compile(const EmulatedRow &row, const std::string &target) {
  RunConfig run = runOf(row);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  CompileOptions options = hostOptions();
  options.target = target;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, row.split), options);
  EXPECT_TRUE(compiled) << row.name;
  return compiled ? std::move(compiled->plan) : rt::pb::Plan();
}

rt::RunOptions optionsFor(const EmulatedRow &row, rt::Comm comm) {
  rt::RunOptions options;
  options.comm = comm;
  options.dataset = equivalenceData(runOf(row));
  options.steps = steps;
  options.threads = 1;
  return options;
}

std::vector<double> lossesOf(rt::pb::Plan plan, const rt::RunOptions &options) {
  std::vector<double> losses;
  for (const rt::StepRecord &step : rt::runPlan(rt::Program(std::move(plan), 1), options).steps)
    losses.push_back(step.loss);
  return losses;
}

/// Returns the losses of the unsplit model on the CPU, trained once for all rows.
const std::vector<double> &unsplit(EmulatedRow row) {
  static std::map<std::pair<std::string, std::vector<std::string>>, std::vector<double>> known;
  row.split = {};
  auto [entry, isNew] = known.try_emplace({row.file, row.sets});
  if (isNew)
    entry->second = lossesOf(compile(row, "cpu"), optionsFor(row, rt::Comm::local));
  return entry->second;
}

/// Returns the rows of emulated_test whose transfers differ: each collective over each axis, sends, evenly and unevenly
/// sharded buckets. Other rows differ only in kernels, which emulated_test runs.
std::vector<EmulatedRow> processRows() {
  const std::set<std::string> names = {"gpt2_tp2",
                                       "gpt2_dp2_zero1",
                                       "gpt2_dp2_zero2",
                                       "gpt2_dp4_zero1_group2",
                                       "llama_dp4_zero3_group2",
                                       "llama_dp2_pp2_full",
                                       "llama_tp2_pp2_zero1",
                                       "gpt2_tp2_sequence",
                                       "adapters_dp2_zero3",
                                       "gpt2_muon_dp2_zero1",
                                       "gpt2_muon_dp2_tp2_zero2_sequence",
                                       "gemma2_tp2_cp2",
                                       "mixtral_tp2_ep2_whole",
                                       "glm4_moe_dp2_ep2_zero1",
                                       "qwen3_moe_pp2"};
  std::vector<EmulatedRow> rows;
  std::ranges::copy_if(splitRows(), std::back_inserter(rows),
                       [&](const EmulatedRow &row) { return names.contains(row.name); });
  return rows;
}

class EmulatedProcesses : public testing::TestWithParam<EmulatedRow> {};

/// Gradients stay in their processes. Equal losses of later steps show that they match those of threads.
TEST_P(EmulatedProcesses, TrainLikeTheCpuDeterministically) {
  const std::vector<double> &expected = unsplit(GetParam());
  rt::pb::Plan plan = compile(GetParam(), "cuda");
  rt::RunOptions options = optionsFor(GetParam(), rt::Comm::shm);
  std::vector<double> actual = lossesOf(plan, options);
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t step = 0; step < expected.size(); ++step)
    EXPECT_NEAR(actual[step], expected[step], 1e-5 * expected[step]) << "step " << step;
  EXPECT_EQ(lossesOf(plan, options), actual);
}

INSTANTIATE_TEST_SUITE_P(Splits, EmulatedProcesses, testing::ValuesIn(processRows()),
                         [](const auto &info) { return info.param.name; });

/// Tests a rank that throws. The command's tests cover signals.
TEST(EmulatedFailure, OfARankStopsAllRanksAndNamesItsLocation) {
  EmulatedRow row = {"", "llama", {}, {.tp = 2, .pp = 2, .microBatches = 4, .zero = 1}};
  rt::RunOptions options = optionsFor(row, rt::Comm::shm);
  options.fault = rt::Fault{.rank = 2, .step = 1, .action = 3, .instruction = 0};
  try {
    lossesOf(compile(row, "cuda"), options);
    FAIL() << "nothing failed";
  } catch (const rt::RankFailure &error) {
    EXPECT_EQ(error.failure.rank, 2);
    EXPECT_EQ(error.failure.message, "injected fault");
    EXPECT_EQ(error.failure.step, 1);
  }
}

/// The outcome of a run in its own process. `noticed`: the emulated device reported it, the losses fail the suite, or
/// the run does not end (for example, if a collective on one stream waits for a later one on another). `unseen`: other
/// losses than expected that the suite would accept.
struct Trial {
  enum Outcome { Equal, Unseen, Noticed } outcome = Noticed;
  std::vector<double> losses = {};
  uint64_t waits = 0, works = 0; ///< calls that the emulated device counted
};

class Mutants : public testing::Test {
protected:
  static void SetUpTestSuite() {
    row = {"", "gpt2", {}, {.dp = 2, .microBatches = 2, .zero = 1}};
    plan = compile(row, "cuda");
    options = optionsFor(row, rt::Comm::local);
    options.steps = 2;
    Trial sound = run("", plan);
    ASSERT_EQ(sound.losses.size(), static_cast<size_t>(options.steps));
    expected = sound.losses;
    waits = sound.waits;
    works = sound.works;
    EXPECT_EQ(run("", plan).outcome, Trial::Equal);
  }

  /// Runs the plan in a child process, in which ranks are threads. The losses are read from a pipe.
  static Trial run(const std::string &mutant, const rt::pb::Plan &mutated) {
    int ends[2];
    EXPECT_EQ(pipe(ends), 0);
    pid_t process = fork();
    if (process == 0) {
      freopen("/dev/null", "w", stderr);
      alarm(40 * slowdown);
      setenv("ESPALIER_EMULATOR_MUTANT", mutant.c_str(), /*overwrite=*/1);
      _exit(live(mutated, ends[1]));
    }
    close(ends[1]);
    std::vector<double> words(options.steps + 2);
    auto bytes = static_cast<ssize_t>(words.size() * sizeof(double));
    bool isWhole = read(ends[0], words.data(), bytes) == bytes;
    close(ends[0]);
    int status = -1;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    EXPECT_TRUE(WIFEXITED(status) || WTERMSIG(status) == SIGALRM) << mutant << ": " << status;
    if (!isWhole || status != 0)
      return {};
    std::vector<double> losses(words.begin(), words.begin() + options.steps);
    return {judge(losses), losses, uint64_t(words[options.steps]), uint64_t(words[options.steps + 1])};
  }

  static Trial::Outcome judge(const std::vector<double> &losses) {
    if (losses == expected)
      return Trial::Equal;
    for (size_t step = 0; step < expected.size(); ++step)
      if (!(std::abs(losses[step] - expected[step]) <= 1e-5 * expected[step]))
        return Trial::Noticed;
    return Trial::Unseen;
  }

  static int live(const rt::pb::Plan &mutated, int end) {
    try {
      std::vector<double> words = lossesOf(mutated, options);
      for (const char *kind : {"drop_wait", "swap_queues"})
        words.push_back(static_cast<double>(emulator::mutantCalls(kind)));
      return write(end, words.data(), words.size() * sizeof(double)) > 0 ? 0 : 1;
    } catch (const std::exception &) {
      return 1;
    }
  }

  /// Tries `count` of the calls 1 .. `calls`, spread evenly. Returns how many were noticed.
  static int tryEach(const char *kind, uint64_t calls, int count) {
    int noticed = 0;
    for (int i = 0; i < count; ++i) {
      std::string mutant = fmt::format("{}:{}", kind, 1 + (2 * i + 1) * calls / (2 * count));
      Trial trial = run(mutant, plan);
      EXPECT_NE(trial.outcome, Trial::Unseen) << mutant << " of " << calls << " trains other losses unseen";
      noticed += trial.outcome == Trial::Noticed;
    }
    fmt::print("{}: {} of {} noticed\n", kind, noticed, count);
    return noticed;
  }

  /// Returns the plan with changed kernel text.
  static rt::pb::Plan withText(const std::function<std::string(std::string)> &change) {
    rt::pb::Plan mutated = plan;
    for (rt::pb::Object &object : *mutated.mutable_objects()) {
      std::string text = change(object.code());
      EXPECT_NE(text, object.code());
      object.set_code(text);
    }
    return mutated;
  }

  static inline EmulatedRow row;
  static inline rt::pb::Plan plan;
  static inline rt::RunOptions options;
  static inline std::vector<double> expected;
  static inline uint64_t waits = 0, works = 0;
};

/// A wait that is redundant changes nothing. Of all 92 waits, 35 are noticed when dropped; without the others, results
/// are bitwise equal.
TEST_F(Mutants, ADroppedWait) {
  ASSERT_GT(waits, 20u);
  EXPECT_GE(tryEach("drop_wait", waits, 10), 3);
}

TEST_F(Mutants, WorkInAnotherQueue) {
  ASSERT_GT(works, 20u);
  EXPECT_GE(tryEach("swap_queues", works, 8), 6);
}

TEST_F(Mutants, AnIncompleteShard) { EXPECT_EQ(run("short_share:3", plan).outcome, Trial::Noticed); }

TEST_F(Mutants, NonCoherentLoadsOfWrittenBytes) {
  rt::pb::Plan mutated = withText([](const std::string &text) {
    return std::regex_replace(text, std::regex(R"(ld\.global\.(?!nc)((v[24]\.)?[bfu](32|16)))"), "ld.global.nc.$1");
  });
  EXPECT_EQ(run("", mutated).outcome, Trial::Noticed);
}

/// Only the first thread of each block reaches the barriers.
TEST_F(Mutants, ABarrierInDivergentCode) {
  rt::pb::Plan mutated = withText([](const std::string &text) {
    return std::regex_replace(text, std::regex(R"(\tbar\.sync[ \t]+0;)"),
                              "{ .reg .pred %only; .reg .b32 %thread; mov.u32 %thread, %tid.x; "
                              "setp.eq.u32 %only, %thread, 0; @%only bar.sync 0; }");
  });
  EXPECT_EQ(run("", mutated).outcome, Trial::Noticed);
}

} // namespace
} // namespace espalier
