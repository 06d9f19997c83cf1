// Byte pair encoding of one word. While any neighbours form a known pair, the pair of lowest rank becomes one token;
// among equal ranks, the leftmost. Equal to the heap algorithm of HF's tokenizers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace espalier::rt {

/// The merges of a BPE model.
class BpeMerges {
public:
  /// Reserves space for `count` merges.
  explicit BpeMerges(size_t count = 0);
  /// Adds a merge of the neighbours (left, right) into `merged`. Lower ranks merge first. The last rank added for a
  /// pair counts.
  void add(int32_t left, int32_t right, int32_t rank, int32_t merged);
  /// Applies all merges to `ids`, in place.
  void apply(std::vector<int32_t> &ids) const;

  /// The result of a lookup.
  struct Merge {
    int32_t rank; // noRank: the pair has no merge
    int32_t merged;
  };
  static constexpr int32_t noRank = 0x7fffffff;
  /// Returns the merge of a pair.
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

  std::vector<Slot> slots; // open addressing, size is a power of two
  size_t used = 0;
};

} // namespace espalier::rt
