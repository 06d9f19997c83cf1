// The step path. Addresses are computed when an instruction runs: a base per region of the running
// call plus an offset, which is cheaper than keeping them for every layer and slot.
#include "runtime/executor.h"

#include "runtime/crash_report.h"

#include <algorithm>
#include <csignal>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

enum StreamPlace { ReceiveForward, SendForward, ReceiveBackward, SendBackward };

/// A launch shared out over the pool: parts of whole grains.
struct LaunchJob {
  const Executor &executor;
  KernelFunction kernel;
  void *const *buffers;
  const int64_t *scalars;
  int64_t extent, partExtent;
};

void runLaunchPart(void *context, int64_t part, int) {
  const LaunchJob &job = *static_cast<const LaunchJob *>(context);
  CrashSite site(job.executor);
  int64_t begin = part * job.partExtent;
  job.kernel(job.buffers, job.scalars, begin, std::min(job.extent, begin + job.partExtent));
}

struct LibraryJob {
  const Executor &executor;
  const LibraryKernel *kernel;
  const CallArguments *arguments;
  std::byte *scratch;
  size_t scratchBytes;
};

void runLibraryPart(void *context, int64_t part, int thread) {
  const LibraryJob &job = *static_cast<const LibraryJob *>(context);
  CrashSite site(job.executor);
  job.kernel->run(*job.arguments, part, job.scratch + thread * job.scratchBytes);
}

size_t roundUp(size_t bytes) { return (bytes + 63) / 64 * 64; }

} // namespace

Executor::Executor(const Program &source, Communicator &communicator, ThreadPool &pool, int spins)
    : source(source), communicator(communicator), pool(pool), spins(spins), program(source.prepare(communicator)),
      arena(source.plan().stages(program.stage).arena_bytes()),
      scratch(roundUp(program.scratchBytesPerThread) * pool.threads() + roundUp(program.sharedScratchBytes)) {
  const pb::Stage &stage = source.plan().stages(program.stage);
  if (source.plan().guard_bytes() > 0)
    guards.emplace(source.plan(), source.mesh(), program.rank, arena);
  auto place = [](const pb::Binding &binding) -> Place {
    return {binding.base(), binding.slot_stride(), binding.bytes()};
  };
  scalarsOffset = stage.scalars_binding().base();
  inputs = place(stage.inputs_binding());
  streamPlaces = {place(stage.receive_forward()), place(stage.send_forward()), place(stage.receive_backward()),
                  place(stage.send_backward())};
  for (Transfers &transfer : transfers)
    transfer.tickets.resize(std::max(1u, stage.slots()));
  const Mesh &mesh = source.mesh();
  int before = mesh.peer(program.rank, program.stage - 1);
  int after = mesh.peer(program.rank, program.stage + 1);
  if (program.stage > 0) {
    transfers[ReceiveForward].link = communicator.openReceive(before, Stream::Forward);
    transfers[SendBackward].link = communicator.openSend(before, Stream::Backward);
  }
  if (program.stage + 1 < source.plan().stages_size()) {
    transfers[SendForward].link = communicator.openSend(after, Stream::Forward);
    transfers[ReceiveBackward].link = communicator.openReceive(after, Stream::Backward);
  }
  agreement.elements = {SquaredNorm + 1};
  for (const PreparedCollective &collective : program.collectives)
    flights.push_back(
        {std::vector<void *>(collective.from.size()), std::vector<void *>(collective.to.size()), Ticket{}});
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
  CrashSite site(*this);
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
    return client.loadInputs(microBatch, inputs.in(arena, slot));
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
    sumScalars();
    return client.updateScalars(scalars());
  case pb::Action::WAIT_RECEIVE_FORWARD:
    return communicator.wait(transfers[ReceiveForward].tickets[slot], spins);
  case pb::Action::WAIT_SEND_FORWARD:
    return communicator.wait(transfers[SendForward].tickets[slot], spins);
  case pb::Action::WAIT_RECEIVE_BACKWARD:
    return communicator.wait(transfers[ReceiveBackward].tickets[slot], spins);
  case pb::Action::WAIT_SEND_BACKWARD:
    return communicator.wait(transfers[SendBackward].tickets[slot], spins);
  default:
    return startTransfer(action);
  }
}

void Executor::startTransfer(const pb::Action &action) {
  auto begin = [&](StreamPlace which, bool isSend) {
    const Place &place = streamPlaces[which];
    std::byte *data = place.in(arena, action.slot());
    Transfers &transfer = transfers[which];
    transfer.tickets[action.slot()] = isSend ? communicator.startSend(transfer.link, data, place.bytes)
                                             : communicator.startReceive(transfer.link, data, place.bytes);
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

void Executor::sumScalars() {
  // Ranks that hold the same loss have each counted their share of it: the compiler divides by
  // their number. A stage without the loss has counted nothing.
  void *place = scalars();
  Ticket ticket = communicator.startCollective(program.worldGroup, agreement, &place, &place);
  communicator.wait(ticket, spins);
}

void Executor::barrier() {
  Ticket ticket = communicator.startCollective(program.worldGroup, meeting, nullptr, nullptr);
  communicator.wait(ticket, spins);
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
    switch (instruction.kind) {
    case PreparedInstruction::Launch:
      launch(instruction);
      break;
    case PreparedInstruction::Call:
      callLibrary(instruction);
      break;
    case PreparedInstruction::Start:
      startCollective(instruction);
      break;
    case PreparedInstruction::Wait:
      communicator.wait(flights[instruction.collective].ticket, spins);
    }
    if (guards)
      guards->check(position.subprogram, position.instruction, bases[pb::WORKSPACE]);
  }
}

void Executor::fail() const {
  if (fault->crashes)
    raise(SIGSEGV);
  throw std::runtime_error("injected fault");
}

void Executor::bindOperands(const PreparedInstruction &instruction) {
  const PreparedBuffer *places = program.buffers.data() + instruction.firstBuffer;
  for (uint32_t i = 0; i < instruction.buffers; ++i)
    buffers[i] = arena.at(bases[places[i].region] + places[i].offset);
  const PreparedScalar *scalars = program.scalars.data() + instruction.firstScalar;
  for (uint32_t i = 0; i < instruction.scalars; ++i)
    values[i] =
        scalars[i].constant + scalars[i].step * step + scalars[i].microBatch * microBatch + scalars[i].layer * layer;
}

void Executor::launch(const PreparedInstruction &instruction) {
  bindOperands(instruction);
  int64_t grains = (instruction.extent + instruction.grain - 1) / instruction.grain;
  int64_t parts = std::min<int64_t>(grains, pool.threads());
  if (parts <= 1) {
    if (instruction.extent > 0)
      instruction.kernel(buffers.data(), values.data(), 0, instruction.extent);
    return;
  }
  int64_t partExtent = (grains + parts - 1) / parts * instruction.grain;
  LaunchJob job = {*this, instruction.kernel, buffers.data(), values.data(), instruction.extent, partExtent};
  pool.run((instruction.extent + partExtent - 1) / partExtent, runLaunchPart, &job);
}

void Executor::callLibrary(const PreparedInstruction &instruction) {
  bindOperands(instruction);
  CallArguments arguments;
  arguments.buffers = buffers.data();
  arguments.scalars = values.data();
  arguments.accumulate = instruction.alwaysAdds || (instruction.accumulate && microBatch > 0);
  size_t perThread = roundUp(program.scratchBytesPerThread);
  arguments.scratch = scratch.at(perThread * pool.threads());
  arguments.seed = static_cast<uint32_t>(source.plan().settings().seed());
  arguments.step = static_cast<uint32_t>(step);
  LibraryJob job = {*this, instruction.library, &arguments, scratch.at(0), perThread};
  pool.run(instruction.library->parts(), runLibraryPart, &job);
  instruction.library->finish(arguments);
}

void Executor::resolve(std::span<const PreparedBuffer> places, std::vector<void *> &addresses) {
  for (size_t i = 0; i < places.size(); ++i)
    addresses[i] = arena.at(bases[places[i].region] + places[i].offset);
}

void Executor::startCollective(const PreparedInstruction &instruction) {
  const PreparedCollective &collective = program.collectives[instruction.collective];
  Flight &flight = flights[instruction.collective];
  resolve(collective.from, flight.from);
  resolve(collective.to, flight.to);
  flight.ticket =
      communicator.startCollective(collective.group, collective.shape, flight.from.data(), flight.to.data());
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
