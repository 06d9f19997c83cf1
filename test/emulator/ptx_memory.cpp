#include "test/emulator/ptx_memory.h"

#include <cstdio>

#include "test/emulator/block.h"

namespace espalier::emulator {
namespace {

std::string hexadecimal(uint64_t value) {
  char text[24];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
  return text;
}

} // namespace

MemoryAccess::MemoryAccess(Warp &warp, const Instruction &instruction, uint32_t bytes, bool reads, bool writes)
    : warp(warp), instruction(instruction), bytes(bytes), reads(reads), writes(writes) {}

std::byte *MemoryAccess::shared(uint64_t address, uint32_t lane) {
  return shared(Run{{address, address + bytes}, lane});
}
std::byte *MemoryAccess::global(uint64_t address, uint32_t lane) {
  return global(Run{{address, address + bytes}, lane});
}

bool MemoryAccess::isInside(const Run &run) const {
  const auto &[begin, end] = run.bytes;
  if (instruction.space == Space::global)
    return warp.block.grid.memory.find(begin, end - begin);
  return begin <= end && end <= warp.block.shared.size();
}

std::byte *MemoryAccess::shared(const Run &run) {
  SharedMemory &memory = warp.block.shared;
  if (run.bytes.begin > run.bytes.end || run.bytes.end > memory.size())
    warp.fail(Fault::Check::bounds, instruction, run.lane,
              "touches " + std::to_string(bytes) + " bytes at " + std::to_string(run.bytes.begin) +
                  " of shared memory, which has " + std::to_string(memory.size()));
  uint32_t at = static_cast<uint32_t>(run.bytes.begin), count = static_cast<uint32_t>(run.bytes.end - run.bytes.begin);
  bool reportsUndefined = warp.block.grid.launch.reportsUndefined;
  const char *wrong = nullptr;
  if (reads && !isAtomic)
    wrong = memory.read(at, count, warp.index, reportsUndefined);
  bool isUndefined = wrong && std::string_view(wrong).starts_with("is read but");
  if (writes && !wrong && !isAtomic)
    wrong = memory.write(at, count, warp.index);
  if (wrong)
    warp.fail(isUndefined ? Fault::Check::undefined : Fault::Check::race, instruction, run.lane,
              "byte " + std::to_string(at) + " of shared memory " + wrong);
  return memory.data() + at;
}

std::byte *MemoryAccess::local(uint64_t address, uint32_t lane) {
  uint32_t size = warp.entry.localBytes;
  if (address > size || bytes > size - address)
    warp.fail(Fault::Check::bounds, instruction, lane,
              "touches " + std::to_string(bytes) + " bytes at " + std::to_string(address) +
                  " of local memory, which has " + std::to_string(size));
  return warp.block.local.data() + static_cast<size_t>(warp.index * warpLanes + lane) * size + address;
}

std::byte *MemoryAccess::parameter(uint64_t address, uint32_t lane) {
  std::vector<std::byte> &block = warp.block.grid.parameters;
  if (writes || address > block.size() || bytes > block.size() - address)
    warp.fail(Fault::Check::bounds, instruction, lane, "touches no parameter");
  return block.data() + address;
}

std::byte *MemoryAccess::global(const Run &run) {
  Grid &grid = warp.block.grid;
  std::byte *host = grid.memory.find(run.bytes.begin, run.bytes.end - run.bytes.begin);
  if (!host)
    warp.fail(Fault::Check::bounds, instruction, run.lane,
              std::string(writes ? "writes " : "reads ") + std::to_string(bytes) + " bytes at " +
                  hexadecimal(run.bytes.begin) + ", " +
                  grid.memory.describe(run.bytes.begin + (grid.memory.find(run.bytes.begin, 1) ? bytes - 1 : 0)));
  uint32_t block = isAtomic ? 0 : warp.block.number;
  std::optional<GlobalTouches::Conflict> conflict;
  if (reads)
    conflict = grid.touches.read(run.bytes, block, instruction.nonCoherent);
  if (writes && !conflict)
    conflict = grid.touches.write(run.bytes, block);
  if (conflict)
    warp.fail(Fault::Check::race, instruction, run.lane,
              std::string(writes ? "writes " : "reads ") + grid.memory.describe(conflict->address) + ", which " +
                  (conflict->block ? "block " + std::to_string(conflict->block - 1) : "other blocks") +
                  (conflict->isWrite ? " writes" : " read"));
  return host;
}

uint64_t MemoryAccess::addressOf(uint32_t operand, int64_t offset, uint32_t lane) const {
  Slot slot = instruction.operands[operand];
  uint64_t address = warp.bits(slot, lane) + static_cast<uint64_t>(offset);
  return slot.bytes == 8 ? address : address & 0xffffffff;
}

void MemoryAccess::checkAlignment(uint64_t address, uint32_t lane) const {
  if (address & (bytes - 1))
    warp.fail(Fault::Check::alignment, instruction, lane,
              hexadecimal(address) + " is not a multiple of " + std::to_string(bytes));
}

std::byte *MemoryAccess::inSpace(Space space, uint64_t address, uint32_t lane) {
  switch (space) {
  case Space::global:
    return global(address, lane);
  case Space::shared:
    return shared(address, lane);
  case Space::local:
    return local(address, lane);
  case Space::parameter:
    return parameter(address, lane);
  default:
    return address >= localWindow    ? local(address - localWindow, lane)
           : address >= sharedWindow ? shared(address - sharedWindow, lane)
                                     : global(address, lane);
  }
}

/// Finds lanes that access equal or consecutive bytes, to check them together.
void MemoryAccess::findRuns(const uint64_t *addresses, uint32_t mask, std::byte **host) {
  while (mask) {
    uint32_t first = __builtin_ctz(mask), lanes = 0;
    Run run{{addresses[first], addresses[first] + bytes}, first};
    for (; mask; mask &= mask - 1) {
      uint32_t lane = __builtin_ctz(mask);
      if (addresses[lane] == run.bytes.end)
        run.bytes.end += bytes;
      else if (addresses[lane] != run.bytes.end - bytes)
        break;
      run.lane = lane;
      lanes |= 1u << lane;
    }
    if (!isInside(run)) // one of the lanes fails
      forLanes(lanes, [&](uint32_t lane) { inSpace(instruction.space, addresses[lane], lane); });
    std::byte *base = instruction.space == Space::global ? global(run) : shared(run);
    forLanes(lanes, [&](uint32_t lane) { host[lane] = base + (addresses[lane] - run.bytes.begin); });
  }
}

void MemoryAccess::find(uint32_t operand, uint32_t mask, std::byte *(&host)[warpLanes]) {
  if (instruction.nonCoherent && !warp.block.grid.nonCoherentLine)
    warp.block.grid.nonCoherentLine = instruction.line;
  uint64_t addresses[warpLanes], all = 0;
  forLanes(mask, [&](uint32_t lane) { all |= addresses[lane] = addressOf(operand, instruction.immediate, lane); });
  if (all & (bytes - 1))
    forLanes(mask, [&](uint32_t lane) { checkAlignment(addresses[lane], lane); });
  if (instruction.space == Space::global || instruction.space == Space::shared)
    findRuns(addresses, mask, host);
  else
    forLanes(mask, [&](uint32_t lane) { host[lane] = inSpace(instruction.space, addresses[lane], lane); });
}

} // namespace espalier::emulator
