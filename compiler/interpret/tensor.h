// Tensors of the interpreter: a named type and its elements as doubles, row-major. Slow and obvious by intent.
#pragma once

#include "mlir/IR/BuiltinTypes.h"

#include <vector>

namespace espalier {

/// A value at run time. Elements are doubles whatever the element type is; `roundToStorage` makes them numbers that
/// the element type can hold.
struct Tensor {
  mlir::RankedTensorType type;
  std::vector<double> values; ///< row-major

  Tensor() = default;
  /// Zeros of a static `type`.
  explicit Tensor(mlir::RankedTensorType type) : type(type), values(type.getNumElements(), 0.0) {}
  Tensor(mlir::RankedTensorType type, std::vector<double> values) : type(type), values(std::move(values)) {
    assert(static_cast<int64_t>(this->values.size()) == type.getNumElements() && "one value per element");
  }
  llvm::ArrayRef<int64_t> shape() const { return type.getShape(); }
};

/// The nearest number that `element` holds. bf16 and f16 are rounded from f32, because that is what kernels compute in.
/// Integers are kept as they are.
double roundToElement(mlir::Type element, double value);
void roundToStorage(Tensor &tensor);

/// Strides of a row-major tensor: [2, 3, 4] gives [12, 4, 1].
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);

/// How far the elements of `type` move with an index along each of `dims`; 0 along a dimension that it lacks.
/// tensor<3x5, <seq, hidden>> along [batch, seq, hidden] gives [0, 5, 1].
llvm::SmallVector<int64_t> stridesAlong(mlir::RankedTensorType type, llvm::ArrayRef<mlir::StringAttr> dims);

/// Several tensors walked together: calls `body(offsets)` for each index of `sizes` in row-major order, where
/// offsets[i] is the sum of index * strides[i].
template <typename Body>
void forEachIndex(llvm::ArrayRef<int64_t> sizes, llvm::ArrayRef<llvm::SmallVector<int64_t>> strides, Body body) {
  for (int64_t size : sizes)
    if (size == 0)
      return;
  llvm::SmallVector<int64_t> index(sizes.size(), 0), offsets(strides.size(), 0);
  while (true) {
    body(llvm::ArrayRef<int64_t>(offsets));
    int64_t dim = static_cast<int64_t>(sizes.size()) - 1;
    for (; dim >= 0; --dim) {
      bool isEnd = ++index[dim] == sizes[dim];
      for (size_t i = 0; i < strides.size(); ++i)
        offsets[i] += isEnd ? -strides[i][dim] * (sizes[dim] - 1) : strides[i][dim];
      if (!isEnd)
        break;
      index[dim] = 0;
    }
    if (dim < 0)
      return;
  }
}

} // namespace espalier
