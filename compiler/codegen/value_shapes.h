// Which tensor each value of a program is on one device, and over which axes its dimensions lie in parts: what the plan
// says of values beside their bytes.
#pragma once

#include "dialects/exec/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <map>
#include <optional>
#include <string>

namespace espalier::codegen {

/// The dimension of parts that lie one behind the other.
inline constexpr llvm::StringLiteral partDim = "part";

/// A tensor on one device, and for each dimension the axes over which it lies in parts, as the plan's bits.
struct ValueShape {
  mlir::RankedTensorType tensor;
  llvm::SmallVector<int64_t> split;
};

/// The program's attribute that holds the shapes of its values: by name an array of the tensor's type and its splits.
inline constexpr llvm::StringLiteral shapesName = "exec.shapes";
/// The shape of a value in it; nothing where it is not there.
std::optional<ValueShape> shapeIn(mlir::DictionaryAttr shapes, mlir::StringAttr value);

/// What the plan calls the value in a buffer of a program, whose own values have its name before theirs.
std::string nameInPlan(llvm::StringRef program, exec::BufferAttr buffer);

/// Shapes of the values that functions hand to each other, by their names in the plan.
using KeptShapes = std::map<std::string, ValueShape>;

/// The axes of an attribute of a collective, as the plan's bits.
int64_t axisBits(mlir::ArrayAttr axes);

class ValueShapes {
public:
  ValueShapes(mlir::func::FuncOp function, KeptShapes &kept) : function(function), kept(kept) {}

  /// An argument, which the plan calls `name`: by its dist.sharding, or as the function before left it.
  void addArgument(mlir::BlockArgument argument, llvm::StringRef name);
  /// Goes through the ops: a dimension lies as the operand's of that name and size does, and as collectives change it.
  void follow();
  ValueShape of(mlir::Value value) const;
  /// So many parts one behind the other, whose dimensions lie over `split`.
  ValueShape partsOf(mlir::RankedTensorType part, int64_t parts, llvm::ArrayRef<int64_t> split) const;

  /// Says what the value called `name` is; the first word counts.
  void set(llvm::StringRef name, ValueShape shape);
  /// All that were set, by name.
  mlir::DictionaryAttr all() const;

private:
  using Splits = llvm::SmallVector<int64_t>;
  void setSplits(mlir::Value value, Splits splits);
  int64_t splitOf(mlir::Operation *op, mlir::StringAttr name, int64_t size) const;
  int64_t nominalSplit(mlir::StringAttr name, int64_t size) const;

  mlir::func::FuncOp function;
  KeptShapes &kept;
  llvm::DenseMap<mlir::Value, Splits> splits;
  std::map<std::pair<std::string, int64_t>, int64_t> seen; ///< by name and size
  std::map<std::string, ValueShape> shapes;
};

} // namespace espalier::codegen
