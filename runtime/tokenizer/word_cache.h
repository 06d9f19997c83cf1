// A cache of the ids of short words. Natural text repeats a few thousand words, so nearly all words are found here and
// need no merging. A slot stores the word in two 8-byte halves, so a hit touches one cache line.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A direct-mapped cache.
class WordCache {
public:
  static constexpr size_t longestWord = 16;
  static constexpr size_t slotCount = 1U << 16;

  /// A word of up to longestWord bytes, padded with zeros.
  struct Key {
    uint64_t low = 0, high = 0;
    bool operator==(const Key &) const = default;
  };

  /// Creates an empty cache.
  WordCache() : slots(slotCount) {}

  /// Returns the key of the word of `length` (1 to longestWord) bytes at `position` of `text`.
  static Key keyOf(std::string_view text, size_t position, size_t length) {
    Key key;
    if (position + longestWord <= text.size()) {
      std::memcpy(&key, text.data() + position, longestWord);
      if (length <= 8) {
        key.high = 0;
        key.low &= ~uint64_t{0} >> (64 - 8 * length);
      } else {
        key.high &= ~uint64_t{0} >> (128 - 8 * length);
      }
    } else {
      std::memcpy(&key, text.data() + position, length);
    }
    return key;
  }

  /// Appends the ids of a cached word. Returns false if the word is not cached.
  bool append(const Key &key, size_t length, std::vector<int32_t> &ids) const {
    const Slot &slot = slots[indexOf(key, length)];
    if (slot.key != key || slot.length != length)
      return false;
    if (slot.count <= inlineIds)
      ids.insert(ids.end(), slot.ids, slot.ids + slot.count);
    else
      ids.insert(ids.end(), spilled.begin() + slot.ids[0], spilled.begin() + slot.ids[0] + slot.count);
    return true;
  }

  /// Stores a word and replaces the previous word of its slot.
  void store(const Key &key, size_t length, std::span<const int32_t> ids) {
    if (ids.size() > longestWord)
      return;
    Slot &slot = slots[indexOf(key, length)];
    if (ids.size() > inlineIds) {
      if (spilled.size() > largestSpill)
        return; // the memory stays bounded; later rare words are not cached
      slot.ids[0] = static_cast<int32_t>(spilled.size());
      spilled.insert(spilled.end(), ids.begin(), ids.end());
    } else {
      std::copy(ids.begin(), ids.end(), slot.ids);
    }
    slot.key = key;
    slot.length = static_cast<uint8_t>(length);
    slot.count = static_cast<uint8_t>(ids.size());
  }

private:
  static constexpr size_t inlineIds = 3, largestSpill = 1U << 20;
  struct Slot {
    Key key;
    uint8_t length = 0, count = 0; // length 0: the slot is empty, because no word is empty
    int32_t ids[inlineIds] = {};
  };
  static size_t indexOf(const Key &key, size_t length) {
    uint64_t mixed = (key.low ^ length) * 0x9e3779b97f4a7c15U;
    mixed = (mixed ^ mixed >> 29 ^ key.high) * 0xbf58476d1ce4e5b9U;
    return (mixed >> 40) & (slotCount - 1);
  }
  std::vector<Slot> slots;
  std::vector<int32_t> spilled;
};

} // namespace espalier::rt
