// A compilation resumed from the printed IR of a phase writes the same plan as an uninterrupted one. The IR thus holds
// everything that later phases need, for every technique.
#include "test/equivalence/splits.h"

#include <filesystem>
#include <fmt/format.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using planner::Schedule;

constexpr auto none = planner::Recompute::None, selective = planner::Recompute::Selective,
               full = planner::Recompute::Full;

struct Row {
  std::string model;
  SplitCase split;
  std::string target = "cpu";
};

const Row rows[] = {
    {"gpt2", {.name = "one_rank"}},
    {"gpt2", {.name = "pipeline_zero1", .dp = 2, .pp = 2, .microBatches = 4, .zero = 1}},
    {"llama",
     {.name = "gpipe_mixed_recompute",
      .tp = 2,
      .pp = 2,
      .microBatches = 4,
      .schedule = Schedule::GPipe,
      .sliceInputs = true,
      .layerRecompute = {full, none, selective}}},
    {"gpt2", {.name = "zero2", .dp = 2, .microBatches = 2, .zero = 2}},
    {"gpt2",
     {.name = "zero3_full",
      .dp = 2,
      .tp = 2,
      .microBatches = 2,
      .zero = 3,
      .sequenceParallel = true,
      .recompute = full}},
    {"llama",
     {.name = "interleaved_zero3",
      .dp = 2,
      .pp = 2,
      .microBatches = 4,
      .zero = 3,
      .stageLayers = {1, 1, 1, 0},
      .schedule = Schedule::Interleaved,
      .virtualStages = 2}},
    {"gpt2", {.name = "zero_bubble_h1", .pp = 2, .microBatches = 4, .schedule = Schedule::ZeroBubbleH1}},
    {"gpt2",
     {.name = "zero_bubble_v",
      .pp = 2,
      .microBatches = 4,
      .stageLayers = {1, 1, 1, 0},
      .schedule = Schedule::ZeroBubbleV}},
    {"llama",
     {.name = "v_min_zero1",
      .dp = 2,
      .pp = 2,
      .microBatches = 4,
      .zero = 1,
      .stageLayers = {1, 1, 1, 0},
      .schedule = Schedule::VMin}},
    {"gpt2", {.name = "context_zigzag", .tp = 2, .cp = 2, .sequenceParallel = true}},
    {"mixtral", {.name = "experts_zero3", .dp = 2, .ep = 2, .microBatches = 2, .zero = 3, .recompute = full}},
    {"two_tables", {.name = "two_tied_tables", .pp = 2, .microBatches = 2}},
    {"gpt2", {.name = "pipeline_on_gpus", .pp = 2, .microBatches = 4, .recompute = selective}, "cuda"},
    {"mixtral", {.name = "experts_on_gpus", .tp = 2, .ep = 2, .sequenceParallel = true}, "cuda"},
};

class Phases : public testing::TestWithParam<Row> {};

TEST_P(Phases, ResumeFromTheirIr) {
  const Row &row = GetParam();
  std::vector<std::string> sets;
  if (row.target == "cuda") // the minimum that GPU attention supports
    sets = {"model.model_config.hidden_size=32"};
  RunConfig run = equivalenceRun(row.model, sets);
  planner::Plan plan = planOf(run, row.split);
  std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / fmt::format("phases_{}", getpid());
  CompileOptions options;
  options.target = row.target;
  options.emitKernels = false; // kernels come from the IR of the last phase in any case
  auto compile = [&](const CompileOptions &how) {
    mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
    std::optional<Compiled> made = compileRun(context, run, plan, how);
    return made ? made->plan.SerializeAsString() : std::string();
  };
  CompileOptions dumps = options;
  dumps.dumpPhases = folder;
  std::string whole = compile(dumps);
  ASSERT_FALSE(whole.empty());
  for (auto [index, phase] : llvm::enumerate(phaseNames())) {
    CompileOptions resumes = options;
    resumes.compileFrom = phase;
    resumes.irFile = folder / fmt::format("{}.{}.mlir", index, phase);
    EXPECT_TRUE(compile(resumes) == whole) << phase;
  }
  std::filesystem::remove_all(folder);
}

INSTANTIATE_TEST_SUITE_P(Plans, Phases, testing::ValuesIn(rows),
                         [](const auto &info) { return info.param.split.name; });

} // namespace
} // namespace espalier
