// Infers the local tensor of each value of a program, and the mesh axes over which its dimensions are sharded. The plan
// records both beside the value's size.
#pragma once

#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <optional>
#include <string>

namespace espalier::codegen {

/// The name of the dimension that counts consecutive shards.
inline constexpr llvm::StringLiteral partDim = "part";

/// A local tensor with its sharding as axis bit sets: for each dimension the axes that shard it, and the axes over
/// which ranks hold partial sums.
struct ValueShape {
  mlir::RankedTensorType tensor;
  llvm::SmallVector<int64_t> split;
  int64_t partial = 0;
  bool isZigzag = false; ///< the sequence is split over cp in zigzag order, or the parts are those of such a split
};

/// Returns the shape of a value in `shapes`, the `exec.shapes` of a program, or nothing if the value is not listed.
std::optional<ValueShape> shapeIn(mlir::DictionaryAttr shapes, mlir::StringAttr value);

/// Returns the plan's name of a value. The program's own values have its name as a prefix.
std::string nameInPlan(llvm::StringRef program, llvm::StringRef value);
/// Returns the plan's name of the value in a program's buffer.
std::string nameInPlan(llvm::StringRef program, exec::BufferAttr buffer);

/// Shapes of the values that functions pass to each other, by their names in the plan.
using KeptShapes = std::map<std::string, ValueShape>;

/// Returns the axes of a collective's attribute as a bit set.
int64_t axisBits(mlir::ArrayAttr axes);

/// Infers shapes and shardings within one function.
class ValueShapes {
public:
  ValueShapes(mlir::func::FuncOp function, KeptShapes &kept) : function(function), kept(kept) {}

  /// Adds an argument, which the plan calls `name`. Its sharding comes from dist.sharding, else from the function that
  /// produced it, else from the plan.
  void addArgument(mlir::BlockArgument argument, llvm::StringRef name);
  /// Propagates shardings through the ops. A result dimension has the sharding of the operand dimension of the same
  /// name and size, changed by collectives. A reduction over a sharded dimension gives partial sums.
  void follow() { follow(function.getBody().front()); }
  /// Returns the shape of a value.
  ValueShape of(mlir::Value value) const;
  /// Returns the shape of `parts` consecutive shards, each sharded like `whole`.
  ValueShape partsOf(mlir::RankedTensorType part, int64_t parts, const ValueShape &whole) const;

  /// Sets the shape of the value called `name`. Within the program, the first shape of a name wins.
  void set(llvm::StringRef name, ValueShape shape);
  /// Returns all shapes that were set, by name.
  mlir::DictionaryAttr all() const;

private:
  using Splits = llvm::SmallVector<int64_t>;
  void follow(mlir::Block &block);
  void followFused(exec::FusedOp fused);
  void followCollective(mlir::Operation *op);
  int64_t lostAxes(mlir::Operation *op, mlir::Value result) const;
  void setSplits(mlir::Value value, Splits splits);
  int64_t splitOf(mlir::Operation *op, mlir::StringAttr name, int64_t size) const;
  int64_t splitByPlan(mlir::StringAttr name, int64_t size) const;

  mlir::func::FuncOp function;
  KeptShapes &kept;
  llvm::DenseMap<mlir::Value, Splits> splits;
  llvm::DenseMap<mlir::Value, int64_t> partial;
  std::map<std::pair<std::string, int64_t>, int64_t> seen; ///< by name and size
  std::map<std::string, ValueShape> shapes;
};

} // namespace espalier::codegen
