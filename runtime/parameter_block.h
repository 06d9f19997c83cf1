// Which elements of which parameters a rank holds, and where: a block of the padded tensor, one slice per dimension, at
// its place in a bucket.
#pragma once

#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace espalier::rt {

/// Elements [begin, end).
struct ElementRange {
  int64_t begin = 0, end = 0;

  bool isEmpty() const { return begin >= end; }
  bool operator==(const ElementRange &) const = default;
};

/// The block of one parameter on one rank.
class ParameterBlock {
public:
  ParameterBlock(const pb::Parameter &parameter, const Mesh &mesh, int rank);

  /// Per dimension: the unpadded global extent, the block's first element and its extent, padding included.
  const std::vector<int64_t> &shape() const { return global; }
  const std::vector<int64_t> &offsets() const { return begin; }
  const std::vector<int64_t> &sizes() const { return size; }

  /// Elements of the block, padding included.
  int64_t elements() const { return count; }

  /// Calls visit(local, global, count) for runs of elements that are contiguous both in the block
  /// and in the unpadded global tensor; elements of the padding are in no run.
  void visitRuns(const std::function<void(int64_t local, int64_t global, int64_t count)> &visit) const;

private:
  std::vector<int64_t> begin, size, global;
  int64_t count = 1;
};

/// A parameter as the whole model knows it.
struct NamedParameter {
  std::string name; ///< "<call that owns it>.<name in its bucket>"
  const pb::Bucket *bucket = nullptr;
  const pb::Parameter *parameter = nullptr;

  int64_t elements() const; ///< of the unpadded global tensor
};

/// The parameters of the model, each once, in the order of stages and calls.
std::vector<NamedParameter> parametersOf(const pb::Plan &plan);

/// What a buffer of a bucket holds of a parameter's block: these elements of it, the first one `at` elements behind the
/// place of the buffer.
struct HeldElements {
  ElementRange range;
  int64_t at = 0;
};

/// A parameter on one rank. A bucket's buffers are found in the regions of the call.
struct PlacedParameter : NamedParameter {
  uint32_t call; ///< index in the stage's calls: the one that updates it
  ParameterBlock block;
  HeldElements own;    ///< those whose summed gradient and optimizer state are the rank's, in a buffer of own parts
  bool isSpokenFor;    ///< the rank speaks for the block among those that hold it as a whole ...
  bool isOwnSpokenFor; ///< ... and for its own elements among those that hold these

  /// What `stored` and `gradient` have room for: the block, or the own elements where ranks keep shares of it.
  HeldElements heldStored() const;
  HeldElements heldGradient() const;
  bool isStoredSpokenFor() const; ///< the rank speaks for what `stored` holds

private:
  HeldElements whole() const;
};

/// The parameters of a rank, each once, in the order of its calls.
std::vector<PlacedParameter> placedParameters(const pb::Plan &plan, const Mesh &mesh, int rank);

/// Whether the optimizer keeps the bucket's parameters in f32 as well, before its two moments.
bool hasMaster(const pb::Bucket &bucket);

/// Value i of an array of `type`, as f32, and back with one rounding.
float loadElement(pb::DataType type, const void *values, int64_t i);
void storeElement(pb::DataType type, void *values, int64_t i, float value);

} // namespace espalier::rt
