#include "test/emulator/block.h"

#include <algorithm>

namespace espalier::emulator {

SharedMemory::SharedMemory(uint32_t size)
    : bytes(size), states(size, undefined), writes(size / 2 + 1), reads(size / 2 + 1) {
  std::fill(bytes.begin(), bytes.end(), std::byte(0xff)); // NaN, so that missing writes show
}

const char *SharedMemory::read(uint32_t at, uint32_t count, uint32_t warp, bool reportsUndefined) {
  if (reportsUndefined || expectsCopies)
    for (uint32_t byte = at; byte < at + count; ++byte) {
      if (states[byte] == expected)
        return "is read before its asynchronous copy was waited for";
      if (states[byte] == undefined && reportsUndefined)
        return "is read but was never written";
    }
  if (count == 1)
    return nullptr;
  const uint32_t own = epoch + warp;
  bool isRace = false;
  for (uint32_t pair = at / 2; pair < (at + count + 1) / 2; ++pair) {
    isRace |= writes[pair] >= epoch && writes[pair] != own;
    reads[pair] = reads[pair] >= epoch && reads[pair] != own ? epoch + severalWarps : own;
  }
  return isRace ? "was written by another warp without a barrier since" : nullptr;
}

const char *SharedMemory::write(uint32_t at, uint32_t count, uint32_t warp) {
  std::fill_n(states.begin() + at, count, defined);
  if (count == 1)
    return nullptr;
  const uint32_t own = epoch + warp;
  bool isWritten = false, isRead = false;
  for (uint32_t pair = at / 2; pair < (at + count + 1) / 2; ++pair) {
    isWritten |= writes[pair] >= epoch && writes[pair] != own;
    isRead |= reads[pair] >= epoch && reads[pair] != own;
    writes[pair] = own;
  }
  return isWritten ? "was written by another warp without a barrier since"
         : isRead  ? "was read by another warp without a barrier since"
                   : nullptr;
}

void SharedMemory::expect(uint32_t at, uint32_t count) {
  expectsCopies = true;
  std::fill_n(states.begin() + at, count, expected);
}

Block::Block(Grid &grid, Dim index)
    : grid(grid), index(index), number(1 + index.x + grid.launch.grid.x * (index.y + grid.launch.grid.y * index.z)),
      shared(grid.entry.sharedBytes + grid.launch.sharedBytes) {
  const Dim &size = grid.launch.block;
  uint32_t threads = size.x * size.y * size.z;
  local.resize(static_cast<size_t>(threads) * grid.entry.localBytes);
  for (uint32_t first = 0; first < threads; first += warpLanes)
    warps.push_back(std::make_unique<Warp>(*this, grid.entry, first / warpLanes, std::min(warpLanes, threads - first)));
}

void Block::run() {
  std::vector<Warp::Stop> stops(warps.size(), Warp::Stop::barrier);
  std::vector<bool> isHeld(warps.size(), false);
  while (true) {
    for (size_t i = 0; i < warps.size(); ++i)
      if (stops[i] == Warp::Stop::barrier && !isHeld[i])
        stops[i] = warps[i]->run();
    if (std::all_of(stops.begin(), stops.end(), [](Warp::Stop stop) { return stop == Warp::Stop::exited; }))
      break;
    // Releases the barriers at which all their threads have arrived. Each warp waits at one barrier.
    bool progress = false;
    std::fill(isHeld.begin(), isHeld.end(), true);
    for (size_t i = 0; i < warps.size(); ++i) {
      if (stops[i] == Warp::Stop::exited)
        continue;
      const Warp &first = *warps[i];
      uint32_t arrived = 0,
               wanted = first.barrierThreads ? (first.barrierThreads + warpLanes - 1) / warpLanes : warps.size();
      for (size_t j = 0; j < warps.size(); ++j)
        arrived += stops[j] == Warp::Stop::barrier && warps[j]->barrierId == first.barrierId;
      if (arrived < wanted)
        continue;
      isHeld[i] = false;
      progress = true;
    }
    if (!progress)
      failAtBarrier(stops);
    shared.passBarrier();
  }
  for (const auto &warp : warps)
    grid.instructions += warp->executed;
}

/// Reports which warps wait for which.
void Block::failAtBarrier(const std::vector<Warp::Stop> &stops) const {
  size_t waiting = std::find(stops.begin(), stops.end(), Warp::Stop::barrier) - stops.begin();
  const Warp &first = *warps[waiting];
  for (size_t i = 0; i < warps.size(); ++i) {
    const Warp &other = *warps[i];
    std::string name = "warp " + std::to_string(i);
    if (stops[i] == Warp::Stop::exited)
      first.fail(Fault::Check::barrier, first.barrierInstruction(), 0,
                 "barrier " + std::to_string(first.barrierId) + " waits for " + name + ", which has exited");
    if (other.barrierId != first.barrierId)
      first.fail(Fault::Check::barrier, first.barrierInstruction(), 0,
                 "barrier " + std::to_string(first.barrierId) + " waits for " + name + ", which waits at barrier " +
                     std::to_string(other.barrierId) + " of line " + std::to_string(other.barrierInstruction().line));
  }
  first.fail(Fault::Check::barrier, first.barrierInstruction(), 0,
             "barrier " + std::to_string(first.barrierId) + " is for " + std::to_string(first.barrierThreads) +
                 " threads, more than the block has");
}

} // namespace espalier::emulator
