// Arithmetic and memory access of kernels, on scalars (width 1) or on neighbouring columns as vectors. Inside of a
// kernel everything is f32; how storage types are read and written is the target's.
#pragma once

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <utility>

namespace espalier::codegen {

/// Lanes of a vector; 1 for a scalar.
int widthOf(mlir::Value value);

class Lanes {
public:
  /// Columns are numbers of `columnBits` bits: 32 where there are no more of them, and no more rows.
  explicit Lanes(mlir::ImplicitLocOpBuilder &builder, unsigned columnBits = 64) : b(builder), columnBits(columnBits) {}
  virtual ~Lanes() = default;

  /// `width` elements of storage type `element` from base[index]; f32, or i32 for integers.
  virtual mlir::Value load(mlir::Value base, mlir::Value index, mlir::Type element, int width) = 0;
  virtual void store(mlir::Value value, mlir::Value base, mlir::Value index, mlir::Type element) = 0;
  /// The f32 that a store to `element` and a load give back.
  virtual mlir::Value round(mlir::Value value, mlir::Type element) = 0;

  /// Low and high words of x * factor, unsigned.
  virtual std::pair<mlir::Value, mlir::Value> multiplyWide(mlir::Value x, uint32_t factor);

  mlir::Type type(mlir::Type element, int width) const;
  mlir::Value integer(int64_t value, int width = 1, unsigned bits = 64);
  mlir::Value number(double value, int width = 1);
  mlir::Value splat(mlir::Value scalar, int width);
  /// first, first + 1, ...
  mlir::Value iota(mlir::Value first, int width);
  mlir::Value asFloat(mlir::Value value);
  /// A number below the columns of a row, from i64 to the type of columns and back.
  mlir::Value toColumn(mlir::Value number);
  mlir::Value fromColumn(mlir::Value column);

  /// Of numbers of rows, which are not negative.
  mlir::Value divide(mlir::Value row, mlir::Value divisor);
  mlir::Value remainder(mlir::Value row, mlir::Value divisor);

  mlir::ImplicitLocOpBuilder &b;
  const unsigned columnBits;
};

} // namespace espalier::codegen
