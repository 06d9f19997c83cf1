// A plan for CUDA, loaded: libraries found, kernels compiled by the driver, products chosen.
#pragma once

#include "runtime/device/cuda/calls.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/device.h"

namespace espalier::rt::cuda {

/// A kernel of the plan and how its launches become grids.
struct PlanKernel {
  std::string symbol;
  Kernel kernel;
  uint32_t threads, extentPerBlock, columnsPerBlock, sharedBytes;
};

class CudaBackend final : public Backend {
public:
  /// Throws PlanError with what was found and what is wanted.
  explicit CudaBackend(const pb::Plan &plan);

  std::string level() const override;
  uint64_t hostBytes(const pb::Stage &stage, int) const override { return stage.arena_bytes(pb::HOST); }
  std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) override;

  const Context &context() const { return theContext; }
  const Matmuls &matmuls() const { return theMatmuls; }
  const PlanKernel &kernel(uint32_t index) const { return kernels[index]; }
  const LibraryCall &call(uint32_t subprogram, uint32_t instruction) const { return calls.at(subprogram, instruction); }

private:
  const Driver driver;
  const Context theContext;
  const CublasLt cublas;
  Matmuls theMatmuls;
  const pb::Object *const object; ///< the plan's, for this device
  Module module;
  std::vector<PlanKernel> kernels; ///< as in the plan
  LibraryCalls calls;
};

} // namespace espalier::rt::cuda
