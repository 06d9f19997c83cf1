#include "test/runtime/verify_cases.h"

#include <algorithm>

namespace espalier::rt {
namespace {

template <typename List> auto *named(List *list, const std::string &name) {
  auto found = std::ranges::find_if(*list, [&](const auto &one) { return one.name() == name; });
  return found == list->end() ? nullptr : &*found;
}

} // namespace

pb::Plan planOf(const VerifyCase &from) {
  SampleOptions options;
  options.dp = options.tp = 2;
  options.pp = from.pp;
  options.zero = from.zero;
  options.folds = false;
  return samplePlan(options);
}

pb::Subprogram *programOf(pb::Plan &plan, const std::string &name) { return named(plan.mutable_subprograms(), name); }
pb::Transfer *transferOf(pb::Plan &plan, const std::string &name) { return named(plan.mutable_transfers(), name); }
pb::Bucket *bucketOf(pb::Plan &plan, const std::string &name) { return named(plan.mutable_buckets(), name); }
pb::Value *valueOf(pb::Plan &plan, const std::string &name) { return named(plan.mutable_values(), name); }

pb::Instruction *instructionOf(pb::Plan &plan, const std::string &program, int instruction) {
  return programOf(plan, program)->mutable_instructions(instruction);
}

uint32_t numberOf(const pb::Plan &plan, const std::string &value) {
  return static_cast<uint32_t>(std::ranges::find(plan.values(), value, &pb::Value::name) - plan.values().begin());
}

pb::Binding *bindingOf(pb::Plan &plan, int stage, int call, const std::string &region) {
  auto number = std::ranges::find(plan.regions(), region) - plan.regions().begin();
  for (pb::Binding &binding : *plan.mutable_stages(stage)->mutable_calls(call)->mutable_bindings())
    if (binding.region() == static_cast<uint32_t>(number))
      return &binding;
  return nullptr;
}

google::protobuf::RepeatedPtrField<pb::Action> *actionsOf(pb::Plan &plan, int stage) {
  return plan.mutable_stages(stage)->mutable_entries(0)->mutable_blocks(0)->mutable_actions();
}

int findRun(pb::Plan &plan, int stage, const std::string &role, int n) {
  auto &actions = *actionsOf(plan, stage);
  for (int i = 0; i < actions.size(); ++i)
    if (actions[i].has_run() && plan.roles(static_cast<int>(actions[i].run().role())) == role && n-- == 0)
      return i;
  return -1;
}

int findFlight(pb::Plan &plan, int stage, bool isStart, const std::string &transfer, uint32_t microBatch) {
  auto &actions = *actionsOf(plan, stage);
  for (int i = 0; i < actions.size(); ++i)
    for (const pb::Flight &flight : isStart ? actions[i].start().flights() : actions[i].wait().flights())
      if (plan.transfers(static_cast<int>(flight.transfer())).name() == transfer && flight.micro_batch() == microBatch)
        return i;
  return -1;
}

void dropFlight(pb::Plan &plan, int stage, bool isStart, const std::string &transfer, uint32_t microBatch) {
  pb::Action &action = (*actionsOf(plan, stage))[findFlight(plan, stage, isStart, transfer, microBatch)];
  auto *flights = isStart ? action.mutable_start()->mutable_flights() : action.mutable_wait()->mutable_flights();
  for (int i = flights->size() - 1; i >= 0; --i)
    if (plan.transfers(static_cast<int>(flights->Get(i).transfer())).name() == transfer &&
        flights->Get(i).micro_batch() == microBatch)
      flights->DeleteSubrange(i, 1);
}

void moveAction(pb::Plan &plan, int stage, int from, int to) {
  for (; from > to; --from)
    actionsOf(plan, stage)->SwapElements(from, from - 1);
}

} // namespace espalier::rt
