// The kernels of a plan: PTX text, compiled by the driver when the plan is loaded.
#pragma once

#include "runtime/device/cuda/context.h"
#include "runtime/device/cuda/queue.h"

#include <span>
#include <string>
#include <vector>

namespace espalier::rt::cuda {

/// A compiled kernel and what its threads take.
struct Kernel {
  CUfunction function = nullptr;
  int registers = 0;   ///< of a thread
  int localBytes = 0;  ///< of a thread, in memory: what registers spill to, and arrays
  int sharedBytes = 0; ///< of a block, without what a launch adds
  int maxThreads = 0;  ///< of a block
};

/// Blocks of a launch and what each gets.
struct Grid {
  uint32_t blocksX = 1, blocksY = 1, threads = 1, sharedBytes = 0;
};

class Module {
public:
  /// Compiles `text`. Throws PlanError with the log of the driver's compiler where it refuses.
  Module(const Context &context, const std::string &text);
  ~Module();
  Module(const Module &) = delete;
  Module &operator=(const Module &) = delete;

  /// The kernel of this name, allowed blocks of `threads` threads with `dynamicSharedBytes` chosen at launch. Throws
  /// PlanError where it is missing or the device has not as much.
  Kernel kernel(const std::string &symbol, uint32_t threads = 1, uint32_t dynamicSharedBytes = 0) const;

private:
  [[noreturn]] void refuse(CUresult status) const;

  const Context &context;
  const Driver &driver;
  std::vector<char> log; ///< the driver may compile as late as when a kernel is asked for
  CUlibrary library = nullptr;
};

/// Enqueues a kernel. `arguments` are the values of its parameters, 8 bytes each.
void launch(Queue &queue, const Kernel &kernel, const Grid &grid, std::span<uint64_t> arguments);

} // namespace espalier::rt::cuda
