// The CPU back end: kernels mapped from the plan, library calls from runtime/kernels, executed at once by the rank's
// threads.
#pragma once

#include "runtime/device/cpu/arena.h"
#include "runtime/device/cpu/kernel_object.h"
#include "runtime/device/cpu/token_rows.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

#include <vector>

namespace espalier::rt {

/// An instruction of the plan, prepared for the CPU.
struct CpuInstruction {
  std::unique_ptr<LibraryKernel> kernel; ///< null if the instruction is not a library call
  TokenRows rows;                        ///< of launches and calls
};

/// A plan loaded for the CPU.
class CpuBackend final : public Backend {
public:
  /// Throws PlanError if the plan's kernels or library calls cannot run on this processor.
  CpuBackend(const pb::Plan &plan, int threads, Weights weights = Weights::AsStored);

  std::string level() const override { return object.level(); }
  uint64_t hostBytes(const pb::Stage &stage, int threads) const override;
  std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) override;

  KernelFunction kernel(uint32_t index) const { return kernels[index]; }
  const CpuInstruction &instruction(uint32_t subprogram, uint32_t number) const {
    return instructions[subprogram][number];
  }
  bool packsTokens() const override { return areTokensPacked; }
  bool mixesPrompts() const override { return arePromptsMixed; }
  /// Return the largest scratch size that any library call of a stage needs.
  size_t scratchBytesPerThread(const pb::Stage &stage) const;
  size_t sharedScratchBytes(const pb::Stage &stage) const;
  const pb::Plan &plan() const { return thePlan; }
  bool quantizes() const { return weights == Weights::Q8; }

private:
  bool haveEqualRows() const;
  size_t mostOf(const pb::Stage &stage, size_t (LibraryKernel::*bytes)() const) const;

  const pb::Plan &thePlan;
  const Weights weights;
  KernelObject object;
  std::vector<KernelFunction> kernels;
  std::vector<std::vector<CpuInstruction>> instructions; ///< by subprogram
  const bool areTokensPacked;
  bool arePromptsMixed;
};

} // namespace espalier::rt
