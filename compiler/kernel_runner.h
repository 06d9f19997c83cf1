// Runs single kernels of a plan on its target, and the library calls that some kernels implement. The caller of
// `compile --check` provides it for GPUs, because the compiler depends on neither device nor runtime.
#pragma once

#include "format/plan.pb.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace espalier {

/// Runs kernels and library calls on one device.
class KernelRunner {
public:
  virtual ~KernelRunner() = default;

  /// Runs kernel `kernel` of the plan over `extent` iterations on copies of `buffers`, and copies the results back.
  virtual void run(uint32_t kernel, std::span<const std::span<char>> buffers, std::span<const int64_t> scalars,
                   int64_t extent) = 0;

  /// Runs a library call on `buffers` of these types, as the runtime does on CPUs.
  virtual void call(const rt::pb::LibraryCall &call, std::span<const rt::pb::DataType> types,
                    std::span<const std::span<char>> buffers, std::span<const int64_t> scalars, uint32_t seed) = 0;

  /// Returns the name of the device, such as "sm_80 (Espalier emulated device)".
  virtual std::string level() const = 0;
};

/// Opens the device for the kernels of a plan. Other parts of the plan may be missing.
using OpenKernelRunner = std::function<std::unique_ptr<KernelRunner>(const rt::pb::Plan &)>;

} // namespace espalier
