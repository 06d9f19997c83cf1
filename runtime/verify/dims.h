// Named dimensions of values: what a tensor is on one rank, where it begins in the whole one.
#pragma once

#include "runtime/verify/rules.h"

#include <optional>
#include <string>
#include <vector>

namespace espalier::rt::verify {

/// One dimension: its elements on a rank, and the axes of more than one rank over which it lies in parts.
struct Dim {
  std::string name;
  int64_t size = 1;
  uint32_t split = 0;
  bool operator==(const Dim &) const = default;
};
using Dims = std::vector<Dim>;

/// Product of the sizes.
int64_t elementsOf(const Dims &dims);
/// "[batch 4, seq 8 over 2]".
std::string textOf(const Dims &dims);
/// One behind the other.
Dims joined(std::initializer_list<Dims> parts);
/// Those of `from` for which `keep` holds, in its order.
template <typename Keep> Dims where(const Dims &from, Keep keep) {
  Dims kept;
  for (const Dim &dim : from)
    if (keep(dim))
      kept.push_back(dim);
  return kept;
}
bool contains(const Dims &dims, const Dim &dim);

/// Of a tensor in equal parts that lie one behind the other, which dimension they are parts of.
struct Cut {
  int64_t outer = 1, parts = 1; ///< blocks before that dimension, parts of it
  uint32_t axes = 0;            ///< over which a part is split and the whole is not
};

/// How `part` is a part of `whole`: alike but for one dimension. Nothing where it is not.
std::optional<Cut> cutOf(const Dims &whole, const Dims &part);

/// Dims and origins of a plan's values.
class Shapes {
public:
  Shapes(const pb::Plan &plan, const Mesh &mesh) : plan(plan), mesh(mesh) {}

  /// Of what a buffer holds; nothing for values without a shape. A single element has none.
  std::optional<Dims> of(const pb::Buffer &buffer) const;
  /// Whether a buffer holds less than its value, which entries of unlike lengths share: its dims are not the buffer's.
  bool isLess(const pb::Buffer &buffer) const;
  /// Elements of a dimension on all ranks.
  int64_t whole(const Dim &dim) const { return dim.size * mesh.count(dim.split); }
  /// Where a rank's part begins, `stride` for each element: later micro-batches follow with their samples.
  pb::Affine origin(const Dim &dim, int64_t stride = 1) const;
  /// The rank's index over `axes`, times `stride`.
  pb::Affine index(uint32_t axes, int64_t stride) const;

private:
  const pb::Plan &plan;
  const Mesh &mesh;
};

/// Of queries [batch, seq, heads.., head_dim] a rank's first head among all.
pb::Affine firstHead(const Shapes &shapes, const Dims &queries);

/// The kind of a scalar by the name that functions.def gives it.
pb::Kernel::Scalar scalarKind(const std::string &name);
/// What a scalar of a kind must be by the dims of its space; `found` where these do not say.
pb::Affine scalarOf(pb::Kernel::Scalar kind, const Shapes &shapes, const Dims &space, const pb::Affine &found);

/// A number without variables.
pb::Affine constant(int64_t number);
/// a + b.
pb::Affine sum(pb::Affine a, const pb::Affine &b);
bool isSame(const pb::Affine &a, const pb::Affine &b);
/// "constant: 3 layer: 256".
std::string textOf(const pb::Affine &affine);

/// What is wrong with a launch's sizes and scalars by the dims of its operands; empty where nothing is.
std::string faultOfSpace(const pb::Plan &plan, const Mesh &mesh, const pb::Launch &launch);
/// The same for a library call, its transposition and its constants.
std::string faultOfProduct(const pb::Plan &plan, const Mesh &mesh, const pb::LibraryCall &call);

} // namespace espalier::rt::verify
