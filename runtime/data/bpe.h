// Byte pair encoding of one word: while any neighbours form a known pair, the pair of lowest rank,
// and of those the leftmost, becomes one token. Equal to the heap that HF's tokenizers uses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::rt {

class BpeMerges {
public:
  /// Room for `count` merges.
  explicit BpeMerges(size_t count = 0);
  /// Neighbours (left, right) become `merged`; a lower rank goes first. The last rank given to a
  /// pair counts.
  void add(int32_t left, int32_t right, int32_t rank, int32_t merged);
  /// Merges in place.
  void apply(std::vector<int32_t> &ids) const;

  struct Merge {
    int32_t rank; // absent when noRank
    int32_t merged;
  };
  static constexpr int32_t noRank = 0x7fffffff;
  Merge find(int32_t left, int32_t right) const;

private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  size_t slotOf(uint64_t pair) const;
  void applyShort(std::vector<int32_t> &ids) const;
  void applyLong(std::vector<int32_t> &ids) const;
  void grow();

  std::vector<Slot> slots; // open addressing, a power of two
  size_t used = 0;
};

} // namespace espalier::rt
