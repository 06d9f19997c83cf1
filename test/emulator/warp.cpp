#include "test/emulator/warp.h"

#include <algorithm>

#include "test/emulator/block.h"

namespace espalier::emulator {

Warp::Warp(Block &block, const Entry &entry, uint32_t index, uint32_t threads)
    : block(block), entry(entry), index(index), started(threads == warpLanes ? ~0u : (1u << threads) - 1),
      live(started), file(entry.fileBytes) {
  if (block.grid.launch.reportsUndefined)
    defined.resize(entry.fileBytes / 4 + 1);
  fillConstants();
}

void Warp::fillConstants() {
  for (const Fill &fill : entry.fills) {
    for (uint32_t lane = 0; lane < warpLanes; ++lane)
      setBits(fill.slot, lane, fill.source == Fill::Source::value ? fill.value : special(fill, lane));
    if (!defined.empty())
      defined[fill.slot.offset / 4] = ~0u;
  }
}

uint32_t Warp::special(const Fill &fill, uint32_t lane) const {
  auto part = [&](const Dim &dim) { return fill.axis == 0 ? dim.x : fill.axis == 1 ? dim.y : dim.z; };
  const Dim &size = block.grid.launch.block;
  uint32_t thread = index * warpLanes + lane;
  switch (fill.source) {
  case Fill::Source::tid:
    return part({thread % size.x, thread / size.x % size.y, thread / size.x / size.y});
  case Fill::Source::ntid:
    return part(size);
  case Fill::Source::ctaid:
    return part(block.index);
  case Fill::Source::nctaid:
    return part(block.grid.launch.grid);
  case Fill::Source::lane:
    return lane;
  case Fill::Source::warp:
    return index;
  default:
    return (size.x * size.y * size.z + warpLanes - 1) / warpLanes;
  }
}

/// Returns the lanes that run next: of all lanes that do not wait, those at the lowest instruction, and lanes that wait
/// there.
uint32_t Warp::nextGroup(uint32_t &at) {
  at = ~0u;
  forLanes(live & ~waiting, [&](uint32_t lane) { at = std::min(at, program[lane]); });
  uint32_t group = 0;
  forLanes(live, [&](uint32_t lane) { group |= uint32_t(program[lane] == at) << lane; });
  if (!group) {
    uint32_t lane = __builtin_ctz(waiting);
    fail(Fault::Check::convergence, entry.instructions[program[lane]], lane,
         "waits for lanes of its warp that wait elsewhere");
  }
  return group;
}

uint32_t Warp::guarded(const Instruction &instruction, uint32_t mask) {
  if (instruction.guard.offset == noSlot)
    return mask;
  uint32_t holds = predicate(instruction.guard);
  return mask & (instruction.guardNegated ? ~holds : holds);
}

Warp::Stop Warp::run() {
  while (live) {
    uint32_t at, mask = nextGroup(at);
    // While lanes diverge, the group is chosen again after every instruction.
    do {
      const Instruction &instruction = entry.instructions[at];
      uint32_t holding = guarded(instruction, mask);
      ++executed;
      if (!defined.empty())
        checkDefined(instruction, holding);
      if (!holding) {
        ++at;
        continue;
      }
      switch (instruction.flow) {
      case Flow::next:
        instruction.execute(*this, instruction, holding);
        ++at;
        break;
      case Flow::branch:
        at = branch(instruction, at, holding, mask);
        break;
      case Flow::exit:
        live &= ~holding;
        mask &= ~holding;
        waiting = 0; // waiting lanes check again, because no lane waits for exited lanes
        ++at;
        break;
      case Flow::barrier:
        stopAtBarrier(instruction, holding);
        forLanes(live, [&](uint32_t lane) { program[lane] = at + 1; });
        return Stop::barrier;
      case Flow::converge:
        if (isConverged(instruction, holding)) {
          waiting &= ~holding;
          instruction.execute(*this, instruction, holding);
        } else {
          waiting |= holding;
          forLanes(holding, [&](uint32_t lane) { program[lane] = at; });
          mask &= ~holding;
        }
        ++at;
        break;
      }
    } while (mask == live && mask);
    forLanes(mask & live, [&](uint32_t lane) { program[lane] = at; });
  }
  return Stop::exited;
}

/// Sets the next instruction of the lanes in the mask. Lanes that diverge leave the mask.
uint32_t Warp::branch(const Instruction &instruction, uint32_t at, uint32_t holding, uint32_t &mask) {
  if (holding == mask)
    return instruction.target;
  forLanes(holding, [&](uint32_t lane) { program[lane] = instruction.target; });
  mask &= ~holding;
  return at + 1;
}

/// Returns whether all lanes have arrived that the instruction names and that have not exited.
bool Warp::isConverged(const Instruction &instruction, uint32_t mask) {
  if (instruction.members == allMembers) {
    if (live != ~0u)
      fail(Fault::Check::convergence, instruction, __builtin_ctz(mask),
           "needs all 32 lanes of the warp, some have exited");
    return mask == live;
  }
  uint32_t wanted = 0;
  forLanes(mask, [&](uint32_t lane) {
    uint32_t members = static_cast<uint32_t>(bits(instruction.operands[instruction.members], lane));
    if (!(members >> lane & 1))
      fail(Fault::Check::convergence, instruction, lane, "is executed by a lane that its member mask leaves out");
    wanted |= members;
  });
  return (wanted & live & ~mask) == 0;
}

void Warp::stopAtBarrier(const Instruction &instruction, uint32_t mask) {
  if (mask != live) {
    uint32_t missing = __builtin_ctz(live & ~mask);
    fail(Fault::Check::barrier, instruction, __builtin_ctz(mask),
         "barrier in divergent code: lane " + std::to_string(missing) + " of the warp is at line " +
             std::to_string(entry.instructions[program[missing]].line));
  }
  if (live != started)
    fail(Fault::Check::barrier, instruction, __builtin_ctz(mask),
         "barrier waits for lane " + std::to_string(__builtin_ctz(started & ~live)) + " of the warp, which has exited");
  stoppedAt = &instruction;
  barrierId = static_cast<uint32_t>(bits(instruction.operands[0], 0));
  barrierThreads = instruction.inputs > 1 ? static_cast<uint32_t>(bits(instruction.operands[1], 0)) : 0;
}

void Warp::checkDefined(const Instruction &instruction, uint32_t mask) {
  for (uint32_t i = instruction.outputs; i < uint32_t(instruction.outputs) + instruction.inputs; ++i)
    if (uint32_t missing = mask & ~defined[instruction.operands[i].offset / 4])
      fail(Fault::Check::undefined, instruction, __builtin_ctz(missing),
           "reads operand " + std::to_string(i + 1) + ", which nothing has written");
  for (uint32_t i = 0; i < instruction.outputs; ++i)
    defined[instruction.operands[i].offset / 4] |= mask;
}

void Warp::fail(Fault::Check check, const Instruction &instruction, uint32_t lane, const std::string &what) const {
  const Dim &place = block.index;
  size_t number = &instruction - entry.instructions.data();
  throw Fault(check, entry.name, instruction.line,
              entry.opcodes[number] + " (block " + std::to_string(place.x) + "," + std::to_string(place.y) + "," +
                  std::to_string(place.z) + ", thread " + std::to_string(index * warpLanes + lane) + ") " + what);
}

} // namespace espalier::emulator
