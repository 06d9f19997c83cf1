// Each test changes one field of a plan. The plan must be refused or train to bitwise equal results. A change that
// keeps all accesses and their order may give other results; such mutants are counted separately. No mutant may crash
// or hang. Each mutant runs in its own process, and GPU plans run on the emulated device. Environment variables:
// ESPALIER_MUTANTS (number of mutants), ESPALIER_MUTANTS_SEED and ESPALIER_MUTANTS_FIRST (which ones),
// ESPALIER_MUTANTS_PLANS (substring of plan names), ESPALIER_MUTANTS_FIELDS (fields), ESPALIER_MUTANTS_EACH (locations
// to try per kind), ESPALIER_MUTANTS_SHOW (print progress, and the mutants that were neither refused nor equal).
#include "runtime/run/run.h"
#include "runtime/status.h"
#include "runtime/verify_plan.h"
#include "test/equivalence/emulated_rows.h"
#include "test/equivalence/mutate.h"
#include "test/host_options.h"
#include "test/sanitizer.h"

#include <array>
#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <set>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier {
namespace {

constexpr int64_t steps = 3;
/// One of this many mutants is a mutant of a GPU plan, because the emulated device takes seconds per plan.
constexpr uint64_t mutantsPerEmulated = 16;

// Each rank has its own device.
[[maybe_unused]] const int devices = setenv("ESPALIER_EMULATOR_DEVICES", "16", /*overwrite=*/1);

enum Outcome : int { Refused, Equal, OtherMathematics, Different, Failed, Killed, Endless, outcomes };
constexpr const char *outcomeNames[outcomes] = {
    "refused",          "equal",      "wrong mathematics, not memory or order", "another loss", "failed when run",
    "died of a signal", "did not end"};

uint64_t setting(const char *name, uint64_t otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Trains a plan and returns a hash of losses and final parameters.
size_t train(rt::pb::Plan plan, const std::shared_ptr<const rt::Dataset> &data) {
  rt::RunOptions options;
  options.dataset = data;
  options.steps = steps;
  options.threads = 1;
  options.keepParameters = true;
  rt::RunResult result = rt::runPlan(rt::Program(std::move(plan), 1), options);
  std::string bytes;
  auto add = [&](const auto &values) {
    bytes.append(reinterpret_cast<const char *>(values.data()), values.size() * sizeof values[0]);
  };
  for (const rt::StepRecord &step : result.steps)
    add(std::array<double, 1>{step.loss});
  for (const auto &[name, values] : result.parameters.back()) {
    add(name);
    add(values);
  }
  return std::hash<std::string_view>()(bytes);
}

/// The outcome of a plan. If the plan ran to its end, `Equal` also has the hash of its results.
struct Verdict {
  Outcome outcome = Failed;
  size_t trained = 0;
};

Verdict judge(rt::pb::Plan &plan, const std::shared_ptr<const rt::Dataset> &data) {
  try {
    return {Equal, train(std::move(plan), data)};
  } catch (const rt::PlanError &) {
    return {Refused};
  } catch (const std::exception &) {
    return {Failed};
  }
}

/// The messages of a child process about its mutant, each sent as soon as it is known. Without a kind, nothing was
/// changed.
struct Report {
  Mutant mutant;
  Verdict verdict;
};

void tell(int end, const void *bytes, size_t size) {
  if (write(end, bytes, size) != static_cast<ssize_t>(size))
    _exit(1);
}

/// Reads all messages of a child process until it exits.
Report hear(int end) {
  std::string told;
  char bytes[4096];
  for (ssize_t size; (size = read(end, bytes, sizeof bytes)) > 0;)
    told.append(bytes, static_cast<size_t>(size));
  size_t kind = told.find('\0'), change = told.find('\0', kind + 1);
  Report report;
  if (change == std::string::npos)
    return report;
  report.mutant = {told.substr(0, kind), "", told.substr(kind + 1, change - kind - 1)};
  if (told.size() > change + 1)
    report.mutant.isMathematics = told[change + 1] != 0;
  if (told.size() - change - 2 == sizeof(Verdict))
    memcpy(&report.verdict, told.data() + change + 2, sizeof(Verdict));
  return report;
}

/// A plan of the suite and its training result.
struct Original {
  rt::pb::Plan plan;
  std::shared_ptr<const rt::Dataset> data;
  std::optional<Mutations> mutations;
  size_t trained = 0;
};

/// Trains in a child process, which cannot inherit an open device. `change` may change the plan there.
Report tryPlan(Original &original, const std::function<std::optional<Mutant>()> &change) {
  int ends[2];
  if (pipe(ends) != 0)
    return {};
  pid_t child = fork();
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    alarm((original.plan.target() == "cuda" ? 600 : 60) * slowdown);
    std::optional<Mutant> mutant = change();
    if (!mutant)
      _exit(0);
    tell(ends[1], mutant->kind.c_str(), mutant->kind.size() + 1);
    tell(ends[1], mutant->change.c_str(), mutant->change.size() + 1);
    tell(ends[1], &mutant->isMathematics, 1);
    Verdict verdict = judge(original.plan, original.data);
    tell(ends[1], &verdict, sizeof verdict);
    _exit(0);
  }
  close(ends[1]);
  Report report = hear(ends[0]);
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    report.verdict = {WTERMSIG(status) == SIGALRM ? Endless : Killed};
  return report;
}

/// Returns the outcome of a mutant compared with the unchanged plan.
Outcome outcomeOf(const Report &report, const Original &original) {
  if (report.verdict.outcome != Equal || report.verdict.trained == original.trained)
    return report.verdict.outcome;
  return report.mutant.isMathematics ? OtherMathematics : Different;
}

/// Plans of the suite. A plan is compiled and trained when one of its mutants is first selected.
class Originals {
public:
  /// Takes every n-th row.
  Originals(std::vector<EmulatedRow> all, size_t stride, std::string target) : target(std::move(target)) {
    const char *part = std::getenv("ESPALIER_MUTANTS_PLANS");
    std::erase_if(all, [&](const EmulatedRow &row) { return part && row.name.find(part) == std::string::npos; });
    for (size_t i = 0; i < all.size(); i += stride)
      rows.push_back(all[i]);
  }

  size_t size() const { return rows.size(); }
  const std::string &nameOf(size_t index) const { return rows[index].name; }
  Original &operator[](size_t index);

private:
  std::string target;
  std::vector<EmulatedRow> rows;
  std::map<size_t, Original> known;
};

Original &Originals::operator[](size_t index) {
  auto [place, isNew] = known.try_emplace(index);
  Original &original = place->second;
  if (!isNew)
    return original;
  const EmulatedRow &row = rows[index];
  RunConfig run = target == "cuda" ? runOf(row) : equivalenceRun(row.file, row.sets);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  CompileOptions options = hostOptions();
  options.target = target;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, row.split), options);
  if (!compiled)
    throw std::runtime_error(row.name + " does not compile");
  original.plan = std::move(compiled->plan);
  original.data = equivalenceData(run);
  Verdict verdict = tryPlan(original, [] { return Mutant{"none", "", ""}; }).verdict;
  if (verdict.outcome != Equal)
    throw std::runtime_error(row.name + " does not train: " + outcomeNames[verdict.outcome]);
  original.trained = verdict.trained;
  const char *fields = std::getenv("ESPALIER_MUTANTS_FIELDS");
  original.mutations.emplace(original.plan, fields ? fields : "");
  return original;
}

void print(const std::array<int, outcomes> &total) {
  for (int outcome = 0; outcome < outcomes; ++outcome)
    fmt::print("{}: {}\n", outcomeNames[outcome], total[static_cast<size_t>(outcome)]);
}

/// Tries `count` mutants and prints the outcomes by kind.
void tryMutants(Originals plans, uint64_t count) {
  std::map<std::string, std::array<int, outcomes>> byKind;
  std::array<int, outcomes> total = {};
  uint64_t seed = setting("ESPALIER_MUTANTS_SEED", 1), first = setting("ESPALIER_MUTANTS_FIRST", 0);
  bool shows = setting("ESPALIER_MUTANTS_SHOW", 0) != 0;
  for (uint64_t i = first; i < first + count; ++i) {
    // Each mutant has its own seed, so that a single one can be repeated.
    std::mt19937 random(static_cast<uint32_t>(seed * 1000003 + i));
    size_t index = random() % plans.size();
    Original &original = plans[index];
    Report report = tryPlan(original, [&] { return original.mutations->apply(random); });
    const Mutant &mutant = report.mutant;
    if (mutant.kind.empty()) {
      --i, ++seed;
      continue;
    }
    Outcome outcome = outcomeOf(report, original);
    ++byKind[mutant.kind][outcome];
    ++total[outcome];
    std::string text = fmt::format("{} of {}: {} (seed {}, first {})\n{}", mutant.kind, plans.nameOf(index),
                                   outcomeNames[outcome], seed, i, mutant.change);
    if (outcome == Different)
      ADD_FAILURE() << text;
    if (outcome > Equal && shows)
      fmt::print("{}", text);
    if (shows && (i + 1 - first) % 500 == 0)
      fmt::print("{} mutants: {} refused, {} equal\n", i + 1 - first, total[Refused], total[Equal]);
    fflush(stdout);
  }
  for (const auto &[kind, numbers] : byKind)
    fmt::print("{:24} {}\n", kind, fmt::join(numbers, " "));
  print(total);
  EXPECT_EQ(total[Killed] + total[Endless] + total[Failed], 0);
}

/// Number of mutants, and the stride over plans.
struct Extent {
  uint64_t count = setting("ESPALIER_MUTANTS", 500);
  size_t stride(size_t inCi, size_t otherwise = 1) const {
    return setting("ESPALIER_MUTANTS_STRIDE", count > 1000 ? otherwise : inCi);
  }
};

/// Returns the plans for the emulated device.
std::vector<EmulatedRow> emulatedRows() {
  std::vector<EmulatedRow> rows = splitRows();
  rows.insert(rows.end(), planRows().begin(), planRows().end());
  return rows;
}

TEST(Mutants, AreRefusedOrTrainTheSame) {
  Extent extent;
  tryMutants(Originals(allRows(), extent.stride(16), "cpu"), extent.count);
}

/// Covers a plan of one rank, in which few transfers order the schedule, with sums to which several calls add. Also
/// covers stages with two chunks each.
TEST(Mutants, OfEachActionAndInstructionAreRefusedOrTrainTheSame) {
  std::vector<EmulatedRow> rows = allRows();
  std::erase_if(rows, [](const EmulatedRow &row) {
    return row.name != "mixtral_accumulate2" && row.name != "gpt2_deep_pp2_zero_bubble_v";
  });
  Originals plans(rows, /*stride=*/1, "cpu");
  for (size_t i = 0; i < plans.size(); ++i) {
    Original &original = plans[i];
    int tried = 0;
    auto tryOne = [&](const Mutant &mutant) {
      ++tried;
      Outcome outcome = outcomeOf(tryPlan(original, [&] { return mutant; }), original);
      EXPECT_LE(outcome, Equal) << mutant.kind << " of " << plans.nameOf(i) << ": " << outcomeNames[outcome] << "\n"
                                << mutant.change;
    };
    original.mutations->forEach(tryOne, {"Block.actions", "Subprogram.instructions"});
    EXPECT_GT(tried, 300);
  }
}

/// Returns whether only the verifier reads a field. If the verifier accepts a change of such a field, the plan must run
/// as if unchanged.
bool isOfTheProof(const std::string &kind) {
  static const std::array fields = {"Operand.",
                                    "Value.",
                                    "Dim.",
                                    "Buffer.layer",
                                    "Kernel.uses",
                                    "Kernel.space",
                                    "Kernel.shape",
                                    "WeightNames.",
                                    "Parameter.dims",
                                    "Parameter.tied_to",
                                    "Kernel.norm_weight",
                                    "Kernel.whole_columns",
                                    "Run.count",
                                    "Run.is_layers",
                                    "Run.kind",
                                    "Run.parameters"};
  return std::ranges::any_of(fields, [&](const char *field) { return kind.starts_with(field); });
}

/// Changes every field in every way. Tries at most `most` locations per kind and change, and trains the first mutant
/// that the verifier accepts.
void tryEach(Originals plans, int most) {
  std::array<int, outcomes> total = {};
  for (size_t i = 0; i < plans.size(); ++i) {
    Original &original = plans[i];
    std::map<std::string, int> tried;
    std::set<std::string> passed;
    original.mutations->forEach([&](const Mutant &mutant) {
      std::string name = mutant.kind + " of " + mutant.place;
      if (tried[name]++ >= most)
        return;
      Outcome outcome = rt::verifyPlan(original.plan).empty() ? Equal : Refused;
      if (outcome == Equal && !isOfTheProof(mutant.kind) && passed.insert(name).second) {
        outcome = outcomeOf(tryPlan(original, [&] { return mutant; }), original);
        EXPECT_LE(outcome, OtherMathematics)
            << name << " of " << plans.nameOf(i) << ": " << outcomeNames[outcome] << "\n"
            << mutant.change;
      }
      ++total[outcome];
    });
    fmt::print("{}: {} kinds and places\n", plans.nameOf(i), tried.size());
    EXPECT_GT(tried.size(), 1000u);
  }
  print(total);
}

/// Returns the part of a plan that QK-clip adds to: the updates of layers, and the values and dimensions.
std::string clipPartOf(const rt::pb::Plan &plan) {
  rt::pb::Plan part;
  *part.mutable_values() = plan.values();
  *part.mutable_dims() = plan.dims();
  for (const rt::pb::Subprogram &subprogram : plan.subprograms())
    if (subprogram.name() == "block.update")
      *part.add_subprograms() = subprogram;
  return part.SerializeAsString();
}

/// Covers sums of maxima, and copies of factors of heads into flat shards. In CI, covers one plan; otherwise, each.
TEST(Mutants, OfUpdatesThatClipAreRefusedOrTrainTheSame) {
  bool isInCi = Extent().count <= 1000;
  std::vector<EmulatedRow> rows = allRows();
  std::erase_if(rows, [&](const EmulatedRow &row) {
    return isInCi ? row.name != "llama_clip_dp2_zero2_selective" : row.name.find("_clip_") == std::string::npos;
  });
  Originals plans(rows, /*stride=*/1, "cpu");
  uint64_t each = setting("ESPALIER_MUTANTS_EACH", 1);
  std::array<int, outcomes> total = {};
  for (size_t i = 0; i < plans.size(); ++i) {
    Original &original = plans[i];
    const std::string unchanged = clipPartOf(original.plan);
    std::map<std::string, uint64_t> tried;
    original.mutations->forEach([&](const Mutant &mutant) {
      std::string name = mutant.kind + " of " + mutant.place;
      if (clipPartOf(original.plan) == unchanged || tried[name]++ >= each)
        return;
      Outcome outcome = rt::verifyPlan(original.plan).empty() ? Equal : Refused;
      if (outcome == Equal)
        outcome = outcomeOf(tryPlan(original, [&] { return mutant; }), original);
      EXPECT_LE(outcome, OtherMathematics) << name << " of " << plans.nameOf(i) << ": " << outcomeNames[outcome] << "\n"
                                           << mutant.change;
      ++total[outcome];
    });
    EXPECT_GT(tried.size(), 100u) << plans.nameOf(i);
  }
  print(total);
}

/// In CI, covers one plan; otherwise, every n-th plan.
TEST(Mutants, OfEachFieldAreRefusedOrTrainTheSame) {
  Extent extent;
  bool isInCi = extent.count <= 1000;
  int most = static_cast<int>(setting("ESPALIER_MUTANTS_EACH", isInCi ? 1 : 4));
  std::vector<EmulatedRow> rows = allRows();
  std::erase_if(rows, [&](const EmulatedRow &row) { return isInCi && row.name != "gpt2_dropout_tp2_selective"; });
  tryEach(Originals(rows, extent.stride(1, 24), "cpu"), most);
  if (!isInCi)
    tryEach(Originals(emulatedRows(), extent.stride(1, 7), "cuda"), most);
}

TEST(Mutants, AreRefusedOrTrainTheSameOnTheEmulatedDevice) {
  Extent extent;
  tryMutants(Originals(emulatedRows(), extent.stride(9), "cuda"),
             (extent.count + mutantsPerEmulated - 1) / mutantsPerEmulated);
}

} // namespace
} // namespace espalier
