// What was accepted and run before bytes were followed: each change of one field is refused by the rule that it breaks.
#include "runtime/verify_plan.h"

#include "test/runtime/sample_plan.h"

#include <fmt/format.h>
#include <functional>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

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

int indexOf(const pb::Stage &stage, pb::Action::Kind kind, uint32_t microBatch = 0) {
  for (int i = 0; i < stage.schedule_size(); ++i)
    if (stage.schedule(i).kind() == kind && stage.schedule(i).micro_batch() == microBatch)
      return i;
  return -1;
}

void drop(pb::Stage *stage, pb::Action::Kind kind, uint32_t microBatch = 0) {
  stage->mutable_schedule()->DeleteSubrange(indexOf(*stage, kind, microBatch), 1);
}

void repeat(pb::Stage *stage, pb::Action::Kind kind) {
  int i = indexOf(*stage, kind);
  *stage->add_schedule() = stage->schedule(i);
  for (int j = stage->schedule_size() - 1; j > i + 1; --j)
    stage->mutable_schedule()->SwapElements(j, j - 1);
}

void swap(pb::Stage *stage, int i, int j) { stage->mutable_schedule()->SwapElements(i, j); }

pb::Launch *launch(pb::Plan &plan, const std::string &subprogram, int instruction) {
  return find(plan, subprogram)->mutable_instructions(instruction)->mutable_launch();
}

pb::Collective *start(pb::Plan &plan, const std::string &subprogram, int instruction) {
  return find(plan, subprogram)->mutable_instructions(instruction)->mutable_start();
}

/// Two values in the workspace of head.forward, [0, 4) and [4, 8), and a reader of both as one.
void addScratch(pb::Plan &plan) {
  pb::Subprogram *forward = find(plan, "head.forward");
  for (int64_t at : {0, 4, 0}) {
    pb::LibraryCall *norm = forward->add_instructions()->mutable_call();
    norm->set_function(pb::LibraryCall::SQUARED_NORM);
    pb::BufferRef *from = norm->add_buffers(), *to = norm->add_buffers();
    bool isLast = forward->instructions_size() == 7;
    *from = forward->instructions(0).launch().buffers(0);
    from->set_bytes(16);
    if (isLast)
      from->set_region(pb::WORKSPACE);
    to->set_region(pb::WORKSPACE);
    to->set_offset(isLast ? 32 : at);
    to->set_bytes(4);
    to->set_written(true);
    norm->add_types(pb::F32);
    norm->add_types(pb::F32);
    norm->add_sizes(4);
    norm->add_floats(1);
  }
}

struct Mutation {
  const char *name;
  const char *expected; ///< part of one of the errors
  std::function<void(pb::Plan &)> apply;
  bool zero = false;
  int pp = 2;
};

class DataRefusal : public testing::TestWithParam<Mutation> {};

TEST_P(DataRefusal, NamesTheRule) {
  SampleOptions options;
  options.dp = options.tp = 2;
  options.pp = GetParam().pp;
  options.zero = GetParam().zero;
  pb::Plan plan = samplePlan(options);
  ASSERT_THAT(verifyPlan(plan), IsEmpty());
  GetParam().apply(plan);
  EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr(GetParam().expected)));
}

const Mutation mutations[] = {
    {"ForwardBeforeItsReceive", "reads bytes 0 to 48 of STREAM_IN before they are there: a transfer writes byte",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(1);
       int forward = indexOf(*stage, pb::Action::FORWARD);
       swap(stage, forward, forward - 1);
     }},
    {"BackwardDropped", "which is not whole at byte",
     [](pb::Plan &p) { drop(p.mutable_stages(0), pb::Action::BACKWARD, 2); }, false, 1},
    {"BackwardDoubled", "runs a second time", [](pb::Plan &p) { repeat(p.mutable_stages(0), pb::Action::BACKWARD); },
     false, 1},
    {"MicroBatchesSwapped", "which has not begun",
     [](pb::Plan &p) {
       for (pb::Action &action : *p.mutable_stages(0)->mutable_schedule())
         if (action.micro_batch() < 2 && action.kind() < pb::Action::REDUCE_GRADIENTS)
           action.set_micro_batch(1 - action.micro_batch());
     },
     false, 1},
    {"ReducedTwice", "runs a second time",
     [](pb::Plan &p) { repeat(p.mutable_stages(0), pb::Action::REDUCE_GRADIENTS); }},
    {"SummedTwice", "or no longer, partial over",
     [](pb::Plan &p) {
       // Half of the gradient twice, the other half never.
       pb::Collective *sum = start(p, "block.reduce", 0);
       for (pb::BufferRef *buffer : {sum->mutable_from(0), sum->mutable_to(0)})
         buffer->set_bytes(12);
       sum->set_elements(0, 3);
       pb::Subprogram *reduce = find(p, "block.reduce");
       *reduce->add_instructions() = reduce->instructions(0);
       *reduce->add_instructions() = reduce->instructions(1);
       int size = reduce->instructions_size();
       reduce->mutable_instructions(size - 2)->mutable_start()->set_id(999);
       reduce->mutable_instructions(size - 1)->mutable_wait()->set_id(999);
     }},
    {"UpdatedBeforeTheSum", "not summed over all its axes",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       swap(stage, indexOf(*stage, pb::Action::REDUCE_GRADIENTS), indexOf(*stage, pb::Action::OPTIMIZER));
     }},
    {"UpdateMissing", "ends with parameter 'embed.weight' not updated once",
     [](pb::Plan &p) { drop(p.mutable_stages(0), pb::Action::OPTIMIZER); }},
    {"StateNotUpdated", "ends with the optimizer state of parameter 'block.0.weight' not updated once",
     [](pb::Plan &p) {
       for (pb::Subprogram &subprogram : *p.mutable_subprograms())
         for (pb::Instruction &instruction : *subprogram.mutable_instructions())
           if (subprogram.name().ends_with(".optimizer"))
             instruction.mutable_launch()->mutable_buffers(2)->set_written(false);
     }},
    {"LaunchesDiffer", "its operands are not those of another launch of the same kernel",
     [](pb::Plan &p) { launch(p, "block.optimizer", 0)->mutable_buffers(2)->set_written(false); }},
    {"MovedElsewhere", "moves 'block.0.weight' to another place",
     [](pb::Plan &p) {
       start(p, "block.reduce", 0)->mutable_to(0)->set_region(pb::PARAMETERS);
       find(p, "block.reduce")->set_region_bytes(pb::PARAMETERS, 64);
     }},
    {"FilledWithSomethingElse", "fills 'block.0.weight' with what is not its update",
     [](pb::Plan &p) {
       pb::BufferRef *from = start(p, "block.optimizer", 1)->mutable_from(0);
       from->set_region(pb::STREAM_IN);
       from->clear_coordinates();
       find(p, "block.optimizer")->set_region_bytes(pb::STREAM_IN, 48);
     },
     true},
    {"StartedTwice", "is started twice",
     [](pb::Plan &p) {
       pb::Subprogram *forward = find(p, "head.forward");
       *forward->add_instructions() = forward->instructions(1);
       forward->mutable_instructions()->SwapElements(2, 4);
     }},
    {"ReceivedTwice", "receives where a transfer is open",
     [](pb::Plan &p) { repeat(p.mutable_stages(1), pb::Action::START_RECEIVE_FORWARD); }},
    {"LoadedInFlight", "loads what is in use: a transfer writes byte",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(1);
       stage->mutable_inputs_binding()->set_base(stage->receive_forward().base());
       swap(stage, indexOf(*stage, pb::Action::LOAD_INPUTS), indexOf(*stage, pb::Action::START_RECEIVE_FORWARD));
     }},
    {"NormMissing", "scalar 2 has", [](pb::Plan &p) { drop(p.mutable_stages(0), pb::Action::SQUARED_NORM); }},
    {"UpdatedBeforeAgreement", "reads the scalars before they are agreed upon",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       swap(stage, indexOf(*stage, pb::Action::AGREE), indexOf(*stage, pb::Action::OPTIMIZER));
     }},
    {"AgreedTwice", "agrees a second time",
     [](pb::Plan &p) {
       for (pb::Stage &stage : *p.mutable_stages())
         repeat(&stage, pb::Action::AGREE);
     }},
    {"NormAfterAgreement", "writes the scalars after they are agreed upon",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       swap(stage, indexOf(*stage, pb::Action::AGREE), indexOf(*stage, pb::Action::SQUARED_NORM));
     }},
    {"Broadcast", "a broadcast has no place in a step",
     [](pb::Plan &p) { start(p, "head.forward", 1)->set_kind(pb::Collective::BROADCAST); }},
    {"ReplicasInForward", "data replicas meet outside of the sums of gradients",
     [](pb::Plan &p) { start(p, "head.forward", 1)->set_axes(0, "dp"); }},
    {"StagesInForward", "stages meet outside of the sums of gradients",
     [](pb::Plan &p) { start(p, "head.forward", 1)->add_stages(0); }},
    {"StagesAndAxes", "a group over stages has axes too",
     [](pb::Plan &p) { start(p, "block.reduce", 0)->add_stages(0); }},
    {"ElementsChanged", "elements need", [](pb::Plan &p) { start(p, "block.reduce", 0)->set_elements(0, 5); }},
    {"WorkspacesOverlap", "where another value begins at byte", [](pb::Plan &p) { addScratch(p); }},
    {"WorkspaceNotWritten", "where nothing has been written at byte",
     [](pb::Plan &p) {
       pb::BufferRef *buffer = launch(p, "head.forward", 3)->mutable_buffers(0);
       buffer->set_offset(8);
     }},
    {"ResultOnOperand", "while operand",
     [](pb::Plan &p) {
       pb::BufferRef *sum = find(p, "block.norm")->mutable_instructions(0)->mutable_call()->mutable_buffers(1);
       pb::BufferRef written = *sum;
       *sum = find(p, "block.norm")->instructions(0).call().buffers(0);
       sum->set_written(true);
       sum->set_bytes(4);
     }},
    {"SizesChanged", "its sizes give",
     [](pb::Plan &p) { find(p, "block.norm")->mutable_instructions(0)->mutable_call()->set_sizes(0, 3); }},
    {"OperandMissing", "are not what SQUARED_NORM takes",
     [](pb::Plan &p) {
       find(p, "block.norm")->mutable_instructions(0)->mutable_call()->mutable_buffers()->RemoveLast();
     }},
    {"NotWritten", "buffer 1 is not written, the kernel says otherwise",
     [](pb::Plan &p) {
       find(p, "block.norm")->mutable_instructions(0)->mutable_call()->mutable_buffers(1)->set_written(false);
     }},
    {"AddsToNothing", "SQUARED_NORM adds to nothing",
     [](pb::Plan &p) { find(p, "block.norm")->mutable_instructions(0)->mutable_call()->set_accumulate(true); }},
    {"StatesOverlap", "touches the optimizer state of 'block.0.weight' at byte",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       find(*stage->mutable_calls(2), pb::STATE)->set_base(find(*stage->mutable_calls(1), pb::STATE)->base());
     },
     false, 1},
    {"OtherGradient", "updates 'block.0.weight' with what belongs to 'block.0.shift'",
     [](pb::Plan &p) {
       pb::Launch *update = launch(p, "block.optimizer", 0);
       update->mutable_buffers(1)->set_offset(launch(p, "block.optimizer", 1)->buffers(1).offset());
       update->mutable_buffers(1)->set_bytes(4);
     }},
    {"PartOfTheGradient", "updates other elements of 'block.0.weight'",
     [](pb::Plan &p) { launch(p, "block.optimizer", 0)->mutable_buffers(1)->set_bytes(12); }},
    {"PartOfTheState", "takes the optimizer state of 'block.0.weight' in another order",
     [](pb::Plan &p) { launch(p, "block.optimizer", 0)->mutable_buffers(2)->set_bytes(12); }},
    {"WithoutGradient", "updates 'block.0.weight' without its gradient",
     [](pb::Plan &p) {
       *launch(p, "block.optimizer", 0)->mutable_buffers(1) = launch(p, "block.optimizer", 0)->buffers(3);
     }},
    {"WrittenInForward", "writes 'block.0.weight', which only the optimizer does",
     [](pb::Plan &p) { launch(p, "block.forward", 0)->mutable_buffers(1)->set_written(true); }},
    {"GradientOverwritten", "writes over the gradient of 'block.0.weight'",
     [](pb::Plan &p) { launch(p, "block.backward", 0)->mutable_scalars(2)->set_micro_batch(0); }},
    {"BetweenParameters", "where no parameter of the call lies",
     [](pb::Plan &p) { launch(p, "block.forward", 0)->mutable_buffers(2)->set_offset(28); }},
    {"LoadedTwice", "begins the gradient of 'embed.weight' where something lies already",
     [](pb::Plan &p) { launch(p, "embed.backward", 0)->mutable_scalars(4)->set_constant(0); }, false, 1},
    {"GatheredBeforeTheUpdate", "before it is updated, or not by its parts",
     [](pb::Plan &p) {
       pb::Subprogram *update = find(p, "block.optimizer");
       update->mutable_instructions()->SwapElements(0, 1);
       update->mutable_instructions()->SwapElements(1, 2);
     },
     true},
    {"SendOfNothing", "sends what is not there",
     [](pb::Plan &p) {
       pb::Stage *stage = p.mutable_stages(0);
       swap(stage, indexOf(*stage, pb::Action::START_SEND_FORWARD), indexOf(*stage, pb::Action::FORWARD));
     }},
};

INSTANTIATE_TEST_SUITE_P(Rules, DataRefusal, testing::ValuesIn(mutations),
                         [](const auto &info) { return info.param.name; });

} // namespace
} // namespace espalier::rt
