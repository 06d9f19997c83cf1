// Ranks as coordinates on the mesh axes pp, dp_replicate, dp, cp, ep and tp, outermost first; tp varies fastest.
#pragma once

#include "format/axes.h"
#include "format/plan.pb.h"

#include <array>
#include <cstdint>
#include <vector>

namespace espalier::rt {

/// The bits of a set of mesh axes.
enum AxisBit : uint32_t {
  PP = meshAxisBit(Axis::Pp),
  DP = meshAxisBit(Axis::Dp),
  CP = meshAxisBit(Axis::Cp),
  EP = meshAxisBit(Axis::Ep),
  TP = meshAxisBit(Axis::Tp),
  DP_REPLICATE = meshAxisBit(replicateAxis)
};
inline constexpr int axisCount = meshAxes.size() + 1;
/// The axes whose ranks process different samples.
inline constexpr uint32_t sampleAxes = DP_REPLICATE | DP | EP;
inline constexpr uint32_t allAxes = (1u << axisCount) - 1;

/// The mesh of a plan.
class Mesh {
public:
  /// Throws PlanError if a size is 0, the product exceeds 2^20, or zero_group does not divide dp.
  explicit Mesh(const pb::Mesh &sizes);

  int ranks() const { return count(allAxes); }
  /// Returns the number of ranks that differ only in `axes`, the product of the axis sizes.
  int count(uint32_t axes) const;
  /// Returns the index of a rank among the ranks that differ from it only in `axes`; the first axis is the slowest. For
  /// a single axis this is the coordinate.
  int index(int rank, uint32_t axes) const;
  /// Returns the ranks that differ from `rank` only in `axes`, ascending and including `rank`.
  std::vector<int> members(int rank, uint32_t axes) const;
  /// Returns the members of the rank's `group`, restricted to the group's stages if it lists any.
  std::vector<int> members(int rank, const pb::Group &group) const;

  /// Returns the stage of a rank, its coordinate on pp.
  int stage(int rank) const { return index(rank, PP); }
  /// Returns the rank with the same coordinates on another stage.
  int peer(int rank, int stage) const;
  /// Returns the host of a rank.
  int host(int rank) const { return rank / ranksPerHost; }

  /// Returns the axes in `axes` that have more than one rank.
  uint32_t divided(uint32_t axes = allAxes) const;

  /// Returns the sum of coefficient * coordinate over `terms`. The coordinate on dp counts all data-parallel ranks.
  int64_t affine(int rank, const pb::Affine &terms) const;

private:
  std::array<int, axisCount> sizes, strides; ///< by bit
  int ranksPerHost;
};

/// Returns the byte offset of a rank's buffer in its region: `offset` plus the offset of the rank's shard, without
/// `reads_at`.
uint64_t offsetOf(const Mesh &mesh, int rank, const pb::Buffer &buffer);

} // namespace espalier::rt
