#include "compiler/profile/read_live_bytes.h"

#include "compiler/codegen/lifetimes.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

using planner::Monomial;
using planner::Size;

namespace {

/// Returns whether each part of `small` has a part in `large` that is at least as large. No part is negative.
bool covers(const Size &large, const Size &small) {
  return std::ranges::all_of(small, [&](const Monomial &part) {
    return std::ranges::any_of(large, [&](const Monomial &other) {
      return other.powers == part.powers && other.coefficient >= part.coefficient;
    });
  });
}

} // namespace

void addLiveBytes(exec::ProgramOp program, const SizeReader &sizes, std::vector<Size> &live) {
  std::map<int64_t, codegen::Lifetime> buffers = codegen::findLifetimes(program).buffers;
  SmallVector<Type> types(program.getBufferTypesAttr().getAsValueRange<TypeAttr>());
  std::map<int64_t, Monomial> bytes;
  for (const auto &[number, lifetime] : buffers)
    bytes[number] = sizes.bytesAtTensorRanks(types[number]);
  for (const auto &[started, at] : buffers) { // live bytes are largest where a buffer's live range starts
    Size sum;
    for (const auto &[number, lifetime] : buffers)
      if (lifetime.first <= at.first && at.first <= lifetime.last)
        add(sum, bytes[number]);
    live.push_back(std::move(sum));
  }
}

void keepLargest(std::vector<Size> &sizes) {
  std::vector<Size> kept;
  for (Size &size : sizes) {
    if (std::ranges::any_of(kept, [&](const Size &other) { return covers(other, size); }))
      continue;
    std::erase_if(kept, [&](const Size &other) { return covers(size, other); });
    kept.push_back(std::move(size));
  }
  sizes = std::move(kept);
}

} // namespace espalier
