// Scalar arithmetic for GPUs: approximate instructions, conversions, intrinsics and inline PTX.
#pragma once

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"

#include <utility>

namespace espalier::codegen::cuda {

/// Emits scalar operations at the builder's insertion point.
class Arithmetic {
public:
  explicit Arithmetic(mlir::ImplicitLocOpBuilder &builder) : b(builder) {}

  // Approximate instructions, with relative errors of about 2^-22. With .ftz, values below 2^-126 become 0.
  mlir::Value exp2(mlir::Value x);                  ///< ex2.approx.ftz
  mlir::Value log2(mlir::Value x);                  ///< lg2.approx
  mlir::Value reciprocal(mlir::Value x);            ///< rcp.approx.ftz
  mlir::Value rsqrt(mlir::Value x);                 ///< rsqrt.approx
  mlir::Value sqrt(mlir::Value x);                  ///< sqrt.approx
  mlir::Value divide(mlir::Value x, mlir::Value y); ///< div.full
  /// Natural exponential and logarithm, by exp2() and log2().
  mlir::Value exp(mlir::Value x);
  mlir::Value log(mlir::Value x);
  /// One f32 instruction each, rounded to nearest.
  mlir::Value fma(mlir::Value a, mlir::Value x, mlir::Value c);
  mlir::Value add(mlir::Value a, mlir::Value x);
  mlir::Value sub(mlir::Value a, mlir::Value x);
  mlir::Value mul(mlir::Value a, mlir::Value x);
  mlir::Value max(mlir::Value a, mlir::Value x); ///< of a number and NaN: the number
  mlir::Value min(mlir::Value a, mlir::Value x);

  // Conversions of bf16 and f16. A pair is one i32 with the first element in the low half.
  mlir::Value packPair(mlir::Value low, mlir::Value high, mlir::Type element);
  /// The inverse of packPair().
  std::pair<mlir::Value, mlir::Value> unpackPair(mlir::Value bits, mlir::Type element);
  /// Converts f32 to the 16 bits of `element` (i16) and back; f32 is unchanged.
  mlir::Value toBits(mlir::Value x, mlir::Type element);
  mlir::Value fromBits(mlir::Value bits, mlir::Type element);

  /// Access one element of a vector.
  mlir::Value extract(mlir::Value vector, int index);
  mlir::Value insert(mlir::Value x, mlir::Value vector, int index);

  /// Make an integer or f32 constant.
  mlir::Value integer(int64_t value, unsigned bits = 32);
  mlir::Value number(double value);

  /// Calls an LLVM intrinsic by name ("llvm.nvvm.barrier0"). With a null result type there is no result.
  mlir::Value intrinsic(llvm::StringRef name, mlir::Type result, mlir::ValueRange arguments);
  /// Emits inline PTX. A struct type gives several results.
  mlir::Value assembly(llvm::StringRef text, llvm::StringRef constraints, mlir::Type result, mlir::ValueRange arguments,
                       bool hasSideEffects = false);

  mlir::ImplicitLocOpBuilder &b;
};

} // namespace espalier::codegen::cuda
