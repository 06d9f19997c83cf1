// Rules about places: an instruction stays in its region, a region in its binding, a binding in the
// arena.
#include "runtime/abi.h"
#include "runtime/comm/comm.h"
#include "runtime/verify_rules.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

uint64_t regionBytes(const pb::Subprogram &subprogram, int region) {
  uint64_t bytes = region < subprogram.region_bytes_size() ? subprogram.region_bytes(region) : 0;
  return region == pb::WORKSPACE ? std::max(bytes, subprogram.workspace_bytes()) : bytes;
}

/// Checks one subprogram's buffers against its own declared sizes.
class BufferBounds {
public:
  BufferBounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) : plan(plan), mesh(mesh), errors(errors) {}

  void check(const pb::Subprogram &subprogram);

private:
  void checkGuards(const pb::Subprogram &subprogram);
  void checkBuffer(const pb::Subprogram &subprogram, int instruction, const pb::BufferRef &buffer);
  void checkCollective(const pb::Subprogram &subprogram, int instruction);
  bool mayCoincide(const pb::Collective &collective, int i, int64_t shareBytes) const;

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
};

void BufferBounds::check(const pb::Subprogram &subprogram) {
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    for (const pb::BufferRef &buffer : instruction.launch().buffers())
      checkBuffer(subprogram, i, buffer);
    for (const pb::BufferRef &buffer : instruction.call().buffers())
      checkBuffer(subprogram, i, buffer);
    if (instruction.has_start())
      checkCollective(subprogram, i);
  }
  checkGuards(subprogram);
}

void BufferBounds::checkGuards(const pb::Subprogram &subprogram) {
  for (const pb::Guard &guard : subprogram.guards()) {
    uint64_t size = regionBytes(subprogram, pb::WORKSPACE);
    bool isInside = guard.offset() <= size && plan.guard_bytes() <= size - guard.offset();
    bool isInOrder =
        guard.first() <= guard.last() && guard.last() < static_cast<uint32_t>(subprogram.instructions_size());
    if (!isInside || !isInOrder)
      errors.add(fmt::format("{}: a guard of {} bytes at byte {} from instruction {} to {}, the "
                             "workspace has {} bytes and there are {} instructions",
                             subprogram.name(), plan.guard_bytes(), guard.offset(), guard.first(), guard.last(), size,
                             subprogram.instructions_size()));
  }
}

void BufferBounds::checkBuffer(const pb::Subprogram &subprogram, int instruction, const pb::BufferRef &buffer) {
  ByteRange range = rangeOf(buffer, mesh);
  int64_t limit = regionBytes(subprogram, buffer.region());
  if (range.begin < 0 || range.end > limit)
    errors.add(fmt::format("{}: bytes {} to {} of {}, which has {}", instructionName(plan, subprogram, instruction),
                           range.begin, range.end, pb::Region_Name(buffer.region()), limit));
}

/// In place is the same place, or for shares the share's own position in the larger side on every
/// member.
bool BufferBounds::mayCoincide(const pb::Collective &collective, int i, int64_t shareBytes) const {
  bool isGather = collective.kind() == pb::Collective::ALL_GATHER;
  bool hasShares = isGather || collective.kind() == pb::Collective::REDUCE_SCATTER;
  const pb::BufferRef &small = isGather ? collective.from(i) : collective.to(i);
  const pb::BufferRef &large = isGather ? collective.to(i) : collective.from(i);
  std::vector<std::string> axes(collective.axes().begin(), collective.axes().end());
  for (int rank : {0, mesh.ranks() - 1}) {
    std::vector<int> members = mesh.group(rank, axes);
    for (size_t m = 0; m < members.size(); ++m) {
      int64_t apart = static_cast<int64_t>(small.offset() - large.offset()) +
                      mesh.affine(members[m], small.coordinates()) - mesh.affine(members[m], large.coordinates());
      if (apart != (hasShares ? static_cast<int64_t>(m) * shareBytes : 0))
        return false;
    }
  }
  return true;
}

void BufferBounds::checkCollective(const pb::Subprogram &subprogram, int instruction) {
  const pb::Collective &collective = subprogram.instructions(instruction).start();
  std::vector<std::string> axes(collective.axes().begin(), collective.axes().end());
  int64_t members = collective.stages().empty() ? mesh.product(axes) : collective.stages_size();
  int64_t width = elementBytes(collective.type());
  std::string name = instructionName(plan, subprogram, instruction);
  for (int i = 0; i < collective.elements_size(); ++i) {
    const pb::BufferRef &from = collective.from(i), &to = collective.to(i);
    checkBuffer(subprogram, instruction, from);
    checkBuffer(subprogram, instruction, to);
    int64_t all = collective.elements(i) * width;
    int64_t share = shareOf(collective.elements(i), members, 0).size() * width;
    int64_t read = collective.kind() == pb::Collective::ALL_GATHER ? share : all;
    int64_t written = collective.kind() == pb::Collective::REDUCE_SCATTER ? share : all;
    if (static_cast<int64_t>(from.bytes()) != read || static_cast<int64_t>(to.bytes()) != written)
      errors.add(fmt::format("{}: {} elements need {} bytes read and {} written, buffers have {} "
                             "and {}",
                             name, collective.elements(i), read, written, from.bytes(), to.bytes()));
    bool overlap = from.region() == to.region() && rangeOf(from, mesh).overlaps(rangeOf(to, mesh));
    if (overlap && !mayCoincide(collective, i, share))
      errors.add(fmt::format("{}: source and destination overlap without being in place", name));
  }
}

/// Checks that a binding fits the arena in every slot.
void checkPlace(const pb::Stage &stage, const pb::Binding &binding, const std::string &name, PlanErrors &errors) {
  uint64_t end = binding.base() + (stage.slots() - 1) * binding.slot_stride() + binding.bytes();
  if (binding.bytes() > 0 && end > stage.arena_bytes())
    errors.add(fmt::format("{}: bound up to byte {} of an arena of {}", name, end, stage.arena_bytes()));
}

void checkCalls(const pb::Plan &plan, int index, const pb::Stage &stage, PlanErrors &errors) {
  for (const pb::Call &call : stage.calls()) {
    std::string name = fmt::format("stage {}, layer {} ({})", index, call.layer(), call.segment());
    for (const pb::Binding &binding : call.bindings())
      checkPlace(stage, binding, name + ", " + pb::Region_Name(binding.region()), errors);
    for (auto [kind, number] : subprogramsOf(call)) {
      if (number == 0)
        continue;
      const pb::Subprogram &subprogram = plan.subprograms(number - 1);
      for (int region = 0; region < pb::Region_ARRAYSIZE; ++region) {
        const pb::Binding *binding = bindingOf(stage, call, static_cast<pb::Region>(region));
        uint64_t bound = binding ? binding->bytes() : 0;
        if (regionBytes(subprogram, region) > bound)
          errors.add(fmt::format("{}: {} touches {} bytes of {}, the call binds {}", name, subprogram.name(),
                                 regionBytes(subprogram, region), pb::Region_Name(static_cast<pb::Region>(region)),
                                 bound));
      }
    }
  }
}

void checkStagePlaces(int index, const pb::Stage &stage, PlanErrors &errors) {
  std::string name = fmt::format("stage {}", index);
  checkPlace(stage, stage.inputs_binding(), name + ", inputs", errors);
  checkPlace(stage, stage.scalars_binding(), name + ", scalars", errors);
  checkPlace(stage, stage.receive_forward(), name + ", receive forward", errors);
  checkPlace(stage, stage.send_forward(), name + ", send forward", errors);
  checkPlace(stage, stage.receive_backward(), name + ", receive backward", errors);
  checkPlace(stage, stage.send_backward(), name + ", send backward", errors);
  if (stage.scalars_binding().bytes() < ScalarSlotCount * sizeof(float) || stage.scalars_binding().slot_stride() != 0)
    errors.add(fmt::format("stage {}: the scalars need {} bytes and no stride, have {} and {}", index,
                           ScalarSlotCount * sizeof(float), stage.scalars_binding().bytes(),
                           stage.scalars_binding().slot_stride()));
  for (int i = 0; i < stage.inputs_size(); ++i) {
    const pb::InputBuffer &input = stage.inputs(i);
    uint64_t end = input.offset() + input.bytes();
    if (end > stage.inputs_binding().bytes())
      errors.add(fmt::format("stage {}: input '{}' ends at byte {} of {}", index, input.name(), end,
                             stage.inputs_binding().bytes()));
    for (const pb::InputBuffer &other : stage.inputs())
      if (&other < &input && other.offset() < end && input.offset() < other.offset() + other.bytes())
        errors.add(fmt::format("stage {}: inputs '{}' and '{}' overlap", index, other.name(), input.name()));
  }
}

} // namespace

void verifyBounds(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  BufferBounds bounds(plan, mesh, errors);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    bounds.check(subprogram);
  for (int i = 0; i < plan.stages_size(); ++i) {
    checkCalls(plan, i, plan.stages(i), errors);
    checkStagePlaces(i, plan.stages(i), errors);
  }
}

} // namespace espalier::rt
