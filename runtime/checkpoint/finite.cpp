#include "runtime/checkpoint/finite.h"

#include "runtime/kernels/element.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

/// Returns the index of the first value whose exponent has all bits set, or -1. These are NaN and the infinities.
template <typename Bits> int64_t firstNonFinite(std::span<const std::byte> values, Bits exponent) {
  constexpr size_t block = 4096;
  size_t count = values.size() / sizeof(Bits);
  for (size_t begin = 0; begin < count; begin += block) {
    size_t end = std::min(count, begin + block);
    bool found = false;
    auto at = [&](size_t i) {
      Bits bits;
      std::memcpy(&bits, values.data() + i * sizeof(Bits), sizeof(Bits));
      return bits;
    };
    for (size_t i = begin; i < end; ++i) // without a branch, so that the loop is vectorized
      found |= (at(i) & exponent) == exponent;
    for (size_t i = begin; found && i < end; ++i)
      if ((at(i) & exponent) == exponent)
        return static_cast<int64_t>(i);
  }
  return -1;
}

} // namespace

void requireFinite(std::span<const std::byte> values, const Piece &piece, const std::filesystem::path &place) {
  int64_t first = piece.type == pb::F32    ? firstNonFinite<uint32_t>(values, 0x7f800000)
                  : piece.type == pb::BF16 ? firstNonFinite<uint16_t>(values, 0x7f80)
                  : piece.type == pb::F16  ? firstNonFinite<uint16_t>(values, 0x7c00)
                                           : -1;
  if (first < 0)
    return;
  float value = loadElement(piece.type, values.data(), first);
  throw PlanError(fmt::format("{}: tensor '{}' of shape {} has {} {}; --allow-nan loads it nevertheless",
                              place.string(), piece.name, piece.shape,
                              piece.kind == "value" ? "a weight that is" : "optimizer state that is",
                              std::isnan(value) ? "NaN" : "infinite"));
}

} // namespace espalier::rt
