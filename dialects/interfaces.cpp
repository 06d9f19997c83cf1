// Functions for named dimensions, and the gradient builder that derivative rules use.
#include "dialects/interfaces.h"
#include "dialects/attributes.h"

#include "dialects/model/dialect.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace espalier {

#include "dialects/interfaces.cpp.inc"

ArrayRef<StringAttr> dimNames(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  auto dims = tensor ? dyn_cast_or_null<model::DimsAttr>(tensor.getEncoding()) : model::DimsAttr();
  return dims ? dims.getNames() : ArrayRef<StringAttr>();
}

int dimIndex(Type type, StringRef name) {
  for (auto [index, dim] : llvm::enumerate(dimNames(type)))
    if (dim == name)
      return index;
  return -1;
}

RankedTensorType namedTensor(ArrayRef<int64_t> shape, ArrayRef<StringAttr> dims, Type element) {
  Attribute encoding;
  if (!dims.empty())
    encoding = model::DimsAttr::get(element.getContext(), dims);
  return RankedTensorType::get(shape, element, encoding);
}

RankedTensorType withElement(Type type, Type element) {
  auto tensor = cast<RankedTensorType>(type);
  return RankedTensorType::get(tensor.getShape(), element, tensor.getEncoding());
}

/// Returns `type` with only the dimensions in `kept`, and with another element type.
static RankedTensorType withDims(Type type, ArrayRef<StringAttr> kept, Type element) {
  SmallVector<StringAttr> dims;
  SmallVector<int64_t> shape;
  for (auto [dim, size] : llvm::zip_equal(dimNames(type), cast<RankedTensorType>(type).getShape()))
    if (llvm::is_contained(kept, dim)) {
      dims.push_back(dim);
      shape.push_back(size);
    }
  return namedTensor(shape, dims, element);
}

RankedTensorType broadcastType(ValueRange operands, Type element, Type order) {
  SmallVector<StringAttr> dims;
  SmallVector<int64_t> shape;
  for (Value operand : operands) {
    auto type = cast<RankedTensorType>(operand.getType());
    for (auto [dim, size] : llvm::zip_equal(dimNames(type), type.getShape()))
      if (!llvm::is_contained(dims, dim)) {
        dims.push_back(dim);
        shape.push_back(size);
      }
  }
  if (order && llvm::all_of(dims, [&](StringAttr dim) { return dimIndex(order, dim) >= 0; }))
    return withDims(order, dims, element);
  for (Value operand : operands)
    if (dimNames(operand.getType()).size() == dims.size())
      return withElement(operand.getType(), element);
  return namedTensor(shape, dims, element);
}

double elementsOfResults(Operation *op) {
  double elements = 0;
  for (Type type : op->getResultTypes())
    elements += cast<RankedTensorType>(type).getNumElements();
  return elements;
}

/// Returns whether a value is a parameter of the segment, or a parameter converted to its compute type. Gradients of
/// parameters are f32.
static bool isParameter(Value value) {
  if (auto convert = value.getDefiningOp<model::ConvertOp>())
    value = convert.getX();
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument)
    return false;
  auto function = dyn_cast<FunctionOpInterface>(argument.getOwner()->getParentOp());
  if (!function)
    return false;
  auto role = model::roleAttr.ofArgument(function, argument.getArgNumber());
  return role && role.getValue() == "parameter";
}

RankedTensorType GradientBuilder::gradientType(unsigned index) const {
  Type type = operand(index).getType();
  return isParameter(operand(index)) ? withElement(type, Float32Type::get(type.getContext()))
                                     : cast<RankedTensorType>(type);
}

void GradientBuilder::contribute(unsigned index, Value value) {
  RankedTensorType target = gradientType(index);
  // Sums over every dimension along which the operand was broadcast. If the value is constant along such a dimension,
  // the sum is a product with the dimension's size.
  double repeats = 1;
  auto resultType = cast<RankedTensorType>(result(0).getType());
  if (isa<ElementwiseOp>(op))
    for (auto [dim, size] : llvm::zip_equal(dimNames(resultType), resultType.getShape()))
      if (dimIndex(target, dim) < 0 && dimIndex(value.getType(), dim) < 0)
        repeats *= size;
  SmallVector<StringAttr> dims;
  SmallVector<int64_t> shape;
  auto type = cast<RankedTensorType>(value.getType());
  for (auto [dim, size] : llvm::zip_equal(dimNames(target), target.getShape()))
    if (dimIndex(type, dim) >= 0) {
      dims.push_back(dim);
      shape.push_back(size);
    }
  if (dims.size() != dimNames(type).size())
    value = builder.create<model::ReduceSumOp>(loc, namedTensor(shape, dims, builder.getF32Type()), value);
  if (repeats != 1)
    value = mul(value, constant(repeats));
  if (cast<RankedTensorType>(value.getType()).getElementType() != target.getElementType())
    value = builder.create<model::ConvertOp>(loc, withElement(value.getType(), target.getElementType()), value);
  Value &sum = contributions[index];
  if (!sum) {
    sum = value;
    return;
  }
  sum = builder.create<model::AddOp>(loc, broadcastType({sum, value}, target.getElementType(), target), sum, value);
}

Value GradientBuilder::fullCotangent(unsigned index) {
  Value value = cotangent(index);
  if (value.getType() == result(index).getType())
    return value;
  return builder.create<model::BroadcastOp>(loc, result(index).getType(), value);
}

Value GradientBuilder::add(Value a, Value b) {
  return builder.create<model::AddOp>(loc, broadcastType({a, b}, builder.getF32Type(), result().getType()), a, b);
}
Value GradientBuilder::sub(Value a, Value b) {
  return builder.create<model::SubOp>(loc, broadcastType({a, b}, builder.getF32Type(), result().getType()), a, b);
}
Value GradientBuilder::mul(Value a, Value b) {
  return builder.create<model::MulOp>(loc, broadcastType({a, b}, builder.getF32Type(), result().getType()), a, b);
}
Value GradientBuilder::div(Value a, Value b) {
  return builder.create<model::DivOp>(loc, broadcastType({a, b}, builder.getF32Type(), result().getType()), a, b);
}
Value GradientBuilder::neg(Value a) {
  return builder.create<model::NegOp>(loc, withElement(a.getType(), builder.getF32Type()), a);
}
Value GradientBuilder::constant(double value) {
  return builder.create<model::ConstantOp>(loc, namedTensor({}, {}, builder.getF32Type()),
                                           builder.getF64FloatAttr(value));
}

} // namespace espalier
