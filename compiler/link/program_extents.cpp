#include "compiler/link/program_extents.h"

#include <algorithm>

namespace espalier {

using namespace rt::pb;

namespace {

/// Returns the access extent of a program by region.
std::vector<uint64_t> extentsOf(const Plan &plan, const Subprogram &program) {
  std::vector<uint64_t> extents(plan.regions_size(), 0);
  auto visit = [&](const auto &buffers) {
    for (const Buffer &buffer : buffers)
      extents[buffer.region()] = std::max(extents[buffer.region()], buffer.offset() + buffer.bytes());
  };
  for (const Instruction &instruction : program.instructions()) {
    visit(instruction.launch().buffers());
    visit(instruction.call().buffers());
    if (!instruction.has_start())
      continue;
    const Transfer &transfer = plan.transfers(static_cast<int>(instruction.start()));
    visit(transfer.from());
    visit(transfer.to());
  }
  uint64_t &workspace = extents[static_cast<size_t>(exec::Region::Workspace)];
  for (const Guard &guard : program.guards())
    workspace = std::max(workspace, guard.offset() + plan.guard_bytes());
  return extents;
}

} // namespace

ProgramExtents::ProgramExtents(const Plan &plan) {
  for (const Subprogram &program : plan.subprograms()) {
    extents.push_back(extentsOf(plan, program));
    if (!program.instructions().empty())
      numbers[program.name()] = static_cast<uint32_t>(extents.size());
  }
}

uint32_t ProgramExtents::find(const std::string &name) const {
  auto found = numbers.find(name);
  return found == numbers.end() ? 0 : found->second;
}

uint64_t ProgramExtents::bytes(uint32_t program, exec::Region region) const {
  return program == 0 ? 0 : extents[program - 1][static_cast<size_t>(region)];
}

uint64_t ProgramExtents::bytes(const Call &call, exec::Role role, exec::Region region) const {
  return bytes(call.programs(static_cast<int>(role)), region);
}

uint64_t ProgramExtents::largest(const Stage &stage, exec::Region region) const {
  uint64_t most = 0;
  for (const Call &call : stage.calls())
    for (uint32_t program : call.programs())
      most = std::max(most, bytes(program, region));
  return most;
}

} // namespace espalier
