// Which elements of a parameter a rank holds: a block of the padded tensor, one slice per
// dimension.
#pragma once

#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace espalier::rt {

/// The block of one parameter on one rank.
class ParameterBlock {
public:
  ParameterBlock(const pb::Parameter &parameter, const Mesh &mesh, int rank);

  /// Elements of the block, padding included.
  int64_t elements() const { return count; }

  /// Calls visit(local, global, count) for runs of elements that are contiguous both in the block
  /// and in the unpadded global tensor; elements of the padding are in no run.
  void visitRuns(const std::function<void(int64_t local, int64_t global, int64_t count)> &visit) const;

  /// True on the one rank (per parameter) that speaks for these elements: coordinate 0 on every
  /// axis that does not split them, and the first stage that holds it. With `isShared` the replicas
  /// of ZeRO-1 speak for a share each.
  static bool isSpeaker(const pb::Parameter &parameter, const Mesh &mesh, int rank, bool isShared);

private:
  std::vector<int64_t> begin, size, shape; ///< per dimension: first element, block, unpadded global
  int64_t count = 1;
};

/// Where a parameter's parts lie in a rank's arena, as byte offsets.
struct ParameterPlace {
  const pb::Parameter *parameter = nullptr;
  const pb::ParameterSlot *slot = nullptr;
  uint64_t values = 0, gradient = 0, state = 0;
};

/// The parameters of a stage, each once, in the order of its calls; a tied one from the call that
/// owns its state.
std::vector<ParameterPlace> parameterPlaces(const pb::Plan &plan, int stage);

/// Elements of the local block whose optimizer state the rank holds: all, or its share under
/// ZeRO-1.
struct StateRange {
  int64_t begin = 0, end = 0;
};
StateRange stateRange(const pb::ParameterSlot &slot, const Mesh &mesh, int rank);

/// Value i of an array of `type`, as f32, and back with one rounding.
float loadElement(pb::DataType type, const void *values, int64_t i);
void storeElement(pb::DataType type, void *values, int64_t i, float value);

} // namespace espalier::rt
