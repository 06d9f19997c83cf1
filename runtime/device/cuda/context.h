// One GPU of this machine, checked to be one that plans can run on.
#pragma once

#include "runtime/device/cuda/library.h"

namespace espalier::rt::cuda {

/// Device `ordinal`, current on the thread that makes this. Throws PlanError where there is no such device or its
/// compute capability is below 8.0.
class Context {
public:
  Context(const Driver &driver, int ordinal);
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  struct Bytes {
    size_t free = 0, total = 0;
  };
  Bytes memory() const;
  /// Throws MemoryError, with what is free and what is wanted, unless that many bytes are free.
  void requireFree(uint64_t arenaBytes, uint64_t workspaceBytes) const;
  /// Calls of this thread go to this device from now on.
  void makeCurrent() const;
  /// "NVIDIA H200 sm_90"
  std::string describe() const { return name + " " + architecture(); }
  /// "sm_90"
  std::string architecture() const { return "sm_" + std::to_string(capability()); }
  /// 90 for compute capability 9.0.
  int capability() const { return 10 * major + minor; }
  int attribute(CUdevice_attribute which) const;

  const Driver &driver;
  const int ordinal;
  std::string name; ///< "NVIDIA H200"

private:
  CUdevice device = 0;
  CUcontext context = nullptr;
  int major = 0, minor = 0;
};

} // namespace espalier::rt::cuda
