// The groups that fuse-kernels grows: which ops are together, what a group would look like as a kernel, and whether
// two groups may become one.
#pragma once

#include "dialects/exec/dialect.h"

#include "mlir/IR/BuiltinOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

#include <string>
#include <vector>

namespace espalier::codegen {

/// A group as it would be built: a body whose arguments are `inputs` and that yields `outputs`.
struct Candidate {
  std::unique_ptr<mlir::Region> region;
  llvm::SetVector<mlir::Value> inputs;
  llvm::SmallVector<mlir::Value> outputs;
  std::string kind;
  int64_t split = 0;
};

/// Whether a kernel can hold the op: element-wise ops, row reductions and what looks at columns.
bool isFusable(mlir::Operation *op);

/// Whether the op is a number: a constant or a slot of the scalars.
bool isNumberOp(mlir::Operation *op);

/// Ops so cheap that each user computes them again: numbers, arithmetic on numbers, and conversions and sums of small
/// arguments that the user broadcasts.
bool isSinkable(mlir::Operation *op);

/// Whether an accumulation is done by the library call (or the second phase of a column sum) that makes its operand.
bool isAccumulatedByProducer(mlir::Operation *op);

/// Builds `members` (in block order) as a kernel that yields `outputs`, trying all splits; nothing when no kernel
/// can hold them.
std::optional<Candidate> buildCandidate(llvm::ArrayRef<mlir::Operation *> members, llvm::ArrayRef<mlir::Value> outputs);

/// Groups of one function's ops. Every op is in exactly one group; ops that no kernel holds are alone.
class FusionGraph {
public:
  explicit FusionGraph(mlir::func::FuncOp function);

  /// Merges the groups of two ops if one kernel can hold them and no path between them leads outside.
  bool tryMerge(mlir::Operation *a, mlir::Operation *b);
  int groupOf(mlir::Operation *op) const { return groups.lookup(op); }
  llvm::ArrayRef<mlir::Operation *> members(int group) const { return lists[group]; }
  llvm::ArrayRef<mlir::Operation *> ops() const { return order; }
  unsigned position(mlir::Operation *op) const { return positions.lookup(op); }

private:
  bool reachesOutside(int from, int to) const;

  std::vector<mlir::Operation *> order;
  llvm::DenseMap<mlir::Operation *, unsigned> positions;
  llvm::DenseMap<mlir::Operation *, int> groups;
  std::vector<llvm::SmallVector<mlir::Operation *>> lists;
};

} // namespace espalier::codegen
