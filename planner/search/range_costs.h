// What a range of successive layers costs as one segment: sums by differences of prefix sums, peaks by tables of
// maxima, so that a range of a thousand different layers is as quick to price as one.
#pragma once

#include "planner/model/memory.h"

#include <array>
#include <vector>

namespace espalier::planner {

class RangeCosts {
public:
  /// Takes the layers of `table`; the table is not kept.
  explicit RangeCosts(const CostTable &table);

  /// Layers first .. first + count - 1 together: seconds and bytes are summed. The peak of each class of recompute is
  /// the largest of any layer and stands in forwardPeakBytes; gathered bytes and buffers are those of the largest
  /// layer.
  SegmentCost of(int first, int count) const;

private:
  static constexpr int kMaxima =
      9; ///< three peaks, the gathered bytes, buffers of optimizer, parameters and three classes
  std::vector<SegmentCost> sums; ///< [i]: layers before i
  /// [level][layer][which]: the largest of 2^level layers from `layer` on.
  std::vector<std::vector<std::array<double, kMaxima>>> maxima;
};

} // namespace espalier::planner
