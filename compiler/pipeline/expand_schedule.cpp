#include "compiler/pipeline/expand_schedule.h"

namespace espalier {

namespace {

using rt::pb::Action;

class StageSchedule {
public:
  StageSchedule(rt::pb::Stage &stage, bool isFirst, bool isLast, uint32_t slots)
      : stage(stage), isFirst(isFirst), isLast(isLast), slots(slots) {}

  void forward(uint32_t microBatch) {
    add(Action::LOAD_INPUTS, microBatch);
    if (!isFirst) {
      add(Action::START_RECEIVE_FORWARD, microBatch);
      add(Action::WAIT_RECEIVE_FORWARD, microBatch);
    }
    add(Action::FORWARD, microBatch);
    if (!isLast)
      add(Action::START_SEND_FORWARD, microBatch);
  }

  void backward(uint32_t microBatch) {
    if (!isLast) {
      add(Action::WAIT_SEND_FORWARD, microBatch);
      add(Action::START_RECEIVE_BACKWARD, microBatch);
      add(Action::WAIT_RECEIVE_BACKWARD, microBatch);
    }
    awaitSentBackward();
    add(Action::BACKWARD, microBatch);
    if (!isFirst) {
      add(Action::START_SEND_BACKWARD, microBatch);
      sentBackward = microBatch;
    }
  }

  void finish() {
    awaitSentBackward();
    for (Action::Kind kind : {Action::REDUCE_GRADIENTS, Action::SQUARED_NORM, Action::AGREE, Action::OPTIMIZER})
      add(kind, 0);
  }

private:
  void add(Action::Kind kind, uint32_t microBatch) {
    Action *action = stage.add_schedule();
    action->set_kind(kind);
    action->set_micro_batch(microBatch);
    action->set_slot(microBatch % slots);
  }

  /// The buffer of the outgoing gradient is single.
  void awaitSentBackward() {
    if (sentBackward < 0)
      return;
    add(Action::WAIT_SEND_BACKWARD, sentBackward);
    sentBackward = -1;
  }

  rt::pb::Stage &stage;
  bool isFirst, isLast;
  uint32_t slots;
  int64_t sentBackward = -1;
};

} // namespace

void expandSchedule(const planner::ScheduleTable &table, int stage, uint32_t slots, rt::pb::Stage &out) {
  bool isFirst = stage == 0, isLast = stage + 1 == static_cast<int>(table.stages.size());
  StageSchedule schedule(out, isFirst, isLast, slots);
  for (const planner::Action &action : table.stages[stage]) {
    if (action.kind == planner::ActionKind::Forward)
      schedule.forward(action.microBatch);
    else
      schedule.backward(action.microBatch);
  }
  schedule.finish();

  std::vector<Action::Kind> evaluation = {Action::LOAD_INPUTS};
  if (!isFirst)
    evaluation.insert(evaluation.end(), {Action::START_RECEIVE_FORWARD, Action::WAIT_RECEIVE_FORWARD});
  evaluation.push_back(Action::FORWARD);
  if (!isLast)
    evaluation.insert(evaluation.end(), {Action::START_SEND_FORWARD, Action::WAIT_SEND_FORWARD});
  for (Action::Kind kind : evaluation)
    out.add_evaluation()->set_kind(kind);
}

} // namespace espalier
