// Places of virtual buffers in the workspace. Lifetimes are exact intervals of instructions; a launch that may work in
// place shares one buffer between an operand that dies there and its result. Buffers are placed by size, largest
// first, each in the smallest gap that is free over its whole lifetime.
#include "compiler/codegen/guards.h"
#include "compiler/passes.h"
#include "dialects/exec/dialect.h"

#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_PLANBUFFERS
#include "compiler/passes.h.inc"

namespace {

constexpr int64_t alignment = 64;

/// First and last instruction that a buffer is needed at, and its place.
struct Lifetime {
  int64_t first = 0, last = 0, bytes = 0, offset = 0;
  bool overlaps(const Lifetime &other) const { return first <= other.last && other.first <= last; }
};

using Lifetimes = std::map<int64_t, Lifetime>; // by virtual number

/// The instruction until which each collective of a program uses its buffers.
std::map<int64_t, int64_t> waitPositions(Block &block) {
  std::map<int64_t, int64_t> waits;
  for (auto [position, op] : llvm::enumerate(block))
    if (auto wait = dyn_cast<exec::WaitOp>(op))
      waits[wait.getId()] = position;
  return waits;
}

Lifetimes findLifetimes(Block &block) {
  std::map<int64_t, int64_t> waits = waitPositions(block);
  Lifetimes lifetimes;
  for (auto [index, op] : llvm::enumerate(block)) {
    int64_t position = index, end = position;
    if (auto start = dyn_cast<exec::StartOp>(op); start && waits.count(start.getId()))
      end = waits[start.getId()];
    exec::visitBuffers(&op, [&](exec::BufferAttr buffer, bool) {
      if (!buffer.isVirtual())
        return;
      auto [entry, isNew] = lifetimes.try_emplace(buffer.getOffset(), Lifetime{position, end, 0, 0});
      entry->second.last = std::max(entry->second.last, end);
      // A part that depends on the rank may reach as far as the whole; the whole is named where it is written.
      entry->second.bytes = std::max(entry->second.bytes, buffer.getWithin() + buffer.getBytes());
    });
  }
  return lifetimes;
}

/// Joins results with operands that they may overwrite; joined buffers have one lifetime.
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

/// Chooses offsets, each with `guard` free bytes behind it; returns the bytes of the workspace.
int64_t pack(Lifetimes &lifetimes, int64_t guard) {
  auto footprint = [&](const Lifetime &lifetime) {
    return static_cast<int64_t>(llvm::alignTo(lifetime.bytes, alignment)) + guard;
  };
  SmallVector<std::tuple<int64_t, int64_t, Lifetime *>> order; // the largest first, equal ones by number
  for (auto &[number, lifetime] : lifetimes)
    order.emplace_back(-lifetime.bytes, number, &lifetime);
  llvm::sort(order);
  int64_t peak = 0;
  SmallVector<Lifetime *> placed; // by offset
  for (auto [negativeBytes, number, lifetime] : order) {
    int64_t end = 0, best = -1, bestGap = INT64_MAX;
    int64_t bytes = footprint(*lifetime);
    for (Lifetime *other : placed) {
      if (!other->overlaps(*lifetime))
        continue;
      int64_t gap = other->offset - end;
      if (gap >= bytes && gap < bestGap) {
        best = end;
        bestGap = gap;
      }
      end = std::max<int64_t>(end, other->offset + footprint(*other));
    }
    lifetime->offset = best < 0 ? end : best;
    peak = std::max(peak, lifetime->offset + bytes);
    placed.insert(
        llvm::upper_bound(placed, lifetime, [](const Lifetime *a, const Lifetime *b) { return a->offset < b->offset; }),
        lifetime);
  }
  return peak;
}

/// `attribute` with virtual buffers replaced by places.
Attribute replaceBuffers(Attribute attribute, function_ref<exec::BufferAttr(exec::BufferAttr)> place) {
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](exec::BufferAttr buffer) -> std::pair<Attribute, WalkResult> {
    return {buffer.isVirtual() ? place(buffer) : buffer, WalkResult::skip()};
  });
  return replacer.replace(attribute);
}

/// (offset, first, last instruction) of the free bytes behind each buffer.
DenseI64ArrayAttr guardsOf(const Lifetimes &lifetimes, MLIRContext *context) {
  SmallVector<int64_t> guards;
  for (const auto &[number, lifetime] : lifetimes)
    llvm::append_values(guards, lifetime.offset + lifetime.bytes, lifetime.first, lifetime.last);
  return DenseI64ArrayAttr::get(context, guards);
}

void planProgram(exec::ProgramOp program, int64_t guard) {
  Block &block = program.getBody().front();
  Lifetimes lifetimes = findLifetimes(block);
  std::map<int64_t, int64_t> joined = joinInPlace(block, lifetimes);
  int64_t peak = pack(lifetimes, guard);
  if (guard > 0)
    program->setAttr("exec.guards", guardsOf(lifetimes, program.getContext()));
  auto place = [&](exec::BufferAttr buffer) {
    auto found = joined.find(buffer.getOffset());
    int64_t offset = lifetimes[found == joined.end() ? buffer.getOffset() : found->second].offset;
    return exec::BufferAttr::get(buffer.getContext(), "workspace", offset + buffer.getWithin(), buffer.getBytes(), 0,
                                 buffer.getCoordinates());
  };
  for (Operation &op : block) {
    op.setAttrs(cast<DictionaryAttr>(replaceBuffers(op.getAttrDictionary(), place)));
    op.removeAttr("in_place");
  }
  program.setWorkspaceBytes(peak);
}

struct PlanBuffersPass : impl::PlanBuffersBase<PlanBuffersPass> {
  void runOnOperation() override {
    for (auto program : getOperation().getOps<exec::ProgramOp>())
      planProgram(program, guardBytes(getOperation()));
  }
};

} // namespace
} // namespace espalier
