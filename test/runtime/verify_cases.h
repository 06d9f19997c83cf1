// Hand-written changes of a sample plan for tests of the verifier.
#pragma once

#include "test/runtime/sample_plan.h"

#include <functional>
#include <string>

namespace espalier::rt {

/// A plan, one change, and the expected error text.
struct VerifyCase {
  const char *name;
  const char *expected; ///< part of one of the errors
  std::function<void(pb::Plan &)> apply;
  bool zero = false;
  int pp = 2;
};

/// Returns the sample plan of a case, with two replicas and tensors in two shards.
pb::Plan planOf(const VerifyCase &from);

/// These functions find parts of the plan by name.
pb::Subprogram *programOf(pb::Plan &plan, const std::string &name);
pb::Instruction *instructionOf(pb::Plan &plan, const std::string &program, int instruction = 0);
pb::Transfer *transferOf(pb::Plan &plan, const std::string &name);
pb::Bucket *bucketOf(pb::Plan &plan, const std::string &name);
pb::Value *valueOf(pb::Plan &plan, const std::string &name);
uint32_t numberOf(const pb::Plan &plan, const std::string &value);
pb::Binding *bindingOf(pb::Plan &plan, int stage, int call, const std::string &region);

/// Returns the actions of train_step, as blocks of one action.
google::protobuf::RepeatedPtrField<pb::Action> *actionsOf(pb::Plan &plan, int stage);
/// Returns the index of the n-th RUN of a role, or -1.
int findRun(pb::Plan &plan, int stage, const std::string &role, int n = 0);
/// Returns the index of the START or WAIT that lists this in-flight transfer.
int findFlight(pb::Plan &plan, int stage, bool isStart, const std::string &transfer, uint32_t microBatch = 0);
/// Removes the in-flight transfer from its START or WAIT.
void dropFlight(pb::Plan &plan, int stage, bool isStart, const std::string &transfer, uint32_t microBatch = 0);
/// Moves an action from index `from` to index `to`.
void moveAction(pb::Plan &plan, int stage, int from, int to);

} // namespace espalier::rt
