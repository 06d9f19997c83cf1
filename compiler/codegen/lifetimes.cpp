#include "compiler/codegen/lifetimes.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace mlir;

namespace espalier::codegen {

namespace {

using Lifetimes = std::map<int64_t, Lifetime>;

/// Returns, by collective, the instruction until which it uses its buffers.
std::map<int64_t, int64_t> waitPositions(Block &block) {
  std::map<int64_t, int64_t> waits;
  for (auto [position, op] : llvm::enumerate(block))
    if (auto wait = dyn_cast<exec::WaitOp>(op))
      waits[wait.getId()] = position;
  return waits;
}

Lifetimes findUses(Block &block) {
  std::map<int64_t, int64_t> waits = waitPositions(block);
  Lifetimes lifetimes;
  for (auto [index, op] : llvm::enumerate(block)) {
    int64_t position = index, end = position;
    if (auto start = dyn_cast<exec::StartOp>(op); start && waits.count(start.getId()))
      end = waits[start.getId()];
    exec::visitBuffers(&op, [&](exec::BufferAttr buffer, bool) {
      if (!buffer.isVirtual())
        return;
      auto [entry, isNew] = lifetimes.try_emplace(buffer.getOffset(), Lifetime{position, end, 0});
      entry->second.last = std::max(entry->second.last, end);
      // A shard at a rank-dependent offset may extend to the end of the unsharded buffer. The instruction that writes
      // the buffer names it as a whole.
      entry->second.bytes = std::max(entry->second.bytes, buffer.getWithin() + buffer.getBytes());
    });
  }
  return lifetimes;
}

/// Merges results with operands that they may overwrite.
std::map<int64_t, int64_t> joinInPlace(Block &block, Lifetimes &lifetimes) {
  std::map<int64_t, int64_t> joined;
  auto representative = [&](int64_t number) {
    while (joined.count(number))
      number = joined[number];
    return number;
  };
  for (auto [index, op] : llvm::enumerate(block)) {
    auto launch = dyn_cast<exec::LaunchOp>(op);
    if (!launch || !launch.getInPlace())
      continue;
    ArrayRef<int64_t> pairs = *launch.getInPlace();
    for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
      auto output = cast<exec::BufferAttr>(launch.getBuffers()[pairs[i]]);
      auto input = cast<exec::BufferAttr>(launch.getBuffers()[pairs[i + 1]]);
      if (!output.isVirtual() || !input.isVirtual() || joined.count(output.getOffset()))
        continue;
      int64_t position = index, from = representative(input.getOffset());
      Lifetime &old = lifetimes[from], &next = lifetimes[output.getOffset()];
      if (from == output.getOffset() || old.last != position || next.first != position || old.bytes != next.bytes)
        continue;
      old.last = next.last;
      joined[output.getOffset()] = from;
      lifetimes.erase(output.getOffset());
    }
  }
  std::map<int64_t, int64_t> representatives;
  for (auto &[number, target] : joined)
    representatives[number] = representative(target);
  return representatives;
}

} // namespace

ProgramLifetimes findLifetimes(exec::ProgramOp program) {
  Block &block = program.getBody().front();
  ProgramLifetimes found;
  found.buffers = findUses(block);
  found.joined = joinInPlace(block, found.buffers);
  return found;
}

int64_t largestLiveBytes(const Lifetimes &buffers, llvm::function_ref<int64_t(const Lifetime &)> bytes) {
  std::map<int64_t, int64_t> changes; // by instruction
  for (const auto &[number, lifetime] : buffers) {
    changes[lifetime.first] += bytes(lifetime);
    changes[lifetime.last + 1] -= bytes(lifetime);
  }
  int64_t live = 0, most = 0;
  for (auto [position, change] : changes)
    most = std::max(most, live += change);
  return most;
}

} // namespace espalier::codegen
