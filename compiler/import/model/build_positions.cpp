#include "compiler/import/model/build_positions.h"

#include "compiler/import/model/rotary_form.h"

#include <bit>
#include <cmath>

using namespace mlir;

namespace espalier {

namespace {

constexpr int64_t alibiColumns = 8; ///< kernels of GPUs read rows of whole 16 bytes

/// Returns floor(x / by) for whole numbers x from 0 to `most`, bit by bit.
Value floorOf(PrimitiveBuilder &p, Value x, double by, int64_t most) {
  Value quotient = p.binary<model::MulOp>(x, p.constant(0)), rest = x;
  auto largest = static_cast<uint64_t>(static_cast<double>(most) / by);
  for (uint64_t bit = std::bit_floor(largest); bit > 0; bit /= 2) {
    double part = static_cast<double>(bit) * by;
    Value isIn = p.unary<model::StepOp>(p.binary<model::AddOp>(rest, p.constant(0.5 - part)));
    rest = p.binary<model::SubOp>(rest, p.binary<model::MulOp>(isIn, p.constant(part)));
    quotient = p.binary<model::AddOp>(quotient, p.binary<model::MulOp>(isIn, p.constant(static_cast<double>(bit))));
  }
  return quotient;
}

/// Returns the numbers 0, 1, .. along a dimension. On a shard of the dimension, they are those of the whole.
Value numbersAlong(PrimitiveBuilder &p, StringAttr dim, int64_t size) {
  Type type = namedTensor({size}, {dim}, p.f32);
  Value numbers = p.b.create<model::BroadcastOp>(p.loc, type, p.constant(0));
  for (int64_t i = 1; i < size; ++i)
    numbers = p.b.create<model::MaskTailOp>(p.loc, type, numbers, p.b.getI64IntegerAttr(i), p.b.getF64FloatAttr(i),
                                            Attribute());
  return numbers;
}

/// Returns the slopes of heads, in the order of `dims`, for `bias` = 8 those of Press et al. Heads beyond a power of
/// two m get those between the slopes of 2 m heads.
Value slopes(PrimitiveBuilder &p, ArrayRef<StringAttr> dims, ArrayRef<int64_t> sizes, double bias) {
  Value head = numbersAlong(p, dims.front(), sizes.front());
  int64_t heads = sizes.front();
  if (dims.size() > 1) {
    Value times = p.binary<model::MulOp>(head, p.constant(static_cast<double>(sizes[1])));
    Type type = namedTensor(sizes, dims, p.f32);
    head = p.b.create<model::AddOp>(p.loc, type, times, numbersAlong(p, dims[1], sizes[1]));
    heads *= sizes[1];
  }
  auto line = [&](double factor, double first) {
    double perHead = -std::log(2.0) * bias * factor;
    return p.binary<model::AddOp>(p.binary<model::MulOp>(head, p.constant(perHead)), p.constant(perHead * first));
  };
  auto whole = static_cast<double>(std::bit_floor(static_cast<uint64_t>(heads)));
  Value power = line(1 / whole, 1);
  if (whole < static_cast<double>(heads)) {
    Value isFirst = p.binary<model::SubOp>(p.constant(whole - 0.5), head);
    power = p.b.create<model::SelectOp>(p.loc, power.getType(), isFirst, power, line(1 / whole, 0.5 - whole));
  }
  return p.unary<model::ExpOp>(power);
}

} // namespace

FailureOr<Value> embed(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in, Type element) {
  auto table = cast<RankedTensorType>(in[0].getType()), ids = cast<RankedTensorType>(in[1].getType());
  SmallVector<StringAttr> dims(dimNames(ids));
  SmallVector<int64_t> shape(ids.getShape());
  dims.push_back(dimNames(table).back());
  shape.push_back(table.getShape().back());
  double shift = number(op, "shift");
  Value rows = shift == 0 ? in[1] : p.binary<model::AddOp>(in[1], p.constant(shift), ids.getElementType());
  return Value(p.b.create<model::EmbedOp>(p.loc, namedTensor(shape, dims, element), in[0], rows, Attribute()));
}

Value rotated(PrimitiveBuilder &p, const OpDescription &op, Value x, Value positions, Type element) {
  auto type = withElement(x.getType(), element);
  int64_t headDim = type.getShape().back(), rotary = rotaryColumns(op, headDim);
  if (rotary == 0)
    return x;
  auto rope = p.b.create<model::RopeOp>(p.loc, TypeRange{type}, ValueRange{x, positions});
  rope.setThetaAttr(p.b.getF64FloatAttr(number(op, "theta")));
  rope.setInterleaved(number(op, "interleaved") != 0);
  rope.setInverse(number(op, "inverse") != 0);
  if (rotary < headDim)
    rope.setRotaryAttr(p.b.getI64IntegerAttr(rotary));
  if (rotary < headDim && number(op, "last") > 0)
    rope.setFirstAttr(p.b.getI64IntegerAttr(headDim - rotary));
  RotaryScaling scaling = rotaryScaling(op, rotary);
  if (scaling.factor != 1)
    rope.setFactorAttr(p.b.getF64FloatAttr(scaling.factor));
  if (scaling.factor != 1 && scaling.slow != scaling.fast) {
    rope.setSlowAttr(p.b.getF64FloatAttr(scaling.slow));
    rope.setFastAttr(p.b.getF64FloatAttr(scaling.fast));
  }
  if (scaling.factor != 1 && scaling.context > 0)
    rope.setOriginalContextAttr(p.b.getF64FloatAttr(scaling.context));
  if (scaling.amplitude != 1)
    rope.setAmplitudeAttr(p.b.getF64FloatAttr(scaling.amplitude));
  return rope.getResult();
}

Value temperature(PrimitiveBuilder &p, const OpDescription &op, Value x, Value positions, int64_t most, Type element) {
  double floor = number(op, "floor"), first = number(op, "first");
  if (number(op, "factor") == 0 || static_cast<double>(most) - 1 + first < floor)
    return x;
  Value at = p.binary<model::AddOp>(positions, p.constant(first));
  Value steps = floorOf(p, at, floor, most);
  Value growth = p.unary<model::LogOp>(p.binary<model::AddOp>(steps, p.constant(1)));
  Value factor = p.binary<model::MulOp>(growth, p.constant(number(op, "factor")));
  factor = p.binary<model::AddOp>(factor, p.constant(1));
  return p.b.create<model::MulOp>(p.loc, withElement(x.getType(), element), x, factor);
}

Value chunkBegins(PrimitiveBuilder &p, Value positions, double chunk, int64_t most, Value visibleFrom) {
  Value at = p.unary<model::ConvertOp>(positions);
  Value begins = p.binary<model::MulOp>(floorOf(p, at, chunk, most), p.constant(chunk));
  Type integers = positions.getType();
  if (!visibleFrom)
    return p.b.create<model::ConvertOp>(p.loc, integers, begins);
  Value isLater = p.binary<model::SubOp>(visibleFrom, begins);
  return p.b.create<model::SelectOp>(p.loc, integers, isLater, visibleFrom, begins);
}

FailureOr<std::pair<Value, Value>> alibi(PrimitiveBuilder &p, const OpDescription &op, ArrayRef<Value> in,
                                         Value positions, int64_t most, Type element) {
  auto q = cast<RankedTensorType>(in[0].getType()), k = cast<RankedTensorType>(in[1].getType());
  if (q.getRank() < 4 || k.getRank() != 4)
    return emitError(p.loc) << "alibi needs q and k of attention, got " << q << " and " << k;
  StringAttr columns = p.b.getStringAttr("alibi_columns"), more = p.b.getStringAttr("alibi_head_dim");
  auto with = [&](Type like, StringAttr dim, int64_t size, Type type) {
    SmallVector<StringAttr> dims(dimNames(like));
    SmallVector<int64_t> shape(cast<RankedTensorType>(like).getShape());
    dims.back() = dim;
    shape.back() = size;
    return namedTensor(shape, dims, type);
  };
  Value slope =
      slopes(p, dimNames(q).slice(2, q.getRank() - 3), q.getShape().slice(2, q.getRank() - 3), number(op, "bias"));
  slope = p.binary<model::MulOp>(slope, p.constant(1 / number(op, "scale")), element);
  Value ofQueries = p.b.create<model::BroadcastOp>(p.loc, with(q, columns, alibiColumns, element), slope);
  Value at = p.unary<model::ConvertOp>(positions);
  Value high = p.binary<model::MulOp>(floorOf(p, at, 256, most), p.constant(256));
  SmallVector<StringAttr> dims(dimNames(positions.getType()));
  SmallVector<int64_t> shape(cast<RankedTensorType>(positions.getType()).getShape());
  dims.push_back(columns);
  shape.push_back(alibiColumns);
  // The columns are the rest of the position, its 256ths, and zeros.
  auto along = [&](double first, int64_t count, double others) -> Value {
    Type type = namedTensor({alibiColumns}, {columns}, p.f32);
    Value all = p.b.create<model::BroadcastOp>(p.loc, type, p.constant(first));
    return p.b.create<model::MaskTailOp>(p.loc, type, all, p.b.getI64IntegerAttr(count), p.b.getF64FloatAttr(others),
                                         Attribute());
  };
  auto each = [&](auto op, Value a, Value b, Type type) -> Value {
    return p.b.create<decltype(op)>(p.loc, namedTensor(shape, dims, type), a, b);
  };
  Value rest = each(model::MulOp(), p.binary<model::SubOp>(at, high), along(1, 1, 0), p.f32);
  Value multiple = each(model::MulOp(), high, p.binary<model::SubOp>(along(1, 2, 0), along(1, 1, 0)), p.f32);
  Value ofKeys = each(model::AddOp(), rest, multiple, element);
  auto extended = [&](Value x, RankedTensorType type, Value by) -> Value {
    return p.b.create<model::ConcatOp>(p.loc, with(type, more, type.getShape().back() + alibiColumns, element), x, by);
  };
  return std::pair(extended(in[0], q, ofQueries), extended(in[1], k, ofKeys));
}

} // namespace espalier
