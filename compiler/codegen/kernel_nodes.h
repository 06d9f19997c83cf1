// The nodes that fuse-kernels splits a function into: one node per kernel, and one per op that no kernel contains.
#pragma once

#include "compiler/codegen/fusion_graph.h"

namespace espalier::codegen {

/// A future kernel: a row group, sums over rows with clones of the ops that they read, or both.
struct KernelNode {
  llvm::SmallVector<mlir::Operation *> members; ///< in block order
  llvm::SmallVector<mlir::Value> outputs;       ///< set for a kernel
  bool isKernel = false;
  unsigned position = 0; ///< block position of the op that decides when the node runs
};

/// Splits the function into nodes.
std::vector<KernelNode> buildNodes(const FusionGraph &graph);

/// Returns the nodes in topological order, with ties broken by position. If nodes depend on each other cyclically, the
/// result is shorter than `nodes`.
llvm::SmallVector<unsigned> orderNodes(llvm::ArrayRef<KernelNode> nodes);

} // namespace espalier::codegen
