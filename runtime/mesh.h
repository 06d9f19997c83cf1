// Ranks as coordinates: the mesh of a plan, outermost axis first, the last axis varies fastest.
#pragma once

#include "runtime/plan.pb.h"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The mesh of a plan. An axis that the plan does not list has size 1.
class Mesh {
public:
  /// Throws PlanError if a size is 0, an axis is listed twice, or the product passes 2^20.
  explicit Mesh(const pb::Plan &plan);

  int ranks() const { return count; }
  int axisSize(std::string_view axis) const;
  int coordinate(int rank, std::string_view axis) const;

  /// The stage of a rank: its coordinate on `pp`.
  int stage(int rank) const { return coordinate(rank, "pp"); }

  /// Ranks that differ from `rank` only in `axes`, ascending.
  std::vector<int> group(int rank, std::span<const std::string> axes) const;

  /// Ranks that differ from `rank` only in `pp` and lie on one of `stages`, ascending.
  std::vector<int> stageGroup(int rank, std::span<const uint32_t> stages) const;

  /// The rank with the same coordinates on another stage.
  int peer(int rank, int stage) const;

  /// Product of the sizes of `axes`.
  int64_t product(std::span<const std::string> axes) const;

  /// Index of a rank among those that differ in `axes`, the first axis outermost.
  int64_t index(int rank, std::span<const std::string> axes) const;

  /// Sum of coefficient * coordinate.
  int64_t affine(int rank, const google::protobuf::RepeatedPtrField<pb::AxisTerm> &terms) const;

private:
  struct AxisPlace {
    std::string name;
    int size, stride;
  };
  const AxisPlace *find(std::string_view axis) const;

  std::vector<AxisPlace> axes;
  int count = 1;
};

/// Axes over which ZeRO-1 splits the optimizer state, outermost first.
std::vector<std::string> zeroAxes();

} // namespace espalier::rt
