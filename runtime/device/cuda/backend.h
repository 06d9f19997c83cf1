// A plan for CUDA, loaded: libraries found; on each device that ranks of this process use, kernels compiled by the
// driver and products chosen.
#pragma once

#include "runtime/device/cuda/calls.h"
#include "runtime/device/cuda/module.h"
#include "runtime/device/device.h"
#include "runtime/mesh.h"

#include <map>
#include <memory>
#include <mutex>
#include <optional>

namespace espalier::rt::cuda {

/// A kernel of the plan and how its launches become grids.
struct PlanKernel {
  std::string symbol;
  Kernel kernel;
  uint32_t threads, extentPerBlock, columnsPerBlock, sharedBytes;
};

/// The plan's code on one device. Current on the thread that makes it.
class LoadedPlan {
public:
  LoadedPlan(const Driver &driver, const CublasLt &cublas, const pb::Plan &plan, int ordinal);

  const Context context;
  const size_t freeAtFirst; ///< bytes of the device, before this took any
  const Matmuls &matmuls() const { return theMatmuls; }
  const PlanKernel &kernel(uint32_t index) const { return kernels[index]; }
  const LibraryCall &call(uint32_t subprogram, uint32_t instruction) const { return calls.at(subprogram, instruction); }

private:
  Matmuls theMatmuls;
  const pb::Object *const object; ///< the plan's, for this device
  Module module;
  std::vector<PlanKernel> kernels; ///< as in the plan
  LibraryCalls calls;
};

class CudaBackend final : public Backend {
public:
  /// Throws PlanError with what was found and what is wanted.
  explicit CudaBackend(const pb::Plan &plan);

  std::string level() const override;
  uint64_t hostBytes(const pb::Stage &stage, int) const override { return stage.arena_bytes(pb::HOST); }
  std::string requireDevices(std::span<const DeviceDemand> ranks) const override;
  std::unique_ptr<Device> open(const pb::Stage &stage, const RankHost &host) override;

private:
  /// The plan on a device, loaded by the first rank that asks.
  const LoadedPlan &load(int ordinal);

  const pb::Plan &plan;
  const Mesh mesh;
  const Driver driver;
  const CublasLt cublas;
  std::optional<const Nccl> nccl; ///< of a plan of several ranks
  std::mutex mutex;
  std::map<int, std::unique_ptr<LoadedPlan>> loaded; ///< by ordinal
};

} // namespace espalier::rt::cuda
