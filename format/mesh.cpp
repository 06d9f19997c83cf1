// Mixed-radix conversion between ranks and coordinates.
#include "format/mesh.h"

#include "messages/plan_error.h"

#include <algorithm>
#include <bit>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

constexpr int64_t maxRanks = int64_t(1) << 20;

/// The numbers of the axes' bits, outermost axis first.
constexpr std::array<int, axisCount> outermostFirst = {
    std::countr_zero(uint32_t(PP)), std::countr_zero(uint32_t(DP_REPLICATE)), std::countr_zero(uint32_t(DP)),
    std::countr_zero(uint32_t(CP)), std::countr_zero(uint32_t(EP)),           std::countr_zero(uint32_t(TP))};

} // namespace

Mesh::Mesh(const pb::Mesh &mesh) : ranksPerHost(std::clamp<uint32_t>(mesh.ranks_per_host(), 1, maxRanks)) {
  const std::array given = axisFields(mesh);
  int64_t product = 1;
  for (size_t axis = given.size(); axis-- > 0;) {
    if (given[axis] == 0 || (product *= given[axis]) > maxRanks)
      throw PlanError(
          fmt::format("mesh axis '{}' has size {}: a mesh holds 1 to {} ranks", meshAxes[axis], given[axis], maxRanks));
    sizes[axis] = static_cast<int>(given[axis]);
  }
  constexpr size_t dp = std::countr_zero(uint32_t(DP)), replicate = std::countr_zero(uint32_t(DP_REPLICATE));
  uint32_t group = mesh.zero_group() > 0 ? mesh.zero_group() : mesh.dp();
  if (mesh.dp() % group != 0)
    throw PlanError(fmt::format("the mesh has ZeRO groups of {} ranks, which does not divide the {} ranks of dp", group,
                                mesh.dp()));
  sizes[dp] = static_cast<int>(group);
  sizes[replicate] = static_cast<int>(mesh.dp() / group);
  int stride = 1;
  for (size_t i = outermostFirst.size(); i-- > 0;) {
    strides[outermostFirst[i]] = stride;
    stride *= sizes[outermostFirst[i]];
  }
}

int Mesh::count(uint32_t axes) const {
  int product = 1;
  for (int axis = 0; axis < axisCount; ++axis)
    if (axes >> axis & 1)
      product *= sizes[axis];
  return product;
}

int Mesh::index(int rank, uint32_t axes) const {
  int index = 0;
  for (int axis : outermostFirst)
    if (axes >> axis & 1)
      index = index * sizes[axis] + rank / strides[axis] % sizes[axis];
  return index;
}

std::vector<int> Mesh::members(int rank, uint32_t axes) const {
  std::vector<int> members = {rank};
  for (int axis : outermostFirst) {
    if (!(axes >> axis & 1))
      continue;
    std::vector<int> wider;
    for (int member : members)
      for (int i = 0; i < sizes[axis]; ++i)
        wider.push_back(member + (i - member / strides[axis] % sizes[axis]) * strides[axis]);
    members = std::move(wider);
  }
  return members;
}

std::vector<int> Mesh::members(int rank, const pb::Group &group) const {
  std::vector<int> all = members(rank, group.axes());
  if (group.stages().empty())
    return all;
  std::erase_if(all, [&](int member) { return std::ranges::count(group.stages(), stage(member)) == 0; });
  return all;
}

int Mesh::peer(int rank, int stage) const { return rank + (stage - this->stage(rank)) * strides[0]; }

uint32_t Mesh::divided(uint32_t axes) const {
  for (int axis = 0; axis < axisCount; ++axis)
    if (sizes[axis] == 1)
      axes &= ~(1u << axis);
  return axes & allAxes;
}

int64_t Mesh::affine(int rank, const pb::Affine &terms) const {
  const std::array steps = axisFields(terms);
  int64_t sum = 0;
  for (size_t axis = 0; axis < steps.size(); ++axis) {
    uint32_t bit = 1u << axis;
    sum += steps[axis] * index(rank, bit == DP ? DP | DP_REPLICATE : bit);
  }
  return sum;
}

uint64_t offsetOf(const Mesh &mesh, int rank, const pb::Buffer &buffer) {
  return buffer.offset() + mesh.index(rank, buffer.part()) * buffer.bytes();
}

} // namespace espalier::rt
