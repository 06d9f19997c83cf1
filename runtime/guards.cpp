#include "runtime/guards.h"

#include "runtime/program.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace espalier::rt {
namespace {

/// An unlikely value: -2.9e-16 in f32; as a token id it is out of range.
constexpr std::byte pattern{0xA5};

/// Bytes of the arena that the plan uses.
struct Used {
  uint64_t begin, end;
  std::string owner;
};

class UsedBytes {
public:
  UsedBytes(const pb::Plan &plan, const Mesh &mesh, int rank)
      : plan(plan), stage(plan.stages(mesh.stage(rank))), mesh(mesh), rank(rank) {}

  std::vector<Used> collect() {
    for (const pb::Call &call : stage.calls()) {
      addWorkspace(call);
      for (const pb::BucketUse &use : call.buckets())
        addBucket(call, plan.buckets(use.bucket()));
      for (uint32_t number : call.programs())
        if (number != 0)
          addSubprogram(call, plan.subprograms(number - 1));
    }
    for (const pb::Actions &entry : stage.entries())
      for (const pb::Block &block : entry.blocks())
        for (const pb::Action &action : block.actions())
          for (const pb::Flight &flight : action.start().flights())
            addTransfer(stage.calls(flight.call()), plan.transfers(flight.transfer()));
    std::ranges::sort(used, {}, &Used::begin);
    return std::move(used);
  }

private:
  /// Adds a byte range of a bound region, in every ring slot.
  void add(const pb::Binding &binding, uint64_t offset, uint64_t bytes, const std::string &owner) {
    const pb::Place &place = stage.places(binding.place());
    if (place.memory() != pb::DEVICE || bytes == 0)
      return;
    for (uint32_t slot = 0; slot < stage.lifetimes(place.lifetime()).slots(); ++slot) {
      uint64_t base = place.offsets_size() == 1 ? place.offsets(0) + slot * place.stride() : place.offsets(slot);
      used.push_back({base + binding.offset() + offset, base + binding.offset() + offset + bytes, owner});
    }
  }

  void addWorkspace(const pb::Call &call) {
    for (const pb::Binding &binding : call.bindings())
      if (binding.region() == findRegion(plan, "workspace"))
        add(binding, 0, stage.places(binding.place()).bytes() - binding.offset(), "the workspace");
  }

  void addSubprogram(const pb::Call &call, const pb::Subprogram &subprogram) {
    for (const pb::Instruction &instruction : subprogram.instructions()) {
      for (const pb::Buffer &buffer : instruction.launch().buffers())
        addBuffer(call, buffer);
      for (const pb::Buffer &buffer : instruction.call().buffers())
        addBuffer(call, buffer);
      if (instruction.has_start())
        addTransfer(call, plan.transfers(instruction.start()));
    }
  }

  void addTransfer(const pb::Call &call, const pb::Transfer &transfer) {
    for (const pb::Buffer &buffer : transfer.from())
      addBuffer(call, buffer);
    for (const pb::Buffer &buffer : transfer.to())
      addBuffer(call, buffer);
  }

  void addBucket(const pb::Call &call, const pb::Bucket &bucket) {
    addBuffer(call, bucket.stored());
    if (bucket.has_gradient())
      addBuffer(call, bucket.gradient());
    if (bucket.has_whole_gradient())
      addBuffer(call, bucket.whole_gradient());
    if (bucket.has_whole_stored())
      addBuffer(call, bucket.whole_stored());
    for (const pb::Buffer &state : bucket.state())
      addBuffer(call, state);
  }

  void addBuffer(const pb::Call &call, const pb::Buffer &buffer) {
    if (buffer.region() == findRegion(plan, "workspace"))
      return;
    for (const pb::Binding &binding : call.bindings())
      if (binding.region() == buffer.region())
        add(binding, offsetOf(mesh, rank, buffer), buffer.bytes(),
            fmt::format("{} of {}", plan.regions(buffer.region()), call.name()));
  }

  const pb::Plan &plan;
  const pb::Stage &stage;
  const Mesh &mesh;
  const int rank;
  std::vector<Used> used;
};

} // namespace

Guards::Guards(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device)
    : plan(plan), device(device), workspace(findRegion(plan, "workspace").value_or(maxRegions)) {
  uint64_t guard = plan.guard_bytes(), end = 0;
  std::string owner = "the beginning of the arena";
  auto addGap = [&](uint64_t begin, uint64_t stop) {
    // Only the ends of a wide gap are checked, next to its neighbours.
    bool isWide = stop - begin > 2 * guard;
    gaps.push_back({begin, isWide ? begin + guard : stop, owner});
    if (isWide)
      gaps.push_back({stop - guard, stop, owner});
  };
  for (const Used &range : UsedBytes(plan, mesh, rank).collect()) {
    if (range.begin > end)
      addGap(end, range.begin);
    if (range.end > end) {
      end = range.end;
      owner = range.owner;
    }
  }
  if (uint64_t size = plan.stages(mesh.stage(rank)).arena_bytes(pb::DEVICE); size > end)
    addGap(end, size);
  for (const Gap &gap : gaps)
    device.fill(gap.begin, static_cast<int>(pattern), gap.end - gap.begin);
}

void Guards::open(int subprogram, int instruction, std::span<const Place> bases) const {
  for (const pb::Guard &guard : plan.subprograms(subprogram).guards())
    if (guard.first() == static_cast<uint32_t>(instruction))
      device.fill(bases[workspace].offset + guard.offset(), static_cast<int>(pattern), plan.guard_bytes());
}

void Guards::check(int subprogram, int instruction, std::span<const Place> bases) const {
  auto now = static_cast<uint32_t>(instruction);
  for (const pb::Guard &guard : plan.subprograms(subprogram).guards())
    if (guard.first() <= now && now <= guard.last()) {
      uint64_t begin = bases[workspace].offset + guard.offset();
      checkGap(begin, begin + plan.guard_bytes(), "a buffer of the workspace");
    }
  for (const Gap &gap : gaps)
    checkGap(gap.begin, gap.end, gap.owner);
}

void Guards::checkGap(uint64_t begin, uint64_t end, const std::string &owner) const {
  std::vector<std::byte> bytes(end - begin);
  device.copyOut(bytes.data(), begin, bytes.size());
  auto damaged = std::ranges::find_if(bytes, [](std::byte byte) { return byte != pattern; });
  if (damaged != bytes.end())
    throw std::runtime_error(fmt::format("it wrote outside of all buffers: byte {} of the arena, {} "
                                         "bytes behind {}",
                                         begin + (damaged - bytes.begin()), damaged - bytes.begin(), owner));
}

} // namespace espalier::rt
