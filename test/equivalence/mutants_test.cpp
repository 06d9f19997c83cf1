// A plan that differs in one field is refused, or trains the same bits. Each mutant is tried in a process of its own,
// as it may do anything. ESPALIER_MUTANTS: how many; ESPALIER_MUTANTS_SEED: which.
#include "runtime/status.h"
#include "runtime/train/run.h"
#include "runtime/verify_plan.h"
#include "test/equivalence/mutate.h"
#include "test/equivalence/splits.h"

#include <cstring>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace espalier {
namespace {

constexpr int64_t steps = 3;
constexpr unsigned secondsPerMutant = 20;

enum Outcome { Refused, Equal, Different, Failed, Killed, Endless, outcomes };
constexpr const char *outcomeNames[outcomes] = {"refused",          "equal",      "another loss", "failed when run",
                                                "died of a signal", "did not end"};

uint64_t setting(const char *name, uint64_t otherwise) {
  const char *text = std::getenv(name);
  return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

/// Losses and final parameters.
struct Trained {
  std::vector<double> losses;
  rt::Tensors parameters;
};

Trained train(rt::pb::Plan plan, const std::shared_ptr<const rt::Dataset> &data) {
  rt::RunOptions options;
  options.dataset = data;
  options.steps = steps;
  options.threads = 1;
  options.keepParameters = true;
  rt::RunResult result = rt::runPlan(rt::Program(std::move(plan), 1), options);
  Trained trained;
  for (const rt::StepRecord &step : result.steps)
    trained.losses.push_back(step.loss);
  trained.parameters = std::move(result.parameters.back());
  return trained;
}

bool isEqual(const Trained &a, const Trained &b) {
  auto sameBytes = [](const auto &x, const auto &y) {
    return x.size() == y.size() && std::memcmp(x.data(), y.data(), x.size() * sizeof x[0]) == 0;
  };
  if (!sameBytes(a.losses, b.losses) || a.parameters.size() != b.parameters.size())
    return false;
  for (const auto &[name, values] : a.parameters)
    if (auto other = b.parameters.find(name); other == b.parameters.end() || !sameBytes(values, other->second))
      return false;
  return true;
}

/// A plan of the suite and what it trains.
struct Original {
  std::string name;
  rt::pb::Plan plan;
  std::shared_ptr<const rt::Dataset> data;
  Trained trained;
};

Outcome judge(const Original &original, rt::pb::Plan plan) {
  try {
    return isEqual(train(std::move(plan), original.data), original.trained) ? Equal : Different;
  } catch (const rt::PlanError &) {
    return Refused;
  } catch (const std::exception &) {
    return Failed;
  }
}

Outcome tryMutant(const Original &original, const rt::pb::Plan &plan) {
  pid_t child = fork();
  if (child == 0) {
    freopen("/dev/null", "w", stderr);
    alarm(secondsPerMutant);
    _exit(judge(original, plan));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status))
    return WEXITSTATUS(status) < outcomes ? static_cast<Outcome>(WEXITSTATUS(status)) : Failed;
  return WTERMSIG(status) == SIGALRM ? Endless : Killed;
}

/// Every n-th plan of the suite, the first one with several chunks on a stage.
std::vector<Original> originals(size_t stride) {
  std::vector<std::pair<Model, SplitCase>> cases;
  for (const Model &model : deepModels())
    for (const SplitCase &split : chunkSplits())
      cases.emplace_back(model, split);
  for (const Model &model : models())
    for (const auto *list : {&splits(), &contextSplits()})
      for (const SplitCase &split : *list)
        cases.emplace_back(model, split);
  for (const SplitCase &split : unlikeSplits())
    cases.emplace_back(Model{"two_widths", "two_widths", {}}, split);
  std::vector<Original> chosen;
  for (size_t i = 0; i < cases.size(); i += stride) {
    const auto &[model, split] = cases[i];
    RunConfig run = equivalenceRun(model.file, model.sets);
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    std::optional<Compiled> compiled = compileRun(context, run, planOf(run, split));
    std::string name = model.name + "_" + split.name;
    if (!compiled) {
      ADD_FAILURE() << name << " does not compile";
      continue;
    }
    chosen.push_back({name, std::move(compiled->plan), equivalenceData(run), {}});
    chosen.back().trained = train(chosen.back().plan, chosen.back().data);
  }
  return chosen;
}

TEST(Mutants, AreRefusedOrTrainTheSame) {
  uint64_t count = setting("ESPALIER_MUTANTS", 500), seed = setting("ESPALIER_MUTANTS_SEED", 1);
  std::vector<Original> plans = originals(setting("ESPALIER_MUTANTS_STRIDE", count > 1000 ? 1 : 16));
  std::map<std::string, std::array<int, outcomes>> byKind;
  std::array<int, outcomes> total = {};
  for (uint64_t i = 0; i < count; ++i) {
    // Each mutant has a seed of its own, so that one can be looked at alone.
    std::mt19937 random(static_cast<uint32_t>(seed * 1000003 + i));
    const Original &original = plans[random() % plans.size()];
    rt::pb::Plan plan = original.plan;
    std::string kind = mutate(plan, random);
    if (kind.empty() || plan.SerializeAsString() == original.plan.SerializeAsString()) {
      --i, ++seed;
      continue;
    }
    Outcome outcome = tryMutant(original, plan);
    ++byKind[kind][outcome];
    ++total[outcome];
    if (outcome > Equal && setting("ESPALIER_MUTANTS_SHOW", 0))
      fmt::print("{} of {}: {} (seed {}, {})\n", kind, original.name, outcomeNames[outcome], seed, i);
  }
  for (const auto &[kind, numbers] : byKind)
    fmt::print("{:24} {}\n", kind, fmt::join(numbers, " "));
  for (int outcome = 0; outcome < outcomes; ++outcome)
    fmt::print("{}: {}\n", outcomeNames[outcome], total[outcome]);
  EXPECT_EQ(total[Killed] + total[Endless], 0);
}

} // namespace
} // namespace espalier
