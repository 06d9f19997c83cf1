// The kernels of a plan: PTX that the driver compiles when the plan is loaded.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/queue.h"

#include <span>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// A compiled kernel and its resource usage.
struct Kernel {
  CUfunction function = nullptr;
  int registers = 0;   ///< per thread
  int localBytes = 0;  ///< per thread: spilled registers and arrays
  int sharedBytes = 0; ///< per block, without the dynamic part
  int maxThreads = 0;  ///< per block
};

/// The launch grid: blocks, threads per block, dynamic shared bytes per block.
struct Grid {
  uint32_t blocksX = 1, blocksY = 1, threads = 1, sharedBytes = 0;
};

/// A compiled module.
class Module {
public:
  /// Compiles `text`. Throws PlanError with the compiler's log if the driver rejects it.
  Module(const Context &context, const std::string &text);
  ~Module();
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;

  /// Returns the kernel of this name, for blocks of `threads` threads and `dynamicSharedBytes`. Throws PlanError if it
  /// is missing or the device lacks the resources.
  Kernel kernel(const std::string &symbol, uint32_t threads = 1, uint32_t dynamicSharedBytes = 0) const;

private:
  [[noreturn]] void refuse(CUresult status) const;

  const Context &context;
  const Driver &driver;
  std::vector<char> log; ///< kept, because the driver may compile as late as in kernel()
  CUlibrary library = nullptr;
};

/// Enqueues a kernel. `arguments` are its parameter values, 8 bytes each.
void launch(Queue &queue, const Kernel &kernel, const Grid &grid, std::span<uint64_t> arguments);

} // namespace espalier::rt::cuda
