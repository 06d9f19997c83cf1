// The step path. Places are computed when an instruction runs: a base per region of the running
// call plus an offset, which is cheaper than keeping them for every layer and slot.
#include "runtime/executor.h"

#include "runtime/crash_report.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>
#include <numeric>

namespace espalier::rt {
namespace {

enum StreamPlace { ReceiveForward, SendForward, ReceiveBackward, SendBackward };

} // namespace

Executor::Executor(const Program &source, int rank, Device &device)
    : source(source), theDevice(device), program(source.prepare(rank, device)) {
  const pb::Stage &stage = source.plan().stages(program.stage);
  if (source.plan().guard_bytes() > 0)
    guards.emplace(source.plan(), source.mesh(), program.rank, device);
  auto place = [](const pb::Binding &binding) -> Place {
    return {binding.base(), binding.slot_stride(), binding.bytes()};
  };
  scalarsOffset = stage.scalars_binding().base();
  inputs = place(stage.inputs_binding());
  staging.resize(inputs.bytes);
  streamPlaces = {place(stage.receive_forward()), place(stage.send_forward()), place(stage.receive_backward()),
                  place(stage.send_backward())};
  for (Transfers &transfer : transfers)
    transfer.tickets.resize(std::max(1u, stage.slots()));
  const Mesh &mesh = source.mesh();
  int before = mesh.peer(program.rank, program.stage - 1);
  int after = mesh.peer(program.rank, program.stage + 1);
  if (program.stage > 0) {
    transfers[ReceiveForward].link = device.openReceive(before, Stream::Forward);
    transfers[SendBackward].link = device.openSend(before, Stream::Backward);
  }
  if (program.stage + 1 < source.plan().stages_size()) {
    transfers[SendForward].link = device.openSend(after, Stream::Forward);
    transfers[ReceiveBackward].link = device.openReceive(after, Stream::Backward);
  }
  flights.resize(program.collectives.size());
  std::vector<int> world(mesh.ranks());
  std::iota(world.begin(), world.end(), 0);
  agreement = device.addCollective(world, {.elements = {SquaredNorm + 1}});
  meeting = device.addCollective(world, {});
}

void Executor::runStep(int64_t step, StepClient &client) {
  this->step = step;
  position.inEvaluation = false;
  runActions(source.plan().stages(program.stage).schedule(), client);
}

void Executor::runEvaluation(int64_t step, StepClient &client) {
  this->step = step;
  position.inEvaluation = true;
  runActions(source.plan().stages(program.stage).evaluation(), client);
}

void Executor::runActions(const google::protobuf::RepeatedPtrField<pb::Action> &actions, StepClient &client) {
  CrashSite site(this);
  for (position.action = 0; position.action < actions.size(); ++position.action) {
    position.call = position.subprogram = position.instruction = -1;
    const Fault *due = fault ? &*fault : nullptr;
    isFaultDue =
        due && due->rank == program.rank && due->step == step && due->action == static_cast<uint32_t>(position.action);
    runAction(actions[position.action], client);
  }
  position = {};
}

void Executor::runAction(const pb::Action &action, StepClient &client) {
  microBatch = action.micro_batch();
  uint32_t slot = action.slot();
  switch (action.kind()) {
  case pb::Action::LOAD_INPUTS:
    return loadInputs(slot, client);
  case pb::Action::FORWARD:
    return forEachCall(position.inEvaluation ? &PreparedCall::evaluate : &PreparedCall::forward, slot);
  case pb::Action::BACKWARD:
    return forEachCall(&PreparedCall::backward, slot, /*isReversed=*/true);
  case pb::Action::REDUCE_GRADIENTS:
    return forEachCall(&PreparedCall::reduceGradients, 0);
  case pb::Action::SQUARED_NORM:
    return forEachCall(&PreparedCall::squaredNorm, 0);
  case pb::Action::OPTIMIZER:
    return forEachCall(&PreparedCall::optimizer, 0);
  case pb::Action::AGREE:
    return agree(client);
  case pb::Action::WAIT_RECEIVE_FORWARD:
    return theDevice.wait(transfers[ReceiveForward].tickets[slot]);
  case pb::Action::WAIT_SEND_FORWARD:
    return theDevice.wait(transfers[SendForward].tickets[slot]);
  case pb::Action::WAIT_RECEIVE_BACKWARD:
    return theDevice.wait(transfers[ReceiveBackward].tickets[slot]);
  case pb::Action::WAIT_SEND_BACKWARD:
    return theDevice.wait(transfers[SendBackward].tickets[slot]);
  default:
    return startTransfer(action);
  }
}

void Executor::loadInputs(uint32_t slot, StepClient &client) {
  client.loadInputs(microBatch, staging.data());
  for (const pb::InputBuffer &input : source.plan().stages(program.stage).inputs())
    theDevice.copyIn(inputs.at(slot) + input.offset(), staging.data() + input.offset(), input.bytes());
}

void Executor::startTransfer(const pb::Action &action) {
  auto begin = [&](StreamPlace which, bool isSend) {
    const Place &place = streamPlaces[which];
    uint64_t data = place.at(action.slot());
    Transfers &transfer = transfers[which];
    transfer.tickets[action.slot()] = isSend ? theDevice.startSend(transfer.link, data, place.bytes)
                                             : theDevice.startReceive(transfer.link, data, place.bytes);
  };
  switch (action.kind()) {
  case pb::Action::START_RECEIVE_FORWARD:
    return begin(ReceiveForward, /*isSend=*/false);
  case pb::Action::START_SEND_FORWARD:
    return begin(SendForward, /*isSend=*/true);
  case pb::Action::START_RECEIVE_BACKWARD:
    return begin(ReceiveBackward, /*isSend=*/false);
  default:
    return begin(SendBackward, /*isSend=*/true);
  }
}

Scalars Executor::scalars() const {
  Scalars scalars;
  theDevice.copyOut(scalars.data(), scalarsOffset, sizeof scalars);
  return scalars;
}

void Executor::setScalars(const Scalars &scalars) { theDevice.copyIn(scalarsOffset, scalars.data(), sizeof scalars); }

void Executor::sumScalars() {
  // Ranks that hold the same loss have each counted their share of it: the compiler divides by
  // their number. A stage without the loss has counted nothing.
  Ticket ticket = theDevice.startCollective(agreement, {&scalarsOffset, 1}, {&scalarsOffset, 1});
  theDevice.wait(ticket);
}

void Executor::agree(StepClient &client) {
  client.beforeAgreement();
  sumScalars();
  Scalars agreed = scalars();
  client.updateScalars(agreed);
  setScalars(agreed);
}

void Executor::barrier() {
  Ticket ticket = theDevice.startCollective(meeting, {}, {});
  theDevice.wait(ticket);
}

void Executor::forEachCall(uint32_t PreparedCall::*subprogram, uint32_t slot, bool isReversed) {
  int calls = program.calls.size();
  for (int i = 0; i < calls; ++i) {
    position.call = isReversed ? calls - 1 - i : i;
    const PreparedCall &call = program.calls[position.call];
    if (call.*subprogram)
      runSubprogram(call, call.*subprogram, slot);
  }
}

void Executor::runSubprogram(const PreparedCall &call, uint32_t subprogram, uint32_t slot) {
  layer = call.layer;
  bases = call.bases[slot].data();
  position.subprogram = static_cast<int>(subprogram) - 1;
  const PreparedSubprogram &range = program.subprograms[subprogram];
  for (uint32_t i = range.first; i < range.last; ++i) {
    position.instruction = static_cast<int>(i - range.first);
    if (isFaultDue && fault->instruction == i - range.first)
      fail();
    const PreparedInstruction &instruction = program.instructions[i];
    if (guards)
      guards->open(position.subprogram, position.instruction, bases[pb::WORKSPACE]);
    runInstruction(instruction);
    if (guards)
      guards->check(position.subprogram, position.instruction, bases[pb::WORKSPACE]);
  }
}

void Executor::runInstruction(const PreparedInstruction &instruction) {
  switch (instruction.kind) {
  case PreparedInstruction::Launch:
    return launch(instruction);
  case PreparedInstruction::Call:
    return callLibrary(instruction);
  case PreparedInstruction::Start:
    return startCollective(instruction);
  case PreparedInstruction::Wait:
    return theDevice.wait(flights[instruction.collective]);
  }
}

void Executor::fail() const {
  if (fault->crashes)
    raise(SIGSEGV);
  throw std::runtime_error("injected fault");
}

void Executor::bindOperands(const PreparedInstruction &instruction) {
  resolve({program.buffers.data() + instruction.firstBuffer, instruction.buffers}, places);
  const PreparedScalar *scalars = program.scalars.data() + instruction.firstScalar;
  for (uint32_t i = 0; i < instruction.scalars; ++i)
    values[i] =
        scalars[i].constant + scalars[i].step * step + scalars[i].microBatch * microBatch + scalars[i].layer * layer;
}

void Executor::launch(const PreparedInstruction &instruction) {
  bindOperands(instruction);
  theDevice.launch({instruction.kernel,
                    {places.data(), instruction.buffers},
                    {values.data(), instruction.scalars},
                    instruction.extent,
                    instruction.grain});
}

void Executor::callLibrary(const PreparedInstruction &instruction) {
  bindOperands(instruction);
  theDevice.call({static_cast<uint32_t>(position.subprogram),
                  static_cast<uint32_t>(position.instruction),
                  {places.data(), instruction.buffers},
                  {values.data(), instruction.scalars},
                  instruction.alwaysAdds || (instruction.accumulate && microBatch > 0),
                  step});
}

std::span<const uint64_t> Executor::resolve(std::span<const PreparedBuffer> buffers, std::span<uint64_t> places) const {
  for (size_t i = 0; i < buffers.size(); ++i)
    places[i] = bases[buffers[i].region] + buffers[i].offset;
  return places.first(buffers.size());
}

void Executor::startCollective(const PreparedInstruction &instruction) {
  const PreparedCollective &collective = program.collectives[instruction.collective];
  flights[instruction.collective] = theDevice.startCollective(collective.number, resolve(collective.from, places),
                                                              resolve(collective.to, morePlaces));
}

Failure Executor::describe(const std::string &message) const {
  const pb::Plan &plan = source.plan();
  const pb::Stage &stage = plan.stages(program.stage);
  Failure failure;
  failure.rank = program.rank;
  failure.stage = program.stage;
  failure.step = step;
  failure.message = message;
  if (position.action >= 0) {
    const pb::Action &action = (position.inEvaluation ? stage.evaluation() : stage.schedule())[position.action];
    failure.action = fmt::format("{} of micro-batch {} in slot {}", pb::Action::Kind_Name(action.kind()),
                                 action.micro_batch(), action.slot());
  }
  if (position.subprogram < 0)
    return failure;
  const pb::Subprogram &subprogram = plan.subprograms(position.subprogram);
  failure.subprogram = fmt::format("{} of layer {}", subprogram.name(), stage.calls(position.call).layer());
  if (position.instruction >= 0)
    failure.op = locationText(plan, subprogram.instructions(position.instruction).location());
  return failure;
}

} // namespace espalier::rt
