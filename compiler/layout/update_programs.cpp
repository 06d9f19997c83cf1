// AdamW is with decoupled weight decay (Loshchilov and Hutter, ICLR 2019). SGD has momentum and adds weight decay to
// the gradient, as torch.optim.SGD. Muon orthogonalizes the momentum of matrices (Jordan et al., 2024). Updates of
// AdamW and SGD make one pass over the memory of a bucket. If tensor parallelism splits matrices, the update gathers
// the momentum of one bucket, and each rank orthogonalizes the whole matrices and applies its slices.
#include "compiler/layout/update_programs.h"

#include "compiler/partition/layout.h"
#include "dialects/attributes.h"
#include "format/optimizers.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace espalier {

namespace {

/// Builds the update of one bucket. Arguments precede all ops.
class UpdateProgram {
public:
  UpdateProgram(RegionFunction &f, exec::BucketOp bucket, exec::OptimizerAttr settings, const ClipFactors &clips)
      : f(f), b(f.b), bucket(bucket), settings(settings), f32(b.getF32Type()),
        type(f.flat(bucket.getPartElements(), f32)) {
    auto argument = [&](Type element, StringRef role, StringRef name, ArrayAttr share = {}) {
      return f.argument(withElement(type, element), role, name, share);
    };
    old = argument(bucket.getStored(), "parameter", bucket.getName(), bucket.getShareAttr());
    sum = argument(bucket.gradientType(), "accumulator", bucket.getName(), bucket.getShareAttr());
    for (StringRef part : bucket.stateParts())
      states.push_back(argument(f32, "state", stateName(part)));
    hasMaster = states.size() > bucket.optimizerRow().states.size();
    weight = hasMaster ? states.front() : old;
    if (hasMaster)
      states.erase(states.begin());
    factors = clips.of(bucket);
  }

  void buildAdamW();
  void buildSgd();
  void buildMuon();
  void buildSign();

private:
  std::string stateName(StringRef part) { return (bucket.getName() + "." + part).str(); }
  Value constant(double value) {
    return b.create<model::ConstantOp>(f.loc, namedTensor({}, {}, f32), b.getF64FloatAttr(value));
  }
  Value scalar(StringRef slot) { return b.create<model::ScalarOp>(f.loc, namedTensor({}, {}, f32), slot); }
  /// Returns the learning rate of the bucket's parameters.
  Value rate() {
    int64_t group = bucket.getRateGroup();
    return scalar(group > 0 ? "group_rate" + std::to_string(group) : "learning_rate");
  }
  template <typename Op> Value binary(Value x, Value y) {
    return b.create<Op>(f.loc, broadcastType({x, y}, f32), x, y);
  }
  Value mul(Value x, Value y) { return binary<model::MulOp>(x, y); }
  Value add(Value x, Value y) { return binary<model::AddOp>(x, y); }
  Value sub(Value x, Value y) { return binary<model::SubOp>(x, y); }
  Value div(Value x, Value y) { return binary<model::DivOp>(x, y); }
  Value root(Value x) { return b.create<model::SqrtOp>(f.loc, x.getType(), x); }

  /// Returns the type of the rank's matrices, or of their slices, with these dimensions. The verifier of plans lets a
  /// copy change dimensions whose names begin with `element`.
  RankedTensorType matrices(StringRef first, int64_t firstSize, StringRef second, int64_t secondSize) {
    int64_t count = bucket.getPartElements() / (bucket.getMatrix()[0] * bucket.getMatrix()[1]);
    return namedTensor({count, firstSize, secondSize},
                       {b.getStringAttr("element_matrix"), b.getStringAttr(first), b.getStringAttr(second)}, f32);
  }
  Value view(Value x, Type as) { return b.create<model::ViewOp>(f.loc, as, x); }
  bool isSplit(int side) { return bucket.wholeSize(side) > bucket.getMatrix()[side]; }
  Value contract(Value x, Value y, Type result) { return b.create<model::ContractOp>(f.loc, result, x, y); }

  /// Returns the weight decay of the bucket's parameters.
  double weightDecay() {
    if (!bucket.getDecays())
      return 0;
    int64_t group = bucket.getRateGroup(); // from 1
    return group == 0 ? double(settings.getWeightDecay()) : settings.getGroupDecays()[group - 1];
  }
  Value decayed(Value step) {
    if (double decay = weightDecay(); decay != 0)
      step = add(step, mul(weight, constant(decay)));
    return step;
  }
  Value gathered(Value update);
  Value sliced(Value whole);
  Value orthogonalized(Value x);
  double scaleOfUpdate();
  void finish(Value updated, ArrayRef<Value> newStates);

  RegionFunction &f;
  OpBuilder &b;
  exec::BucketOp bucket;
  exec::OptimizerAttr settings;
  const Type f32;
  const RankedTensorType type;
  Value old, sum, weight; ///< stored parameters, summed gradient, and master copy or stored parameters
  SmallVector<Value, 2> states;
  bool hasMaster = false;
  Value factors; ///< of QK-clip; null: none
};

/// Adds the results. A step whose gradients overflowed leaves parameters and state unchanged.
void UpdateProgram::finish(Value updated, ArrayRef<Value> newStates) {
  if (factors)
    updated = mul(updated, factors);
  Value apply = scalar("apply");
  auto chosen = [&](Value value, Value otherwise, Type element) -> Value {
    return b.create<model::SelectOp>(f.loc, withElement(type, element), apply, value, otherwise);
  };
  f.result(chosen(updated, old, bucket.getStored()), "parameter", bucket.getName(), bucket.getShareAttr());
  if (hasMaster)
    f.result(chosen(updated, weight, f32), "state", stateName(rt::masterKind));
  for (auto [name, before, after] : llvm::zip_equal(bucket.optimizerRow().states, states, newStates))
    f.result(chosen(after, before, f32), "state", stateName(name));
}

void UpdateProgram::buildAdamW() {
  Value moment1 = states[0], moment2 = states[1];
  Value gradient = mul(sum, scalar("gradient_scale"));
  Value first = add(mul(moment1, constant(settings.getBeta1())), mul(gradient, constant(1 - settings.getBeta1())));
  Value second =
      add(mul(moment2, constant(settings.getBeta2())), mul(mul(gradient, gradient), constant(1 - settings.getBeta2())));
  Value deviation = root(mul(second, scalar("bias_correction2")));
  Value step = div(mul(first, scalar("bias_correction1")), add(deviation, constant(settings.getEpsilon())));
  finish(sub(weight, mul(decayed(step), rate())), {first, second});
}

void UpdateProgram::buildSgd() {
  Value gradient = decayed(mul(sum, scalar("gradient_scale")));
  Value momentum = add(mul(states[0], constant(settings.getMomentum())), gradient);
  Value step = settings.getNesterov() ? add(gradient, mul(momentum, constant(settings.getMomentum()))) : momentum;
  finish(sub(weight, mul(step, rate())), {momentum});
}

/// Returns the whole matrices of an update. Ranks that hold slices of the same matrices exchange their slices.
Value UpdateProgram::gathered(Value update) {
  RankedTensorType slice = matrices("element_row", bucket.getMatrix()[0], "element_column", bucket.getMatrix()[1]);
  Value x = view(update, slice);
  if (bucket.getRowAxes().empty() && bucket.getColumnAxes().empty())
    return x;
  // Dimensions of matrices have no shardings in the module, so the view names the axes.
  Sharding sharding(slice.getRank());
  for (int side : {0, 1})
    sharding.dims[side + 1] = bucket.sideAxes(side);
  dist::shardingAttr.set(x.getDefiningOp(), sharding.attribute(b.getContext()));
  for (int side : {0, 1}) {
    if (!isSplit(side))
      continue;
    SmallVector<int64_t> shape(cast<RankedTensorType>(x.getType()).getShape());
    shape[side + 1] = bucket.wholeSize(side);
    x = b.create<dist::AllGatherOp>(f.loc, namedTensor(shape, dimNames(slice), f32), x, f.axes(bucket.sideAxes(side)),
                                    b.getI64IntegerAttr(side + 1));
  }
  return x;
}

/// Returns the rank's slices of matrices, as flat as the bucket.
Value UpdateProgram::sliced(Value whole) {
  for (int side : {1, 0}) {
    if (!isSplit(side))
      continue;
    auto from = cast<RankedTensorType>(whole.getType());
    SmallVector<int64_t> shape(from.getShape());
    shape[side + 1] = bucket.getMatrix()[side];
    whole = b.create<dist::SliceOp>(f.loc, namedTensor(shape, dimNames(from), f32), whole,
                                    f.axes(bucket.sideAxes(side)), b.getI64IntegerAttr(side + 1));
  }
  return view(whole, type);
}

/// Returns the matrices U V^T of updates U S V^T, up to singular values between 0.7 and 1.2: Newton-Schulz steps
/// X = a X + (b A + c A A) X with A = X X^T, on updates of Frobenius norm 1. The side of A is the shorter one.
Value UpdateProgram::orthogonalized(Value x) {
  constexpr double linear = 3.4445, cubic = -4.7750, quintic = 2.0315, epsilon = 1e-7;
  int64_t rows = bucket.wholeSize(0), columns = bucket.wholeSize(1), side = std::min(rows, columns);
  bool isWide = rows <= columns;
  RankedTensorType asMatrix = matrices("element_row", rows, "element_column", columns);
  // `twin` is the matrix with another name of the shorter dimension, so that products can contract with it.
  StringRef inner = isWide ? "element_row" : "element_column";
  RankedTensorType asTwin = isWide ? matrices("element_side", rows, "element_column", columns)
                                   : matrices("element_row", rows, "element_side", columns);
  RankedTensorType asSquare = matrices(inner, side, "element_side", side),
                   asOther = matrices("element_other", side, "element_side", side),
                   asResult = matrices(inner, side, "element_other", side);

  auto sumOver = [&](Value of) -> Value {
    auto from = cast<RankedTensorType>(of.getType());
    Type less = namedTensor(from.getShape().drop_back(), dimNames(from).drop_back(), f32);
    return b.create<model::ReduceSumOp>(f.loc, less, of);
  };
  x = div(x, add(root(sumOver(sumOver(mul(x, x)))), constant(epsilon)));
  for (int64_t step = 0; step < settings.getNewtonSchulzSteps(); ++step) {
    Value twin = view(x, asTwin);
    Value square = contract(x, twin, asSquare);
    Value fourth = view(contract(square, view(square, asOther), asResult), asSquare);
    Value factor = add(mul(square, constant(cubic)), mul(fourth, constant(quintic)));
    Value product = isWide ? contract(factor, twin, asMatrix) : contract(twin, factor, asMatrix);
    x = add(mul(x, constant(linear)), product);
  }
  return x;
}

/// Returns the factor of an orthogonal update. Rows of a matrix are inputs of a layer, columns are outputs.
double UpdateProgram::scaleOfUpdate() {
  auto inputs = static_cast<double>(bucket.wholeSize(0)), outputs = static_cast<double>(bucket.wholeSize(1));
  double scale = settings.getScaleMode() == "spectral"        ? std::max(inputs, outputs)
                 : settings.getScaleMode() == "shape_scaling" ? std::max(1.0, outputs / inputs)
                                                              : outputs / inputs;
  return std::sqrt(scale) * settings.getScaleFactor();
}

void UpdateProgram::buildMuon() {
  Value gradient = mul(sum, scalar("gradient_scale"));
  Value momentum = add(mul(states[0], constant(settings.getMomentum())), gradient);
  Value update = settings.getNesterov() ? add(gradient, mul(momentum, constant(settings.getMomentum()))) : momentum;
  Value step = decayed(mul(sliced(orthogonalized(gathered(update))), constant(scaleOfUpdate())));
  finish(sub(weight, mul(step, rate())), {momentum});
}

/// Moves each parameter by the rate against the sign of its gradient. The sign needs no scale of the gradient.
void UpdateProgram::buildSign() {
  Value negative = b.create<model::NegOp>(f.loc, type, sum);
  Value sign = sub(b.create<model::StepOp>(f.loc, type, sum), b.create<model::StepOp>(f.loc, type, negative));
  finish(sub(weight, mul(sign, constant(bucket.getSignRate()))), {});
}

} // namespace

void buildUpdate(RegionFunction &f, exec::BucketOp bucket, exec::OptimizerAttr settings, const ClipFactors &clips) {
  UpdateProgram program(f, bucket, settings, clips);
  switch (bucket.optimizerRow().number) {
  case rt::pb::SGD:
    return program.buildSgd();
  case rt::pb::MUON:
    return program.buildMuon();
  case rt::pb::SIGN:
    return program.buildSign();
  default:
    return program.buildAdamW();
  }
}

} // namespace espalier
