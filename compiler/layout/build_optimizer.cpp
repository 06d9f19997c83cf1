// Builds AdamW with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), with one pass over memory per bucket.
// Gradients are sums over tokens; gradient_scale normalizes, unscales and clips them in one multiplication. These
// functions do not communicate: schedules start the buckets' transfers before and after them.
#include "compiler/layout/segment_layout.h"
#include "compiler/passes.h"
#include "compiler/plan/run_attributes.h"

#include "dialects/model/dialect.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_BUILDOPTIMIZER
#include "compiler/passes.h.inc"

namespace {

/// Builds one function whose arguments and results are slices of a segment's regions.
class RegionFunction {
public:
  RegionFunction(ModuleOp module, StringRef name) : b(module.getContext()), loc(UnknownLoc::get(b.getContext())) {
    b.setInsertionPointToEnd(module.getBody());
    function = b.create<func::FuncOp>(loc, name, b.getFunctionType({}, {}));
    b.setInsertionPointToStart(function.addEntryBlock());
  }

  /// Sets the location of the ops that follow, usually a parameter's line in the model file.
  void moveTo(Location at) { loc = at; }

  RankedTensorType flat(int64_t elements, Type element) {
    return namedTensor({elements}, {b.getStringAttr("element")}, element);
  }

  Value argument(Type type, StringRef role, StringRef name, ArrayRef<StringAttr> share = {}) {
    (void)function.insertArgument(function.getNumArguments(), type, attributes(role, name, share), loc);
    return function.getBody().front().getArguments().back();
  }

  void result(Value value, StringRef role, StringRef name, ArrayRef<StringAttr> share = {}) {
    results.push_back(value);
    resultAttributes.push_back(attributes(role, name, share));
  }

  void finish() {
    b.create<func::ReturnOp>(loc, results);
    function.setType(b.getFunctionType(function.getBody().getArgumentTypes(), ValueRange(results).getTypes()));
    for (auto [index, dictionary] : llvm::enumerate(resultAttributes))
      function.setResultAttrs(index, dictionary);
  }

  ArrayAttr axes(ArrayRef<StringAttr> names) {
    return b.getArrayAttr(SmallVector<Attribute>(names.begin(), names.end()));
  }

  void setAttribute(StringRef name, Attribute value) { function->setAttr(name, value); }

  OpBuilder b;
  Location loc;

private:
  DictionaryAttr attributes(StringRef role, StringRef name, ArrayRef<StringAttr> share) {
    SmallVector<NamedAttribute> list = {b.getNamedAttr("model.role", b.getStringAttr(role)),
                                        b.getNamedAttr("model.name", b.getStringAttr(name))};
    if (!share.empty())
      list.push_back(b.getNamedAttr("exec.share", axes(share)));
    return b.getDictionaryAttr(list);
  }

  func::FuncOp function;
  SmallVector<Value> results;
  SmallVector<DictionaryAttr> resultAttributes;
};

/// Returns the model-file line of a bucket's first parameter.
LocationAttr locationOf(const SegmentLayout &segment, const SegmentBucket &bucket) {
  return segment.parameters[bucket.parameters.front()].location;
}

/// Returns whether the segment updates the bucket.
bool isUpdated(const SegmentBucket &bucket) { return !bucket.isTiedHere && !bucket.isFrozen; }

void buildNorm(ModuleOp module, const SegmentLayout &segment) {
  RegionFunction f(module, segment.kind + ".norm");
  Type f32 = f.b.getF32Type();
  Type scalar = namedTensor({}, {}, f32);
  Value statistic = f.argument(scalar, "statistic", "squared_norm");
  for (const SegmentBucket &bucket : segment.buckets) {
    if (!isUpdated(bucket))
      continue;
    f.moveTo(locationOf(segment, bucket));
    Value gradient = f.argument(f.flat(bucket.partElements, f32), "accumulator", bucket.name, bucket.shareAxes);
    Value norm = f.b.create<model::SquaredNormOp>(f.loc, scalar, gradient, f.b.getF64FloatAttr(bucket.normWeight));
    statistic = f.b.create<model::AccumulateOp>(f.loc, scalar, statistic, norm, f.b.getUnitAttr());
  }
  f.result(statistic, "statistic", "squared_norm");
  f.finish();
}

/// Builds the function that adds the rank's shard of a micro-batch's gradient to the accumulator, for sharded
/// accumulators.
void buildAdd(ModuleOp module, const SegmentLayout &segment) {
  auto isAdded = [](const SegmentBucket &bucket) { return bucket.wholeGradientOffset && !bucket.isTiedHere; };
  if (llvm::none_of(segment.buckets, isAdded))
    return;
  RegionFunction f(module, segment.kind + ".add");
  for (const SegmentBucket &bucket : segment.buckets) {
    if (!isAdded(bucket))
      continue;
    f.moveTo(locationOf(segment, bucket));
    Type type = f.flat(bucket.partElements, f.b.getF32Type());
    Value sum = f.argument(type, "accumulator", bucket.name, bucket.shareAxes);
    Value term = f.argument(type, "scattered", bucket.name, bucket.shareAxes);
    f.result(f.b.create<model::AccumulateOp>(f.loc, type, sum, term), "accumulator", bucket.name, bucket.shareAxes);
  }
  f.finish();
}

/// Builds the elementwise update of one bucket.
void buildUpdate(RegionFunction &f, const SegmentBucket &bucket, bool master, const OptimizerConfig &adam) {
  OpBuilder &b = f.b;
  Type f32 = b.getF32Type();
  Type stored = bucket.stored;
  StringRef name = bucket.name;
  const Axes &share = bucket.shareAxes;
  RankedTensorType type = f.flat(bucket.partElements, f32);
  auto state = [&](const char *part) { return bucket.name + "." + part; };
  auto constant = [&](double value) -> Value {
    return b.create<model::ConstantOp>(f.loc, namedTensor({}, {}, f32), b.getF64FloatAttr(value));
  };
  auto scalar = [&](StringRef slot) -> Value {
    return b.create<model::ScalarOp>(f.loc, namedTensor({}, {}, f32), slot);
  };
  auto binary = [&]<typename Op>(Op *, Value x, Value y) -> Value {
    return b.create<Op>(f.loc, broadcastType({x, y}, f32), x, y);
  };
  auto mul = [&](Value x, Value y) { return binary(static_cast<model::MulOp *>(nullptr), x, y); };
  auto add = [&](Value x, Value y) { return binary(static_cast<model::AddOp *>(nullptr), x, y); };
  auto sub = [&](Value x, Value y) { return binary(static_cast<model::SubOp *>(nullptr), x, y); };
  auto div = [&](Value x, Value y) { return binary(static_cast<model::DivOp *>(nullptr), x, y); };

  Value old = f.argument(f.flat(bucket.partElements, stored), "parameter", name, share);
  Value sum = f.argument(type, "accumulator", name, share);
  Value weight = master ? f.argument(type, "state", state("master")) : old;
  Value moment1 = f.argument(type, "state", state("moment1"));
  Value moment2 = f.argument(type, "state", state("moment2"));

  Value gradient = mul(sum, scalar("gradient_scale"));
  Value first = add(mul(moment1, constant(adam.beta1)), mul(gradient, constant(1 - adam.beta1)));
  Value second = add(mul(moment2, constant(adam.beta2)), mul(mul(gradient, gradient), constant(1 - adam.beta2)));
  Value variance = mul(second, scalar("bias_correction2"));
  Value root = b.create<model::SqrtOp>(f.loc, variance.getType(), variance);
  Value step = div(mul(first, scalar("bias_correction1")), add(root, constant(adam.epsilon)));
  if (bucket.decays && adam.weightDecay != 0)
    step = add(step, mul(weight, constant(adam.weightDecay)));
  Value updated = sub(weight, mul(step, scalar("learning_rate")));

  // A step whose gradients overflowed leaves parameters and state unchanged.
  Value apply = scalar("apply");
  auto chosen = [&](Value value, Value otherwise, Type element) -> Value {
    return b.create<model::SelectOp>(f.loc, withElement(type, element), apply, value, otherwise);
  };
  f.result(chosen(updated, old, stored), "parameter", name, share);
  if (master)
    f.result(chosen(updated, weight, f32), "state", state("master"));
  f.result(chosen(first, moment1, f32), "state", state("moment1"));
  f.result(chosen(second, moment2, f32), "state", state("moment2"));
}

struct BuildOptimizerPass : impl::BuildOptimizerBase<BuildOptimizerPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    OptimizerConfig adam = readOptimizer(module);
    for (const SegmentLayout &segment : readSegments(module)) {
      if (llvm::all_of(segment.buckets, [](const SegmentBucket &bucket) { return bucket.isFrozen; }))
        continue;
      buildAdd(module, segment);
      buildNorm(module, segment);
      RegionFunction f(module, segment.kind + ".update");
      for (const SegmentBucket &bucket : segment.buckets)
        if (isUpdated(bucket)) {
          f.moveTo(locationOf(segment, bucket));
          buildUpdate(f, bucket, segment.master, adam);
        }
      f.finish();
    }
    RegionFunction decides(module, "step.scalars");
    decides.setAttribute("exec.max_grad_norm", decides.b.getF64FloatAttr(adam.clip ? adam.maxGradNorm : 0));
    decides.finish();
  }
};

} // namespace
} // namespace espalier
