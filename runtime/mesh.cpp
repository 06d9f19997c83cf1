// Mixed-radix arithmetic of ranks and coordinates.
#include "runtime/mesh.h"

#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

constexpr int64_t maxRanks = int64_t(1) << 20;

} // namespace

std::vector<std::string> zeroAxes() { return {"dp", "cp"}; }

Mesh::Mesh(const pb::Plan &plan) {
  int64_t product = 1;
  for (const pb::Axis &axis : plan.mesh()) {
    if (find(axis.name()))
      throw PlanError(fmt::format("the mesh lists axis '{}' twice", axis.name()));
    if (axis.size() == 0 || (product *= axis.size()) > maxRanks)
      throw PlanError(
          fmt::format("mesh axis '{}' has size {}: a mesh holds 1 to {} ranks", axis.name(), axis.size(), maxRanks));
    axes.push_back({axis.name(), static_cast<int>(axis.size()), 1});
  }
  for (size_t i = axes.size(); i-- > 0; count *= axes[i].size)
    axes[i].stride = count;
}

const Mesh::AxisPlace *Mesh::find(std::string_view axis) const {
  auto place = std::ranges::find(axes, axis, &AxisPlace::name);
  return place == axes.end() ? nullptr : &*place;
}

int Mesh::axisSize(std::string_view axis) const {
  const AxisPlace *place = find(axis);
  return place ? place->size : 1;
}

int Mesh::coordinate(int rank, std::string_view axis) const {
  const AxisPlace *place = find(axis);
  return place ? rank / place->stride % place->size : 0;
}

std::vector<int> Mesh::group(int rank, std::span<const std::string> groupAxes) const {
  std::vector<int> members = {rank};
  for (const AxisPlace &axis : axes) {
    if (std::ranges::find(groupAxes, axis.name) == groupAxes.end())
      continue;
    std::vector<int> wider;
    for (int member : members)
      for (int i = 0; i < axis.size; ++i)
        wider.push_back(member + (i - member / axis.stride % axis.size) * axis.stride);
    members = std::move(wider);
  }
  std::ranges::sort(members);
  return members;
}

std::vector<int> Mesh::stageGroup(int rank, std::span<const uint32_t> stages) const {
  std::vector<int> members;
  for (uint32_t stage : stages)
    members.push_back(peer(rank, static_cast<int>(stage)));
  std::ranges::sort(members);
  members.erase(std::ranges::unique(members).begin(), members.end());
  return members;
}

int Mesh::peer(int rank, int stage) const {
  const AxisPlace *place = find("pp");
  return place ? rank + (stage - rank / place->stride % place->size) * place->stride : rank;
}

int64_t Mesh::product(std::span<const std::string> groupAxes) const {
  int64_t product = 1;
  for (const std::string &axis : groupAxes)
    product *= axisSize(axis);
  return product;
}

int64_t Mesh::index(int rank, std::span<const std::string> groupAxes) const {
  int64_t index = 0;
  for (const std::string &axis : groupAxes)
    index = index * axisSize(axis) + coordinate(rank, axis);
  return index;
}

int64_t Mesh::affine(int rank, const google::protobuf::RepeatedPtrField<pb::AxisTerm> &terms) const {
  int64_t sum = 0;
  for (const pb::AxisTerm &term : terms)
    sum += term.coefficient() * coordinate(rank, term.axis());
  return sum;
}

} // namespace espalier::rt
