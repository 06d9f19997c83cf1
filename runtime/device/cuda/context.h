// One GPU of this machine, checked to be one that plans can run on.
#pragma once

#include "runtime/device/cuda/library.h"

namespace espalier::rt::cuda {

/// Makes device `ordinal` the current one of this thread. Throws PlanError where there is no such device or its compute
/// capability is below 8.0.
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
  /// "NVIDIA H200 sm_90"
  std::string describe() const;
  int attribute(CUdevice_attribute which) const;

  const Driver &driver;
  const int ordinal;

private:
  CUdevice device = 0;
  CUcontext context = nullptr;
  std::string name;
  int major = 0, minor = 0;
};

} // namespace espalier::rt::cuda
