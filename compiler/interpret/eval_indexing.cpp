// Ops whose results depend on element indices: table rows, labels, the padded tail and positions.
#include "compiler/interpret/evaluators.h"
#include "dialects/model/dialect.h"

#include <cmath>

using namespace mlir;

namespace espalier {

namespace {

/// Returns ids[i] - first if in [0, size), else -1 for rows and columns of other shards.
int64_t localIndex(const Tensor &ids, int64_t i, int64_t first, int64_t size) {
  double index = ids.values[i] - static_cast<double>(first);
  return index >= 0 && index < static_cast<double>(size) ? static_cast<int64_t>(index) : -1;
}

void evalEmbed(model::EmbedOp op, Operands x, const EvalContext &context, Tensor &y) {
  const Tensor &table = *x[0], &ids = *x[1];
  int64_t rows = table.shape()[0], hidden = table.shape()[1], first = originOf(op.getFirstRowAttr(), context);
  for (size_t i = 0; i < ids.values.size(); ++i)
    if (int64_t row = localIndex(ids, i, first, rows); row >= 0)
      for (int64_t h = 0; h < hidden; ++h)
        y.values[i * hidden + h] = table.values[row * hidden + h];
}

void evalEmbedGrad(model::EmbedGradOp op, Operands x, const EvalContext &context, Tensor &y) {
  const Tensor &ids = *x[0], &cotangent = *x[1];
  int64_t rows = y.shape()[0], hidden = y.shape()[1], first = originOf(op.getFirstRowAttr(), context);
  for (size_t i = 0; i < ids.values.size(); ++i)
    if (int64_t row = localIndex(ids, i, first, rows); row >= 0)
      for (int64_t h = 0; h < hidden; ++h)
        y.values[row * hidden + h] += cotangent.values[i * hidden + h];
}

void evalPick(model::PickOp op, Operands x, const EvalContext &context, Tensor &y) {
  int64_t columns = x[0]->shape().back(), first = originOf(op.getFirstColumnAttr(), context);
  for (size_t i = 0; i < y.values.size(); ++i)
    if (int64_t column = localIndex(*x[1], i, first, columns); column >= 0)
      y.values[i] = x[0]->values[i * columns + column];
}

void evalPickGrad(model::PickGradOp op, Operands x, const EvalContext &context, Tensor &y) {
  const Tensor &labels = *x[0], &cotangent = *x[1];
  int64_t columns = y.shape().back(), first = originOf(op.getFirstColumnAttr(), context);
  SmallVector<SmallVector<int64_t>> strides = {rowMajorStrides(labels.shape()),
                                               stridesAlong(cotangent.type, dimNames(labels.type))};
  forEachIndex(labels.shape(), strides, [&](ArrayRef<int64_t> at) {
    if (int64_t column = localIndex(labels, at[0], first, columns); column >= 0)
      y.values[at[0] * columns + column] = cotangent.values[at[1]];
  });
}

void evalMaskTail(model::MaskTailOp op, Operands x, const EvalContext &context, Tensor &y) {
  int64_t columns = y.shape().back(), first = originOf(op.getFirstColumnAttr(), context);
  auto valid = static_cast<int64_t>(op.getValid());
  double fill = op.getFill().convertToDouble();
  for (size_t i = 0; i < y.values.size(); ++i)
    y.values[i] = first + static_cast<int64_t>(i) % columns < valid ? x[0]->values[i] : fill;
}

/// Rotates the pairs (i, i + d/2) of each row of the last dimension by position * theta^(-2i/d).
void evalRope(model::RopeOp op, Operands x, const EvalContext &, Tensor &y) {
  const Tensor &input = *x[0], &positions = *x[1];
  int64_t depth = y.shape().back(), half = depth / 2;
  double theta = op.getTheta().convertToDouble(), sign = op.getInverse() ? -1 : 1;
  ArrayRef<StringAttr> dims = dimNames(y.type).drop_back();
  SmallVector<SmallVector<int64_t>> strides = {stridesAlong(y.type, dims), stridesAlong(positions.type, dims)};
  forEachIndex(y.shape().drop_back(), strides, [&](ArrayRef<int64_t> at) {
    for (int64_t i = 0; i < half; ++i) {
      double angle = positions.values[at[1]] * std::pow(theta, -2.0 * i / depth);
      double cosine = std::cos(angle), sine = sign * std::sin(angle);
      double a = input.values[at[0] + i], b = input.values[at[0] + i + half];
      y.values[at[0] + i] = a * cosine - b * sine;
      y.values[at[0] + i + half] = b * cosine + a * sine;
    }
  });
}

void evalTakeRow(model::TakeRowOp, Operands x, const EvalContext &, Tensor &y) {
  const Tensor &input = *x[0], &rows = *x[1];
  int64_t count = input.shape()[1], columns = input.shape()[2];
  for (int64_t b = 0; b < input.shape()[0]; ++b)
    if (auto row = static_cast<int64_t>(rows.values[b]); row >= 0 && row < count)
      std::copy_n(&input.values[(b * count + row) * columns], columns, &y.values[b * columns]);
}

} // namespace

void addIndexing(EvaluatorTable &table) {
  table.add(evalTakeRow);
  table.add(evalEmbed);
  table.add(evalEmbedGrad);
  table.add(evalPick);
  table.add(evalPickGrad);
  table.add(evalMaskTail);
  table.add(evalRope);
}

} // namespace espalier
