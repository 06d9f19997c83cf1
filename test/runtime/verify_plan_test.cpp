// A valid plan passes. Each case changes one field and breaks one rule about the tables of the plan (A, B, D, E, G or
// H). The error names the location.
#include "runtime/verify_plan.h"

#include "format/geometry.h"
#include "format/mesh.h"
#include "test/runtime/verify_cases.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(VerifyPlan, AcceptsGoodPlans) {
  for (bool zero : {false, true})
    for (int pp : {1, 2, 3, 4})
      for (bool folds : {false, true}) {
        SampleOptions options;
        options.dp = options.tp = 2;
        options.pp = pp;
        options.zero = zero;
        options.folds = folds;
        EXPECT_THAT(verifyPlan(samplePlan(options)), IsEmpty()) << "pp " << pp << " zero " << zero;
      }
}

TEST(VerifyPlan, RejectsAnEmptyPlan) { EXPECT_FALSE(verifyPlan(pb::Plan()).empty()); }

class Refusal : public testing::TestWithParam<VerifyCase> {};

TEST_P(Refusal, NamesTheRule) {
  pb::Plan plan = planOf(GetParam());
  ASSERT_THAT(verifyPlan(plan), IsEmpty());
  GetParam().apply(plan);
  EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr(GetParam().expected)));
}

pb::Launch *launchOf(pb::Plan &p, const char *program, int i = 0) {
  return instructionOf(p, program, i)->mutable_launch();
}

const VerifyCase structure[] = {
    {"Version", "plan version 1, this runtime reads 2; compile it again", [](pb::Plan &p) { p.set_version(1); }},
    {"Target", "target 'tpu'", [](pb::Plan &p) { p.set_target("tpu"); }},
    {"LevelMissing", "for [x86-64, x86-64-v3], for cpu it has them for [x86-64, x86-64-v3, x86-64-v4]",
     [](pb::Plan &p) { p.mutable_objects()->RemoveLast(); }},
    {"LevelTwice", "for [x86-64, x86-64-v4, x86-64-v4], for cpu it has them for",
     [](pb::Plan &p) { p.mutable_objects(1)->set_level("x86-64-v4"); }},
    {"RoleTwice", "two roles are called 'forward'", [](pb::Plan &p) { p.set_roles(1, p.roles(0)); }},
    {"KernelTwice", "two kernels are called '",
     [](pb::Plan &p) { p.mutable_kernels(1)->set_symbol(p.kernels(0).symbol()); }},
    {"CallTwice", "stage 0: two calls are named 'step'",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(0)->set_name("step"); }},
    {"LayersOfOneName", "the stages: call two layers 'head'",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(0)->set_name("head"); }},
    {"InputOfAnotherName", "exchange 'labels' has value 'tokens'",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_exchanges(0)->set_name("labels"); }},
    {"ResultsOfNoStage", "stage 1: does not exchange 'results', 64 bytes, in evaluate",
     [](pb::Plan &p) { p.mutable_stages(1)->mutable_exchanges()->rbegin()->mutable_entries()->RemoveLast(); }},
    {"StageMissing", "stages on a mesh", [](pb::Plan &p) { p.mutable_stages()->RemoveLast(); }},
    {"Batch", "the global batch of", [](pb::Plan &p) { p.mutable_settings()->set_global_batch(7); }},
    {"KernelIndex", "kernel 99 of", [](pb::Plan &p) { launchOf(p, "block.forward")->set_kernel(99); }},
    {"SubprogramIndex", "subprogram 1000 of",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(0)->set_programs(0, 1000); }},
    {"LocationIndex", "location 5 of 1", [](pb::Plan &p) { instructionOf(p, "block.forward")->set_location(5); }},
    {"Grain", "in grains of 0", [](pb::Plan &p) { launchOf(p, "block.forward")->set_grain(0); }},
    {"Region", "region 40 of 14",
     [](pb::Plan &p) { launchOf(p, "block.forward")->mutable_buffers(0)->set_region(40); }},
    {"HugeOffset", "a buffer of",
     [](pb::Plan &p) { launchOf(p, "block.forward")->mutable_buffers(0)->set_offset(~uint64_t(0) - 8); }},
    {"QueueOfComputation", "queue 0, which computes", [](pb::Plan &p) { transferOf(p, "out")->set_queue(0); }},
    {"TransferWithoutTarget", "goes from 1 to 0 buffers", [](pb::Plan &p) { transferOf(p, "set")->clear_to(); }},
    {"PartOfAPart", "is part of a part",
     [](pb::Plan &p) { valueOf(p, "scalars.3")->set_whole(numberOf(p, "scalars.2") + 1); }},
    {"Axes", "is no set of axes", [](pb::Plan &p) { bucketOf(p, "embed.weight")->set_share(64); }},
    {"Slot", "slot 50 of",
     [](pb::Plan &p) { (*actionsOf(p, 0))[findRun(p, 0, "forward")].mutable_run()->set_slots(0, 50); }},
    {"SlotsMissing", "slots for the",
     [](pb::Plan &p) { (*actionsOf(p, 0))[findRun(p, 0, "forward")].mutable_run()->clear_slots(); }},
    {"MicroBatch", "micro-batch 9 of 4",
     [](pb::Plan &p) { (*actionsOf(p, 0))[findRun(p, 0, "forward")].mutable_run()->set_micro_batch(9); }},
    {"Rounds", "more than 33554432 actions",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_entries(0)->mutable_blocks(0)->set_rounds(1 << 20); }},
    {"TwoChunks", "runs calls of two chunks",
     [](pb::Plan &p) {
       pb::Run *run = (*actionsOf(p, 0))[findRun(p, 0, "forward")].mutable_run();
       run->set_calls(run->calls() + 1);
     }},
    {"CallInNoChunk", "chunks hold", [](pb::Plan &p) { p.mutable_stages(0)->mutable_chunks()->RemoveLast(); }},
    {"LayerTwice", "twice", [](pb::Plan &p) { p.mutable_stages(1)->mutable_calls(0)->set_layer(1); }},
    {"LayerMissing", "from layer 3 on", [](pb::Plan &p) { p.mutable_stages(1)->set_first_layer(3); }},
    {"Offsets", "offsets for", [](pb::Plan &p) { p.mutable_stages(0)->mutable_places(0)->clear_offsets(); }},
};

const VerifyCase bounds[] = {
    {"BufferLeavesRegion", "touches",
     [](pb::Plan &p) { launchOf(p, "block.forward")->mutable_buffers(0)->set_offset(4096); }},
    {"PartOfWhatIsWhole", "are no own part over axes 1 of",
     [](pb::Plan &p) { launchOf(p, "block.forward")->mutable_buffers(0)->set_part(PP); }},
    {"PlaceLeavesArena", "of an arena of",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       stage->mutable_places(0)->set_offsets(0, stage->arena_bytes(pb::DEVICE) - 8);
     }},
    {"ClassesOfMemory", "its classes of memory have",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_memory(0)->set_bytes(1); }},
    {"NotExchanged", "that is not exchanged with the host",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_exchanges(0)->mutable_buffer()->set_region(8); }},
    {"GuardOutside", "a guard at byte",
     [](pb::Plan &p) { programOf(p, "block.forward")->add_guards()->set_offset(1 << 20); }},
    {"LifetimeNotListed", "uses lifetime 'other', which chunk 'layers' does not list",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       pb::Lifetime *other = stage->add_lifetimes();
       other->set_name("other");
       other->set_slots(1);
       uint32_t place = bindingOf(p, 0, 1, "saved")->place();
       stage->mutable_places(static_cast<int>(place))->set_lifetime(stage->lifetimes_size() - 1);
     }},
};

const VerifyCase layout[] = {
    {"ParameterAtAnother", "two parameters begin at element 0",
     [](pb::Plan &p) {
       pb::Bucket *bucket = bucketOf(p, "block.plain");
       *bucket->add_parameters() = bucket->parameters(0);
       bucket->mutable_parameters(1)->set_name("twin");
     }},
    {"BucketElements", "are no multiple of", [](pb::Plan &p) { bucketOf(p, "block.plain")->set_elements(100); }},
    {"SplitAndSummed", "split and summed",
     [](pb::Plan &p) { bucketOf(p, "embed.weight")->mutable_parameters(0)->set_split(0, 2); }},
    {"NormWeight", "in the norm it counts", [](pb::Plan &p) { bucketOf(p, "embed.weight")->set_norm_weight(1); }},
    {"StatesOverlap", "overlaps another",
     [](pb::Plan &p) { *bindingOf(p, 0, 2, "state") = *bindingOf(p, 0, 1, "state"); }},
    {"NobodyUpdates", "0 calls update bucket",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(1)->mutable_buckets(0)->set_updates(false); }},
    {"OtherOwner", "which does not use it",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(1)->mutable_buckets(0)->set_owner(0); }},
    {"HolderMissing", "its holders are",
     [](pb::Plan &p) { p.mutable_stages(1)->mutable_calls(1)->mutable_buckets(0)->set_owner(2); }},
    {"StateInAnotherOrder", "its state 1 lies before 0",
     [](pb::Plan &p) { bucketOf(p, "embed.weight")->mutable_state()->SwapElements(0, 1); }},
    {"StateOfAnotherOptimizer", "its state 0 is 'embed.weight.moment1', SGD has master there",
     [](pb::Plan &p) { bucketOf(p, "embed.weight")->set_optimizer(pb::SGD); }},
    {"UnknownOptimizer", "optimizer 9 is unknown",
     [](pb::Plan &p) { bucketOf(p, "embed.weight")->set_optimizer(static_cast<pb::Optimizer>(9)); }},
    {"GradientOfIntegers", "its gradients are integers",
     [](pb::Plan &p) { valueOf(p, "embed.weight.gradient")->set_type(pb::I32); }},
    {"GradientOfHalfTheBytes", "bucket 'embed.weight': 'embed.weight.gradient' has",
     [](pb::Plan &p) { valueOf(p, "embed.weight.gradient")->set_type(pb::BF16); }},
    {"SharedOverMore", "shared over axes that its gradients are not summed over",
     [](pb::Plan &p) { bucketOf(p, "embed.weight")->set_share(DP | TP); }, true},
    {"WholeLeft", "elements 16 to 17 of 'scalars'", [](pb::Plan &p) { valueOf(p, "scalars.3")->set_first(16); }},
    {"WrittenByCoordinate", "writes at a place that depends on the coordinate",
     [](pb::Plan &p) { launchOf(p, "embed.forward")->mutable_buffers(2)->mutable_reads_at()->set_constant(0); }},
};

const VerifyCase kernels[] = {
    {"Extent", "the kernel reaches",
     [](pb::Plan &p) { launchOf(p, "block.forward")->set_extent(launchOf(p, "block.forward")->extent() + 1); }},
    {"BufferDropped", "takes", [](pb::Plan &p) { launchOf(p, "block.forward")->mutable_buffers()->RemoveLast(); }},
    {"OperandsSwapped", "buffer 0 holds 'cotangent', toy_block_gradient is not made to take it there",
     [](pb::Plan &p) { launchOf(p, "block.backward")->mutable_buffers()->SwapElements(0, 2); }},
    {"NoUse", "buffer 0 holds 'block.saved', toy_block_gradient is not made to take it there",
     [](pb::Plan &p) {
       for (pb::Operand &operand :
            *p.mutable_kernels(static_cast<int>(launchOf(p, "block.backward")->kernel()))->mutable_operands())
         operand.clear_values();
     }},
    {"HalfAUse", "its operands have", [](pb::Plan &p) { p.mutable_kernels(0)->mutable_operands(1)->clear_values(); }},
    {"OtherType", "holds I32, toy_block takes F32", [](pb::Plan &p) { valueOf(p, "stream")->set_type(pb::I32); }},
    {"SizeByCoordinate", "is a size and differs",
     [](pb::Plan &p) { launchOf(p, "block.forward")->mutable_scalars(0)->set_tp(1); }},
    {"FirstOfAnother", "is added to unless scalar",
     [](pb::Plan &p) { launchOf(p, "block.backward")->mutable_scalars(2)->set_first(1); }},
    {"FirstOfNothing", "adds to nothing by it",
     [](pb::Plan &p) {
       launchOf(p, "block.forward")->mutable_scalars(0)->clear_constant();
       launchOf(p, "block.forward")->mutable_scalars(0)->set_first(1);
     }},
    {"SizesChanged", "its sizes give",
     [](pb::Plan &p) { instructionOf(p, "block.norm")->mutable_call()->set_sizes(0, 3); }},
    {"OperandMissing", "are not what SQUARED_NORM takes",
     [](pb::Plan &p) { instructionOf(p, "block.norm")->mutable_call()->mutable_buffers()->RemoveLast(); }},
    {"AddsToNothing", "UPDATE_SCALARS adds to nothing",
     [](pb::Plan &p) { instructionOf(p, "step.scalars")->mutable_call()->set_store(pb::ADD); }},
};

const VerifyCase transfers[] = {
    {"SumOverOthers", "sums 'head.loss' over axes 2",
     [](pb::Plan &p) { p.mutable_groups(static_cast<int>(transferOf(p, "head.forward.0")->group()))->set_axes(DP); }},
    {"Maximum", "not to be reduced so", [](pb::Plan &p) { transferOf(p, "agree")->set_reduction(pb::MAX); }},
    {"ReplacedByAGather", "gathers", [](pb::Plan &p) { transferOf(p, "agree")->set_kind(pb::Transfer::ALL_GATHER); }},
    {"ScatterOfParts", "scatters", [](pb::Plan &p) { valueOf(p, "embed.weight.total")->set_split(DP); }, true},
    {"OtherSplit", "wanted are", [](pb::Plan &p) { valueOf(p, "embed.weight.scattered")->set_split(DP | TP); }, true},
    {"OtherTypeMoved", "has another type", [](pb::Plan &p) { valueOf(p, "embed.weight.total")->set_type(pb::BF16); },
     true},
    {"CalledOtherwise", "copies 'tokens' and calls it 'labels'",
     [](pb::Plan &p) { transferOf(p, "tokens")->mutable_to(0)->set_value(numberOf(p, "labels")); }},
    {"HalfInPlace", "overlap without being in place",
     [](pb::Plan &p) { transferOf(p, "agree")->mutable_to(0)->set_offset(2); }},
    {"PieceMoved", "bytes of 'stream', which has",
     [](pb::Plan &p) { transferOf(p, "out")->mutable_from(0)->set_bytes(8); }},
    {"CommunicatorMissing", "has no communicator",
     [](pb::Plan &p) { p.mutable_communicators()->DeleteSubrange(0, 1); }},
    {"CommunicatorTwice", "two communicators for", [](pb::Plan &p) { *p.add_communicators() = p.communicators(0); }},
    {"CommunicatorUnused", "which nothing uses",
     [](pb::Plan &p) {
       pb::Communicator *other = p.add_communicators();
       other->set_is_line(true);
       other->set_line(77);
     }},
};

std::string nameOf(const testing::TestParamInfo<VerifyCase> &info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Structure, Refusal, testing::ValuesIn(structure), nameOf);
INSTANTIATE_TEST_SUITE_P(Bounds, Refusal, testing::ValuesIn(bounds), nameOf);
INSTANTIATE_TEST_SUITE_P(Layout, Refusal, testing::ValuesIn(layout), nameOf);
INSTANTIATE_TEST_SUITE_P(Kernels, Refusal, testing::ValuesIn(kernels), nameOf);
INSTANTIATE_TEST_SUITE_P(Transfers, Refusal, testing::ValuesIn(transfers), nameOf);

/// Returns the sample plan for GPUs. The text of its kernels declares the grids.
pb::Plan planForGpus() {
  pb::Plan plan = planOf({"", "", {}});
  plan.set_target("cuda");
  plan.clear_objects();
  pb::Object *object = plan.add_objects();
  object->set_level("sm_80");
  for (const pb::Kernel &kernel : plan.kernels()) {
    pb::Geometry *geometry = object->add_geometry();
    geometry->set_threads(64);
    geometry->set_extent_per_block(8);
    object->mutable_code()->append(geometryLine(kernel.symbol(), 64, 8, 0, 0) + "\n");
  }
  return plan;
}

TEST(VerifyPlan, GridsMatchTheCode) {
  ASSERT_THAT(verifyPlan(planForGpus()), IsEmpty());
  const std::function<void(pb::Geometry &)> changes[] = {
      [](pb::Geometry &geometry) { geometry.set_threads(32); },
      [](pb::Geometry &geometry) { geometry.set_extent_per_block(72); },
      [](pb::Geometry &geometry) { geometry.set_columns_per_block(32); },
      [](pb::Geometry &geometry) { geometry.set_shared_bytes(256); },
  };
  for (const auto &change : changes) {
    pb::Plan plan = planForGpus();
    change(*plan.mutable_objects(0)->mutable_geometry(1));
    EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr(" bytes shared', its code is written for '// " +
                                                     plan.kernels(1).symbol() + ": a block of 64 threads does 8 ")));
  }
}

/// A launch over the 20 rows of a table, where no operand gives the number of rows.
TEST(VerifyPlan, LaunchExtentsMatchTheirSizes) {
  pb::Plan plan = planForGpus();
  pb::Launch *launch = launchOf(plan, "block.forward");
  plan.mutable_kernels(static_cast<int>(launch->kernel()))->set_shape("order_tokens");
  launch->clear_scalars();
  launch->add_scalars();
  launch->add_scalars()->set_constant(20);
  plan.mutable_kernels(static_cast<int>(launch->kernel()))->set_scalars(2);
  launch->set_extent(24);
  EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr("is launched over 24 iterations, its sizes give 20")));
  launch->set_extent(20);
  EXPECT_THAT(verifyPlan(plan), Not(Contains(HasSubstr("its sizes give"))));
}

TEST(VerifyPlan, RejectsCodeWithoutAGrid) {
  pb::Plan plan = planForGpus();
  plan.mutable_objects(0)->set_code(".version 8.0");
  EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr("its code is written for '.version 8.0'; compile the plan again")));
}

TEST(VerifyPlan, InputsAreShardedLikeTheirValues) {
  for (uint32_t wrong : {0u, uint32_t(TP)}) {
    pb::Plan plan = planOf({"", "", {}});
    pb::Exchange *tokens = plan.mutable_stages(0)->mutable_exchanges(0);
    pb::Dim *batch = plan.add_dims(), *seq = plan.add_dims();
    batch->set_size(plan.values(static_cast<int>(tokens->buffer().value())).elements());
    batch->set_split(DP);
    seq->set_size(1);
    for (uint32_t number : {0, 1})
      plan.mutable_values(static_cast<int>(tokens->buffer().value()))->add_dims(number);
    EXPECT_THAT(verifyPlan(plan), Not(Contains(HasSubstr("exchange 'tokens'"))));
    tokens->set_split(0, wrong);
    EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr("exchange 'tokens': is split over " + std::to_string(wrong) +
                                                     " along dimension 0, value 'tokens' over 2")));
  }
}

/// Corrupt bytes are refused or harmless. They cause no crash and no overflow.
TEST(VerifyPlan, SurvivesDamagedBytes) {
  google::protobuf::SetLogHandler(nullptr); // damaged text is expected
  std::string good = planOf({"", "", {}}).SerializeAsString();
  uint32_t random = 1;
  int parsed = 0;
  for (int round = 0; round < 400; ++round) {
    std::string bytes = good;
    for (int change = 0; change < 3; ++change) {
      random = random * 1664525 + 1013904223;
      bytes[random % bytes.size()] = static_cast<char>(random >> 24);
    }
    pb::Plan plan;
    if (plan.ParseFromString(bytes)) {
      ++parsed;
      verifyPlan(plan);
    }
  }
  EXPECT_GT(parsed, 10);
}

} // namespace
} // namespace espalier::rt
