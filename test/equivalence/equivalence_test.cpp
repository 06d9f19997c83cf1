// Executes every kind of plan and compares it with the unsplit model: losses and every gradient of each step. Every
// split is compiled and trains ten steps. Every split is also interpreted, with a part of its models.
#include "test/equivalence/splits.h"

#include "runtime/run/run.h"
#include "test/host_options.h"

#include <gtest/gtest.h>
#include <set>

namespace espalier {
namespace {

constexpr int64_t steps = 10, interpretedSteps = 4;
constexpr auto full = planner::Recompute::Full;

/// Returns the record of the unsplit model, compiled or interpreted, trained once for all cases.
const TrainingRecord &unsplit(const Model &model, bool isCompiled = true) {
  static std::map<std::pair<std::string, bool>, TrainingRecord> records;
  auto [entry, isNew] = records.try_emplace({model.name, isCompiled});
  if (isNew) {
    RunConfig run = equivalenceRun(model.file, model.sets);
    entry->second = isCompiled ? trainCompiled(run, planOf(run, {}), steps)
                               : trainInterpreted(run, planOf(run, {}), interpretedSteps);
  }
  return entry->second;
}

/// Compares the steps of `actual`, of which there must be `count`, with the first steps of `expected`.
void expectEqual(const TrainingRecord &expected, const TrainingRecord &actual, size_t count) {
  constexpr double relativeLoss = 1e-5;
  ASSERT_EQ(actual.losses.size(), count);
  ASSERT_GE(expected.losses.size(), count);
  for (size_t step = 0; step < count; ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], relativeLoss * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 10 * relativeLoss * expected.norms[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
  }
}

using Row = std::tuple<Model, SplitCase>;
using Rows = std::vector<Row>;

class CompiledPlans : public testing::TestWithParam<Row> {};
class InterpretedPlans : public testing::TestWithParam<Row> {};

TEST_P(CompiledPlans, TrainLikeTheUnsplitModel) {
  const auto &[model, split] = GetParam();
  RunConfig run = equivalenceRun(model.file, model.sets);
  expectEqual(unsplit(model), trainCompiled(run, planOf(run, split), steps), steps);
}

TEST_P(InterpretedPlans, TrainLikeTheUnsplitModel) {
  const auto &[model, split] = GetParam();
  RunConfig run = equivalenceRun(model.file, model.sets);
  expectEqual(unsplit(model, /*isCompiled=*/false), trainInterpreted(run, planOf(run, split), interpretedSteps),
              interpretedSteps);
}

std::string nameOf(const testing::TestParamInfo<Row> &info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}

/// Combines splits with models. Of `period` consecutive models of a split one is taken, and for the next split the
/// model before it: those whose place plus that of the split is `first` modulo `period`.
Rows rowsOf(const std::vector<Model> &models, const std::vector<SplitCase> &splits, size_t period = 1,
            size_t first = 0) {
  Rows rows;
  for (size_t split = 0; split < splits.size(); ++split)
    for (size_t model = 0; model < models.size(); ++model)
      if ((model + split) % period == first)
        rows.emplace_back(models[model], splits[split]);
  return rows;
}

/// Returns Llama, and GPT-2 with dropout: its plans have the ops of GPT-2 without dropout, and the masks.
std::vector<Model> splitModels() { return {models()[1], models()[2]}; }

std::vector<Model> modelOf(const char *name) { return {{name, name, {}}}; }

/// A hidden size at which half of each matrix has a multiple of 128 elements.
constexpr const char *wideSet = "model.model_config.hidden_size=32";

/// SGD is elementwise, as AdamW is, and needs fewer splits than Muon.
Rows optimizerRows() {
  const std::vector<Model> &list = optimizerModels();
  Rows rows = rowsOf({list.back()}, matrixSplits()), others = rowsOf({list.front()}, matrixSplits(), 2, 1);
  rows.insert(rows.end(), others.begin(), others.end());
  rows.emplace_back(list.front(), SplitCase{.name = "tp2_pp2_zero1_sp",
                                            .dp = 2,
                                            .tp = 2,
                                            .pp = 2,
                                            .microBatches = 4,
                                            .zero = 1,
                                            .sequenceParallel = true});
  return rows;
}

/// Returns one of two models of each split.
Rows sliceRows(size_t first) {
  return rowsOf({optimizerModels().back(), {"llama_muon", "llama", {"optimizer.type=Muon", wideSet}}}, sliceSplits(), 2,
                first);
}

/// Without tp, or with whole experts, the matrices of a rank's experts are whole. The router is a matrix, too.
Rows expertOptimizerRows() {
  return rowsOf(
      {{"mixtral_muon", "mixtral", {"optimizer.type=Muon", wideSet}}},
      {{.name = "dp2_ep2_zero1", .dp = 2, .ep = 2, .microBatches = 2, .zero = 1},
       {.name = "ep2_zero3", .ep = 2, .microBatches = 2, .zero = 3},
       {.name = "tp2_ep2_zero2", .tp = 2, .ep = 2, .microBatches = 2, .zero = 2, .sequenceParallel = true},
       {.name = "tp2_ep2_whole", .tp = 2, .ep = 2, .splitsExperts = false, .zero = 1, .sequenceParallel = true}});
}

INSTANTIATE_TEST_SUITE_P(Plans, CompiledPlans, testing::ValuesIn(rowsOf(splitModels(), splits())), nameOf);
INSTANTIATE_TEST_SUITE_P(Plans, InterpretedPlans, testing::ValuesIn(rowsOf(splitModels(), splits(), 2)), nameOf);

INSTANTIATE_TEST_SUITE_P(ContextPlans, CompiledPlans, testing::ValuesIn(rowsOf(splitModels(), contextSplits())),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(ContextPlans, InterpretedPlans, testing::ValuesIn(rowsOf(splitModels(), contextSplits(), 2)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(OptionPlans, CompiledPlans, testing::ValuesIn(rowsOf(optionModels(), optionSplits())), nameOf);
INSTANTIATE_TEST_SUITE_P(OptionPlans, InterpretedPlans, testing::ValuesIn(rowsOf(optionModels(), optionSplits(), 2)),
                         nameOf);

/// The plans of the second half of the models do not split sequences.
Rows furtherRows(size_t period = 1) {
  const std::vector<Model> &models = furtherModels();
  Rows rows = rowsOf({models[0], models[1]}, optionSplits(), period);
  Rows others = rowsOf({models[2], models[3]}, stateSplits(), period);
  rows.insert(rows.end(), others.begin(), others.end());
  return rows;
}

INSTANTIATE_TEST_SUITE_P(FurtherPlans, CompiledPlans, testing::ValuesIn(furtherRows()), nameOf);
INSTANTIATE_TEST_SUITE_P(FurtherPlans, InterpretedPlans, testing::ValuesIn(furtherRows(2)), nameOf);

INSTANTIATE_TEST_SUITE_P(StatePlans, CompiledPlans, testing::ValuesIn(rowsOf(stateModels(), stateSplits())), nameOf);
INSTANTIATE_TEST_SUITE_P(StatePlans, InterpretedPlans, testing::ValuesIn(rowsOf(stateModels(), stateSplits(), 2)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(SharePlans, CompiledPlans, testing::ValuesIn(rowsOf(splitModels(), shareSplits())), nameOf);
INSTANTIATE_TEST_SUITE_P(SharePlans, InterpretedPlans, testing::ValuesIn(rowsOf(splitModels(), shareSplits(), 2)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(HybridPlans, CompiledPlans, testing::ValuesIn(rowsOf(splitModels(), hybridSplits())), nameOf);
INSTANTIATE_TEST_SUITE_P(HybridPlans, InterpretedPlans, testing::ValuesIn(rowsOf(splitModels(), hybridSplits(), 2)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(ChunkPlans, CompiledPlans, testing::ValuesIn(rowsOf(deepModels(), chunkSplits())), nameOf);
INSTANTIATE_TEST_SUITE_P(ChunkPlans, InterpretedPlans, testing::ValuesIn(rowsOf(deepModels(), chunkSplits(), 2)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(UnlikePlans, CompiledPlans, testing::ValuesIn(rowsOf(modelOf("two_widths"), unlikeSplits())),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(UnlikePlans, InterpretedPlans,
                         testing::ValuesIn(rowsOf(modelOf("two_widths"), unlikeSplits(), 2, 1)), nameOf);

INSTANTIATE_TEST_SUITE_P(TiedPlans, CompiledPlans, testing::ValuesIn(rowsOf(modelOf("two_tables"), tiedSplits())),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(TiedPlans, InterpretedPlans, testing::ValuesIn(rowsOf(modelOf("two_tables"), tiedSplits())),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(FrozenPlans, CompiledPlans, testing::ValuesIn(rowsOf(frozenModels(), frozenSplits(), 2)),
                         nameOf);
INSTANTIATE_TEST_SUITE_P(FrozenPlans, InterpretedPlans, testing::ValuesIn(rowsOf(frozenModels(), frozenSplits(), 4, 1)),
                         nameOf);

INSTANTIATE_TEST_SUITE_P(OptimizerPlans, CompiledPlans, testing::ValuesIn(optimizerRows()), nameOf);
INSTANTIATE_TEST_SUITE_P(OptimizerPlans, InterpretedPlans,
                         testing::ValuesIn(rowsOf(optimizerModels(), matrixSplits(), 2)), nameOf);

INSTANTIATE_TEST_SUITE_P(SlicePlans, CompiledPlans, testing::ValuesIn(sliceRows(0)), nameOf);
INSTANTIATE_TEST_SUITE_P(SlicePlans, InterpretedPlans, testing::ValuesIn(sliceRows(1)), nameOf);

INSTANTIATE_TEST_SUITE_P(ClipPlans, CompiledPlans, testing::ValuesIn(rowsOf(clipModels(), clipSplits())), nameOf);
INSTANTIATE_TEST_SUITE_P(ClipPlans, InterpretedPlans, testing::ValuesIn(rowsOf(clipModels(), clipSplits(), 2)), nameOf);

INSTANTIATE_TEST_SUITE_P(ExpertOptimizerPlans, CompiledPlans, testing::ValuesIn(expertOptimizerRows()), nameOf);
INSTANTIATE_TEST_SUITE_P(ExpertOptimizerPlans, InterpretedPlans, testing::ValuesIn(expertOptimizerRows()), nameOf);

/// Frozen parameters have no gradient and keep their initial values.
TEST(Frozen, HaveNoGradient) {
  std::set<std::string> trained;
  for (const auto &[name, gradient] : unsplit(frozenModels().front()).gradients.front())
    trained.insert(name);
  EXPECT_EQ(trained, (std::set<std::string>{"slim.0.up_weight", "wide.1.attn_norm", "wide.1.mlp_norm",
                                            "slim.2.up_weight", "wide.3.attn_norm", "wide.3.mlp_norm"}));
}

/// There are nine buckets. The head also reads the embedding's bucket. Each bucket is read forward and backward.
TEST(Interpreted, RunsTheBucketCollectivesOfItsZeroStage) {
  using Counts = std::map<std::string, int64_t>;
  constexpr int64_t buckets = 9, reads = 2 * (buckets + 1);
  RunConfig run = equivalenceRun("gpt2");
  auto meetings = [&](int zero, int64_t microBatches) {
    SplitCase split{.name = "", .dp = 2, .microBatches = microBatches, .zero = zero};
    return trainInterpreted(run, planOf(run, split), /*steps=*/2).exchanges;
  };
  for (int64_t n : {1, 2}) {
    EXPECT_EQ(meetings(0, n), std::vector(2, Counts{{"sum", buckets}}));
    EXPECT_EQ(meetings(1, n), std::vector(2, Counts{{"sum", buckets}, {"gather", buckets}}));
    EXPECT_EQ(meetings(2, n), std::vector(2, Counts{{"scatter", n * buckets}, {"gather", buckets}}));
    EXPECT_EQ(meetings(3, n), std::vector(2, Counts{{"scatter", n * buckets}, {"gather", n * reads}}));
  }
}

/// Returns the activation bytes of a rank, over all stages.
uint64_t activationBytes(const SplitCase &split) {
  RunConfig run = equivalenceRun("gpt2");
  mlir::MLIRContext context;
  CompileOptions sizesOnly;
  sizesOnly.emitKernels = false;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, split), sizesOnly);
  uint64_t bytes = 0;
  for (const rt::pb::Stage &stage : compiled->plan.stages())
    for (const rt::pb::MemoryClass &entry : stage.memory())
      bytes += entry.name() == "activations" ? entry.bytes() : 0;
  return bytes;
}

TEST(Recompute, SlicedInputsTakeLessMemory) {
  for (int pp : {1, 2}) {
    SplitCase whole{.name = "", .tp = 2, .pp = pp, .microBatches = 4, .recompute = full}, sliced = whole;
    sliced.sliceInputs = true;
    // Per micro-batch in flight, three layers keep half of [batch, seq, hidden] less; the head keeps all of it. The
    // layer that receives on the second stage keeps its half in addition to its two receive buffers.
    uint64_t stream = 2 * 8 * 16 * 4;          // two samples, f32
    uint64_t halves = pp == 1 ? 3 : 2 * 2 - 1; // two layers with two micro-batches in flight, one with one
    EXPECT_EQ(activationBytes(whole) - activationBytes(sliced), halves * stream / 2) << "pp " << pp;
  }
}

class Unsplit : public testing::TestWithParam<Model> {};

TEST_P(Unsplit, CompiledAndInterpretedAgree) {
  TrainingRecord compiled = unsplit(GetParam());
  compiled.losses.resize(interpretedSteps);
  expectEqual(unsplit(GetParam(), /*isCompiled=*/false), compiled, interpretedSteps);
}

TEST_P(Unsplit, LossFalls) {
  const TrainingRecord &record = unsplit(GetParam());
  EXPECT_LT(record.losses.back(), record.losses.front() - 0.1);
}

INSTANTIATE_TEST_SUITE_P(Models, Unsplit, testing::ValuesIn(models()),
                         [](const auto &info) { return info.param.name; });

class Determinism : public testing::TestWithParam<Model> {};

/// Results depend neither on the run nor on the number of threads per rank.
TEST_P(Determinism, OfResults) {
  RunConfig run = equivalenceRun(GetParam().file, GetParam().sets);
  SplitCase split{.name = "", .dp = 2, .tp = 2, .pp = 2, .microBatches = 2, .zero = 1, .sequenceParallel = true};
  planner::Plan plan = planOf(run, split);
  TrainingRecord first = trainCompiled(run, plan, steps);
  for (int threads : {1, 2, 3}) {
    TrainingRecord again = trainCompiled(run, plan, steps, threads);
    EXPECT_EQ(first.losses, again.losses) << threads << " threads";
    EXPECT_EQ(first.gradients, again.gradients) << threads << " threads";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism, testing::ValuesIn(splitModels()),
                         [](const auto &info) { return info.param.name; });

/// Evaluates after one step of a run.
rt::EvaluationRecord evaluate(const RunConfig &run, const SplitCase &split) {
  mlir::MLIRContext context;
  std::optional<Compiled> compiled = compileRun(context, run, planOf(run, split), hostOptions());
  rt::RunOptions options;
  options.dataset = options.heldOut = equivalenceData(run);
  options.steps = options.evalEvery = 1;
  options.evalBatches = 2;
  return rt::runPlan(rt::Program(std::move(compiled->plan), 1), options).evaluations.at(0);
}

/// Sharded parameters are gathered for evaluation too.
TEST(Evaluation, GathersShardedParameters) {
  RunConfig run = equivalenceRun("gpt2");
  rt::EvaluationRecord whole = evaluate(run, {.name = "", .microBatches = 2});
  rt::EvaluationRecord parts = evaluate(run, {.name = "", .dp = 2, .pp = 2, .microBatches = 2, .zero = 3});
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5 * whole.loss);
}

/// Each context rank sees a shard of each held-out sequence.
TEST(Evaluation, CountsEachTokenOnceUnderASplitSequence) {
  RunConfig run = equivalenceRun("gpt2");
  rt::EvaluationRecord whole = evaluate(run, {.name = "", .microBatches = 2});
  rt::EvaluationRecord parts =
      evaluate(run, {.name = "", .tp = 2, .cp = 2, .microBatches = 2, .sequenceParallel = true});
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5 * whole.loss);
}

/// Experts process all held-out tokens, whichever rank has them.
TEST(Evaluation, DropsNoTokenOfADroplessMixture) {
  RunConfig run = equivalenceRun("mixtral", {"moe_config.capacity_factor=0"});
  rt::EvaluationRecord whole = evaluate(run, {.name = "", .microBatches = 2});
  rt::EvaluationRecord parts =
      evaluate(run, {.name = "", .tp = 2, .cp = 2, .ep = 2, .microBatches = 2, .sequenceParallel = true});
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5 * whole.loss);
  EXPECT_NE(evaluate(equivalenceRun("mixtral"), {.name = "", .microBatches = 2}).loss, whole.loss);
}

/// Attention of held-out samples ends at the borders of documents, too.
TEST(Evaluation, StaysWithinDocuments) {
  RunConfig run = equivalenceRun("llama", documentSets());
  rt::EvaluationRecord whole = evaluate(run, {.name = "", .microBatches = 2});
  rt::EvaluationRecord parts = evaluate(run, {.name = "", .tp = 2, .pp = 2, .cp = 2, .microBatches = 2});
  EXPECT_EQ(parts.tokens, whole.tokens);
  EXPECT_NEAR(parts.loss, whole.loss, 1e-5 * whole.loss);
}

/// The first step of a warmup from 0 does not change the weights, so that both runs evaluate equal weights.
TEST(Evaluation, HasNoDropout) {
  std::vector<std::string> still = {"lr_schedule.warmup_steps=10", "lr_schedule.warmup_lr_init=0",
                                    "lr_schedule.total_steps=20"},
                           dropped = still;
  for (const char *rate : {"embedding_dropout_prob", "hidden_dropout_rate", "attention_dropout_rate"})
    dropped.push_back(std::string("model.model_config.") + rate + "=0.5");
  for (const SplitCase &split : {SplitCase{.name = "", .microBatches = 2},
                                 SplitCase{.name = "", .tp = 2, .pp = 2, .microBatches = 4, .sequenceParallel = true}})
    EXPECT_EQ(evaluate(equivalenceRun("gpt2", dropped), split).loss,
              evaluate(equivalenceRun("gpt2", still), split).loss);
}

/// Tests each dropout location alone, which shows at which location the masks of compiled and interpreted runs differ.
TEST(Dropout, MasksAgreeAtEachLocation) {
  for (const char *rate : {"embedding_dropout_prob", "hidden_dropout_rate", "attention_dropout_rate"}) {
    RunConfig run = equivalenceRun("gpt2", {std::string("model.model_config.") + rate + "=0.3"});
    TrainingRecord interpreted = trainInterpreted(run, planOf(run, {}), 2);
    TrainingRecord compiled = trainCompiled(run, planOf(run, {}), 2);
    ASSERT_EQ(compiled.losses.size(), 2u);
    for (int step = 0; step < 2; ++step)
      EXPECT_NEAR(compiled.losses[step], interpreted.losses[step], 1e-5 * interpreted.losses[step]) << rate;
  }
}

/// Without dropout, the two seeds differ only in their initial values; so this test checks that masks have an effect.
TEST(Dropout, ChangesTheLoss) { EXPECT_NE(unsplit(models()[0]).losses, unsplit(models()[1]).losses); }

} // namespace
} // namespace espalier
