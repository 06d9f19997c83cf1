// Which sequence of a plan's caches belongs to whom, and how much of it is filled.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace espalier::rt {

class CacheSlots {
public:
  explicit CacheSlots(uint32_t sequences) : lengths(sequences, -1) {}

  /// An empty sequence, the lowest that is free; none where all are taken.
  std::optional<uint32_t> acquire() {
    for (uint32_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] < 0) {
        lengths[i] = 0;
        return i;
      }
    return std::nullopt;
  }
  /// What is left in it is overwritten before it is read.
  void release(uint32_t sequence) { lengths[sequence] = -1; }

  /// Tokens whose keys and values are kept.
  int64_t length(uint32_t sequence) const { return lengths[sequence]; }
  void append(uint32_t sequence, int64_t tokens) { lengths[sequence] += tokens; }

private:
  std::vector<int64_t> lengths; ///< -1: free
};

} // namespace espalier::rt
