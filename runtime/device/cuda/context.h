// One GPU of this machine, checked to support plans.
#pragma once

#include "runtime/device/cuda/library.h"

namespace espalier::rt::cuda {

/// Properties of a device, read without making a context. Throws PlanError if the device does not exist or its compute
/// capability is below 8.0.
struct DeviceFacts {
  DeviceFacts(const Driver &driver, int ordinal);

  /// Returns an attribute of the device.
  int attribute(CUdevice_attribute which) const;
  /// Returns name and architecture: "NVIDIA H200 sm_90".
  std::string describe() const { return name + " " + architecture(); }
  /// Returns the architecture: "sm_90".
  std::string architecture() const { return "sm_" + std::to_string(capability()); }
  /// Returns 90 for compute capability 9.0.
  int capability() const { return 10 * major + minor; }
  /// Returns the UUID in nvidia-smi's format, "GPU-...". It is the same for every process that uses the device.
  std::string uuid() const;

  const Driver &driver;
  const int ordinal;
  std::string name; ///< "NVIDIA H200"
  CUdevice device = 0;
  int major = 0, minor = 0;
};

/// Returns " (CUDA_VISIBLE_DEVICES is '0,1')", or an empty text if the variable is not set.
std::string visibleDevices();

/// Returns the number of devices that the driver reports.
int countDevices(const Driver &driver);

/// The context of device `ordinal`. The constructor makes it current on its thread.
class Context : public DeviceFacts {
public:
  Context(const Driver &driver, int ordinal);
  ~Context();
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  struct Bytes {
    size_t free = 0, total = 0;
  };
  /// Returns the free and total device memory in bytes.
  Bytes memory() const;
  /// Throws MemoryError, with free and needed bytes, unless that many bytes are free.
  void requireFree(uint64_t arenaBytes, uint64_t workspaceBytes) const;
  /// Throws MemoryError with free and needed bytes.
  [[noreturn]] void lackMemory(uint64_t arenaBytes, uint64_t workspaceBytes) const;
  /// Makes this device current on the calling thread.
  void makeCurrent() const;

private:
  CUcontext context = nullptr;
};

} // namespace espalier::rt::cuda
