#include "runtime/device/cpu/backend.h"

#include "runtime/device/cpu/device.h"
#include "runtime/device/cpu/packed_weights.h"
#include "runtime/program.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

/// Returns the rows of a product that belong to one sequence of a generation plan, or 0 if the outermost dimension of
/// its rows is not the batch.
static int64_t rowsPerSequence(const pb::Plan &plan, const pb::LibraryCall &call) {
  auto sequences = static_cast<int64_t>(plan.settings().micro_batch_size());
  if (plan.settings().prompt_tokens() == 0 || call.function() != pb::LibraryCall::MATMUL || sequences == 0)
    return 0;
  auto leads = [&](const pb::Buffer &buffer) {
    const pb::Value &value = plan.values(static_cast<int>(buffer.value()));
    if (value.dims().empty())
      return false;
    const pb::Dim &first = plan.dims(static_cast<int>(value.dims(0)));
    return first.name() == "batch" && static_cast<int64_t>(first.size()) == sequences;
  };
  bool isByRows = !call.transpose_a() && call.sizes(3) == 1 && call.sizes(0) % sequences == 0;
  return isByRows && leads(call.buffers(0)) && leads(call.buffers(2)) ? call.sizes(0) / sequences : 0;
}

CpuBackend::CpuBackend(const pb::Plan &plan, int threads) : thePlan(plan), object(plan) {
  for (const pb::Kernel &kernel : plan.kernels())
    kernels.push_back(object.function(kernel.symbol()));
  for (const pb::Subprogram &subprogram : plan.subprograms()) {
    auto &prepared = calls.emplace_back(subprogram.instructions_size());
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      const pb::Instruction &instruction = subprogram.instructions(i);
      if (!instruction.has_call())
        continue;
      try {
        prepared[i].kernel = makeLibraryKernel(instruction.call(), typesOf(plan, instruction.call()), threads);
        prepared[i].rowsPerSequence = rowsPerSequence(plan, instruction.call());
      } catch (const std::invalid_argument &error) {
        throw PlanError(fmt::format("{}, instruction {}, {}: {}", subprogram.name(), i,
                                    locationText(plan, instruction.location()), error.what()));
      }
    }
  }
}

size_t CpuBackend::mostOf(const pb::Stage &stage, size_t (LibraryKernel::*bytes)() const) const {
  size_t most = 0;
  for (const pb::Call &call : stage.calls())
    for (uint32_t number : call.programs())
      if (number != 0)
        for (const PreparedCall &call : calls[number - 1])
          most = std::max(most, call.kernel ? (call.kernel.get()->*bytes)() : 0);
  return (most + 63) / 64 * 64;
}

size_t CpuBackend::scratchBytesPerThread(const pb::Stage &stage) const {
  return mostOf(stage, &LibraryKernel::scratchBytesPerThread);
}

size_t CpuBackend::sharedScratchBytes(const pb::Stage &stage) const {
  return mostOf(stage, &LibraryKernel::sharedScratchBytes);
}

uint64_t CpuBackend::hostBytes(const pb::Stage &stage, int threads) const {
  return stage.arena_bytes(pb::DEVICE) + stage.arena_bytes(pb::HOST) + scratchBytesPerThread(stage) * threads +
         sharedScratchBytes(stage) + WeightUses(*this, stage).addedBytes();
}

std::unique_ptr<Device> CpuBackend::open(const pb::Stage &stage, const RankHost &host) {
  return std::make_unique<CpuDevice>(*this, stage, host);
}

} // namespace espalier::rt
