// Rule G: each kind of transfer changes the sharding of a value in one way. A sharding is the set of axes that split
// the value, the set of axes over which it is partial, and the elements per rank.
#include "runtime/verify/rules.h"

namespace espalier::rt::verify {
namespace {

/// The sharding of a value in a buffer. A buffer with `part` counts as split over these axes.
struct Sharding {
  uint32_t split, partial;
  int64_t elements;
  bool operator==(const Sharding &) const = default;
};

class Shardings {
public:
  Shardings(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) : plan(plan), mesh(mesh), errors(errors) {}

  void check(const pb::Transfer &transfer);

private:
  void checkPair(const pb::Transfer &transfer, const pb::Buffer &from, const pb::Buffer &to);
  void checkOverlap(const pb::Transfer &transfer, const pb::Buffer &from, const pb::Buffer &to);
  void checkSizes(const pb::Transfer &transfer, const pb::Buffer &buffer);
  Sharding shardingOf(const pb::Buffer &buffer) const;
  const pb::Value &valueOf(const pb::Buffer &buffer) const { return plan.values(static_cast<int>(buffer.value())); }
  template <typename... Args>
  void add(const pb::Transfer &transfer, fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format("transfer '{}': ", transfer.name()) + fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
};

void Shardings::check(const pb::Transfer &transfer) {
  for (const auto *buffers : {&transfer.from(), &transfer.to()})
    for (const pb::Buffer &buffer : *buffers)
      checkSizes(transfer, buffer);
  for (int i = 0; i < std::min(transfer.from_size(), transfer.to_size()); ++i) {
    checkPair(transfer, transfer.from(i), transfer.to(i));
    checkOverlap(transfer, transfer.from(i), transfer.to(i));
  }
}

/// Checks that the buffer holds the whole value, or the rank's shard of it.
void Shardings::checkSizes(const pb::Transfer &transfer, const pb::Buffer &buffer) {
  const pb::Value &value = valueOf(buffer);
  int64_t whole = static_cast<int64_t>(value.elements()) * widthOf(value.type());
  int64_t bytes = static_cast<int64_t>(buffer.bytes()), parts = mesh.count(buffer.part());
  if (bytes != whole && (parts == 1 || product({bytes, parts}) != whole))
    add(transfer, "{} bytes of '{}', which has {}", bytes, value.name(), whole);
}

Sharding Shardings::shardingOf(const pb::Buffer &buffer) const {
  const pb::Value &value = valueOf(buffer);
  return {mesh.divided(value.split() | buffer.part()), mesh.divided(value.partial()),
          static_cast<int64_t>(buffer.bytes()) / widthOf(value.type())};
}

void Shardings::checkPair(const pb::Transfer &transfer, const pb::Buffer &from, const pb::Buffer &to) {
  Sharding before = shardingOf(from), after = shardingOf(to), wanted = before;
  uint32_t axes = 0;
  int64_t members = 1;
  if (transfer.kind() <= pb::Transfer::SHIFT) {
    const pb::Group &group = plan.groups(static_cast<int>(transfer.group()));
    axes = mesh.divided(group.axes());
    members = mesh.count(axes & ~uint32_t(group.stages().empty() ? 0 : PP)) * std::max(1, group.stages_size());
  }
  if (valueOf(from).type() != valueOf(to).type())
    return add(transfer, "goes from '{}' to '{}', which has another type", valueOf(from).name(), valueOf(to).name());
  const pb::Value &source = valueOf(from), &target = valueOf(to);
  if (source.whole() > 0 && source.whole() == target.whole() && source.first() != target.first())
    return add(transfer, "goes from '{}' to '{}', another piece of '{}'", source.name(), target.name(),
               plan.values(static_cast<int>(source.whole()) - 1).name());
  bool isSummed = (axes & before.partial) == axes, isSplit = (axes & before.split) == axes;
  bool reduces = transfer.kind() == pb::Transfer::ALL_REDUCE || transfer.kind() == pb::Transfer::REDUCE_SCATTER;
  if (reduces && (!isSummed || transfer.reduction() != valueOf(from).reduction()))
    return add(transfer, "sums '{}' over axes {}, it is partial over {}, or not to be reduced so", valueOf(from).name(),
               axes, before.partial);
  if (reduces && valueOf(from).type() == pb::I32)
    return add(transfer, "i32 is moved between ranks, never reduced");
  switch (transfer.kind()) {
  case pb::Transfer::ALL_REDUCE:
    wanted.partial &= ~axes;
    break;
  case pb::Transfer::REDUCE_SCATTER:
    if ((axes & before.split) || transfer.reduction() != pb::SUM || before.elements % members != 0)
      return add(transfer, "scatters '{}' over axes {}, it is split over {}", valueOf(from).name(), axes, before.split);
    wanted = {before.split | axes, before.partial & ~axes, before.elements / members};
    break;
  case pb::Transfer::ALL_GATHER:
  case pb::Transfer::ALL_TO_ALL:
    if (!isSplit || (axes & before.partial))
      return add(transfer, "gathers '{}' over axes {}, it is split over {} and partial over {}", valueOf(from).name(),
                 axes, before.split, before.partial);
    if (transfer.kind() == pb::Transfer::ALL_GATHER)
      wanted = {before.split & ~axes, before.partial, before.elements * members};
    else if (before.elements % members != 0)
      add(transfer, "{} elements do not split over {} ranks", before.elements, members);
    break;
  case pb::Transfer::COPY:
    if (from.value() != to.value() || from.layer() != to.layer())
      add(transfer, "copies '{}' and calls it '{}'", valueOf(from).name(), valueOf(to).name());
    break;
  default:
    break;
  }
  if (after != wanted)
    add(transfer, "leaves '{}' split over {}, partial over {}, with {} elements; wanted are {}, {} and {}",
        valueOf(to).name(), after.split, after.partial, after.elements, wanted.split, wanted.partial, wanted.elements);
}

/// Checks that an overlap of source and target is in place: equal ranges, or a shard at its position in the whole
/// range.
void Shardings::checkOverlap(const pb::Transfer &transfer, const pb::Buffer &from, const pb::Buffer &to) {
  Range a = bytesOf(from, plan, mesh), b = bytesOf(to, plan, mesh);
  if (from.region() != to.region() || a.least >= b.greatest || b.least >= a.greatest)
    return;
  uint32_t axes =
      transfer.kind() <= pb::Transfer::SHIFT ? mesh.divided(plan.groups(static_cast<int>(transfer.group())).axes()) : 0;
  bool isSame = a.least == b.least && a.greatest == b.greatest;
  const pb::Buffer &part = transfer.kind() == pb::Transfer::ALL_GATHER ? from : to;
  bool hasParts = transfer.kind() == pb::Transfer::ALL_GATHER || transfer.kind() == pb::Transfer::REDUCE_SCATTER;
  bool isInPlace = transfer.kind() == pb::Transfer::ALL_REDUCE || (hasParts && mesh.divided(part.part()) == axes);
  if (!isSame || !isInPlace)
    add(transfer, "source and target overlap without being in place");
}

} // namespace

void verifyShardings(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Shardings shardings(plan, mesh, errors);
  for (const pb::Transfer &transfer : plan.transfers())
    shardings.check(transfer);
}

} // namespace espalier::rt::verify
