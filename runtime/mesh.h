// Ranks as coordinates: five axes, outermost first, the last one varies fastest.
#pragma once

#include "runtime/plan.pb.h"

#include <array>
#include <cstdint>
#include <vector>

namespace espalier::rt {

/// A set of mesh axes is a number with these bits, outermost axis first.
enum Axis : uint32_t { PP = 1, DP = 2, CP = 4, EP = 8, TP = 16 };
inline constexpr uint32_t allAxes = 31;
inline constexpr int axisCount = 5;

/// The mesh of a plan.
class Mesh {
public:
  /// Throws PlanError if a size is 0 or the product passes 2^20.
  explicit Mesh(const pb::Mesh &sizes);

  int ranks() const { return count(allAxes); }
  /// Ranks that differ in `axes` only: the product of their sizes.
  int count(uint32_t axes) const;
  /// Place of a rank among those that differ from it in `axes` only, first axis slowest; of a single axis the
  /// coordinate.
  int index(int rank, uint32_t axes) const;
  /// Those ranks, ascending; the rank itself is among them.
  std::vector<int> members(int rank, uint32_t axes) const;
  /// Members of `group` with the rank; those of the group's stages only, where it names some.
  std::vector<int> members(int rank, const pb::Group &group) const;

  /// The stage of a rank: its coordinate on pp.
  int stage(int rank) const { return index(rank, PP); }
  /// The rank with the same coordinates on another stage.
  int peer(int rank, int stage) const;
  /// The host of a rank.
  int host(int rank) const { return rank / ranksPerHost; }

  /// Of `axes` those of more than one rank.
  uint32_t divided(uint32_t axes = allAxes) const;

  /// Sum of coefficient * coordinate.
  int64_t affine(int rank, const pb::Affine &terms) const;

private:
  std::array<int, axisCount> sizes, strides;
  int ranksPerHost;
};

/// The bytes at which a rank finds a buffer behind the beginning of its region: `offset`, and its own part behind it.
/// `reads_at` is not in it.
uint64_t offsetOf(const Mesh &mesh, int rank, const pb::Buffer &buffer);

} // namespace espalier::rt
