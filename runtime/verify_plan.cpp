// Structure first: the other rules read indices and sizes without asking again.
#include "runtime/verify_plan.h"

#include "runtime/status.h"
#include "runtime/verify_rules.h"

#include <fmt/format.h>

namespace espalier::rt {

std::vector<std::string> verifyPlan(const pb::Plan &plan) {
  PlanErrors errors;
  verifyStructure(plan, errors);
  if (!errors.empty())
    return errors.list;
  Mesh mesh(plan);
  verifyBounds(plan, mesh, errors);
  verifyKernels(plan, errors);
  verifyGroups(plan, mesh, errors);
  if (!errors.empty())
    return errors.list;
  verifyOwnership(plan, mesh, errors);
  if (errors.empty())
    verifyData(plan, mesh, errors);
  verifyCommunication(plan, errors);
  return errors.list;
}

ByteRange rangeOf(const pb::BufferRef &buffer, const Mesh &mesh) {
  ByteRange range = {static_cast<int64_t>(buffer.offset()), static_cast<int64_t>(buffer.offset() + buffer.bytes())};
  for (const pb::AxisTerm &term : buffer.coordinates()) {
    int64_t farthest = term.coefficient() * (mesh.axisSize(term.axis()) - 1);
    (farthest < 0 ? range.begin : range.end) += farthest;
  }
  return range;
}

std::string instructionName(const pb::Plan &plan, const pb::Subprogram &subprogram, int instruction) {
  std::string name = fmt::format("{}, instruction {}", subprogram.name(), instruction);
  uint32_t location = subprogram.instructions(instruction).location();
  if (location < static_cast<uint32_t>(plan.locations_size())) {
    const pb::Location &place = plan.locations(location);
    name += fmt::format(" ({} at {}:{}:{})", place.op(), place.file(), place.line(), place.column());
  }
  return name;
}

std::string actionName(int stage, int index, const pb::Action &action, bool isEvaluation) {
  return fmt::format("stage {}, {}action {} ({} of micro-batch {})", stage, isEvaluation ? "evaluation " : "", index,
                     pb::Action::Kind_Name(action.kind()), action.micro_batch());
}

const pb::Binding *bindingOf(const pb::Stage &stage, const pb::Call &call, pb::Region region) {
  for (const pb::Binding &binding : call.bindings())
    if (binding.region() == region)
      return &binding;
  if (region == pb::INPUTS && stage.has_inputs_binding())
    return &stage.inputs_binding();
  if (region == pb::SCALARS && stage.has_scalars_binding())
    return &stage.scalars_binding();
  return nullptr;
}

uint32_t subprogramOf(const pb::Call &call, pb::Action::Kind kind, bool isEvaluation) {
  switch (kind) {
  case pb::Action::FORWARD:
    return isEvaluation ? call.evaluate() : call.forward();
  case pb::Action::BACKWARD:
    return call.backward();
  case pb::Action::REDUCE_GRADIENTS:
    return call.reduce_gradients();
  case pb::Action::SQUARED_NORM:
    return call.squared_norm();
  case pb::Action::OPTIMIZER:
    return call.optimizer();
  default:
    return 0;
  }
}

std::vector<std::pair<const char *, uint32_t>> subprogramsOf(const pb::Call &call) {
  return {{"forward", call.forward()},
          {"backward", call.backward()},
          {"reduce_gradients", call.reduce_gradients()},
          {"squared_norm", call.squared_norm()},
          {"optimizer", call.optimizer()},
          {"evaluate", call.evaluate()}};
}

} // namespace espalier::rt
