// Sums, products, accumulation, constants and scalars. Sums are computed in double and rounded once.
#include "compiler/interpret/evaluators.h"
#include "dialects/model/dialect.h"

#include <limits>

using namespace mlir;

namespace espalier {

namespace {

/// Returns the size of each of `dims` in the first tensor that has this dimension.
SmallVector<int64_t> sizesOf(ArrayRef<StringAttr> dims, ArrayRef<const Tensor *> tensors) {
  SmallVector<int64_t> sizes;
  for (StringAttr dim : dims)
    for (const Tensor *tensor : tensors)
      if (int index = dimIndex(tensor->type, dim); index >= 0) {
        sizes.push_back(tensor->shape()[index]);
        break;
      }
  return sizes;
}

Results evalScalar(model::ScalarOp op, Operands, EvalContext &context) {
  auto found = context.scalars.find(op.getSlot().str());
  if (found == context.scalars.end())
    return llvm::createStringError(llvm::inconvertibleErrorCode(), "no value for slot " + op.getSlot());
  return std::vector<Tensor>{Tensor(op.getType(), {found->second})};
}

void evalConstant(model::ConstantOp op, Operands, const EvalContext &, Tensor &y) {
  y.values[0] = op.getValue().convertToDouble();
}

/// Folds each element of x into the element of y with the same index along y's dimensions.
template <typename Fold> void reduce(const Tensor &x, Tensor &y, double initial, Fold fold) {
  y.values.assign(y.values.size(), initial);
  SmallVector<SmallVector<int64_t>> strides = {rowMajorStrides(x.shape()), stridesAlong(y.type, dimNames(x.type))};
  forEachIndex(x.shape(), strides,
               [&](ArrayRef<int64_t> at) { y.values[at[1]] = fold(y.values[at[1]], x.values[at[0]]); });
}

void evalReduceSum(model::ReduceSumOp, Operands x, const EvalContext &, Tensor &y) {
  reduce(*x[0], y, 0, [](double a, double b) { return a + b; });
}

void evalReduceMax(model::ReduceMaxOp, Operands x, const EvalContext &, Tensor &y) {
  reduce(*x[0], y, -std::numeric_limits<double>::infinity(), [](double a, double b) { return b > a ? b : a; });
}

void evalContract(model::ContractOp, Operands x, const EvalContext &, Tensor &y) {
  SmallVector<StringAttr> dims(dimNames(y.type));
  for (const Tensor *operand : x)
    for (StringAttr dim : dimNames(operand->type))
      if (!llvm::is_contained(dims, dim))
        dims.push_back(dim);
  SmallVector<SmallVector<int64_t>> strides = {stridesAlong(y.type, dims), stridesAlong(x[0]->type, dims),
                                               stridesAlong(x[1]->type, dims)};
  forEachIndex(sizesOf(dims, x), strides,
               [&](ArrayRef<int64_t> at) { y.values[at[0]] += x[0]->values[at[1]] * x[1]->values[at[2]]; });
}

void evalAccumulate(model::AccumulateOp op, Operands x, const EvalContext &context, Tensor &y) {
  bool overwrites = context.microBatch == 0 && !op.getAlways() && !context.hasClearedSums;
  for (size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = (overwrites ? 0 : x[0]->values[i]) + x[1]->values[i];
}

void evalSquaredNorm(model::SquaredNormOp op, Operands x, const EvalContext &, Tensor &y) {
  for (double value : x[0]->values)
    y.values[0] += value * value;
  y.values[0] *= op.getWeight().convertToDouble();
}

Results evalCotangent(model::CotangentOp op, Operands, EvalContext &context) {
  auto type = cast<RankedTensorType>(op.getType());
  bool isOfLoss = type.getRank() == 0 && context.cotangent && context.cotangent->type != type; // auxiliary loss
  if (!context.cotangent || isOfLoss)
    return std::vector<Tensor>{Tensor(type, std::vector<double>(type.getNumElements(), 1.0))};
  if (context.cotangent->type != type)
    return llvm::createStringError(llvm::inconvertibleErrorCode(),
                                   "the context's cotangent has another type than the stream");
  return std::vector<Tensor>{*context.cotangent};
}

} // namespace

void addArithmetic(EvaluatorTable &table) {
  table.add(evalScalar);
  table.add(evalConstant);
  table.add(evalReduceSum);
  table.add(evalReduceMax);
  table.add(evalContract);
  table.add(evalAccumulate);
  table.add(evalSquaredNorm);
  table.add(evalCotangent);
}

} // namespace espalier
