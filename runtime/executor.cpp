// The step path. Addresses are computed when an instruction runs: the base of the bound region plus an offset. This is
// cheaper than storing them for every layer and ring slot.
#include "runtime/executor.h"

#include "runtime/crash_report.h"
#include "runtime/describe_place.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <csignal>
#include <new>
#include <numeric>
#include <thread>
#include <unistd.h>

namespace espalier::rt {
namespace {

/// An address that is never mapped.
constexpr uintptr_t nowhere = 64;

double secondsNow() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

} // namespace

Executor::Executor(const Program &source, int rank, Device &device, RankStatus *shownOn)
    : source(source), theDevice(device), program(source.prepare(rank, device)), status(shownOn ? *shownOn : ownStatus) {
  if (source.plan().guard_bytes() > 0)
    guards.emplace(source.plan(), source.mesh(), program.rank, device);
  open.resize(program.transfers.size());
  slots.resize(program.lifetimes.size());
  isFirst.resize(source.plan().buckets_size());
  // Uses its own queue, numbered after the plan's queues.
  TransferShape all = {.kind = pb::Transfer::ALL_REDUCE,
                       .queue = static_cast<uint32_t>(source.plan().queues_size()),
                       .members = source.mesh().members(rank, allAxes)};
  barrierTransfer = device.addTransfer(all);
}

void Executor::barrier() { theDevice.wait(theDevice.start({barrierTransfer, {}, {}})); }

void Executor::run(uint32_t entry) {
  CrashSite site(this);
  status.leaveEntry();
  status.step = step;
  status.entry = static_cast<int>(entry);
  if (trace) { // all ranks start together, so that their times are comparable
    barrier();
    theDevice.drain();
    trace->restart();
  }
  computeSeconds -= secondsNow();
  const Range &blocks = program.entries[entry];
  for (uint32_t i = 0; i < blocks.count; ++i)
    runBlock(program.blocks[blocks.first + i]);
  theDevice.endTurn();
  computeSeconds += secondsNow();
  status.leaveEntry();
  ++turns;
}

void Executor::runBlock(const PreparedBlock &block) {
  advance = block.advance;
  for (round = 0; round < block.rounds; ++round) {
    for (uint32_t i = 0; i < block.actions.count; ++i) {
      status.call = status.subprogram = status.instruction = -1;
      status.number = status.number + 1;
      status.main.move();
      isFaultDue = fault && fault->rank == program.rank && (fault->step == step || fault->step < 0) &&
                   fault->action == status.number;
      runAction(program.actions[block.actions.first + i]);
    }
  }
}

void Executor::runAction(const PreparedAction &action) {
  if (action.kind == PreparedAction::Run)
    return runCalls(action);
  if (isFaultDue)
    fail();
  for (uint32_t i = 0; i < action.instances.count; ++i) {
    const TransferInstance &instance = program.instances[action.instances.first + i];
    microBatch = instance.microBatch + round * advance;
    if (action.kind == PreparedAction::Wait) {
      wait(instance.transfer, instance.call);
      continue;
    }
    const PreparedLayerCall &call = program.calls[instance.call];
    layer = call.layer;
    setSlots(call, instance.slots);
    bind(call);
    start(instance.transfer, instance.call);
  }
}

/// Sets the ring slots of a call. Live ranges without an explicit slot use slot 0.
void Executor::setSlots(const PreparedLayerCall &call, Range range) {
  std::ranges::fill(slots, 0);
  const std::vector<uint32_t> &lifetimes = program.chunkLifetimes[call.chunk];
  for (uint32_t i = 0; i < range.count; ++i) {
    const pb::Lifetime &lifetime = program.lifetimes[lifetimes[i]];
    uint32_t slot = program.slots[range.first + i];
    slots[lifetimes[i]] = lifetime.rotates() ? (slot + uint64_t(round) * advance) % lifetime.slots() : slot;
  }
}

void Executor::bind(const PreparedLayerCall &call) {
  auto turn = static_cast<uint32_t>(turns % 2);
  for (uint32_t i = 0; i < call.bindings.count; ++i) {
    const PreparedBinding &binding = program.bindings[call.bindings.first + i];
    const PreparedPlace &place = program.places[binding.place];
    bases[binding.region] = {place.at(slots[place.lifetime], turn) + binding.offset, place.memory};
  }
}

void Executor::runCalls(const PreparedAction &action) {
  microBatch = action.microBatch + round * advance;
  setSlots(program.calls[action.calls.first], action.slots);
  auto setFirst = [&](char is) {
    for (uint32_t i = 0; i < action.first.count; ++i)
      isFirst[program.buckets[action.first.first + i]] = is;
  };
  size_t event = beginEvent(TraceEvent::Run, action.role, action.calls.first);
  setFirst(1);
  for (uint32_t i = 0; i < action.calls.count; ++i) {
    status.call = static_cast<int>(action.calls.first + (action.backwards ? action.calls.count - 1 - i : i));
    const PreparedLayerCall &call = program.calls[status.call];
    if (uint32_t subprogram = call.programs[action.role]) {
      size_t part = beginEvent(TraceEvent::Call, action.role, static_cast<uint32_t>(status.call));
      runSubprogram(call, subprogram - 1);
      endEvent(part);
    }
  }
  setFirst(0);
  endEvent(event);
}

void Executor::runSubprogram(const PreparedLayerCall &call, uint32_t subprogram) {
  layer = call.layer;
  bind(call);
  status.subprogram = static_cast<int>(subprogram);
  const Range &range = program.subprograms[subprogram];
  for (uint32_t i = 0; i < range.count; ++i) {
    status.instruction = static_cast<int>(i);
    status.main.move();
    if (isFaultDue && fault->instruction == i)
      fail();
    if (guards)
      guards->open(status.subprogram, status.instruction, bases);
    runInstruction(program.instructions[range.first + i]);
    if (guards)
      guards->check(status.subprogram, status.instruction, bases);
    theDevice.progress();
    if (trace)
      endTransfers();
  }
  status.instruction = -1;
}

void Executor::runInstruction(const PreparedInstruction &instruction) {
  auto call = static_cast<uint32_t>(status.call);
  switch (instruction.kind) {
  case PreparedInstruction::Launch:
    return launch(instruction);
  case PreparedInstruction::Call:
    return callLibrary(instruction);
  case PreparedInstruction::Start:
    return start(instruction.number, call);
  case PreparedInstruction::Wait:
    return wait(instruction.number, call);
  }
}

void Executor::fail() const {
  switch (fault->kind) {
  case Fault::Exception:
    throw std::runtime_error("injected fault");
  case Fault::Crash:
    *reinterpret_cast<volatile int *>(nowhere) = 0;
    break;
  case Fault::Kill:
    kill(getpid(), SIGKILL);
    pause();
    break;
  case Fault::Stop:
    kill(getpid(), SIGSTOP);
    break;
  case Fault::Memory:
    throw std::bad_alloc();
  case Fault::Sleep:
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
  }
}

std::span<const Place> Executor::resolve(Range buffers, std::span<Place> to) const {
  for (uint32_t i = 0; i < buffers.count; ++i) {
    const PreparedBuffer &buffer = program.buffers[buffers.first + i];
    int64_t slice = buffer.microBatch * microBatch + buffer.layer * layer;
    to[i] = {bases[buffer.region].offset + buffer.offset + slice, bases[buffer.region].memory};
  }
  return to.first(buffers.count);
}

void Executor::bindOperands(const PreparedInstruction &instruction) {
  resolve(instruction.buffers, places);
  for (uint32_t i = 0; i < instruction.scalars.count; ++i) {
    const PreparedScalar &scalar = program.scalars[instruction.scalars.first + i];
    values[i] = scalar.first > 0 ? isFirst[scalar.first - 1]
                                 : scalar.constant + scalar.microBatch * microBatch + scalar.layer * layer;
  }
}

void Executor::launch(const PreparedInstruction &instruction) {
  bindOperands(instruction);
  theDevice.launch({static_cast<uint32_t>(status.subprogram),
                    static_cast<uint32_t>(status.instruction),
                    instruction.number,
                    {places.data(), instruction.buffers.count},
                    {values.data(), instruction.scalars.count},
                    instruction.extent,
                    instruction.grain});
}

void Executor::callLibrary(const PreparedInstruction &instruction) {
  bindOperands(instruction);
  bool overwrites = instruction.unlessFirst > 0 && isFirst[instruction.unlessFirst - 1];
  theDevice.call({static_cast<uint32_t>(status.subprogram),
                  static_cast<uint32_t>(status.instruction),
                  {places.data(), instruction.buffers.count},
                  {values.data(), instruction.scalars.count},
                  instruction.adds && !overwrites});
}

void Executor::start(uint32_t transfer, uint32_t call) {
  const PreparedTransfer &prepared = program.transfers[transfer];
  size_t event = beginEvent(TraceEvent::Flight, transfer, call);
  TransferTicket ticket =
      theDevice.start({*prepared.number, resolve(prepared.from, places), resolve(prepared.to, morePlaces)});
  open[transfer].push_back({call, microBatch, ticket, event});
}

void Executor::wait(uint32_t transfer, uint32_t call) {
  std::vector<InFlightTransfer> &transfers = open[transfer];
  auto isIt = [&](const InFlightTransfer &instance) {
    return instance.call == call && instance.microBatch == microBatch;
  };
  auto instance = std::ranges::find_if(transfers, isIt);
  assert(instance != transfers.end()); // proved by the verifier
  size_t event = beginEvent(TraceEvent::Wait, transfer, call);
  status.microBatch = microBatch;
  status.transfer = static_cast<int>(transfer);
  computeSeconds += secondsNow();
  theDevice.wait(instance->ticket);
  computeSeconds -= secondsNow();
  status.transfer = -1;
  endEvent(event);
  endEvent(instance->event);
  transfers.erase(instance);
}

size_t Executor::beginEvent(TraceEvent::Kind kind, uint32_t subject, uint32_t call) {
  return trace ? trace->begin(kind, subject, call, microBatch) : 0;
}

/// Ends an event after the work issued so far has ended.
void Executor::endEvent(size_t event) {
  if (!trace)
    return;
  theDevice.drain();
  trace->end(event);
}

void Executor::endTransfers() {
  for (const std::vector<InFlightTransfer> &transfers : open)
    for (const InFlightTransfer &instance : transfers)
      if (theDevice.hasEnded(instance.ticket))
        trace->end(instance.event);
}

uint64_t Executor::address(uint32_t call, const pb::Buffer &buffer, uint32_t slot) const {
  const Range &bindings = program.calls[call].bindings;
  auto first = program.bindings.begin() + bindings.first, last = first + bindings.count;
  auto binding = std::find_if(first, last, [&](const PreparedBinding &b) { return b.region == buffer.region(); });
  assert(binding != last); // proved by the verifier
  return program.places[binding->place].at(slot, 0) + binding->offset + offsetOf(source.mesh(), program.rank, buffer);
}

std::span<std::byte> Executor::exchange(uint32_t index, uint32_t slot) {
  const pb::Exchange &exchange = source.plan().stages(program.stage).exchanges(static_cast<int>(index));
  // The entry before last read the input buffer that the host fills now. The last entry writes the output buffer.
  {
    Waits waits(&status.main, Activity::OwnDevice);
    theDevice.finishTurns(exchange.filled_by_host() ? 1 : 0);
  }
  uint64_t turn = (exchange.filled_by_host() ? turns : turns + 1) % 2;
  const pb::Call &call = source.plan().stages(program.stage).calls(static_cast<int>(exchange.call()));
  auto binding = std::ranges::find(call.bindings(), exchange.buffer().region(), &pb::Binding::region);
  uint64_t begin =
      address(exchange.call(), exchange.buffer(), slot) + turn * program.places[binding->place()].turnBytes;
  return {theDevice.host(begin), exchange.buffer().bytes()};
}

void Executor::showSlow(std::span<const SlowAtEnd> ranks) {
  for (size_t i = 0; i < status.slow.size(); ++i) {
    status.slow[i].rank = i < ranks.size() ? ranks[i].rank : -1;
    status.slow[i].ratio = i < ranks.size() ? static_cast<float>(ranks[i].ratio) : 1;
  }
}

Failure Executor::describe(const std::string &message) const {
  Failure failure;
  failure.rank = program.rank;
  failure.message = message;
  describePlace(source.plan(), program.stage, status, failure);
  return failure;
}

} // namespace espalier::rt
