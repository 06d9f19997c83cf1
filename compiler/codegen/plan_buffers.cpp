// Assigns offsets in the workspace to virtual buffers. Buffers are allocated one by one, largest first. Each takes the
// smallest gap that is free over its whole live range. The largest sum of live bytes is a lower bound, which almost
// every program reaches. If the first assignment exceeds the bound, the buffer with the highest end moves to the front
// of the order and all buffers are assigned again. This is repeated at most a few hundred times.
#include "compiler/codegen/guards.h"
#include "compiler/codegen/lifetimes.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_PLANBUFFERS
#include "compiler/passes.h.inc"

namespace {

using codegen::Lifetime;

constexpr int64_t alignment = 64;
/// Assignments that are tried for each initial order.
constexpr int attempts = 100;

/// Assigns offsets to the buffers of one program.
class Packer {
public:
  /// Leaves `guard` free bytes after each buffer.
  Packer(const std::map<int64_t, Lifetime> &lifetimes, int64_t guard) : guard(guard) {
    for (const auto &[number, lifetime] : lifetimes)
      buffers.push_back({lifetime, number, footprint(lifetime), 0});
    bound = codegen::largestLiveBytes(lifetimes, [&](const Lifetime &lifetime) { return footprint(lifetime); });
  }

  /// Returns the offsets by buffer number, and the workspace size in bytes.
  std::pair<std::map<int64_t, int64_t>, int64_t> pack() {
    auto duration = [](const Buffer &buffer) { return buffer.lifetime.last - buffer.lifetime.first + 1; };
    using Key = std::tuple<int64_t, int64_t, int64_t>;
    (void)(packFrom([](const Buffer &b) { return Key(-b.lifetime.bytes, b.number, 0); }) ||
           packFrom([](const Buffer &b) { return Key(b.lifetime.first, -b.lifetime.bytes, b.number); }) ||
           packFrom([&](const Buffer &b) { return Key(-b.lifetime.bytes * duration(b), b.number, 0); }));
    return {bestOffsets, bestPeak};
  }

private:
  struct Buffer {
    Lifetime lifetime;
    int64_t number, footprint, offset;
    int64_t end() const { return offset + footprint; }
  };

  int64_t footprint(const Lifetime &lifetime) const {
    return static_cast<int64_t>(llvm::alignTo(lifetime.bytes, alignment)) + guard;
  }

  /// Tries assignments, starting with buffers in ascending order of `key`. Returns whether the lower bound is reached.
  template <typename KeyOf> bool packFrom(KeyOf keyOf) {
    std::vector<Buffer *> order;
    for (Buffer &buffer : buffers)
      order.push_back(&buffer);
    std::ranges::sort(order, {}, [&](const Buffer *buffer) { return keyOf(*buffer); });
    for (int attempt = 0; attempt < attempts; ++attempt) {
      place(order);
      auto highest =
          std::ranges::max_element(order, {}, [](const Buffer *b) { return std::pair(b->end(), -b->number); });
      int64_t peak = order.empty() ? 0 : (*highest)->end();
      if (peak < bestPeak) {
        bestPeak = peak;
        for (const Buffer &buffer : buffers)
          bestOffsets[buffer.number] = buffer.offset;
      }
      if (bestPeak == bound)
        return true;
      std::rotate(order.begin(), highest, highest + 1);
    }
    return false;
  }

  static void place(const std::vector<Buffer *> &order) {
    SmallVector<Buffer *> placed; // sorted by offset
    for (Buffer *buffer : order) {
      int64_t end = 0, best = -1, bestGap = INT64_MAX;
      for (Buffer *other : placed) {
        if (!other->lifetime.overlaps(buffer->lifetime))
          continue;
        int64_t gap = other->offset - end;
        if (gap >= buffer->footprint && gap < bestGap) {
          best = end;
          bestGap = gap;
        }
        end = std::max(end, other->end());
      }
      buffer->offset = best < 0 ? end : best;
      placed.insert(
          llvm::upper_bound(placed, buffer, [](const Buffer *a, const Buffer *b) { return a->offset < b->offset; }),
          buffer);
    }
  }

  int64_t guard, bound = 0, bestPeak = INT64_MAX;
  std::vector<Buffer> buffers;
  std::map<int64_t, int64_t> bestOffsets;
};

/// Returns `attribute` with virtual buffers replaced by buffers in the workspace.
Attribute replaceBuffers(Attribute attribute, function_ref<exec::BufferAttr(exec::BufferAttr)> place) {
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](exec::BufferAttr buffer) -> std::pair<Attribute, WalkResult> {
    return {buffer.isVirtual() ? place(buffer) : buffer, WalkResult::skip()};
  });
  return replacer.replace(attribute);
}

void planProgram(exec::ProgramOp program, int64_t guard) {
  codegen::ProgramLifetimes lifetimes = codegen::findLifetimes(program);
  auto [offsets, peak] = Packer(lifetimes.buffers, guard).pack();
  if (guard > 0) { // (offset, first instruction, last instruction) of each buffer's guard bytes
    SmallVector<int64_t> guards;
    for (const auto &[number, lifetime] : lifetimes.buffers)
      llvm::append_values(guards, offsets[number] + lifetime.bytes, lifetime.first, lifetime.last);
    exec::guardsAttr.set(program, DenseI64ArrayAttr::get(program.getContext(), guards));
  }
  auto place = [&, &offsets = offsets](exec::BufferAttr buffer) {
    auto found = lifetimes.joined.find(buffer.getOffset());
    int64_t offset = offsets[found == lifetimes.joined.end() ? buffer.getOffset() : found->second];
    return buffer.placedAt(offset);
  };
  for (Operation &op : program.getBody().front()) {
    op.setAttrs(cast<DictionaryAttr>(replaceBuffers(op.getAttrDictionary(), place)));
    op.removeAttr("in_place");
  }
  program.removeBufferTypesAttr();
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
