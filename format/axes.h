// The mesh axes and their order. The header includes nothing of the project, so that the dialects, the compiler, the
// planner and the runtime derive their lists of axes from it.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace espalier {

/// A mesh axis, outermost first. The last axis varies fastest with the rank.
enum class Axis { Pp, Dp, Cp, Ep, Tp };

/// The names of the axes, indexed by Axis.
inline constexpr std::array<const char *, 5> meshAxes = {"pp", "dp", "cp", "ep", "tp"};

/// The axis of the replicas of ZeRO shards. Hybrid sharding (HSDP) splits dp into two axes: dp then has the ranks that
/// share parameters, gradients or optimizer state, and this axis, directly outside dp, has the groups of such ranks.
/// Without hybrid sharding, the axis has one rank.
inline constexpr const char *replicateAxis = "dp_replicate";

/// Returns the bit of an axis in a set of axes.
constexpr uint32_t meshAxisBit(Axis axis) { return uint32_t{1} << static_cast<int>(axis); }

/// Returns the bit of the axis with this name, or 0 if no axis has it. The bit of `replicateAxis` follows those of
/// meshAxes.
constexpr uint32_t meshAxisBit(std::string_view name) {
  for (size_t i = 0; i < meshAxes.size(); ++i)
    if (name == meshAxes[i])
      return uint32_t{1} << i;
  return name == replicateAxis ? uint32_t{1} << meshAxes.size() : 0;
}

/// Returns pointers to the members pp, dp, cp, ep and tp of `object`, indexed by Axis.
template <typename Object> constexpr auto axisMembers(Object &object) {
  return std::array{&object.pp, &object.dp, &object.cp, &object.ep, &object.tp};
}

/// Returns the fields pp, dp, cp, ep and tp of a protobuf message, indexed by Axis.
template <typename Message> auto axisFields(const Message &message) {
  return std::array{message.pp(), message.dp(), message.cp(), message.ep(), message.tp()};
}

} // namespace espalier
