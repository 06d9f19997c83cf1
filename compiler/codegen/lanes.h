// Arithmetic and memory access of kernels, on scalars (width 1) or on vectors of adjacent columns. All arithmetic
// inside a kernel is f32. The target defines how storage types are read and written.
#pragma once

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <utility>

namespace espalier::codegen {

/// Returns the number of lanes of a vector; 1 for a scalar.
int widthOf(mlir::Value value);

/// Emits ops at the builder's insertion point. Targets override the memory access.
class Lanes {
public:
  /// Column indices have `columnBits` bits. 32 bits are enough if the kernel has fewer than 2^32 rows and columns.
  explicit Lanes(mlir::ImplicitLocOpBuilder &builder, unsigned columnBits = 64) : b(builder), columnBits(columnBits) {}
  virtual ~Lanes() = default;

  /// Loads `width` elements of storage type `element` from base[index], as f32, or as i32 for integers.
  virtual mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element, int width) = 0;
  /// Stores `value` as storage type `element` at base[index].
  virtual void store(mlir::Value value, mlir::Value base, mlir::Value index, mlir::Type element) = 0;
  /// Returns the f32 value that a store as `element` followed by a load gives.
  virtual mlir::Value round(mlir::Value value, mlir::Type element) = 0;

  /// Returns the low and high 32-bit words of the unsigned product x * factor.
  virtual std::pair<mlir::Value, mlir::Value> multiplyWide(mlir::Value x, uint32_t factor);

  /// Returns the type of `width` lanes; `element` itself for width 1.
  mlir::Type type(mlir::Type element, int width) const;
  /// Returns an integer constant in every lane.
  mlir::Value integer(int64_t value, int width = 1, unsigned bits = 64);
  /// Returns an f32 constant in every lane.
  mlir::Value number(double value, int width = 1);
  /// Returns `scalar` in every lane.
  mlir::Value splat(mlir::Value scalar, int width);
  /// Returns first, first + 1, ... as a vector.
  mlir::Value iota(mlir::Value first, int width);
  /// Converts integers to f32. Returns f32 values unchanged.
  mlir::Value asFloat(mlir::Value value);
  /// Convert an index below the number of columns from i64 to the column type, and back.
  mlir::Value toColumn(mlir::Value number);
  mlir::Value fromColumn(mlir::Value column);

  /// Divide row indices, which are not negative.
  mlir::Value divide(mlir::Value row, mlir::Value divisor);
  mlir::Value remainder(mlir::Value row, mlir::Value divisor);

  mlir::ImplicitLocOpBuilder &b;
  const unsigned columnBits;
};

} // namespace espalier::codegen
