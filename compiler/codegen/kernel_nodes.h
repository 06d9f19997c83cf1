// What fuse-kernels makes of a function: one node per kernel, and one per op that no kernel holds.
#pragma once

#include "compiler/codegen/fusion_graph.h"

namespace espalier::codegen {

/// One kernel to be: a row group, sums over rows with clones of what they read, or both.
struct KernelNode {
  llvm::SmallVector<mlir::Operation *> members; ///< in block order
  llvm::SmallVector<mlir::Value> outputs;       ///< of a kernel
  bool isKernel = false;
  unsigned position = 0; ///< in the block, of what decides when it runs
};

/// Splits the function into nodes.
std::vector<KernelNode> buildNodes(const FusionGraph &graph);

/// Nodes in an order in which each stands after what it reads, otherwise by position; fewer than there are where some
/// read each other in a circle.
llvm::SmallVector<unsigned> orderNodes(llvm::ArrayRef<KernelNode> nodes);

} // namespace espalier::codegen
