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

/// A tensor on one device, for each dimension the axes over which it lies in parts, and those over which devices hold
/// terms of it, as the plan's bits.
struct ValueShape {
  mlir::RankedTensorType tensor;
  llvm::SmallVector<int64_t> split;
  int64_t partial = 0;
};

/// The program's attribute that holds the shapes of its values: by name an array of the tensor's type, its splits and
/// the axes of its terms.
inline constexpr llvm::StringLiteral shapesName = "exec.shapes";
/// The shape of a value in it; nothing where it is not there.
std::optional<ValueShape> shapeIn(mlir::DictionaryAttr shapes, mlir::StringAttr value);

/// What the plan calls the value in a buffer of a program, whose own values have its name before theirs.
std::string nameInPlan(llvm::StringRef program, exec::BufferAttr buffer);
/// The kernel's attribute that lists the launches which it is compiled for: an array of these names, by buffer, for
/// each.
inline constexpr llvm::StringLiteral usesName = "exec.uses";

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
  /// What is summed over a dimension in parts leaves terms.
  void follow() { follow(function.getBody().front()); }
  ValueShape of(mlir::Value value) const;
  /// So many parts one behind the other, of which each lies as `whole` does.
  ValueShape partsOf(mlir::RankedTensorType part, int64_t parts, const ValueShape &whole) const;

  /// Says what the value called `name` is; the first word counts.
  void set(llvm::StringRef name, ValueShape shape);
  /// All that were set, by name.
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
