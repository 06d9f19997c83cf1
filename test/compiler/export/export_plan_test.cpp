// Exports plans as flags of other systems. Properties that a system cannot express are listed.
#include "compiler/export/export_plan.h"

#include "planner/answer/explain.h"
#include "planner/model/schedule.h"
#include "test/planner/shapes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

using namespace espalier;
using namespace espalier::planner;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

namespace {
Problem problem() { return shapeProblem(gpt(24, 2048, 16), System{}, testMachine(2, 8, 24e9), 128); }

/// Returns the problem with these bytes of an element of parameters and of gradients.
Problem withTypes(double parameterBytes, double gradientBytes) {
  Problem typed = problem();
  for (SegmentKind &kind : typed.kinds)
    for (PatternTerms &pattern : kind.patterns)
      for (ParameterTerm &parameter : pattern.parameters)
        parameter.parameterBytes = parameterBytes, parameter.gradientBytes = gradientBytes;
  return typed;
}

} // namespace

TEST(Export, MegatronFlags) {
  Plan plan;
  plan.dp = 2, plan.tp = 2, plan.pp = 4, plan.microBatches = 64, plan.zero = 1, plan.sequenceParallel = true;
  plan.stages = {{0, 5, std::vector<Recompute>(5, Recompute::Full)},
                 {5, 7, std::vector<Recompute>(7, Recompute::Full)},
                 {12, 7, std::vector<Recompute>(7, Recompute::Full)},
                 {19, 5, std::vector<Recompute>(5, Recompute::Full)}};
  ExportedPlan exported = exportMegatron(problem(), plan);
  EXPECT_EQ(exported.text, "--tensor-model-parallel-size 2\n--pipeline-model-parallel-size 4\n--sequence-parallel\n"
                           "--micro-batch-size 1\n--global-batch-size 128\n--use-distributed-optimizer\n"
                           "--accumulate-allreduce-grads-in-fp32\n"
                           "--decoder-first-pipeline-num-layers 5\n--decoder-last-pipeline-num-layers 5\n"
                           "--recompute-granularity full\n--recompute-method uniform\n--recompute-num-layers 1\n");
  EXPECT_TRUE(exported.notExpressed.empty());
  plan.zero = 3;
  EXPECT_EQ(exportMegatron(problem(), plan).notExpressed.size(), 1u);
}

TEST(Export, PatternOfMegatronsHybridModels) {
  Problem hybrid = problem();
  int block = hybrid.layers[0].kind, mixer = static_cast<int>(hybrid.kinds.size());
  hybrid.kinds.push_back(hybrid.kinds[static_cast<size_t>(block)]);
  hybrid.kinds.back().name = "mixer";
  hybrid.layers = {{mixer, 3}, {block, 1}, {mixer, 2}};
  std::vector<std::string> parts(hybrid.kinds.size());
  parts[static_cast<size_t>(block)] = "*", parts[static_cast<size_t>(mixer)] = "M-";
  Plan plan;
  plan.dp = 4, plan.pp = 2, plan.microBatches = 32;
  plan.stages = {{0, 2, std::vector<Recompute>(2)}, {2, 4, std::vector<Recompute>(4)}};
  EXPECT_THAT(exportMegatron(hybrid, plan, parts).text,
              AllOf(HasSubstr("--hybrid-layer-pattern \"M-M-|M-*M-M-\"\n"), Not(HasSubstr("pipeline-num-layers"))));
  parts[static_cast<size_t>(block)] = "";
  EXPECT_THAT(exportMegatron(hybrid, plan, parts).notExpressed, Contains(HasSubstr("layers of the kind block")));
  parts[static_cast<size_t>(block)] = "*-", parts[static_cast<size_t>(mixer)] = "*-"; // no recurrence
  EXPECT_THAT(exportMegatron(hybrid, plan, parts).text, Not(HasSubstr("--hybrid-layer-pattern")));
}

TEST(Export, NumericsOfMegatron) {
  Problem narrow = problem();
  narrow.zeroCenteredNorms = true;
  narrow.matmulFormat = {"fp4_e2m1", 2.6};
  Plan plan;
  plan.dp = 1, plan.microBatches = 128;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  EXPECT_THAT(exportMegatron(narrow, plan).text, HasSubstr("--apply-layernorm-1p\n--fp4-format e2m1\n"));
  EXPECT_TRUE(exportMegatron(narrow, plan).notExpressed.empty());
  EXPECT_THAT(exportMindFormers(narrow, plan).notExpressed, ElementsAre("matrix products in fp4_e2m1"));
  EXPECT_THAT(exportTorchtitan(narrow, plan).notExpressed, ElementsAre("matrix products in fp4_e2m1"));
}

TEST(Export, HybridShardingOfEachSystem) {
  Plan plan;
  plan.dp = 4, plan.cp = 2, plan.microBatches = 4, plan.zero = 3, plan.zeroGroup = 2;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  EXPECT_THAT(exportMegatron(problem(), plan).text,
              HasSubstr("--use-distributed-optimizer\n--accumulate-allreduce-grads-in-fp32\n"
                        "--num-distributed-optimizer-instances 2\n"));
  EXPECT_THAT(exportMindFormers(problem(), plan).text,
              HasSubstr("  parallel_optimizer_config:\n    gradient_accumulation_shard: True\n"
                        "    optimizer_weight_shard_size: 4\n"));
  EXPECT_THAT(exportTorchtitan(problem(), plan).text,
              HasSubstr("    data_parallel_replicate_degree=2,\n    data_parallel_shard_degree=2,\n"));
  EXPECT_THAT(describePlan(plan), HasSubstr("zero 3 in groups of 2"));
}

TEST(Export, ExpertsOfEachSystem) {
  Problem experts = problem();
  experts.tokensPerSample = 4096;
  experts.dimensions.insert(experts.dimensions.end(), {{"expert", 8}, {"choice", 2}, {"capacity", 1280}});
  Plan plan;
  plan.dp = 2, plan.tp = 2, plan.ep = 4, plan.zero = 3, plan.microBatches = 2, plan.sequenceParallel = true;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  EXPECT_THAT(exportMegatron(experts, plan).text,
              HasSubstr("--num-experts 8\n--moe-router-topk 2\n--moe-ffn-hidden-size 8192\n"
                        "--expert-model-parallel-size 4\n--expert-tensor-parallel-size 2\n"
                        "--moe-expert-capacity-factor 1.25\n--moe-pad-expert-input-to-capacity\n"
                        "--moe-token-dispatcher-type alltoall\n--moe-grouped-gemm\n"));
  EXPECT_THAT(exportMindFormers(experts, plan).text, HasSubstr("  enable_alltoall: True\n"));
  EXPECT_THAT(exportMindFormers(experts, plan).text, HasSubstr("  data_parallel: 8\n"));
  EXPECT_THAT(exportMindFormers(experts, plan).text, HasSubstr("  expert_parallel: 4\n"));
  ExportedPlan titan = exportTorchtitan(experts, plan);
  EXPECT_THAT(titan.text, HasSubstr("    data_parallel_shard_degree=8,\n"));
  EXPECT_THAT(titan.text, HasSubstr("    expert_parallel_degree=4,\n"));
  EXPECT_THAT(titan.notExpressed, ElementsAre("experts split over tensor ranks"));
  plan.splitsExperts = false;
  EXPECT_THAT(describePlan(plan), HasSubstr("ep 4, whole experts"));
  EXPECT_THAT(exportMegatron(experts, plan).text,
              HasSubstr("--expert-model-parallel-size 8\n--expert-tensor-parallel-size 1\n"));
  titan = exportTorchtitan(experts, plan);
  EXPECT_THAT(titan.text, HasSubstr("    expert_parallel_degree=8,\n"));
  EXPECT_TRUE(titan.notExpressed.empty());
  plan.cp = 2;
  EXPECT_THAT(exportMegatron(experts, plan).notExpressed,
              Contains("experts over replicas that are not over context ranks"));
  plan.expertsOverContext = true;
  EXPECT_THAT(describePlan(plan), HasSubstr("cp 2, ep 4, whole experts, experts over cp"));
  EXPECT_THAT(exportMegatron(experts, plan).text,
              HasSubstr("--expert-model-parallel-size 16\n--expert-tensor-parallel-size 1\n"));
  EXPECT_THAT(exportMindFormers(experts, plan).notExpressed, Contains("experts over context ranks"));
  EXPECT_THAT(exportTorchtitan(experts, plan).text, HasSubstr("    expert_parallel_degree=16,\n"));
  plan.cp = 1, plan.expertsOverContext = false;
  plan.splitsExperts = true;
  // Megatron refuses the combination of ep and tp without sequence parallelism. torchtitan cannot keep experts
  // unsharded, and does not split an expert.
  plan.zero = 0, plan.sequenceParallel = false;
  EXPECT_THAT(exportMegatron(experts, plan).notExpressed,
              ElementsAre("experts over ep and tp without sequence parallelism"));
  EXPECT_THAT(exportTorchtitan(experts, plan).notExpressed,
              ElementsAre("experts over ep while nothing else is sharded over it", "experts split over tensor ranks"));
  // A layer without experts between layers with experts.
  SegmentKind routed = experts.kinds[experts.layers[0].kind];
  routed.patterns.at(0).parameters.at(0).expert = true;
  int dense = experts.layers[0].kind, moe = static_cast<int>(experts.kinds.size());
  experts.kinds.push_back(routed);
  experts.layers = {{dense, 3}, {moe, 20}, {dense, 1}};
  EXPECT_THAT(exportMegatron(experts, plan).text, HasSubstr("--moe-layer-freq \"([0]*3+[1]*20+[0]*1)\"\n"));
}

TEST(Export, MindFormersInterleaves) {
  Plan plan;
  plan.pp = 2, plan.microBatches = 4, plan.schedule = Schedule::Interleaved, plan.virtualStages = 3;
  for (int chunk = 0; chunk < 6; ++chunk)
    plan.stages.push_back({4 * chunk, 4, std::vector<Recompute>(4)});
  ExportedPlan exported = exportMindFormers(problem(), plan);
  EXPECT_THAT(exported.text, HasSubstr("  pipeline_config:\n    pipeline_interleave: True\n"));
  EXPECT_THAT(exported.text, HasSubstr("model:\n  model_config:\n    pp_interleave_num: 3\n"));
  EXPECT_THAT(exported.notExpressed, ElementsAre());
  // LayerSetting of mindformers/models/utils.py: one list per chunk of a stage, with an entry per stage. The offsets
  // sum to the remainder of 24 layers over six chunks.
  plan.stages.clear();
  for (int layers : {3, 5, 4, 4, 5, 3})
    plan.stages.push_back({0, layers, std::vector<Recompute>(layers)});
  std::fill_n(plan.stages[0].recompute.begin(), 2, Recompute::Full);
  std::fill_n(plan.stages[3].recompute.begin(), 3, Recompute::Selective);
  exported = exportMindFormers(problem(), plan);
  EXPECT_THAT(exported.text, HasSubstr("  recompute: [[2, 0], [0, 0], [0, 0]]\n"
                                       "  select_recompute: [[2, 0], [0, 3], [0, 0]]\n"));
  EXPECT_THAT(exported.text, HasSubstr("model:\n  model_config:\n    pp_interleave_num: 3\n"
                                       "    offset: [[-1, 1], [0, 0], [1, -1]]\n"));
  EXPECT_THAT(exported.notExpressed, ElementsAre());
  plan.schedule = Schedule::ZeroBubbleV, plan.virtualStages = 2;
  plan.stages.clear();
  plan.stages.resize(4, {0, 6, std::vector<Recompute>(6)});
  EXPECT_THAT(exportMindFormers(problem(), plan).notExpressed, ElementsAre("schedule zero_bubble_v"));
}

TEST(Export, TorchtitanExportsOnlyItsSchedules) {
  for (Schedule schedule : kSchedules) {
    Plan plan;
    plan.pp = 2, plan.microBatches = 4, plan.schedule = schedule;
    plan.virtualStages = chunksOf(schedule, schedule == Schedule::Interleaved ? 2 : 1);
    for (int chunk = 0; chunk < 2 * plan.virtualStages; ++chunk)
      plan.stages.push_back({0, 24 / (2 * plan.virtualStages), std::vector<Recompute>(24 / (2 * plan.virtualStages))});
    ExportedPlan titan = exportTorchtitan(problem(), plan);
    bool isNamed = titan.text.find("pipeline_parallel_schedule=\"") != std::string::npos;
    EXPECT_EQ(isNamed, titan.notExpressed.empty()) << scheduleName(schedule);
    if (!isNamed)
      EXPECT_THAT(titan.notExpressed, ElementsAre(std::string("schedule ") + scheduleName(schedule)));
  }
}

TEST(Export, MindFormersAndTorchtitan) {
  Plan plan;
  plan.dp = 4, plan.tp = 2, plan.pp = 2, plan.microBatches = 32, plan.zero = 1;
  plan.stages = {{0, 12, std::vector<Recompute>(12)}, {12, 12, std::vector<Recompute>(12)}};
  EXPECT_THAT(exportMindFormers(problem(), plan).text,
              HasSubstr("  model_parallel: 2\n  pipeline_stage: 2\n  micro_batch_num: 32\n"));
  ExportedPlan titan = exportTorchtitan(problem(), plan);
  EXPECT_EQ(titan.text, "training=TrainingConfig(\n    num_tokens_per_microbatch_per_dp_rank=2048,\n"
                        "    num_tokens_per_train_step=262144,\n    max_context_length=2048,\n),\n"
                        "parallelism=ParallelismConfig(\n    data_parallel_replicate_degree=1,\n"
                        "    data_parallel_shard_degree=4,\n    tensor_parallel_degree=2,\n"
                        "    context_parallel_degree=1,\n    pipeline_parallel_degree=2,\n"
                        "    enable_sequence_parallel=False,\n    pipeline_parallel_schedule=\"1F1B\",\n"
                        "    num_pp_microbatches=32,\n    pipeline_parallel_layers_per_stage=12,\n"
                        "    pipeline_parallel_first_stage_less_layers=0,\n"
                        "    pipeline_parallel_last_stage_less_layers=0,\n),\nactivation_checkpoint=None,\n");
  EXPECT_THAT(titan.notExpressed, ElementsAre(HasSubstr("ZeRO stage 1")));
}

TEST(Export, QkClip) {
  Plan plan;
  plan.dp = 8, plan.microBatches = 16;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  EXPECT_THAT(exportMegatron(problem(), plan).text, Not(HasSubstr("--qk-clip")));
  Problem clipped = problem();
  clipped.qkClip = {.threshold = 100, .alpha = 0.25};
  EXPECT_THAT(exportMegatron(clipped, plan).text,
              HasSubstr("--qk-clip\n--qk-clip-threshold 100\n--qk-clip-alpha 0.25\n"));
  EXPECT_TRUE(exportMegatron(clipped, plan).notExpressed.empty());
  EXPECT_THAT(exportMindFormers(clipped, plan).notExpressed,
              ElementsAre("QK-clip at 100 (MindFormers clips multi-latent attention alone)"));
  EXPECT_THAT(exportTorchtitan(clipped, plan).notExpressed, testing::Contains("QK-clip at 100"));
}

TEST(Export, MatricesSplitOverTensorRanks) {
  Plan plan;
  plan.dp = 4, plan.tp = 2, plan.microBatches = 32;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  Problem matrices = problem();
  for (SegmentKind &kind : matrices.kinds)
    for (PatternTerms &pattern : kind.patterns)
      for (ParameterTerm &parameter : pattern.parameters)
        parameter.matrices = 6;
  EXPECT_THAT(exportMegatron(matrices, plan).text, HasSubstr("--muon-tp-mode duplicated\n"));
  EXPECT_THAT(exportMegatron(problem(), plan).text, Not(HasSubstr("--muon-tp-mode")));
  plan.dp = 8, plan.tp = 1;
  EXPECT_THAT(exportMegatron(matrices, plan).text, Not(HasSubstr("--muon-tp-mode")));
}

TEST(Export, GradientsIn16Bits) {
  Plan plan;
  plan.dp = 4, plan.microBatches = 32, plan.zero = 3;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  Problem half = withTypes(2, 2), raised = withTypes(2, 4);
  const std::string flag = "--grad-reduce-in-bf16\n", raisingFlag = "--accumulate-allreduce-grads-in-fp32\n",
                    key = "parallel:\n  parallel_mode: 1\n  enable_parallel_optimizer: "
                          "True\n  gradient_fp32_sync: False\n",
                    field = "    mixed_precision_reduce=\"bfloat16\",\n";
  EXPECT_THAT(exportMegatron(half, plan).text, AllOf(HasSubstr(flag), Not(HasSubstr(raisingFlag))));
  EXPECT_THAT(exportMegatron(raised, plan).text, AllOf(HasSubstr(raisingFlag), Not(HasSubstr(flag))));
  for (const Problem &whole : {withTypes(4, 4), withTypes(4, 2)})
    EXPECT_THAT(exportMegatron(whole, plan).text, Not(HasSubstr(raisingFlag)));
  EXPECT_THAT(exportMegatron(withTypes(4, 4), plan).text, Not(HasSubstr(flag)));
  EXPECT_THAT(exportMindFormers(half, plan).text, HasSubstr(key));
  EXPECT_THAT(exportMindFormers(problem(), plan).text, Not(HasSubstr("gradient_fp32_sync")));
  ExportedPlan titan = exportTorchtitan(half, plan);
  EXPECT_THAT(titan.text, HasSubstr(field));
  EXPECT_THAT(titan.notExpressed, ElementsAre(HasSubstr("accumulated in 16 bits")));
  EXPECT_THAT(exportTorchtitan(problem(), plan).text, Not(HasSubstr(field)));
}

// The most frequent choice of the search: stages recompute different numbers of layers.
TEST(Export, RecomputeOfSomeLayers) {
  constexpr Recompute None = Recompute::None, Selective = Recompute::Selective, Full = Recompute::Full;
  Plan plan;
  plan.dp = 8, plan.pp = 2, plan.microBatches = 16, plan.zero = 1;
  plan.stages = {{0, 12, std::vector<Recompute>(12)}, {12, 12, std::vector<Recompute>(12)}};
  std::fill_n(plan.stages[0].recompute.begin(), 5, Selective);
  ExportedPlan megatron = exportMegatron(problem(), plan);
  EXPECT_THAT(megatron.text, HasSubstr("--recompute-granularity selective\n")); // required to fit into memory
  EXPECT_THAT(megatron.notExpressed, ElementsAre(HasSubstr("the flags have selective recompute in all layers")));
  EXPECT_THAT(exportTorchtitan(problem(), plan).text, HasSubstr("activation_checkpoint=SelectiveAC.Config(),\n"));
  ExportedPlan mindFormers = exportMindFormers(problem(), plan);
  EXPECT_THAT(mindFormers.text, HasSubstr("  recompute: [0, 0]\n  select_recompute: [5, 0]\n"));
  EXPECT_TRUE(mindFormers.notExpressed.empty());
  std::fill_n(plan.stages[0].recompute.begin(), 2, Full);
  EXPECT_THAT(exportMegatron(problem(), plan).text, HasSubstr("--recompute-granularity selective\n")); // less
                                                                                                       // recompute,
                                                                                                       // which also
                                                                                                       // fits
  Problem tight = problem();
  tight.machine.memoryBytes = 1e9;
  megatron = exportMegatron(tight, plan);
  EXPECT_THAT(megatron.text, HasSubstr("--recompute-method uniform\n--recompute-num-layers 1\n"));
  EXPECT_THAT(megatron.notExpressed, ElementsAre(HasSubstr("the flags have full recompute in all layers")));
  EXPECT_THAT(exportMindFormers(problem(), plan).text, HasSubstr("  recompute: [2, 0]\n  select_recompute: [5, 0]\n"));
  for (StagePlan &stage : plan.stages) {
    std::fill(stage.recompute.begin(), stage.recompute.end(), None);
    std::fill_n(stage.recompute.begin(), 3, Full);
  }
  megatron = exportMegatron(problem(), plan);
  EXPECT_THAT(megatron.text, HasSubstr("--recompute-method block\n--recompute-num-layers 3\n"));
  EXPECT_TRUE(megatron.notExpressed.empty());
}

// A chunk with fewer layers recomputes all of them.
TEST(Export, BlockIsLongerThanAShortStage) {
  Plan plan;
  plan.dp = 4, plan.pp = 2, plan.microBatches = 16;
  plan.stages = {{0, 4, std::vector<Recompute>(4, Recompute::Full)}, {4, 20, std::vector<Recompute>(20)}};
  std::fill_n(plan.stages[1].recompute.begin(), 6, Recompute::Full);
  ExportedPlan megatron = exportMegatron(problem(), plan);
  EXPECT_THAT(megatron.text, HasSubstr("--recompute-method block\n--recompute-num-layers 6\n"));
  EXPECT_TRUE(megatron.notExpressed.empty());
  plan.stages[0].recompute.back() = Recompute::None;
  EXPECT_FALSE(exportMegatron(problem(), plan).notExpressed.empty());
}

// Layouts that --decoder-first and --decoder-last cannot express.
TEST(Export, LayoutOfUnevenStages) {
  Plan plan;
  plan.dp = 4, plan.pp = 4, plan.microBatches = 32;
  for (int layers : {5, 8, 4, 7})
    plan.stages.push_back({0, layers, std::vector<Recompute>(layers)});
  ExportedPlan exported = exportMegatron(problem(), plan);
  EXPECT_THAT(exported.text, HasSubstr("--pipeline-model-parallel-layout \"Et*5|t*8|t*4|t*7L\"\n"));
  EXPECT_TRUE(exported.notExpressed.empty());
  plan.pp = 2, plan.virtualStages = 2, plan.schedule = Schedule::Interleaved;
  plan.stages.clear();
  for (int layers : {0, 12, 12, 0})
    plan.stages.push_back({0, layers, std::vector<Recompute>(layers)});
  exported = exportMegatron(problem(), plan);
  EXPECT_THAT(exported.text, HasSubstr("--pipeline-model-parallel-layout \"E|(t*12|)*2,L\"\n"));
  EXPECT_THAT(exported.text, testing::Not(HasSubstr("--num-layers-per-virtual-pipeline-stage")));
  // Llama 3.1 405B.
  plan.pp = 16, plan.virtualStages = 8;
  plan.stages.clear();
  for (int chunk = 0; chunk < 128; ++chunk)
    plan.stages.push_back({0, chunk > 0 && chunk < 127, std::vector<Recompute>(chunk > 0 && chunk < 127)});
  EXPECT_THAT(exportMegatron(problem(), plan).text, HasSubstr("--pipeline-model-parallel-layout \"E|(t|)*126,L\"\n"));
}

TEST(Export, StagesAndVocabulary) {
  Plan plan;
  plan.dp = 2, plan.tp = 2, plan.pp = 4, plan.microBatches = 64, plan.sequenceParallel = true;
  for (int layers : {5, 7, 7, 5})
    plan.stages.push_back({0, layers, std::vector<Recompute>(layers)});
  plan.schedule = Schedule::GPipe;
  ExportedPlan mindFormers = exportMindFormers(problem(), plan);
  EXPECT_THAT(mindFormers.text, HasSubstr("model:\n  model_config:\n    offset: [-1, 1, 1, -1]\n"));
  EXPECT_THAT(mindFormers.text, HasSubstr("    pipeline_scheduler: gpipe\n"));
  EXPECT_TRUE(mindFormers.notExpressed.empty());
  EXPECT_THAT(exportTorchtitan(problem(), plan).text, testing::Not(HasSubstr("layers_per_stage")));
  plan.schedule = Schedule::OneFOneB;
  for (StagePlan &stage : plan.stages)
    stage = {0, 6, std::vector<Recompute>(6)};
  // By default, torchtitan removes a layer from the first and the last stage.
  ExportedPlan titan = exportTorchtitan(problem(), plan);
  EXPECT_THAT(titan.text, HasSubstr("    pipeline_parallel_layers_per_stage=6,\n"
                                    "    pipeline_parallel_first_stage_less_layers=0,\n"
                                    "    pipeline_parallel_last_stage_less_layers=0,\n"));
  EXPECT_TRUE(titan.notExpressed.empty());
  plan.vocabParallel = false, plan.microBatches = 2;
  EXPECT_THAT(exportMegatron(problem(), plan).notExpressed,
              ElementsAre("embedding and head whole on every tensor rank"));
  EXPECT_THAT(exportTorchtitan(problem(), plan).notExpressed,
              ElementsAre("embedding and head whole on every tensor rank"));
  EXPECT_THAT(exportMindFormers(problem(), plan).notExpressed,
              ElementsAre(HasSubstr("of a pipeline"), "fewer micro-batches (2) than stages (4)"));
}

TEST(Export, OffloadingIfTheSystemSupportsIt) {
  Problem problem = shapeProblem(gpt(24, 2048, 16), System{}, withHost(testMachine(1, 8)), 64);
  Plan plan;
  plan.offloadOptimizer = plan.offloadActivations = true;
  plan.dp = 8, plan.microBatches = 8, plan.zero = 1;
  plan.stages = {{0, 24, std::vector<Recompute>(24)}};
  ExportedPlan megatron = exportMegatron(problem, plan);
  EXPECT_THAT(megatron.text, HasSubstr("--cpu-offloading-num-layers 23\n--offload-optimizer-states\n"));
  EXPECT_THAT(megatron.notExpressed, ElementsAre());
  plan.zero = 0;
  plan.stages = {{0, 24, std::vector<Recompute>(24, Recompute::Full)}};
  EXPECT_THAT(exportMegatron(problem, plan).notExpressed,
              ElementsAre("offloaded activations together with a pipeline or recompute",
                          "offloaded optimizer state without the distributed optimizer"));
  ExportedPlan mindFormers = exportMindFormers(problem, plan), titan = exportTorchtitan(problem, plan);
  EXPECT_THAT(mindFormers.text, HasSubstr("swap_config:\n  swap: True\n"));
  EXPECT_THAT(mindFormers.notExpressed, ElementsAre("offloaded optimizer state"));
  EXPECT_THAT(titan.notExpressed,
              ElementsAre("offloaded activations", testing::StartsWith("offloaded optimizer state (")));
  plan.zero = 3;
  plan.offloadParameters = true;
  plan.offloadActivations = false;
  titan = exportTorchtitan(problem, plan);
  EXPECT_THAT(titan.text, HasSubstr("    enable_cpu_offload=True,\n),\nparallelism=ParallelismConfig(\n"));
  EXPECT_THAT(titan.notExpressed, ElementsAre());
  EXPECT_THAT(exportMegatron(problem, plan).notExpressed, Contains("offloaded parameters"));
  EXPECT_THAT(exportMindFormers(problem, plan).notExpressed, Contains("offloaded parameters"));
}
