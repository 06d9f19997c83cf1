// The CPU back end: kernels mapped from the plan, library calls from runtime/kernels, executed at once by the rank's
// threads.
#pragma once

#include "runtime/device/cpu/arena.h"
#include "runtime/device/cpu/kernel_object.h"
#include "runtime/device/device.h"
#include "runtime/kernels/kernels.h"

#include <vector>

namespace espalier::rt {

/// A library call of the plan. `kernel` is null if the instruction is none.
struct PreparedCall {
  std::unique_ptr<LibraryKernel> kernel;
  int64_t rowsPerSequence = 0; ///< rows of the result that belong to one sequence of a generation plan; 0: not by rows
};

/// A plan loaded for the CPU.
class CpuBackend final : public Backend {
public:
  /// Throws PlanError if the plan's kernels or library calls cannot run on this processor.
  CpuBackend(const pb::Plan &plan, int threads);

  std::string level() const override { return object.level(); }
  uint64_t hostBytes(const pb::Stage &stage, int threads) const override;
  std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) override;

  KernelFunction kernel(uint32_t index) const { return kernels[index]; }
  const PreparedCall &call(uint32_t subprogram, uint32_t instruction) const { return calls[subprogram][instruction]; }
  /// Return the largest scratch size that any library call of a stage needs.
  size_t scratchBytesPerThread(const pb::Stage &stage) const;
  size_t sharedScratchBytes(const pb::Stage &stage) const;
  const pb::Plan &plan() const { return thePlan; }

private:
  size_t mostOf(const pb::Stage &stage, size_t (LibraryKernel::*bytes)() const) const;

  const pb::Plan &thePlan;
  KernelObject object;
  std::vector<KernelFunction> kernels;
  std::vector<std::vector<PreparedCall>> calls; ///< by subprogram and instruction
};

} // namespace espalier::rt
