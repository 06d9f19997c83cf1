#include "runtime/verify/dims.h"

#include <algorithm>

namespace espalier::rt::verify {

bool isSequenceOverContext(const pb::Dim &dim, const Mesh &mesh) {
  return dim.name() == "seq" && (mesh.divided(dim.split()) & CP);
}

int64_t elementsOf(const Dims &dims) {
  std::vector<int64_t> sizes;
  for (const Dim &dim : dims)
    sizes.push_back(dim.size);
  return product(sizes);
}

std::string textOf(const Dims &dims) {
  std::string text;
  for (const Dim &dim : dims)
    text += fmt::format("{}{} {}{}", text.empty() ? "" : ", ", dim.name, dim.size,
                        dim.split ? fmt::format(" over {}", dim.split) : "");
  return "[" + text + "]";
}

Dims joined(std::initializer_list<Dims> parts) {
  Dims all;
  for (const Dims &part : parts)
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

bool contains(const Dims &dims, const Dim &dim) { return std::ranges::count(dims, dim) > 0; }

std::optional<Cut> cutOf(const Dims &whole, const Dims &part) {
  if (whole.size() != part.size())
    return std::nullopt;
  size_t at = 0;
  while (at < whole.size() && whole[at] == part[at])
    ++at;
  if (at == whole.size())
    return Cut();
  const Dim &large = whole[at], &small = part[at];
  bool isPart =
      large.name == small.name && small.size > 0 && large.size % small.size == 0 && (large.split & ~small.split) == 0;
  if (!isPart || !std::equal(whole.begin() + static_cast<int64_t>(at) + 1, whole.end(),
                             part.begin() + static_cast<int64_t>(at) + 1))
    return std::nullopt;
  Dims before(whole.begin(), whole.begin() + static_cast<int64_t>(at));
  return Cut{elementsOf(before), large.size / small.size, small.split & ~large.split};
}

std::optional<Dims> Shapes::of(const pb::Buffer &buffer) const {
  const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
  if (value.dims().empty() && value.elements() != 1)
    return std::nullopt;
  Dims dims;
  for (uint32_t number : value.dims()) {
    const pb::Dim &dim = plan.dims(static_cast<int>(number));
    uint32_t split = mesh.divided(dim.split());
    dims.push_back(
        {dim.name(), static_cast<int64_t>(dim.size()), split, value.zigzag() && isSequenceOverContext(dim, mesh)});
  }
  return dims;
}

bool Shapes::isLess(const pb::Buffer &buffer) const {
  const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
  return static_cast<int64_t>(buffer.bytes()) < static_cast<int64_t>(value.elements()) * widthOf(value.type());
}

pb::Affine Shapes::origin(const Dim &dim, int64_t stride) const {
  pb::Affine affine = index(dim.split, dim.size * stride);
  if (dim.isZigzag)
    affine.set_cp(affine.cp() / 2);
  if (dim.name == "batch")
    affine.set_micro_batch(whole(dim) * stride);
  return affine;
}

pb::Affine Shapes::index(uint32_t axes, int64_t stride) const {
  pb::Affine affine;
  uint32_t inner = mesh.divided(axes);
  auto next = [&](uint32_t axis) {
    bool has = inner & axis;
    inner &= ~axis;
    return has ? stride * mesh.count(inner) : 0;
  };
  affine.set_pp(next(PP));
  int64_t replicas = next(DP_REPLICATE), shards = next(DP);
  affine.set_dp(shards > 0 ? shards : replicas); // the coordinate counts the ranks of both axes
  affine.set_cp(next(CP));
  affine.set_ep(next(EP));
  affine.set_tp(next(TP));
  return affine;
}

pb::Affine firstHead(const Shapes &shapes, const Dims &queries) {
  pb::Affine head;
  int64_t stride = 1;
  for (size_t d = queries.size() - 2; d >= 2; --d) {
    head = sum(head, shapes.origin(queries[d], stride));
    stride *= shapes.whole(queries[d]);
  }
  return head;
}

pb::Kernel::Scalar scalarKind(const std::string &name) {
  pb::Kernel::Scalar kind = pb::Kernel::SIZE;
  pb::Kernel::Scalar_Parse(name, &kind);
  return kind;
}

pb::Affine scalarOf(pb::Kernel::Scalar kind, const Shapes &shapes, const Dims &space, const pb::Affine &found) {
  pb::Affine affine;
  switch (kind) {
  case pb::Kernel::SEED:
    affine.set_seed(1);
    return affine;
  case pb::Kernel::STREAM:
    affine.set_constant(found.constant());
    affine.set_layer(256);
    return affine;
  case pb::Kernel::FIRST_SAMPLE:
  case pb::Kernel::FIRST_ROW:
    return shapes.origin(space.front());
  case pb::Kernel::FIRST_HEAD:
    return firstHead(shapes, space);
  case pb::Kernel::WHOLE_SEQUENCE:
    return constant(shapes.whole(space[1]));
  case pb::Kernel::FIRST_QUERY:
    return shapes.origin(space[1]);
  default:
    return found;
  }
}

pb::Affine constant(int64_t number) {
  pb::Affine affine;
  affine.set_constant(number);
  return affine;
}

pb::Affine sum(pb::Affine a, const pb::Affine &b) {
  a.set_constant(a.constant() + b.constant());
  a.set_micro_batch(a.micro_batch() + b.micro_batch());
  a.set_layer(a.layer() + b.layer());
  a.set_seed(a.seed() + b.seed());
  a.set_pp(a.pp() + b.pp());
  a.set_dp(a.dp() + b.dp());
  a.set_cp(a.cp() + b.cp());
  a.set_ep(a.ep() + b.ep());
  a.set_tp(a.tp() + b.tp());
  return a;
}

bool isSame(const pb::Affine &a, const pb::Affine &b) { return a.SerializeAsString() == b.SerializeAsString(); }

std::string textOf(const pb::Affine &affine) {
  std::string text = affine.ShortDebugString();
  return text.empty() ? "0" : text;
}

} // namespace espalier::rt::verify
