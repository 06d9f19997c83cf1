// The verifier tracks every byte. Each case changes one field of a valid plan and breaks one rule about schedules and
// their data (C, F, H, I or J). The error names the location and its contents.
#include "runtime/verify_plan.h"

#include "test/runtime/verify_cases.h"

#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

class DataRefusal : public testing::TestWithParam<VerifyCase> {};

TEST_P(DataRefusal, NamesTheRule) {
  pb::Plan plan = planOf(GetParam());
  ASSERT_THAT(verifyPlan(plan), IsEmpty());
  GetParam().apply(plan);
  EXPECT_THAT(verifyPlan(plan), Contains(HasSubstr(GetParam().expected)));
}

pb::Launch *launchOf(pb::Plan &p, const char *program, int i = 0) {
  return instructionOf(p, program, i)->mutable_launch();
}
pb::Run *runOf(pb::Plan &p, int stage, const char *role, int n = 0) {
  return (*actionsOf(p, stage))[findRun(p, stage, role, n)].mutable_run();
}
void drop(pb::Plan &p, int stage, int action) { actionsOf(p, stage)->DeleteSubrange(action, 1); }
void repeat(pb::Plan &p, int stage, int action) {
  *actionsOf(p, stage)->Add() = actionsOf(p, stage)->Get(action);
  moveAction(p, stage, actionsOf(p, stage)->size() - 1, action + 1);
}

/// Starts a transfer again after its wait, and waits for it.
void repeatTransfer(pb::Plan &p, int stage, const char *transfer) {
  int start = findFlight(p, stage, true, transfer), wait = findFlight(p, stage, false, transfer);
  pb::Action again = actionsOf(p, stage)->Get(start), awaited = actionsOf(p, stage)->Get(wait);
  for (const pb::Action &action : {again, awaited}) {
    *actionsOf(p, stage)->Add() = action;
    moveAction(p, stage, actionsOf(p, stage)->size() - 1, ++wait);
  }
}

const VerifyCase bytes[] = {
    {"ForwardBeforeItsReceive", "for stream of layer",
     [](pb::Plan &p) {
       int run = findRun(p, 1, "forward");
       moveAction(p, 1, run, run - 1);
     }},
    {"SavedOneElementOff", "reads bytes",
     [](pb::Plan &p) {
       launchOf(p, "block.forward")->mutable_buffers(4)->set_offset(4);
       for (pb::Stage &stage : *p.mutable_stages())
         for (pb::Place &place : *stage.mutable_places())
           place.set_bytes(place.bytes() + 4 * (place.memory_class() == "saved"));
     }},
    {"OtherValue", "for stream of layer 2, micro-batch 0: byte",
     [](pb::Plan &p) { launchOf(p, "block.backward")->mutable_buffers(0)->set_value(numberOf(p, "stream")); }},
    {"OtherLayer", "of layer", [](pb::Plan &p) { launchOf(p, "block.backward")->mutable_buffers(0)->set_layer(1); }},
    {"ParameterOfNoBucket", "whose bucket the call does not use",
     [](pb::Plan &p) {
       launchOf(p, "embed.forward")->mutable_buffers(1)->set_value(numberOf(p, "block.plain.weight"));
     }},
    {"SlotsOverlap", "micro-batch",
     [](pb::Plan &p) {
       for (pb::Place &place : *p.mutable_stages(0)->mutable_places())
         if (place.memory_class() == "saved")
           place.set_stride(0);
     }},
    {"OtherSlot", "micro-batch",
     [](pb::Plan &p) {
       pb::Run *run = runOf(p, 0, "backward");
       for (int i = 0; i < run->slots_size(); ++i)
         if (p.stages(0).lifetimes(static_cast<int>(p.stages(0).chunks(0).lifetimes(i))).name() == "saved")
           run->set_slots(i, 1);
     }},
    {"RegionsOverlap", "overlap while both are in use",
     [](pb::Plan &p) { bindingOf(p, 0, 1, "saved")->set_place(bindingOf(p, 0, 1, "stream_out")->place()); }},
    {"ResultOnOperand", "while operand",
     [](pb::Plan &p) {
       pb::Launch *launch = launchOf(p, "block.forward");
       *launch->mutable_buffers(3) = launch->buffers(0);
     }},
    {"TwoResultsInOnePlace", "operand",
     [](pb::Plan &p) {
       pb::Launch *launch = launchOf(p, "block.forward");
       launch->mutable_buffers(4)->set_region(launch->buffers(3).region());
     }},
    {"BackwardTwice", "runs a second time", [](pb::Plan &p) { repeat(p, 0, findRun(p, 0, "backward", 2)); }},
    {"RunsTwice", "runs a second time", [](pb::Plan &p) { repeat(p, 0, findRun(p, 0, "norm")); }},
    {"WithoutGradient", "updates a bucket without its gradient",
     [](pb::Plan &p) { *launchOf(p, "embed.update")->mutable_buffers(1) = launchOf(p, "embed.update")->buffers(2); }},
    {"PieceOnly", "which holds another value at byte",
     [](pb::Plan &p) {
       pb::Launch *launch = launchOf(p, "head.forward", 3);
       launch->mutable_buffers(0)->set_value(numberOf(p, "head.loss"));
       // Otherwise the check of partial sums would refuse the plan first.
       p.mutable_kernels(static_cast<int>(launch->kernel()))->mutable_operands(0)->set_linear(1);
     }},
};

const VerifyCase flights[] = {
    {"WaitDropped", "is never waited for", [](pb::Plan &p) { dropFlight(p, 0, false, "metrics"); }},
    {"StartDropped", "which was not started", [](pb::Plan &p) { dropFlight(p, 0, true, "metrics"); }},
    {"StartedTwice", "is still in flight", [](pb::Plan &p) { repeat(p, 0, findFlight(p, 0, true, "out")); }},
    {"WaitBeforeItsUse", "a transfer reads byte", [](pb::Plan &p) { dropFlight(p, 0, false, "out", 0); }},
    {"SendOfNothing", "out moves bytes",
     [](pb::Plan &p) {
       int start = findFlight(p, 0, true, "out");
       moveAction(p, 0, start, findRun(p, 0, "forward"));
     }},
    {"WaitInside", "its transfer is not waited for in the same subprogram",
     [](pb::Plan &p) { programOf(p, "head.forward")->mutable_instructions()->DeleteSubrange(2, 1); }},
    {"StartTwiceInside", "its transfer is started twice",
     [](pb::Plan &p) {
       pb::Subprogram *forward = programOf(p, "head.forward");
       *forward->add_instructions() = forward->instructions(1);
       forward->mutable_instructions()->SwapElements(2, 4);
     }},
    {"CountedTwice", "to which this subprogram has added before",
     [](pb::Plan &p) {
       pb::Subprogram *forward = programOf(p, "head.forward");
       forward->MergeFrom(pb::Subprogram(*forward));
     }},
    {"TouchedInFlight", "while a transfer is in flight there",
     [](pb::Plan &p) { programOf(p, "head.forward")->mutable_instructions()->SwapElements(2, 3); }},
    {"FilledAndWritten", "writes over what the host fills",
     [](pb::Plan &p) {
       for (pb::Exchange &exchange : *p.mutable_stages(0)->mutable_exchanges())
         exchange.set_filled_by_host(true);
     }},
    {"NotFilled", "holds nothing",
     [](pb::Plan &p) { p.mutable_stages(0)->mutable_exchanges(0)->mutable_entries()->RemoveLast(); }},
};

const VerifyCase sums[] = {
    {"BackwardDropped", "before all its terms are there", [](pb::Plan &p) { drop(p, 0, findRun(p, 0, "backward", 2)); },
     false, 1},
    {"FirstDropped", "adds to the sum", [](pb::Plan &p) { runOf(p, 0, "backward")->clear_first(); }},
    {"FirstTwice", "begins the sum",
     [](pb::Plan &p) { *runOf(p, 0, "backward", 1)->mutable_first() = runOf(p, 0, "backward")->first(); }},
    {"MicroBatchesSwapped", "micro-batch",
     [](pb::Plan &p) {
       runOf(p, 0, "backward")->set_micro_batch(1);
       runOf(p, 0, "backward", 1)->set_micro_batch(0);
     }},
    {"Additions", "with 2 additions, the bucket over",
     [](pb::Plan &p) { valueOf(p, "embed.weight.gradient")->set_additions(2); }},
    {"AlwaysAdds", "adds to the sum",
     [](pb::Plan &p) { launchOf(p, "block.backward")->mutable_scalars(2)->clear_first(); }},
    {"WritesOverTheSum", "writes over a sum",
     [](pb::Plan &p) {
       launchOf(p, "block.backward")->mutable_scalars(2)->clear_first();
       launchOf(p, "block.backward")->mutable_scalars(2)->set_constant(1);
     }},
    {"ReducedTwice", "moves bytes 0 to 512 of gradients for embed.weight.gradient",
     [](pb::Plan &p) {
       for (int stage : {0, 1})
         repeatTransfer(p, stage, "embed.weight.total");
     }},
    {"UpdateBeforeTheReduction", "holds a sum, embed.weight.gradient",
     [](pb::Plan &p) { moveAction(p, 0, findRun(p, 0, "update"), findFlight(p, 0, true, "embed.weight.total")); }},
    {"HalfReducedTwice", "256 bytes of 'embed.weight.gradient', which has 512",
     [](pb::Plan &p) {
       pb::Transfer *total = transferOf(p, "embed.weight.total");
       for (pb::Buffer *buffer : {total->mutable_from(0), total->mutable_to(0)})
         buffer->set_bytes(buffer->bytes() / 2);
       *total->add_from() = total->from(0);
       *total->add_to() = total->to(0);
     }},
    {"NormDropped", "of the gradient of bucket", [](pb::Plan &p) { drop(p, 0, findRun(p, 0, "norm")); }},
    {"OtherNorm", "not with weight",
     [](pb::Plan &p) { instructionOf(p, "block.norm")->mutable_call()->set_floats(0, 3); }},
    {"UpdateWithoutNorm", "before the norm of their gradients is read",
     [](pb::Plan &p) { drop(p, 0, findRun(p, 0, "scalars")); }},
    {"UpdateDropped", "not written once, and all of it", [](pb::Plan &p) { drop(p, 0, findRun(p, 0, "update")); }},
    {"NotGathered", "not written once, and all of it",
     [](pb::Plan &p) {
       dropFlight(p, 0, true, "embed.weight.gather");
       dropFlight(p, 0, false, "embed.weight.gather");
     },
     true},
    {"OtherGradient", "updates one bucket with what belongs to another",
     [](pb::Plan &p) {
       pb::Buffer *gradient = launchOf(p, "embed.update")->mutable_buffers(1);
       gradient->set_value(launchOf(p, "block.update")->buffers(1).value());
     }},
    {"LossNotCounted", "nothing is added to 'scalars.0'",
     [](pb::Plan &p) {
       pb::Stage *last = p.mutable_stages(1);
       auto *actions = last->mutable_entries(1)->mutable_blocks(0)->mutable_actions();
       for (int i = actions->size() - 1; i >= 0; --i)
         if (actions->Get(i).has_run())
           actions->DeleteSubrange(i, 1);
     }},
    {"Unread", "which the host reads",
     [](pb::Plan &p) {
       pb::Stage *last = p.mutable_stages(1);
       last->mutable_calls(last->calls_size() - 2)->set_programs(2, 0);
     }},
};

const VerifyCase order[] = {
    {"ReceiveMissing", "where stage",
     [](pb::Plan &p) {
       dropFlight(p, 0, true, "dout", 3);
       dropFlight(p, 0, false, "dout", 3);
     }},
    {"OtherLine", "has no communicator", [](pb::Plan &p) { transferOf(p, "din")->set_line(0); }},
    {"NobodyThere", "there is no stage on the other side", [](pb::Plan &p) { transferOf(p, "out")->set_shift(2); }},
    {"MicroBatchesCross", "which is another",
     [](pb::Plan &p) {
       for (pb::Action &action : *actionsOf(p, 1))
         for (auto *flights : {action.mutable_start()->mutable_flights()})
           for (pb::Flight &flight : *flights)
             if (p.transfers(static_cast<int>(flight.transfer())).name() == "din" && flight.micro_batch() < 2)
               flight.set_micro_batch(1 - flight.micro_batch());
     }},
    {"ThreeStagesOfAGroup", "is no member of the group",
     [](pb::Plan &p) {
       pb::Group *group = p.mutable_groups(static_cast<int>(transferOf(p, "embed.weight.total")->group()));
       group->clear_stages();
       group->add_stages(0);
     }},
    {"Hangs", "waits for ever",
     [](pb::Plan &p) {
       // Stage 0 sends its second activation before it receives a gradient. Stage 1 does the reverse.
       pb::Action &start = (*actionsOf(p, 1))[findFlight(p, 1, true, "in", 1)];
       pb::Flight late;
       for (const pb::Flight &flight : start.start().flights())
         if (p.transfers(static_cast<int>(flight.transfer())).name() == "in" && flight.micro_batch() == 1)
           late = flight;
       dropFlight(p, 1, true, "in", 1);
       *(*actionsOf(p, 1))[findFlight(p, 1, true, "din", 0)].mutable_start()->add_flights() = late;
     }},
};

std::string nameOf(const testing::TestParamInfo<VerifyCase> &info) { return info.param.name; }
INSTANTIATE_TEST_SUITE_P(Bytes, DataRefusal, testing::ValuesIn(bytes), nameOf);
INSTANTIATE_TEST_SUITE_P(Flights, DataRefusal, testing::ValuesIn(flights), nameOf);
INSTANTIATE_TEST_SUITE_P(Sums, DataRefusal, testing::ValuesIn(sums), nameOf);
INSTANTIATE_TEST_SUITE_P(Order, DataRefusal, testing::ValuesIn(order), nameOf);

} // namespace
} // namespace espalier::rt
