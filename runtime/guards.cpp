#include "runtime/guards.h"

#include "runtime/verify_rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <stdexcept>

namespace espalier::rt {
namespace {

/// No float of a model: -2.9e-16 in f32, and as tokens far beyond any vocabulary.
constexpr std::byte pattern{0xA5};

/// Bytes of the arena that something of the plan touches.
struct Used {
  uint64_t begin, end;
  std::string owner;
};

class UsedBytes {
public:
  UsedBytes(const pb::Plan &plan, const Mesh &mesh, int rank)
      : plan(plan), stage(plan.stages(mesh.stage(rank))), mesh(mesh), rank(rank) {}

  std::vector<Used> collect() {
    addStage();
    for (const pb::Call &call : stage.calls()) {
      const pb::Binding *workspace = bindingOf(stage, call, pb::WORKSPACE);
      if (workspace)
        addBinding(*workspace, "the workspace");
      for (auto [kind, number] : subprogramsOf(call))
        if (number != 0)
          addSubprogram(call, plan.subprograms(number - 1));
    }
    std::ranges::sort(used, {}, &Used::begin);
    return std::move(used);
  }

private:
  void add(const pb::Binding &binding, uint64_t offset, uint64_t bytes, const std::string &owner) {
    for (uint32_t slot = 0; slot < std::max(1u, stage.slots()); ++slot) {
      uint64_t begin = binding.base() + slot * binding.slot_stride() + offset;
      if (bytes > 0)
        used.push_back({begin, begin + bytes, owner});
    }
  }

  void addBinding(const pb::Binding &binding, const std::string &owner) { add(binding, 0, binding.bytes(), owner); }

  void addStage() {
    addBinding(stage.scalars_binding(), "the scalars");
    for (const pb::InputBuffer &input : stage.inputs())
      add(stage.inputs_binding(), input.offset(), input.bytes(), "the input " + input.name());
    for (const pb::Binding *stream :
         {&stage.receive_forward(), &stage.send_forward(), &stage.receive_backward(), &stage.send_backward()})
      addBinding(*stream, "the stream at the stage's border");
  }

  void addSubprogram(const pb::Call &call, const pb::Subprogram &subprogram) {
    for (const pb::Instruction &instruction : subprogram.instructions()) {
      for (const pb::BufferRef &buffer : instruction.launch().buffers())
        addBuffer(call, buffer);
      for (const pb::BufferRef &buffer : instruction.call().buffers())
        addBuffer(call, buffer);
      for (const pb::BufferRef &buffer : instruction.start().from())
        addBuffer(call, buffer);
      for (const pb::BufferRef &buffer : instruction.start().to())
        addBuffer(call, buffer);
    }
  }

  void addBuffer(const pb::Call &call, const pb::BufferRef &buffer) {
    const pb::Binding *binding = bindingOf(stage, call, buffer.region());
    if (binding && buffer.region() != pb::WORKSPACE)
      add(*binding, buffer.offset() + mesh.affine(rank, buffer.coordinates()), buffer.bytes(),
          fmt::format("{} of layer {}", pb::Region_Name(buffer.region()), call.layer()));
  }

  const pb::Plan &plan;
  const pb::Stage &stage;
  const Mesh &mesh;
  const int rank;
  std::vector<Used> used;
};

} // namespace

Guards::Guards(const pb::Plan &plan, const Mesh &mesh, int rank, Device &device) : plan(plan), device(device) {
  uint64_t guard = plan.guard_bytes(), end = 0;
  std::string owner = "the beginning of the arena";
  auto addGap = [&](uint64_t begin, uint64_t stop) {
    // Of a wide gap only what lies next to its neighbours is looked at.
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
  if (uint64_t size = plan.stages(mesh.stage(rank)).arena_bytes(); size > end)
    addGap(end, size);
  for (const Gap &gap : gaps)
    device.fill(gap.begin, static_cast<int>(pattern), gap.end - gap.begin);
}

void Guards::open(int subprogram, int instruction, uint64_t workspace) const {
  for (const pb::Guard &guard : plan.subprograms(subprogram).guards())
    if (guard.first() == static_cast<uint32_t>(instruction))
      device.fill(workspace + guard.offset(), static_cast<int>(pattern), plan.guard_bytes());
}

void Guards::check(int subprogram, int instruction, uint64_t workspace) const {
  auto now = static_cast<uint32_t>(instruction);
  for (const pb::Guard &guard : plan.subprograms(subprogram).guards())
    if (guard.first() <= now && now <= guard.last())
      checkGap(workspace + guard.offset(), workspace + guard.offset() + plan.guard_bytes(),
               "a buffer of the workspace");
  for (const Gap &gap : gaps)
    checkGap(gap.begin, gap.end, gap.owner);
}

void Guards::checkGap(uint64_t begin, uint64_t end, const std::string &owner) const {
  std::vector<std::byte> bytes(end - begin);
  device.copyOut(bytes.data(), begin, bytes.size());
  auto damaged = std::ranges::find_if(bytes, [](std::byte byte) { return byte != pattern; });
  if (damaged != bytes.end())
    throw std::runtime_error(fmt::format("it wrote where no buffer is: byte {} of the arena, {} "
                                         "bytes behind {}",
                                         begin + (damaged - bytes.begin()), damaged - bytes.begin(), owner));
}

} // namespace espalier::rt
