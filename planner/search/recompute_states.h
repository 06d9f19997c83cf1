// Partial recompute choices, with the time and the bytes of each chunk under each of them. The set drops dominated
// states, and thins out those of about equal bytes.
#pragma once

#include "planner/search/recompute_choices.h"

#include <cstdint>
#include <vector>

namespace espalier::planner {

/// Time and memory of layers of a chunk for one micro-batch.
struct ChunkUse {
  ChunkSeconds seconds;
  double savedBytes = 0; ///< by keptBytes() with the chunk's counts
  /// Adds `layers` layers that take `perLayer` each.
  void add(const PerRecompute<ChunkUse> &perLayer, const PerRecompute<int> &layers);
};

/// A choice for the kinds so far.
struct RecomputeState {
  double total = 0;                      ///< seconds of all chunks
  double peakBytes = 0, bufferBytes = 0; ///< largest of any layer
  uint32_t parent = 0;                   ///< index of the state for the kinds before
  RecomputedLayers recomputed;
};

/// The criteria by which one state is better than another.
struct StateOrder {
  bool byTime = true;      ///< false: nothing fits, so that only bytes matter
  bool byAction = true;    ///< the time of each action of each chunk matters, not only their sum
  bool keepsMemory = true; ///< more kinds follow, which need the memory that is left
};

/// States and the use of each of their chunks.
class RecomputeStates {
public:
  RecomputeStates(const StageRoom &room, size_t chunks) : room(room), chunks(chunks) {}

  /// Makes the state without any layers the only one.
  void reset(double peakBytes);
  void clear();
  void add(const RecomputeState &state, const std::vector<ChunkUse> &uses);

  size_t size() const { return states.size(); }
  const RecomputeState &operator[](size_t state) const { return states[state]; }
  const ChunkUse &use(size_t state, size_t chunk) const { return uses[state * chunks + chunk]; }
  /// Returns the states without the uses of their chunks, and empties the set of states.
  std::vector<RecomputeState> takeStates() { return std::move(states); }
  std::vector<ChunkUse> takeUses() { return std::move(uses); }

  /// Returns the peak of kept bytes if chunks keep savedBytes(chunk). Includes values kept outside the layers if they
  /// lie in the same memory.
  template <typename SavedBytes> double bytesInFlight(SavedBytes savedBytes) const {
    double most = 0;
    for (const std::vector<int> &moment : room.inFlight) {
      double bytes = 0;
      for (size_t chunk = 0; chunk < chunks; ++chunk)
        bytes += moment[chunk] * (savedBytes(chunk) + (room.areActivationsOffloaded ? 0 : room.ends[chunk]));
      most = std::max(most, bytes);
    }
    return most;
  }

  /// Drops each state for which another one is at least as good.
  void dropDominated(const StateOrder &order);
  /// Keeps at most `most` states: orders them by bytes, cuts them into equal groups, and keeps the fastest of each
  /// group and the state with the fewest bytes. Returns whether it dropped any.
  bool thin(size_t most);

private:
  double bytesInFlightOf(size_t state) const {
    return bytesInFlight([&](size_t chunk) { return use(state, chunk).savedBytes; });
  }
  bool dominates(uint32_t one, uint32_t other, const StateOrder &order) const;
  void retain(const std::vector<uint32_t> &left);

  const StageRoom &room;
  size_t chunks;
  std::vector<RecomputeState> states;
  std::vector<ChunkUse> uses; ///< [state * chunks + chunk]
};

} // namespace espalier::planner
