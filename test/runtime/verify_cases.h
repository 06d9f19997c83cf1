// Changes of a sample plan by hand, for tests of the verifier.
#pragma once

#include "test/runtime/sample_plan.h"

#include <functional>
#include <string>

namespace espalier::rt {

/// A plan, one change, the words that must come.
struct VerifyCase {
  const char *name;
  const char *expected; ///< part of one of the errors
  std::function<void(pb::Plan &)> apply;
  bool zero = false;
  int pp = 2;
};

/// The sample plan of a case: two replicas, tensors in two parts.
pb::Plan planOf(const VerifyCase &from);

/// Things of the plan by their names.
pb::Subprogram *programOf(pb::Plan &plan, const std::string &name);
pb::Instruction *instructionOf(pb::Plan &plan, const std::string &program, int instruction = 0);
pb::Transfer *transferOf(pb::Plan &plan, const std::string &name);
pb::Bucket *bucketOf(pb::Plan &plan, const std::string &name);
pb::Value *valueOf(pb::Plan &plan, const std::string &name);
uint32_t numberOf(const pb::Plan &plan, const std::string &value);
pb::Binding *bindingOf(pb::Plan &plan, int stage, int call, const std::string &region);

/// Actions of train_step, as blocks of one action.
google::protobuf::RepeatedPtrField<pb::Action> *actionsOf(pb::Plan &plan, int stage);
/// The n-th RUN of a role; -1: there is none.
int findRun(pb::Plan &plan, int stage, const std::string &role, int n = 0);
/// The START or WAIT with a flight of the transfer.
int findFlight(pb::Plan &plan, int stage, bool isStart, const std::string &transfer, uint32_t microBatch = 0);
/// Drops the flight from its START or WAIT.
void dropFlight(pb::Plan &plan, int stage, bool isStart, const std::string &transfer, uint32_t microBatch = 0);
/// Moves an action to an earlier place.
void moveAction(pb::Plan &plan, int stage, int from, int to);

} // namespace espalier::rt
