// Named dimensions of values: the shape of a tensor on one rank, and the shard's offset in the unsharded tensor.
#pragma once

#include "runtime/verify/rules.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

namespace espalier::rt::verify {

/// One dimension: its number of elements on a rank, and the mesh axes of size above 1 that shard the dimension. In
/// zigzag order, a rank of cp holds two chunks of it.
struct Dim {
  std::string name;
  int64_t size = 1;
  uint32_t split = 0;
  bool isZigzag = false;
  bool operator==(const Dim &) const = default;
};
using Dims = std::vector<Dim>;

/// Returns whether cp splits the dimension and it is the sequence, which can be in zigzag order.
bool isSequenceOverContext(const pb::Dim &dim, const Mesh &mesh);
/// Returns whether a dimension is in zigzag order.
inline bool areZigzag(const Dims &dims) { return std::ranges::count(dims, true, &Dim::isZigzag) > 0; }
/// Returns the product of the sizes.
int64_t elementsOf(const Dims &dims);
/// Formats the dimensions, for example "[batch 4, seq 8 over 2]".
std::string textOf(const Dims &dims);
/// Concatenates lists of dimensions.
Dims joined(std::initializer_list<Dims> parts);
/// Returns the dimensions of `from` for which `keep` holds, in their order.
template <typename Keep> Dims where(const Dims &from, Keep keep) {
  Dims kept;
  for (const Dim &dim : from)
    if (keep(dim))
      kept.push_back(dim);
  return kept;
}
/// Returns whether `dims` contains a dimension equal to `dim`.
bool contains(const Dims &dims, const Dim &dim);

/// Describes how a tensor is cut into equal shards along one dimension.
struct Cut {
  int64_t outer = 1, parts = 1; ///< the blocks before that dimension, and its number of shards
  uint32_t axes = 0;            ///< the axes that split the shard but not the whole tensor
};

/// Returns the cut that makes `part` of `whole`, or nothing if they differ in more than one dimension.
std::optional<Cut> cutOf(const Dims &whole, const Dims &part);

/// Computes the dimensions of a plan's buffers, and the offsets of shards in the unsharded dimensions.
class Shapes {
public:
  /// Keeps references to the plan and its mesh.
  Shapes(const pb::Plan &plan, const Mesh &mesh) : plan(plan), mesh(mesh) {}

  /// Returns the dimensions of a buffer's content, or nothing if the value has no shape. A single element has no
  /// dimensions.
  std::optional<Dims> of(const pb::Buffer &buffer) const;
  /// Returns whether a buffer holds fewer elements than its value. Entries of different lengths share values, so the
  /// value's dims do not describe this buffer.
  bool isLess(const pb::Buffer &buffer) const;
  /// Returns the size of the unsharded dimension.
  int64_t whole(const Dim &dim) const { return dim.size * mesh.count(dim.split); }
  /// Returns the offset of a rank's shard, in zigzag order of its first chunk, times `stride`. The samples of a later
  /// micro-batch follow those of all ranks.
  pb::Affine origin(const Dim &dim, int64_t stride = 1) const;
  /// Returns the rank's index over `axes`, times `stride`.
  pb::Affine index(uint32_t axes, int64_t stride) const;

private:
  const pb::Plan &plan;
  const Mesh &mesh;
};

/// Returns the index of the first head on a rank, for queries of shape [batch, seq, heads.., head_dim].
pb::Affine firstHead(const Shapes &shapes, const Dims &queries);

/// Returns the kind of the scalar that functions.def calls `name`.
pb::Kernel::Scalar scalarKind(const std::string &name);
/// Returns the value that the dims of `space` require for a scalar of this kind, or `found` if the dims do not
/// determine the scalar.
pb::Affine scalarOf(pb::Kernel::Scalar kind, const Shapes &shapes, const Dims &space, const pb::Affine &found);

/// Returns an affine expression without variables.
pb::Affine constant(int64_t number);
/// Returns a + b.
pb::Affine sum(pb::Affine a, const pb::Affine &b);
/// Returns whether two affine expressions have equal constants and coefficients.
bool isSame(const pb::Affine &a, const pb::Affine &b);
/// Formats an affine expression, for example "constant: 3 layer: 256".
std::string textOf(const pb::Affine &affine);

/// Checks the sizes and scalars of a launch that replaces a library call against the dims of its operands. Returns the
/// fault. Returns an empty string if there is no fault or if the kernel is generated.
std::string faultOfSpace(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch);
/// Checks the sizes, transposition and constants of a library call in the same way.
std::string faultOfProduct(const pb::Plan &plan, const Mesh &mesh, const pb::LibraryCall &call);

} // namespace espalier::rt::verify
