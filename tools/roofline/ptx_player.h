// Counts the instructions and bytes of a kernel launch by simulating some of its warps, one lane each. Memory contents
// are unknown: a branch that depends on them falls through, and it leaves a loop when it is reached again.
#pragma once

#include "tools/roofline/ptx_reader.h"

#include <span>

namespace espalier {

/// A kernel launch: the grid, and the kernel's parameters: `buffers` pointers, then scalars and extent.
struct PtxLaunch {
  int64_t blocksX = 1, blocksY = 1, threads = 32;
  uint32_t buffers = 0;
  std::vector<int64_t> numbers;
};

/// Totals over all lanes of a launch.
struct PtxCounts {
  double slots = 0;   ///< machine instructions
  double special = 0; ///< of these, instructions of the special function units
  double flops = 0, matrixFlops = 0;
  std::vector<double> read, written; ///< bytes of global memory per buffer; every access counts
};

/// Counts a launch. Throws std::invalid_argument if the kernel does not terminate.
PtxCounts countLaunch(const PtxKernel &kernel, const PtxLaunch &launch);

} // namespace espalier
