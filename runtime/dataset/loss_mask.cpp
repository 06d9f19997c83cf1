#include "runtime/dataset/loss_mask.h"

#include "messages/data_error.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

void requireSameSequences(const TokenSource &source, const TokenSource &mask) {
  constexpr const char *wayOut = "`espalier data tokenize` writes both; tokenize again, or remove the mask";
  if (mask.sequenceCount() != source.sequenceCount())
    throw DataError(mask.name(), fmt::format("the loss mask has {} sequences, {} has {}; {}", mask.sequenceCount(),
                                             source.name(), source.sequenceCount(), wayOut));
  for (int64_t i = 0; i < source.sequenceCount(); ++i)
    if (mask.sequenceLength(i) != source.sequenceLength(i))
      throw DataError(mask.name(),
                      fmt::format("sequence {} of the loss mask has {} entries, of {} {} tokens; {}", i,
                                  mask.sequenceLength(i), source.name(), source.sequenceLength(i), wayOut));
}

void requireMaskValues(const TokenSource &mask, int64_t sequence, std::span<const int32_t> values) {
  auto bad = std::ranges::find_if(values, [](int32_t value) { return value != 0 && value != 1; });
  if (bad != values.end())
    throw DataError(mask.name() + ".bin",
                    fmt::format("the loss mask holds {} in sequence {}, want 0 or 1", *bad, sequence));
}

} // namespace espalier::rt
