// The assignment of a plan's cache sequences to requests, and their fill levels.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace espalier::rt {

/// The cache sequences of a plan.
class CacheSlots {
public:
  explicit CacheSlots(uint32_t sequences) : lengths(sequences, -1) {}

  /// Takes the lowest free sequence, now empty. Returns nothing if all are taken.
  std::optional<uint32_t> acquire() {
    for (uint32_t i = 0; i < lengths.size(); ++i)
      if (lengths[i] < 0) {
        lengths[i] = 0;
        return i;
      }
    return std::nullopt;
  }
  /// Frees a sequence. Its old content is overwritten before it is read again.
  void release(uint32_t sequence) { lengths[sequence] = -1; }

  /// Returns the number of tokens whose keys and values are cached.
  int64_t length(uint32_t sequence) const { return lengths[sequence]; }
  void append(uint32_t sequence, int64_t tokens) { lengths[sequence] += tokens; }

private:
  std::vector<int64_t> lengths; ///< -1: free
};

} // namespace espalier::rt
