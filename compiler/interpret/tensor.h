// Tensors of the interpreter: a named type and row-major elements as doubles. Simple rather than fast by intent.
#pragma once

#include "mlir/IR/BuiltinTypes.h"

#include <vector>

namespace espalier {

/// A value at run time. Elements are doubles for every element type; `roundToStorage` rounds them to values of the
/// element type.
struct Tensor {
  mlir::RankedTensorType type;
  std::vector<double> values; ///< row-major

  Tensor() = default;
  /// Makes zeros of a static `type`.
  explicit Tensor(mlir::RankedTensorType type) : type(type), values(type.getNumElements(), 0.0) {}
  Tensor(mlir::RankedTensorType type, std::vector<double> values) : type(type), values(std::move(values)) {
    assert(static_cast<int64_t>(this->values.size()) == type.getNumElements() && "one value per element");
  }
  llvm::ArrayRef<int64_t> shape() const { return type.getShape(); }
};

/// Returns the nearest value of type `element`. bf16 and f16 are rounded from f32, because kernels compute in f32.
/// Integers are unchanged.
double roundToElement(mlir::Type element, double value);
void roundToStorage(Tensor &tensor);

/// Returns the strides of a row-major tensor: [2, 3, 4] gives [12, 4, 1].
llvm::SmallVector<int64_t> rowMajorStrides(llvm::ArrayRef<int64_t> shape);

/// Returns the element strides of `type` along each of `dims`; 0 for a dimension that it lacks. Example: tensor<3x5,
/// <seq, hidden>> along [batch, seq, hidden] gives [0, 5, 1].
llvm::SmallVector<int64_t> stridesAlong(mlir::RankedTensorType type, llvm::ArrayRef<mlir::StringAttr> dims);

/// Calls `body(offsets)` for each index within `sizes` in row-major order, where offsets[i] is the sum of index *
/// strides[i].
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
