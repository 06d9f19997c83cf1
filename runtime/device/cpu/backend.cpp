#include "runtime/device/cpu/backend.h"

#include "runtime/device/cpu/device.h"
#include "runtime/device/cpu/packed_weights.h"
#include "runtime/program.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

CpuBackend::CpuBackend(const pb::Plan &plan, int threads, Weights weights)
    : thePlan(plan), weights(weights), object(plan), areTokensPacked(canPackTokens(plan)) {
  for (const pb::Kernel &kernel : plan.kernels())
    kernels.push_back(object.function(kernel.symbol()));
  for (const pb::Subprogram &subprogram : plan.subprograms()) {
    auto &prepared = instructions.emplace_back(subprogram.instructions_size());
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      const pb::Instruction &instruction = subprogram.instructions(i);
      prepared[i].rows = tokenRows(plan, instruction);
      if (!instruction.has_call())
        continue;
      try {
        prepared[i].kernel =
            makeLibraryKernel(instruction.call(), typesOf(plan, instruction.call()), threads, quantizes());
      } catch (const std::invalid_argument &error) {
        throw PlanError(fmt::format("{}, instruction {}, {}: {}", subprogram.name(), i,
                                    locationText(plan, instruction.location()), error.what()));
      }
    }
  }
  arePromptsMixed = areTokensPacked && haveEqualRows();
}

/// Returns whether each row of a product has the same bits in decoding steps and in steps with prompts. Products with a
/// transposed weight have not if there are some of few and some of many rows, which may have the same weight. The head
/// has as many rows in both.
bool CpuBackend::haveEqualRows() const {
  bool ofFew = false, ofMany = false;
  for (int number = 0; number < thePlan.subprograms_size(); ++number)
    for (int i = 0; i < thePlan.subprograms(number).instructions_size(); ++i) {
      const pb::LibraryCall &call = thePlan.subprograms(number).instructions(i).call();
      const LibraryKernel *kernel = instructions[number][i].kernel.get();
      if (!kernel)
        continue;
      ofFew |= !kernel->hasEqualRows();
      ofMany |= kernel->hasEqualRows() && call.function() == pb::LibraryCall::MATMUL && call.transpose_b();
    }
  return !(ofFew && ofMany);
}

size_t CpuBackend::mostOf(const pb::Stage &stage, size_t (LibraryKernel::*bytes)() const) const {
  size_t most = 0;
  for (const pb::Call &call : stage.calls())
    for (uint32_t number : call.programs())
      if (number != 0)
        for (const CpuInstruction &one : instructions[number - 1])
          most = std::max(most, one.kernel ? (one.kernel.get()->*bytes)() : 0);
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
