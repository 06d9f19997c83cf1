// Plan to events, for version 1 of the schema: it names no values and declares no effects, so both are made up here.
// ../README.md, section 9, has the table.
#include "runtime/abi.h"
#include "runtime/comm/comm.h"
#include "runtime/verify/play.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

using namespace verify;

constexpr const char *axisNames[] = {"pp", "dp", "cp", "ep", "tp"};

class FrontEnd {
public:
  FrontEnd(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors);

  void check();

private:
  Routine routineOf(const pb::Subprogram &subprogram) const;
  Step stepOf(const pb::Subprogram &subprogram, int instruction) const;
  Operand operandOf(const pb::BufferRef &buffer, Access access) const;
  Access accessOf(const pb::LibraryCall &call, const pb::BufferRef &buffer) const;
  Access accessOf(const pb::Launch &launch, const pb::BufferRef &buffer) const;
  bool continuesSum(const pb::Launch &launch, const pb::BufferRef &buffer) const;
  bool isAddedTo(const pb::Launch &launch, const pb::BufferRef &buffer) const;
  void addTransfer(const pb::Collective &collective, Step &step) const;
  Axes bit(const std::string &axis) const;

  StageView viewOf(int index, bool isTraining) const;
  CallView viewOf(const pb::Stage &stage, int index, bool isTraining) const;
  Holding holdingOf(const pb::Stage &stage, const pb::ParameterSlot &slot) const;
  std::array<Line, 4> linesOf(const pb::Stage &stage) const;
  ActionView viewOf(const pb::Action &action) const;

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
  std::vector<std::string> regionNames;
  std::vector<Summary> summaries; ///< by subprogram
};

Place placeOf(const pb::Binding &binding) {
  return {static_cast<int64_t>(binding.base()), static_cast<int64_t>(binding.slot_stride()),
          static_cast<int64_t>(binding.bytes())};
}

FrontEnd::FrontEnd(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors)
    : plan(plan), mesh(mesh), errors(errors) {
  for (int region = 0; region < pb::Region_ARRAYSIZE; ++region)
    regionNames.push_back(pb::Region_Name(static_cast<pb::Region>(region)));
}

void FrontEnd::check() {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    summaries.push_back(summarize(routineOf(subprogram), regionNames, errors));
  if (!errors.empty())
    return;
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (bool isTraining : {true, false})
      playStage(viewOf(stage, isTraining), regionNames, errors);
}

Axes FrontEnd::bit(const std::string &axis) const {
  auto name = std::ranges::find(axisNames, axis);
  return mesh.axisSize(axis) > 1 ? 1u << (name - std::begin(axisNames)) : 0;
}

Routine FrontEnd::routineOf(const pb::Subprogram &subprogram) const {
  Routine routine;
  routine.workspace = pb::WORKSPACE;
  for (int region = 0; region < pb::Region_ARRAYSIZE; ++region) {
    int64_t bytes = region < subprogram.region_bytes_size() ? subprogram.region_bytes(region) : 0;
    if (region == pb::WORKSPACE)
      bytes = std::max<int64_t>(bytes, subprogram.workspace_bytes());
    routine.regionBytes.push_back(bytes);
    routine.isResident.push_back(region == pb::PARAMETERS || region == pb::GRADIENTS || region == pb::STATE ||
                                 region == pb::SCALARS);
  }
  for (int i = 0; i < subprogram.instructions_size(); ++i)
    routine.steps.push_back(stepOf(subprogram, i));
  routine.name = [this, &subprogram](int instruction) { return instructionName(plan, subprogram, instruction); };
  return routine;
}

Step FrontEnd::stepOf(const pb::Subprogram &subprogram, int instruction) const {
  Step step;
  step.instruction = instruction;
  const pb::Instruction &source = subprogram.instructions(instruction);
  if (source.has_wait()) {
    step.kind = Step::Wait;
    step.flight = source.wait().id();
  } else if (source.has_start()) {
    step.kind = Step::Start;
    step.flight = source.start().id();
    addTransfer(source.start(), step);
  } else if (source.has_launch()) {
    step.mayShare = true;
    for (const pb::BufferRef &buffer : source.launch().buffers())
      if (!continuesSum(source.launch(), buffer) && !isAddedTo(source.launch(), buffer))
        step.operands.push_back(operandOf(buffer, accessOf(source.launch(), buffer)));
  } else {
    const pb::LibraryCall &call = source.call();
    for (const pb::BufferRef &buffer : call.buffers())
      step.operands.push_back(operandOf(buffer, accessOf(call, buffer)));
    if (call.function() == pb::LibraryCall::COPY && call.sizes_size() == 4)
      step.copy = {call.sizes(0), call.sizes(2), call.sizes(3), true};
  }
  return step;
}

void FrontEnd::addTransfer(const pb::Collective &collective, Step &step) const {
  step.transfer.kind = collective.kind() == pb::Collective::ALL_REDUCE       ? Transfer::Reduce
                       : collective.kind() == pb::Collective::REDUCE_SCATTER ? Transfer::Scatter
                                                                             : Transfer::Gather;
  step.transfer.isSum = collective.reduction() == pb::Collective::SUM;
  for (const std::string &axis : collective.axes())
    step.transfer.axes |= bit(axis);
  if (!collective.stages().empty())
    step.transfer.axes = bit("pp");
  for (int i = 0; i < collective.from_size(); ++i) {
    step.operands.push_back(operandOf(collective.from(i), Access::Read));
    step.operands.push_back(operandOf(collective.to(i), Access::Write));
  }
}

/// Coordinates that count shares of `bytes` in the order of the mesh mean the own part; others what any rank may mean.
Operand FrontEnd::operandOf(const pb::BufferRef &buffer, Access access) const {
  Operand operand;
  operand.region = buffer.region();
  operand.access = access;
  ByteRange range = rangeOf(buffer, mesh);
  operand.span = {range.begin, range.end, 0};
  int64_t stride = static_cast<int64_t>(buffer.bytes());
  Axes part = 0;
  for (int i = std::size(axisNames) - 1; i >= 0; --i)
    for (const pb::AxisTerm &term : buffer.coordinates())
      if (term.axis() == axisNames[i] && bit(term.axis())) {
        if (term.coefficient() != stride || part & bit(term.axis()))
          return operand;
        part |= bit(term.axis());
        stride *= mesh.axisSize(term.axis());
      }
  operand.span.part = part;
  return operand;
}

Access FrontEnd::accessOf(const pb::LibraryCall &call, const pb::BufferRef &buffer) const {
  if (!buffer.written())
    return Access::Read;
  if (call.always_adds())
    return buffer.region() == pb::GRADIENTS ? Access::Add : Access::Update;
  if (call.accumulate())
    return buffer.region() == pb::GRADIENTS ? Access::AddUnlessFirst : Access::Update;
  return Access::Write;
}

/// Whether it is a sum that the same launch adds to: what a kernel adds to it reads, whole or not.
bool FrontEnd::isAddedTo(const pb::Launch &launch, const pb::BufferRef &buffer) const {
  return !buffer.written() && std::ranges::any_of(launch.buffers(), [&](const pb::BufferRef &other) {
    Access access = accessOf(launch, other);
    return other.region() == buffer.region() && other.offset() == buffer.offset() && other.bytes() == buffer.bytes() &&
           (access == Access::Add || access == Access::AddUnlessFirst);
  });
}

/// The gradient of an embedding is three kernels on GPUs: the first, order_tokens, begins the term, and stands for what
/// the others add to it.
bool FrontEnd::continuesSum(const pb::Launch &launch, const pb::BufferRef &buffer) const {
  const std::string &shape = plan.kernels(launch.kernel()).shape();
  return buffer.region() == pb::GRADIENTS && buffer.written() && (shape == "sum_segments" || shape == "join_segments");
}

/// A kernel learns of the first micro-batch by a scalar that is 0 in it.
Access FrontEnd::accessOf(const pb::Launch &launch, const pb::BufferRef &buffer) const {
  if (!buffer.written())
    return Access::Read;
  if (buffer.region() != pb::GRADIENTS)
    return Access::Write;
  if (plan.kernels(launch.kernel()).always_adds())
    return Access::Add;
  for (const pb::Scalar &scalar : launch.scalars())
    if (scalar.micro_batch() != 0)
      return scalar.constant() == 0 ? Access::AddUnlessFirst : Access::Add;
  return Access::Write;
}

StageView FrontEnd::viewOf(int index, bool isTraining) const {
  const pb::Stage &stage = plan.stages(index);
  StageView view;
  view.isTraining = isTraining;
  view.arenaBytes = static_cast<int64_t>(stage.arena_bytes());
  view.microBatches = isTraining ? static_cast<uint32_t>(plan.settings().micro_batches()) : 1;
  view.regions = {pb::PARAMETERS,
                  pb::GRADIENTS,
                  pb::STATE,
                  pb::SCALARS,
                  pb::INPUTS,
                  pb::WORKSPACE,
                  {LossSum, TokenCount, SquaredNorm}};
  view.inputs = placeOf(stage.inputs_binding());
  for (const pb::InputBuffer &input : stage.inputs())
    view.inputBuffers.push_back(
        {static_cast<int64_t>(input.offset()), static_cast<int64_t>(input.offset() + input.bytes()), 0});
  view.lines = linesOf(stage);
  for (int i = 0; i < stage.calls_size(); ++i)
    view.calls.push_back(viewOf(stage, i, isTraining));
  const auto &actions = isTraining ? stage.schedule() : stage.evaluation();
  for (const pb::Action &action : actions)
    view.actions.push_back(viewOf(action));
  view.actionName = [index, isTraining, &actions](int action) {
    return action < 0 ? fmt::format("stage {}", index) : actionName(index, action, actions[action], !isTraining);
  };
  return view;
}

std::array<Line, 4> FrontEnd::linesOf(const pb::Stage &stage) const {
  uint32_t last = static_cast<uint32_t>(stage.calls_size());
  return {Line{false, placeOf(stage.receive_forward()), {Streams, 0}},
          Line{true, placeOf(stage.send_forward()), {Streams, last}},
          Line{false, placeOf(stage.receive_backward()), {Cotangents, last}},
          Line{true, placeOf(stage.send_backward()), {Cotangents, 0}}};
}

CallView FrontEnd::viewOf(const pb::Stage &stage, int index, bool isTraining) const {
  const pb::Call &call = stage.calls(index);
  CallView view;
  view.name = fmt::format("layer {} ({})", call.layer(), call.segment());
  uint32_t here = static_cast<uint32_t>(index);
  view.meanings.resize(pb::Region_ARRAYSIZE);
  view.meanings[pb::SAVED] = {Saved, here};
  view.meanings[pb::STREAM_IN] = {Streams, here};
  view.meanings[pb::STREAM_OUT] = {Streams, here + 1};
  view.meanings[pb::COTANGENT_OUT] = {Cotangents, here + 1};
  view.meanings[pb::COTANGENT_IN] = {Cotangents, here};
  view.meanings[pb::INPUTS] = {Inputs, 0};
  for (int region = 0; region < pb::Region_ARRAYSIZE; ++region) {
    const pb::Binding *binding = bindingOf(stage, call, static_cast<pb::Region>(region));
    view.places.push_back(binding ? placeOf(*binding) : Place());
  }
  for (const pb::ParameterSlot &slot : call.parameters())
    view.holdings.push_back(holdingOf(stage, slot));
  auto summaryOf = [&](pb::Action::Kind kind) {
    uint32_t number = subprogramOf(call, kind, !isTraining);
    return number ? &summaries[number - 1] : nullptr;
  };
  view.summaries = {summaryOf(pb::Action::FORWARD), summaryOf(pb::Action::BACKWARD),
                    summaryOf(pb::Action::REDUCE_GRADIENTS), summaryOf(pb::Action::SQUARED_NORM),
                    summaryOf(pb::Action::OPTIMIZER)};
  return view;
}

Holding FrontEnd::holdingOf(const pb::Stage &stage, const pb::ParameterSlot &slot) const {
  const pb::Parameter &parameter = plan.parameters(slot.parameter());
  Holding holding;
  holding.parameter = slot.parameter();
  holding.name = parameter.name();
  holding.elements = static_cast<int64_t>(slot.local_elements());
  int64_t shares = std::max<int64_t>(1, mesh.product(zeroAxes()));
  int64_t share = (holding.elements + shares - 1) / shares;
  holding.padded = std::max(holding.elements, share * shares);
  holding.stored = static_cast<int64_t>(slot.parameter_offset());
  holding.gradient = static_cast<int64_t>(slot.gradient_offset());
  holding.state = static_cast<int64_t>(slot.state_offset());
  holding.width = elementBytes(parameter.type());
  holding.stateElements = static_cast<int64_t>(slot.state_elements());
  holding.tensors = slot.master() ? 3 : 2;
  for (const std::string &axis : parameter.partial_axes())
    holding.partial |= bit(axis);
  if (parameter.stages_size() > 1)
    holding.partial |= bit("pp");
  for (const pb::Call &call : stage.calls())
    for (const pb::ParameterSlot &other : call.parameters())
      holding.terms += other.parameter() == slot.parameter();
  holding.terms *= static_cast<uint32_t>(plan.settings().micro_batches());
  return holding;
}

ActionView FrontEnd::viewOf(const pb::Action &action) const {
  auto view = [&](ActionView::Kind kind, Role role = Role::Forward, int line = 0) {
    // What belongs to the whole step runs in slot 0.
    bool isOfStep = role != Role::Forward && role != Role::Backward;
    return ActionView{kind, role, line, action.micro_batch(), isOfStep ? 0 : action.slot()};
  };
  switch (action.kind()) {
  case pb::Action::LOAD_INPUTS:
    return view(ActionView::Load);
  case pb::Action::START_RECEIVE_FORWARD:
  case pb::Action::START_SEND_FORWARD:
  case pb::Action::START_RECEIVE_BACKWARD:
  case pb::Action::START_SEND_BACKWARD:
  case pb::Action::WAIT_RECEIVE_FORWARD:
  case pb::Action::WAIT_SEND_FORWARD:
  case pb::Action::WAIT_RECEIVE_BACKWARD:
  case pb::Action::WAIT_SEND_BACKWARD: {
    static constexpr pb::Action::Kind starts[] = {pb::Action::START_RECEIVE_FORWARD, pb::Action::START_SEND_FORWARD,
                                                  pb::Action::START_RECEIVE_BACKWARD, pb::Action::START_SEND_BACKWARD};
    static constexpr pb::Action::Kind waits[] = {pb::Action::WAIT_RECEIVE_FORWARD, pb::Action::WAIT_SEND_FORWARD,
                                                 pb::Action::WAIT_RECEIVE_BACKWARD, pb::Action::WAIT_SEND_BACKWARD};
    for (int line = 0; line < 4; ++line) {
      if (action.kind() == starts[line])
        return view(ActionView::Start, Role::Forward, line);
      if (action.kind() == waits[line])
        return view(ActionView::Wait, Role::Forward, line);
    }
    break;
  }
  case pb::Action::BACKWARD:
    return view(ActionView::Run, Role::Backward);
  case pb::Action::REDUCE_GRADIENTS:
    return view(ActionView::Run, Role::Reduce);
  case pb::Action::SQUARED_NORM:
    return view(ActionView::Run, Role::Norm);
  case pb::Action::OPTIMIZER:
    return view(ActionView::Run, Role::Update);
  case pb::Action::AGREE:
    return view(ActionView::Agree);
  default:
    break;
  }
  return view(ActionView::Run, Role::Forward);
}

} // namespace

void verifyData(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) { FrontEnd(plan, mesh, errors).check(); }

} // namespace espalier::rt
