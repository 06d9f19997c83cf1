// The CUDA back end: opens the libraries and, on each device that ranks of this process use, compiles the plan's
// kernels and chooses matrix product algorithms.
#pragma once

#include "format/mesh.h"
#include "runtime/device/cuda/calls.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/device.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace espalier::rt::cuda {

/// A kernel of the plan and the parameters that map its launches to grids.
struct PlanKernel {
  std::string symbol;
  Kernel kernel;
  uint32_t threads, extentPerBlock, columnsPerBlock, sharedBytes;
};

/// The plan's code on one device. The constructor makes the device current on its thread.
class LoadedPlan {
public:
  LoadedPlan(const Driver &driver, const CublasLt &cublas, const pb::Plan &plan, int ordinal);

  const Context context;
  const size_t freeAtFirst; ///< free device memory before this object allocated any
  const Matmuls &matmuls() const { return theMatmuls; }
  const PlanKernel &kernel(uint32_t index) const { return kernels[index]; }
  const LibraryCall &call(uint32_t subprogram, uint32_t instruction) const { return calls.at(subprogram, instruction); }

private:
  Matmuls theMatmuls;
  const pb::Object *const object; ///< the plan's object for this device
  Module module;
  std::vector<PlanKernel> kernels; ///< indexed as in the plan
  LibraryCalls calls;
};

/// A plan loaded for CUDA.
class CudaBackend final : public Backend {
public:
  /// Throws PlanError with what was found and what is needed.
  explicit CudaBackend(const pb::Plan &plan);

  std::string level() const override;
  uint64_t hostBytes(const pb::Stage &stage, int) const override { return stage.arena_bytes(pb::HOST); }
  uint64_t plannedBytes(const pb::Stage &stage, int) const override {
    return stage.arena_bytes(pb::DEVICE) + stage.arena_bytes(pb::HOST) + Matmuls::workspaceBytes;
  }
  std::string requireDevices(std::span<const DeviceDemand> ranks) const override;
  std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) override;

private:
  /// Returns the plan on a device. The first rank that asks loads it.
  const LoadedPlan &load(int ordinal);

  const pb::Plan &plan;
  const Mesh mesh;
  const Driver driver;
  const CublasLt cublas;
  std::optional<const Nccl> nccl; ///< only for plans of several ranks
  std::mutex mutex;
  std::map<int, std::unique_ptr<LoadedPlan>> loaded; ///< keyed by device ordinal
};

} // namespace espalier::rt::cuda
