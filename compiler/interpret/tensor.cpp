#include "compiler/interpret/tensor.h"

#include "dialects/interfaces.h"

#include <cmath>

using namespace mlir;

namespace espalier {

double roundToElement(Type element, double value) {
  auto type = dyn_cast<FloatType>(element);
  if (!type || type.isF64())
    return value;
  auto single = static_cast<float>(value);
  if (type.isF32() || !std::isfinite(single))
    return single;
  llvm::APFloat number(single);
  bool losesInformation = false;
  number.convert(type.getFloatSemantics(), llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  number.convert(llvm::APFloat::IEEEdouble(), llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  return number.convertToDouble();
}

void roundToStorage(Tensor &tensor) {
  Type element = tensor.type.getElementType();
  for (double &value : tensor.values)
    value = roundToElement(element, value);
}

SmallVector<int64_t> rowMajorStrides(ArrayRef<int64_t> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int64_t i = static_cast<int64_t>(shape.size()) - 2; i >= 0; --i)
    strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
}

SmallVector<int64_t> stridesAlong(RankedTensorType type, ArrayRef<StringAttr> dims) {
  SmallVector<int64_t> own = rowMajorStrides(type.getShape()), strides;
  for (StringAttr dim : dims) {
    int index = dimIndex(type, dim);
    strides.push_back(index < 0 ? 0 : own[index]);
  }
  return strides;
}

} // namespace espalier
