// One GPU of this machine, checked to be one that plans can run on.
#pragma once

#include "runtime/device/cuda/library.h"

namespace espalier::rt::cuda {

/// What the driver says of a device that nobody has to use for it. Throws PlanError where there is no such device or
/// its compute capability is below 8.0.
struct DeviceFacts {
  DeviceFacts(const Driver &driver, int ordinal);

  int attribute(CUdevice_attribute which) const;
  /// "NVIDIA H200 sm_90"
  std::string describe() const { return name + " " + architecture(); }
  /// "sm_90"
  std::string architecture() const { return "sm_" + std::to_string(capability()); }
  /// 90 for compute capability 9.0.
  int capability() const { return 10 * major + minor; }
  /// As nvidia-smi has it: "GPU-...", the same for every process that uses the device.
  std::string uuid() const;

  const Driver &driver;
  const int ordinal;
  std::string name; ///< "NVIDIA H200"
  CUdevice device = 0;
  int major = 0, minor = 0;
};

/// " (CUDA_VISIBLE_DEVICES is '0,1')", empty where nothing hides devices.
std::string visibleDevices();

/// Devices that the driver shows.
int countDevices(const Driver &driver);

/// Device `ordinal`, current on the thread that makes this.
class Context : public DeviceFacts {
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
  /// Throws MemoryError with the same numbers.
  [[noreturn]] void lackMemory(uint64_t arenaBytes, uint64_t workspaceBytes) const;
  /// Calls of this thread go to this device from now on.
  void makeCurrent() const;

private:
  CUcontext context = nullptr;
};

} // namespace espalier::rt::cuda
