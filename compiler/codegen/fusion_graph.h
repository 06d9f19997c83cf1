// The groups that fuse-kernels grows: stores which ops are together, builds a group as a kernel, and decides whether
// two groups can be merged.
#pragma once

#include "dialects/exec/dialect.h"

#include "mlir/IR/BuiltinOps.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"

#include <string>
#include <vector>

namespace espalier::codegen {

/// A group built as a kernel: a body whose arguments are `inputs` and that yields `outputs`.
struct Candidate {
  std::unique_ptr<mlir::Region> region;
  llvm::SetVector<mlir::Value> inputs;
  llvm::SmallVector<mlir::Value> outputs;
  std::string kind;
  int64_t split = 0;
};

/// Returns whether a kernel can contain the op: elementwise ops, row reductions and ops that read column indices.
bool isFusable(mlir::Operation *op);

/// Returns whether the op is a number: a constant or a slot of the scalars.
bool isNumberOp(mlir::Operation *op);

/// Returns whether the op is cheap enough that each user recomputes it: numbers, arithmetic on numbers, and conversions
/// and sums of small arguments that the user broadcasts.
bool isSinkable(mlir::Operation *op);

/// Returns whether the producer of an accumulation's operand also does the accumulation. Library calls and the second
/// phase of a column sum can.
bool isAccumulatedByProducer(mlir::Operation *op);

/// Builds `members` (in block order) as a kernel that yields `outputs`, trying all splits. Returns nothing if no kernel
/// can contain them.
std::optional<Candidate> buildCandidate(llvm::ArrayRef<mlir::Operation *> members, llvm::ArrayRef<mlir::Value> outputs);

/// Partitions a function's ops into groups. Every op is in exactly one group. An op that no kernel can contain is alone
/// in its group.
class FusionGraph {
public:
  /// Puts every op of `function` into a separate group.
  explicit FusionGraph(mlir::func::FuncOp function);

  /// Merges the groups of two ops if one kernel can contain them and no path between them leaves the merged group.
  /// Returns whether the ops are then in one group.
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
