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

double numberOr(std::optional<APFloat> number, double otherwise) {
  return number ? number->convertToDouble() : otherwise;
}

/// Returns the angle of pair `i` per position, in radians.
double frequencyOf(model::RopeOp op, int64_t i, int64_t rotary) {
  double plain = std::pow(op.getTheta().convertToDouble(), -2.0 * i / rotary), kept = 0;
  if (op.getSlow()) {
    double slow = op.getSlow()->convertToDouble(), fast = op.getFast()->convertToDouble();
    double at = op.getOriginalContext() ? op.getOriginalContext()->convertToDouble() * plain / (2 * M_PI)
                                        : static_cast<double>(i);
    kept = std::clamp((at - slow) / (fast - slow), 0.0, 1.0);
  }
  return plain * ((1 - kept) / numberOr(op.getFactor(), 1) + kept);
}

/// Rotates the pairs (i, i + r/2), or (2i, 2i + 1), of r columns of the last dimension by position * angle.
void evalRope(model::RopeOp op, Operands x, const EvalContext &, Tensor &y) {
  const Tensor &input = *x[0], &positions = *x[1];
  int64_t depth = y.shape().back(), rotary = op.getRotary() ? static_cast<int64_t>(*op.getRotary()) : depth;
  int64_t step = op.getInterleaved() ? 2 : 1, other = op.getInterleaved() ? 1 : rotary / 2;
  auto before = static_cast<int64_t>(op.getFirst().value_or(0));
  double sign = op.getInverse() ? -1 : 1, amplitude = numberOr(op.getAmplitude(), 1);
  ArrayRef<StringAttr> dims = dimNames(y.type).drop_back();
  SmallVector<SmallVector<int64_t>> strides = {stridesAlong(y.type, dims), stridesAlong(positions.type, dims)};
  forEachIndex(y.shape().drop_back(), strides, [&](ArrayRef<int64_t> at) {
    for (int64_t i = 0; i < rotary / 2; ++i) {
      double angle = positions.values[at[1]] * frequencyOf(op, i, rotary);
      double cosine = amplitude * std::cos(angle), sine = sign * amplitude * std::sin(angle);
      int64_t first = at[0] + before + i * step, second = first + other;
      double a = input.values[first], b = input.values[second];
      y.values[first] = a * cosine - b * sine;
      y.values[second] = b * cosine + a * sine;
    }
    for (int64_t i = 0; i < depth; ++i)
      if (i < before || i >= before + rotary)
        y.values[at[0] + i] = input.values[at[0] + i];
  });
}

void evalTakeRow(model::TakeRowOp, Operands x, const EvalContext &, Tensor &y) {
  const Tensor &input = *x[0], &rows = *x[1];
  int64_t count = input.shape()[1], columns = input.shape()[2];
  for (int64_t b = 0; b < input.shape()[0]; ++b)
    if (auto row = static_cast<int64_t>(rows.values[b]); row >= 0 && row < count)
      std::copy_n(&input.values[(b * count + row) * columns], columns, &y.values[b * columns]);
}

/// Returns how often each row of `part` stands in `whole`, which may have heads that `part` lacks.
int64_t headsPerRow(const Tensor &part, const Tensor &whole) {
  size_t rank = whole.shape().size();
  return part.shape().size() < rank ? whole.shape()[rank - 2] : 1;
}

void evalConcat(model::ConcatOp, Operands x, const EvalContext &, Tensor &y) {
  int64_t columns = y.shape().back(), rows = static_cast<int64_t>(y.values.size()) / columns, first = 0;
  for (const Tensor *part : {x[0], x[1]}) {
    int64_t width = part->shape().back(), times = headsPerRow(*part, y);
    for (int64_t row = 0; row < rows; ++row)
      std::copy_n(&part->values[row / times * width], width, &y.values[row * columns + first]);
    first += width;
  }
}

void evalColumns(model::ColumnsOp op, Operands x, const EvalContext &, Tensor &y) {
  const Tensor &input = *x[0];
  int64_t columns = input.shape().back(), width = y.shape().back(), times = headsPerRow(y, input);
  auto first = static_cast<int64_t>(op.getFirst());
  for (int64_t row = 0; row < static_cast<int64_t>(input.values.size()) / columns; ++row)
    for (int64_t i = 0; i < width; ++i)
      y.values[row / times * width + i] += input.values[row * columns + first + i];
}

void evalView(model::ViewOp, Operands x, const EvalContext &, Tensor &y) { y.values = x[0]->values; }

} // namespace

void addIndexing(EvaluatorTable &table) {
  table.add(evalView);
  table.add(evalTakeRow);
  table.add(evalConcat);
  table.add(evalColumns);
  table.add(evalEmbed);
  table.add(evalEmbedGrad);
  table.add(evalPick);
  table.add(evalPickGrad);
  table.add(evalMaskTail);
  table.add(evalRope);
}

} // namespace espalier
