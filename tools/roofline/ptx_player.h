// What a launch executes: some of its warps are played with the launch's numbers, one lane for each, and counted. What
// memory holds is not known, so a branch that depends on it goes on, and leaves a loop when it comes by again.
#pragma once

#include "tools/roofline/ptx_reader.h"

#include <span>

namespace espalier {

/// A launch: its grid, its scalars and extent as the kernel's parameters behind `buffers` pointers.
struct PtxLaunch {
  int64_t blocksX = 1, blocksY = 1, threads = 32;
  uint32_t buffers = 0;
  std::vector<int64_t> numbers;
};

/// Of all lanes of a launch.
struct PtxCounts {
  double slots = 0;   ///< machine instructions
  double special = 0; ///< of them for the special function units
  double flops = 0, matrixFlops = 0;
  std::vector<double> read, written; ///< bytes of global memory by buffer, each access counted
};

/// Throws std::invalid_argument for a kernel that comes to no end.
PtxCounts countLaunch(const PtxKernel &kernel, const PtxLaunch &launch);

} // namespace espalier
