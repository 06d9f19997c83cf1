// A good plan passes; each mutation breaks one rule and is refused with a sentence that names the
// place.
#include "runtime/verify_plan.h"

#include "runtime/program.h"
#include "test/runtime/sample_plan.h"

#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

SampleOptions splitThreeWays(bool zero = false) {
  SampleOptions options;
  options.dp = options.tp = options.pp = 2;
  options.zero = zero;
  return options;
}

pb::Subprogram *find(pb::Plan &plan, const std::string &name) {
  for (pb::Subprogram &subprogram : *plan.mutable_subprograms())
    if (subprogram.name() == name)
      return &subprogram;
  return nullptr;
}

pb::Binding *find(pb::Call &call, pb::Region region) {
  for (pb::Binding &binding : *call.mutable_bindings())
    if (binding.region() == region)
      return &binding;
  return nullptr;
}

int indexOf(const pb::Stage &stage, pb::Action::Kind kind, uint32_t microBatch) {
  for (int i = 0; i < stage.schedule_size(); ++i)
    if (stage.schedule(i).kind() == kind && stage.schedule(i).micro_batch() == microBatch)
      return i;
  return -1;
}

void drop(pb::Stage *stage, pb::Action::Kind kind, uint32_t microBatch = 0) {
  stage->mutable_schedule()->DeleteSubrange(indexOf(*stage, kind, microBatch), 1);
}

/// Moves an action forward to an earlier place.
void move(pb::Stage *stage, int from, int to) {
  for (; from > to; --from)
    stage->mutable_schedule()->SwapElements(from, from - 1);
}

TEST(VerifyPlan, AcceptsGoodPlans) {
  for (bool zero : {false, true})
    for (int pp : {1, 2, 3, 4}) {
      SampleOptions options = splitThreeWays(zero);
      options.pp = pp;
      EXPECT_THAT(verifyPlan(samplePlan(options)), IsEmpty()) << "pp " << pp << " zero " << zero;
    }
}

TEST(VerifyPlan, AcceptsNothingEmpty) { EXPECT_FALSE(verifyPlan(pb::Plan()).empty()); }

struct Mutation {
  const char *name;
  const char *expected; ///< part of one of the errors
  std::function<void(pb::Plan &)> apply;
  bool zero = false;
};

class Refusal : public testing::TestWithParam<Mutation> {};

TEST_P(Refusal, NamesTheRule) {
  pb::Plan plan = samplePlan(splitThreeWays(GetParam().zero));
  ASSERT_THAT(verifyPlan(plan), IsEmpty());
  GetParam().apply(plan);
  EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr(GetParam().expected)));
  EXPECT_THROW(Program{plan}, std::runtime_error);
}

const Mutation mutations[] = {
    {"Version", "version 9", [](pb::Plan &p) { p.set_version(9); }},
    {"Target", "target 'tpu'", [](pb::Plan &p) { p.set_target("tpu"); }},
    {"MeshAxisTwice", "lists axis 'dp' twice", [](pb::Plan &p) { p.mutable_mesh(2)->set_name("dp"); }},
    {"MeshTooLarge", "a mesh holds", [](pb::Plan &p) { p.mutable_mesh(1)->set_size(1u << 31); }},
    {"StageMissing", "stages on a mesh", [](pb::Plan &p) { p.mutable_stages()->RemoveLast(); }},
    {"Batch", "the global batch of", [](pb::Plan &p) { p.mutable_settings()->set_global_batch(7); }},
    {"KernelIndex", "kernel 99 of",
     [](pb::Plan &p) { find(p, "block.forward")->mutable_instructions(0)->mutable_launch()->set_kernel(99); }},
    {"SubprogramIndex", "is subprogram 1000 of",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(0)->set_forward(1000); }},
    {"LocationIndex", "location 5 of 1",
     [](pb::Plan &p) { find(p, "block.forward")->mutable_instructions(0)->set_location(5); }},
    {"ScalarAxis", "'xp' is no axis",
     [](pb::Plan &p) {
       find(p, "embed.forward")
           ->mutable_instructions(0)
           ->mutable_launch()
           ->mutable_scalars(2)
           ->mutable_coordinates(0)
           ->set_axis("xp");
     }},
    {"Grain", "in grains of 0",
     [](pb::Plan &p) { find(p, "block.forward")->mutable_instructions(0)->mutable_launch()->set_grain(0); }},
    {"UnknownRegion", "unknown region 77",
     [](pb::Plan &p) {
       find(p, "block.forward")
           ->mutable_instructions(0)
           ->mutable_launch()
           ->mutable_buffers(0)
           ->set_region(static_cast<pb::Region>(77));
     }},
    {"HugeOffset", "a buffer of",
     [](pb::Plan &p) {
       find(p, "block.forward")
           ->mutable_instructions(0)
           ->mutable_launch()
           ->mutable_buffers(0)
           ->set_offset(~uint64_t(0) - 8);
     }},
    {"Slot", "in slot 50", [](pb::Plan &p) { p.mutable_stages(0)->mutable_schedule(0)->set_slot(50); }},
    {"BufferLeavesRegion", "block.forward, instruction 0 (scale at toy.yaml:3:5): bytes 4096",
     [](pb::Plan &p) {
       find(p, "block.forward")->mutable_instructions(0)->mutable_launch()->mutable_buffers(0)->set_offset(4096);
     }},
    {"CoordinateLeavesRegion", "of GRADIENTS, which has",
     [](pb::Plan &p) {
       find(p, "block.norm")
           ->mutable_instructions(0)
           ->mutable_call()
           ->mutable_buffers(0)
           ->mutable_coordinates(0)
           ->set_coefficient(4096);
     },
     true},
    {"RegionLeavesBinding", "the call binds",
     [](pb::Plan &p) { find(*p.mutable_stages(0)->mutable_calls(1), pb::SAVED)->set_bytes(4); }},
    {"BindingLeavesArena", "of an arena of", [](pb::Plan &p) { p.mutable_stages(0)->set_arena_bytes(128); }},
    {"SmallScalars", "the scalars need 64 bytes",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_scalars_binding()->set_bytes(8); }},
    {"InputsOverlap", "inputs 'tokens' and 'labels' overlap",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_inputs(1)->set_offset(4); }},
    {"CollectiveTooLarge", "elements need",
     [](pb::Plan &p) { find(p, "block.reduce")->mutable_instructions(0)->mutable_start()->set_elements(0, 4000); }},
    {"CollectiveReducesIntegers", "never reduced",
     [](pb::Plan &p) { find(p, "block.reduce")->mutable_instructions(0)->mutable_start()->set_type(pb::I32); }},
    {"CollectiveHalfInPlace", "overlap without being in place",
     [](pb::Plan &p) {
       pb::Collective *start = find(p, "block.reduce")->mutable_instructions(0)->mutable_start();
       start->mutable_from(0)->set_offset(4);
     }},
    {"ShareElsewhere", "overlap without being in place",
     [](pb::Plan &p) {
       find(p, "block.reduce")->mutable_instructions(0)->mutable_start()->mutable_to(0)->clear_coordinates();
     },
     true},
    {"WaitMissing", "is never waited for",
     [](pb::Plan &p) { find(p, "block.reduce")->mutable_instructions()->RemoveLast(); }},
    {"WaitForNothing", "which is not in flight",
     [](pb::Plan &p) { find(p, "head.forward")->mutable_instructions(2)->mutable_wait()->set_id(12345); }},
    {"TouchedInFlight", "is in flight there",
     [](pb::Plan &p) { find(p, "head.forward")->mutable_instructions()->SwapElements(2, 3); }},
    {"LayerMissing", "comes next", [](pb::Plan &p) { p.mutable_stages(1)->set_first_layer(3); }},
    {"LayerTwice", "is called on stage 0 and on stage 1",
     [](pb::Plan &p) { p.mutable_stages(1)->mutable_calls(0)->set_layer(1); }},
    {"SplitTwice", "is split twice over 'tp'",
     [](pb::Plan &p) { p.mutable_parameters(0)->mutable_dims(0)->add_axes("tp"); }},
    {"DoesNotSplit", "does not split over 2 ranks",
     [](pb::Plan &p) { p.mutable_parameters(0)->set_padded_shape(0, 13); }},
    {"LocalElements", "its split gives 6",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(0)->mutable_parameters(0)->set_local_elements(5); }},
    {"OptimizerShare", "its share is 3",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(0)->mutable_parameters(0)->set_state_elements(6); }, true},
    {"NobodyUpdates", "0 calls hold optimizer state",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(1)->mutable_parameters(0)->set_state_elements(0); }},
    {"ParameterNotHeld", "is listed on stage 1 but the stage does not hold it",
     [](pb::Plan &p) { p.mutable_parameters(1)->add_stages(1); }},
    {"ParametersShareMemory", "share memory",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_calls(1)->mutable_parameters(1)->set_parameter_offset(0); }},
    {"GradientNotSummed", "gradient bytes of parameter 'block.0.shift' are summed over 'tp'",
     [](pb::Plan &p) { find(p, "block.reduce")->mutable_instructions()->DeleteSubrange(4, 2); }},
    {"GradientSummedTooOften", "over which it is not partial",
     [](pb::Plan &p) { p.mutable_parameters(1)->clear_partial_axes(); }},
    {"TiedNotSummed", "'embed.weight' are summed over 'pp'",
     [](pb::Plan &p) {
       for (const char *name : {"embed.reduce", "head.reduce"})
         find(p, name)->mutable_instructions()->DeleteSubrange(2, 2);
     }},
    {"SharesNotGathered", "are gathered after the update",
     [](pb::Plan &p) { find(p, "block.optimizer")->mutable_instructions()->DeleteSubrange(1, 2); }, true},
    {"CountedTwice", "counts 2 times in the gradient's norm",
     [](pb::Plan &p) {
       pb::LibraryCall *call = find(p, "embed.norm")->mutable_instructions(0)->mutable_call();
       call->set_floats(0, 2 * call->floats(0));
     }},
    {"NotCounted", "counts 0 times",
     [](pb::Plan &p) { find(p, "block.norm")->mutable_instructions()->DeleteSubrange(0, 1); }},
    {"LiveBuffersOverlap", "overlap while both are live",
     [](pb::Plan &p) {
       pb::Call *first = p.mutable_stages(0)->mutable_calls(1);
       find(*first, pb::SAVED)->set_base(find(*first, pb::STREAM_OUT)->base());
     }},
    {"WorkspaceOverlaps",
     "stage 1, action 3 (FORWARD of micro-batch 0), layer 4 (head): PARAMETERS and WORKSPACE overlap while both are "
     "live, "
     "at bytes 1920 to 1944 and 1920 to 1924 of the arena",
     [](pb::Plan &p) {
       pb::Stage *last = p.mutable_stages(1);
       pb::Call *head = last->mutable_calls(last->calls_size() - 1);
       find(*head, pb::WORKSPACE)->set_base(find(*head, pb::PARAMETERS)->base());
     }},
    {"SlotsOverlap", "of SAVED before they are there: byte",
     [](pb::Plan &p) { find(*p.mutable_stages(0)->mutable_calls(1), pb::SAVED)->set_slot_stride(0); }},
    {"SlotReused", "of the arena holds saved values",
     [](pb::Plan &p) {
       for (pb::Action &action : *p.mutable_stages(0)->mutable_schedule())
         action.set_slot(0);
     }},
    {"StreamElsewhere",
     "action 1 (FORWARD of micro-batch 0), layer 1 (block): reads bytes 0 to 48 of STREAM_IN before they are there: "
     "byte "
     "1092 of the arena holds stream 1, number 0",
     [](pb::Plan &p) {
       pb::Binding *in = find(*p.mutable_stages(0)->mutable_calls(1), pb::STREAM_IN);
       in->set_base(in->base() + 4);
     }},
    {"ReadBeforeWritten",
     "stage 0, action 0 (FORWARD of micro-batch 0), layer 0 (embed): reads bytes 0 to 96 of INPUTS before they are "
     "there: "
     "byte 64 of the arena holds nothing",
     [](pb::Plan &p) { drop(p.mutable_stages(0), pb::Action::LOAD_INPUTS); }},
    {"BackwardWithoutForward", "before they are there",
     [](pb::Plan &p) { drop(p.mutable_stages(1), pb::Action::FORWARD); }},
    {"ReceiveMissing", "has no receive for it",
     [](pb::Plan &p) {
       drop(p.mutable_stages(0), pb::Action::START_RECEIVE_BACKWARD, 3);
       drop(p.mutable_stages(0), pb::Action::WAIT_RECEIVE_BACKWARD, 3);
     }},
    {"SendNotWaitedFor", "is never waited for",
     [](pb::Plan &p) { drop(p.mutable_stages(0), pb::Action::WAIT_SEND_FORWARD); }},
    {"BytesDiffer", "bytes where stage 1 receives",
     [](pb::Plan &p) { p.mutable_stages(1)->mutable_receive_forward()->set_bytes(16); }},
    {"MicroBatchesCross", "meets",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(1);
       for (pb::Action &action : *stage->mutable_schedule())
         if (action.micro_batch() < 2 && action.kind() < pb::Action::REDUCE_GRADIENTS) {
           action.set_micro_batch(1 - action.micro_batch());
           action.set_slot(action.micro_batch() % stage->slots());
         }
     }},
    {"Deadlock", "stage 1, action 6 (WAIT_SEND_BACKWARD of micro-batch 0): waits for ever",
     [](pb::Plan &p) {
       // The first stage waits for its second send, the last for its first one back: nobody
       // receives.
       for (auto [stage, wait, start, microBatch] :
            {std::tuple(p.mutable_stages(0), pb::Action::WAIT_SEND_FORWARD, pb::Action::START_SEND_FORWARD, 1u),
             {p.mutable_stages(1), pb::Action::WAIT_SEND_BACKWARD, pb::Action::START_SEND_BACKWARD, 0u}})
         move(stage, indexOf(*stage, wait, microBatch), indexOf(*stage, start, microBatch) + 1);
     }},
    {"GroupsDiffer",
     "layer 4, head.reduce, instruction 2 (scale at toy.yaml:3:5): meets another collective, stage 0, action 28",
     [](pb::Plan &p) {
       pb::Collective *start = find(p, "head.reduce")->mutable_instructions(2)->mutable_start();
       start->set_reduction(pb::Collective::MAX);
     }},
    {"GuardOutside", "a guard of 64 bytes at byte",
     [](pb::Plan &p) {
       p.set_guard_bytes(64);
       pb::Guard *guard = p.mutable_subprograms(0)->add_guards();
       guard->set_offset(p.subprograms(0).workspace_bytes());
     }},
    {"GuardNeverEnds", "from instruction 0 to 1000",
     [](pb::Plan &p) { p.mutable_subprograms(0)->add_guards()->set_last(1000); }},
    {"AgreeMissing", "starts 1 collectives of a group where stage 0 starts 2",
     [](pb::Plan &p) { drop(p.mutable_stages(1), pb::Action::AGREE); }},
};

INSTANTIATE_TEST_SUITE_P(Rules, Refusal, testing::ValuesIn(mutations),
                         [](const auto &info) { return info.param.name; });

/// Any damage to the bytes is refused or harmless to read: no crash, no overflow.
TEST(VerifyPlan, SurvivesDamagedBytes) {
  google::protobuf::SetLogHandler(nullptr); // damaged text is expected
  std::string good = samplePlan(splitThreeWays()).SerializeAsString();
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
