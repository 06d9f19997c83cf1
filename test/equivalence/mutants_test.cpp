// A plan that differs in one field is refused, or trains the same bits. Each mutant is tried in a process of its own,
// as it may do anything. ESPALIER_MUTANTS: how many; ESPALIER_MUTANTS_SEED, ESPALIER_MUTANTS_FIRST: which;
// ESPALIER_MUTANTS_PLANS: only of plans with this in their names; ESPALIER_MUTANTS_SHOW: what survived and how it
// differs.
#include "runtime/status.h"
#include "runtime/train/run.h"
#include "runtime/verify_plan.h"
#include "test/equivalence/mutate.h"
#include "test/equivalence/splits.h"

#include <cstring>
#include <fmt/format.h>
#include <google/protobuf/util/message_differencer.h>
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

/// Where they differ, a line each.
std::string difference(const rt::pb::Plan &a, const rt::pb::Plan &b) {
  std::string text;
  google::protobuf::util::MessageDifferencer differencer;
  differencer.ReportDifferencesToString(&text);
  differencer.Compare(a, b);
  return text.substr(0, 1000);
}

/// Every n-th plan of the suite, the first one with several chunks on a stage, compiled and trained when one of its mutants is drawn.
class Originals {
public:
  explicit Originals(size_t stride);

  size_t size() const { return cases.size(); }
  const Original &operator[](size_t index);

private:
  std::vector<std::pair<Model, SplitCase>> cases;
  std::map<size_t, Original> known;
};

Originals::Originals(size_t stride) {
  std::vector<std::pair<Model, SplitCase>> all;
  for (const Model &model : deepModels())
    for (const SplitCase &split : chunkSplits())
      all.emplace_back(model, split);
  for (const Model &model : models())
    for (const auto *list : {&splits(), &contextSplits()})
      for (const SplitCase &split : *list)
        all.emplace_back(model, split);
  for (const SplitCase &split : unlikeSplits())
    all.emplace_back(Model{"two_widths", "two_widths", {}}, split);
  for (const Model &model : models())
    for (const SplitCase &split : shareSplits())
      all.emplace_back(model, split);
  for (const SplitCase &split : expertSplits())
    all.emplace_back(Model{"mixtral", "mixtral", {}}, split);
  const char *part = std::getenv("ESPALIER_MUTANTS_PLANS");
  std::erase_if(all, [&](const auto &one) {
    return part && (one.first.name + "_" + one.second.name).find(part) == std::string::npos;
  });
  for (size_t i = 0; i < all.size(); i += stride)
    cases.push_back(all[i]);
}

const Original &Originals::operator[](size_t index) {
  auto [place, isNew] = known.try_emplace(index);
  Original &original = place->second;
  if (!isNew)
    return original;
  const auto &[model, split] = cases[index];
  RunConfig run = equivalenceRun(model.file, model.sets);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, split));
  original.name = model.name + "_" + split.name;
  if (!compiled)
    throw std::runtime_error(original.name + " does not compile");
  original.plan = std::move(compiled->plan);
  original.data = equivalenceData(run);
  original.trained = train(original.plan, original.data);
  return original;
}

TEST(Mutants, AreRefusedOrTrainTheSame) {
  uint64_t count = setting("ESPALIER_MUTANTS", 500), seed = setting("ESPALIER_MUTANTS_SEED", 1);
  Originals plans(setting("ESPALIER_MUTANTS_STRIDE", count > 1000 ? 1 : 16));
  std::map<std::string, std::array<int, outcomes>> byKind;
  std::array<int, outcomes> total = {};
  int wrong = 0; // accepted, though the plan's data go another way
  uint64_t first = setting("ESPALIER_MUTANTS_FIRST", 0);
  for (uint64_t i = first; i < first + count; ++i) {
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
    if (outcome == Different) {
      ++wrong;
      ADD_FAILURE() << kind << " of " << original.name << " trains something else:\n"
                    << difference(original.plan, plan);
    }
    if (outcome > Equal && setting("ESPALIER_MUTANTS_SHOW", 0))
      fmt::print("{} of {}: {} (seed {}, first {})\n{}", kind, original.name, outcomeNames[outcome], seed, i,
                 difference(original.plan, plan));
  }
  for (const auto &[kind, numbers] : byKind)
    fmt::print("{:24} {}\n", kind, fmt::join(numbers, " "));
  for (int outcome = 0; outcome < outcomes; ++outcome)
    fmt::print("{}: {}\n", outcomeNames[outcome], total[outcome]);
  fmt::print("of these with data that go another way: {}\n", wrong);
  EXPECT_EQ(total[Killed] + total[Endless] + total[Failed], 0);
}

} // namespace
} // namespace espalier
