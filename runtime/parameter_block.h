// The elements of parameters that a rank holds: a block of the padded tensor, one slice per dimension, at an offset in
// a bucket.
#pragma once

#include "format/mesh.h"
#include "format/plan.pb.h"

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

namespace espalier::rt {

/// The elements [begin, end).
struct ElementRange {
  int64_t begin = 0, end = 0;

  bool isEmpty() const { return begin >= end; }
  bool operator==(const ElementRange &) const = default;
};

/// The block of one parameter on one rank.
class ParameterBlock {
public:
  ParameterBlock(const pb::Parameter &parameter, const Mesh &mesh, int rank);

  /// Per dimension: unpadded global extent, first element of the block, and extent with padding.
  const std::vector<int64_t> &shape() const { return global; }
  const std::vector<int64_t> &offsets() const { return begin; }
  const std::vector<int64_t> &sizes() const { return size; }

  /// Returns the number of elements of the block with padding.
  int64_t elements() const { return count; }

  /// Calls visit(local, global, count) for runs of elements that are contiguous both in the block and in the unpadded
  /// global tensor. Padding is in no run.
  void visitRuns(const std::function<void(int64_t local, int64_t global, int64_t count)> &visit) const;

private:
  std::vector<int64_t> begin, size, global;
  int64_t count = 1;
};

/// A parameter of the whole model.
struct NamedParameter {
  std::string name; ///< "<owning call>.<name in its bucket>"
  const pb::Bucket *bucket = nullptr;
  const pb::Parameter *parameter = nullptr;

  int64_t elements() const; ///< of the unpadded global tensor
};

/// Returns the names of the parameters that are low-rank adapters of others, without the names of their calls.
std::set<std::string> adapterNames(const pb::Plan &plan);

/// Returns the parameters of the model, each once, in the order of stages and calls.
std::vector<NamedParameter> parametersOf(const pb::Plan &plan);

/// The elements of a parameter's block that a bucket's buffer holds. The first one is element `at` of the buffer.
struct HeldElements {
  ElementRange range;
  int64_t at = 0;
};

/// A parameter on one rank. The regions of the call contain the bucket's buffers.
struct PlacedParameter : NamedParameter {
  uint32_t call; ///< index in the stage's calls of the call that updates it
  ParameterBlock block;
  HeldElements own;    ///< elements whose summed gradient and optimizer state this rank holds
  bool isSpokenFor;    ///< whether the rank saves the block, of the ranks that hold it whole
  bool isOwnSpokenFor; ///< whether the rank saves its own elements, of the ranks that hold these

  /// Return the elements that `stored` and `gradient` hold: the whole block, or the own elements if sharded.
  HeldElements heldStored() const;
  HeldElements heldGradient() const;
  bool isStoredSpokenFor() const; ///< whether the rank saves the elements in `stored`

private:
  HeldElements whole() const;
};

/// Returns the parameters of a rank, each once, in the order of its calls.
std::vector<PlacedParameter> placedParameters(const pb::Plan &plan, const Mesh &mesh, int rank);

/// Returns whether the optimizer also keeps the bucket's parameters in f32, before its state tensors.
bool hasMaster(const pb::Bucket &bucket);

} // namespace espalier::rt
