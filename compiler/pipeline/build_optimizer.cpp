// AdamW with decoupled decay (Loshchilov and Hutter, ICLR 2019), one pass over memory per parameter. Gradients are sums
// over tokens; gradient_scale normalizes, unscales and clips them at once. ZeRO-1 is a reduce-scatter before and an
// all-gather after; with one replica neither exists.
#include "compiler/pipeline/build_optimizer.h"

#include "dialects/model/dialect.h"

using namespace mlir;

namespace espalier {

namespace {

/// Builds one function whose arguments and results are parts of a segment's regions.
class RegionFunction {
public:
  RegionFunction(ModuleOp module, StringRef name) : b(module.getContext()), loc(UnknownLoc::get(b.getContext())) {
    b.setInsertionPointToEnd(module.getBody());
    function = b.create<func::FuncOp>(loc, name, b.getFunctionType({}, {}));
    b.setInsertionPointToStart(function.addEntryBlock());
  }

  /// What follows belongs to a parameter: its line in the model file.
  void moveTo(const SourceLocation &at) {
    loc = at.line ? Location(FileLineColLoc::get(b.getContext(), at.file, at.line, at.column)) : b.getUnknownLoc();
  }

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

/// Stages that hold a parameter that is tied across stages; empty for others.
SmallVector<int64_t> tiedStages(const SegmentParameter &parameter, StringRef kind, const RunConfig &run,
                                const planner::Plan &plan) {
  if (plan.pp == 1)
    return {};
  bool isTied = !parameter.description->tiedTo.empty();
  std::string name = kind.str() + "." + parameter.description->name;
  for (const SegmentDescription &segment : run.model.segments)
    for (const ParameterDescription &other : segment.parameters)
      isTied |= other.tiedTo == name;
  return isTied ? SmallVector<int64_t>{0, plan.pp - 1} : SmallVector<int64_t>{};
}

void buildReduce(ModuleOp module, const SegmentLayout &segment, const RunConfig &run, const planner::Plan &plan) {
  RegionFunction f(module, segment.kind + ".reduce_gradients");
  Type f32 = f.b.getF32Type();
  for (const SegmentParameter &parameter : segment.parameters) {
    if (parameter.isTiedHere)
      continue;
    f.moveTo(parameter.description->location);
    StringRef name = parameter.description->name;
    const Axes &share = parameter.shareAxes;
    SmallVector<StringAttr> sumAxes;
    for (StringAttr axis : parameter.partialAxes)
      if (!llvm::is_contained(share, axis))
        sumAxes.push_back(axis);
    SmallVector<int64_t> stages = tiedStages(parameter, segment.kind, run, plan);
    if (sumAxes.empty() && stages.empty() && share.empty())
      continue;
    Value gradient = f.argument(f.flat(parameter.heldElements, f32), "accumulator", name);
    StringAttr sum = f.b.getStringAttr("sum");
    // Every sum lands in the accumulator itself, also one that another sum follows: the place of a result decides.
    auto inPlace = [&](Value sum, ArrayRef<StringAttr> axes) {
      f.result(sum, "accumulator", name, axes);
      gradient = sum;
    };
    if (!sumAxes.empty())
      inPlace(
          f.b.create<dist::AllReduceOp>(f.loc, gradient.getType(), gradient, f.axes(sumAxes), sum, DenseI64ArrayAttr()),
          /*axes=*/{});
    if (!stages.empty())
      inPlace(f.b.create<dist::AllReduceOp>(f.loc, gradient.getType(), gradient, f.axes({f.b.getStringAttr("pp")}), sum,
                                            f.b.getDenseI64ArrayAttr(stages)),
              /*axes=*/{});
    if (!share.empty())
      inPlace(f.b.create<dist::ReduceScatterOp>(f.loc, f.flat(parameter.stateElements, f32), gradient, f.axes(share),
                                                f.b.getI64IntegerAttr(0)),
              share);
  }
  f.finish();
}

void buildNorm(ModuleOp module, const SegmentLayout &segment, const RunConfig &run, const planner::Plan &plan) {
  RegionFunction f(module, segment.kind + ".squared_norm");
  Type f32 = f.b.getF32Type();
  Type scalar = namedTensor({}, {}, f32);
  Value statistic = f.argument(scalar, "statistic", "squared_norm");
  for (const SegmentParameter &parameter : segment.parameters) {
    if (parameter.isTiedHere)
      continue;
    f.moveTo(parameter.description->location);
    double weight = 1.0 / parameter.replicas;
    SmallVector<int64_t> stages = tiedStages(parameter, segment.kind, run, plan);
    if (!stages.empty())
      weight /= stages.size();
    Value gradient = f.argument(f.flat(parameter.stateElements, f32), "accumulator", parameter.description->name,
                                parameter.shareAxes);
    Value norm = f.b.create<model::SquaredNormOp>(f.loc, scalar, gradient, f.b.getF64FloatAttr(weight));
    statistic = f.b.create<model::AccumulateOp>(f.loc, scalar, statistic, norm, f.b.getUnitAttr());
  }
  f.result(statistic, "statistic", "squared_norm");
  f.finish();
}

/// The update of one parameter, element by element.
void buildUpdate(RegionFunction &f, const SegmentParameter &parameter, bool master, const RunConfig &run) {
  OpBuilder &b = f.b;
  Type f32 = b.getF32Type();
  Type stored = parameter.elementBytes == 4            ? f32
                : run.dtypes.parameters == DType::BF16 ? Type(b.getBF16Type())
                                                       : Type(b.getF16Type());
  StringRef name = parameter.description->name;
  const Axes &share = parameter.shareAxes;
  RankedTensorType type = f.flat(parameter.stateElements, f32);
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

  Value old = f.argument(f.flat(parameter.stateElements, stored), "parameter", name, share);
  Value sum = f.argument(type, "accumulator", name, share);
  Value weight = master ? f.argument(type, "state", stateName(name, "master")) : old;
  Value moment1 = f.argument(type, "state", stateName(name, "moment1"));
  Value moment2 = f.argument(type, "state", stateName(name, "moment2"));

  const OptimizerConfig &adam = run.optimizer;
  Value gradient = mul(sum, scalar("gradient_scale"));
  Value first = add(mul(moment1, constant(adam.beta1)), mul(gradient, constant(1 - adam.beta1)));
  Value second = add(mul(moment2, constant(adam.beta2)), mul(mul(gradient, gradient), constant(1 - adam.beta2)));
  Value variance = mul(second, scalar("bias_correction2"));
  Value root = b.create<model::SqrtOp>(f.loc, variance.getType(), variance);
  Value step = div(mul(first, scalar("bias_correction1")), add(root, constant(adam.epsilon)));
  if (parameter.description->decay && adam.weightDecay != 0)
    step = add(step, mul(weight, constant(adam.weightDecay)));
  Value updated = sub(weight, mul(step, scalar("learning_rate")));

  // A step whose gradients overflowed changes nothing.
  Value apply = scalar("apply");
  auto chosen = [&](Value value, Value otherwise, Type element) -> Value {
    return b.create<model::SelectOp>(f.loc, withElement(type, element), apply, value, otherwise);
  };
  Value next = chosen(updated, old, stored);
  if (!share.empty())
    next = b.create<dist::AllGatherOp>(f.loc, f.flat(parameter.heldElements, stored), next, f.axes(share),
                                       b.getI64IntegerAttr(0));
  f.result(next, "parameter", name);
  if (master)
    f.result(chosen(updated, weight, f32), "state", stateName(name, "master"));
  f.result(chosen(first, moment1, f32), "state", stateName(name, "moment1"));
  f.result(chosen(second, moment2, f32), "state", stateName(name, "moment2"));
}

} // namespace

void buildOptimizer(ModuleOp module, const std::vector<SegmentLayout> &segments, const RunConfig &run,
                    const planner::Plan &plan) {
  for (const SegmentLayout &segment : segments) {
    buildReduce(module, segment, run, plan);
    buildNorm(module, segment, run, plan);
    RegionFunction f(module, segment.kind + ".optimizer");
    for (const SegmentParameter &parameter : segment.parameters)
      if (!parameter.isTiedHere) {
        f.moveTo(parameter.description->location);
        buildUpdate(f, parameter, segment.master, run);
      }
    f.finish();
  }
}

} // namespace espalier
