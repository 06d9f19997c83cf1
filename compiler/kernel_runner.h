// Single kernels of a plan, run where its target is, and the library calls that some of them stand for: what
// `compile --check` has to be given for GPUs, as the compiler knows neither device nor runtime.
#pragma once

#include "runtime/plan.pb.h"

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

namespace espalier {

class KernelRunner {
public:
  virtual ~KernelRunner() = default;

  /// Runs kernel `kernel` of the plan over `extent` iterations on copies of `buffers`, which then have what it left.
  virtual void run(uint32_t kernel, std::span<const std::span<char>> buffers, std::span<const int64_t> scalars,
                   int64_t extent) = 0;

  /// Runs a library call as the runtime does on CPUs, in `buffers` of these types.
  virtual void call(const rt::pb::LibraryCall &call, std::span<const rt::pb::DataType> types,
                    std::span<const std::span<char>> buffers, std::span<const int64_t> scalars, uint32_t seed) = 0;

  /// What it runs on: "sm_80 (Espalier emulated device)".
  virtual std::string level() const = 0;
};

/// Opens the device for the kernels of a plan, whose other parts may be missing.
using OpenKernelRunner = std::function<std::unique_ptr<KernelRunner>(const rt::pb::Plan &)>;

} // namespace espalier
