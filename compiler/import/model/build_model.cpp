// Builds the model dialect's functions from a model description. Lowers composite ops of the description (layer_norm,
// linear, cross_entropy, ...) to the dialect's primitives. There is one builder per op, found by name.
#include "compiler/import/model/build_model.h"

#include "compiler/import/model/build_activations.h"
#include "compiler/import/model/build_losses.h"
#include "compiler/import/model/build_norms.h"
#include "compiler/import/model/build_positions.h"
#include "compiler/import/model/build_routing.h"
#include "compiler/import/model/build_states.h"
#include "compiler/import/model/build_types.h"
#include "dialects/attributes.h"
#include "format/counters.h"
#include "format/model_inputs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

using namespace mlir;

namespace espalier {

namespace {

/// Returns whether the op adds a loss of its layer to the reported loss.
bool isLayerLoss(const OpDescription &op) { return op.kind == "balance_loss" || op.kind == "z_loss"; }

Type elementType(Builder &b, DType type) {
  return type == DType::F32 ? Type(b.getF32Type()) : type == DType::BF16 ? Type(b.getBF16Type()) : b.getF16Type();
}

/// Builds the ops of one segment. Values are found by their names in the description.
class SegmentBuilder : PrimitiveBuilder {
public:
  /// `phase` is the generation phase; null for training.
  SegmentBuilder(OpBuilder &builder, const ModelDescription &model, const DTypePolicy &dtypes, const ModelSizes &sizes,
                 const GenerationPhase *phase = nullptr)
      : PrimitiveBuilder(builder), model(model), dtypes(dtypes), sizes(sizes), phase(phase) {}

  LogicalResult build(const SegmentDescription &segment, ModuleOp module);

private:
  /// In generation, reduces the stream of the segment with the loss to one token of each sequence.
  Value oneToken(Value stream);
  /// Returns the operands of an op.
  FailureOr<SmallVector<Value>> operandsOf(const OpDescription &op);
  /// Accumulates the statistics and returns from the function.
  void finish(const SegmentDescription &segment);

  using OpBuilderFunction = FailureOr<Value> (SegmentBuilder::*)(const OpDescription &, ArrayRef<Value>);
  static const std::map<std::string, OpBuilderFunction> &opBuilders();

  /// Calls `use` with the positions of the tokens.
  FailureOr<Value> withPositions(const OpDescription &op, llvm::function_ref<FailureOr<Value>(Value)> use) {
    FailureOr<Value> positions = value("positions", op);
    return failed(positions) ? positions : use(*positions);
  }
  FailureOr<Value> add(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> mul(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> scale(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> linear(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> concat(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> rope(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> alibi(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> temperature(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> attention(const OpDescription &op, ArrayRef<Value> in);
  /// Creates an op of attention with the attributes of the description.
  template <typename Op> Op attend(const OpDescription &op, TypeRange types, ValueRange in, double scale);
  FailureOr<Value> attendCache(const OpDescription &op, ArrayRef<Value> in, Type out, double scale);
  FailureOr<Value> l2Norm(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> decay(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> state(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> dropout(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> crossEntropy(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> furtherLoss(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> route(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> gate(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> balanceLoss(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> zLoss(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> balanceBias(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> dispatch(const OpDescription &op, ArrayRef<Value> in);
  FailureOr<Value> combine(const OpDescription &op, ArrayRef<Value> in);

  Type element(DType type) const { return elementType(b, type); }
  Type compute() const { return element(dtypes.compute); }
  int64_t dimSize(const std::string &dim) const;
  RankedTensorType tensor(ArrayRef<std::string> dims, Type element);
  Value argument(Type type, StringRef role, StringRef name, Location loc);
  /// Looks up `name`, and adds a function argument if it is a model input.
  FailureOr<Value> value(const std::string &name, const OpDescription &op);
  Location location(const SourceLocation &at) const {
    return at.line ? Location(FileLineColLoc::get(b.getContext(), at.file, at.line, at.column)) : b.getUnknownLoc();
  }
  /// Returns the type of `like` with another last dimension.
  static RankedTensorType withLast(Value like, StringAttr dim, int64_t size) {
    SmallVector<StringAttr> dims(dimNames(like.getType()));
    SmallVector<int64_t> shape(cast<RankedTensorType>(like.getType()).getShape());
    dims.back() = dim;
    shape.back() = size;
    return namedTensor(shape, dims, getElementTypeOrSelf(like.getType()));
  }
  /// Returns the type of one f32 number per query.
  RankedTensorType rowSums(Type q) const {
    return namedTensor(cast<RankedTensorType>(q).getShape().drop_back(), dimNames(q).drop_back(), f32);
  }
  /// Sets the window and the soft cap of an attention. A window of the whole sequence hides nothing.
  template <typename Op> void limitScores(const OpDescription &op, Op attend) {
    double window = number(op, "window"), cap = number(op, "soft_cap");
    if (window > 0 && window < static_cast<double>(model.dims.at("seq")))
      attend.setWindowAttr(b.getI64IntegerAttr(static_cast<int64_t>(window)));
    if (cap > 0)
      attend.setSoftCapAttr(b.getF64FloatAttr(cap));
  }
  const ModelDescription &model;
  const DTypePolicy &dtypes;
  const ModelSizes &sizes;
  const GenerationPhase *phase;
  func::FuncOp function;
  std::map<std::string, Value> values;
  int64_t nextRandomId = 0, routes = 0;
  Value loss;                                            ///< summed over tokens, in the last segment
  Value logits;                                          ///< replaces the loss in generation
  SmallVector<std::pair<std::string, Value>> caches;     ///< new contents of the caches, by name
  SmallVector<Value> balanceLosses;                      ///< further results beside the stream or the loss
  SmallVector<Value> uncountedLosses;                    ///< such results that are not a part of the reported loss
  SmallVector<std::pair<std::string, Value>> statistics; ///< values to add to statistics, by name
  SmallVector<std::pair<std::string, Value>> counters;   ///< values that counters of the layer add or keep, by name
};

int64_t SegmentBuilder::dimSize(const std::string &dim) const {
  if (dim == "batch")
    return sizes.batch;
  if (dim == "seq" && phase)
    return phase->tokens;
  if (dim == "capacity" && phase) // in generation, no token is dropped
    return phase->tokens;
  int64_t size = model.dims.at(dim == "context" ? "seq" : dim);
  if (dim == "vocab")
    size = (size + sizes.vocabularyMultiple - 1) / sizes.vocabularyMultiple * sizes.vocabularyMultiple;
  return size;
}

RankedTensorType SegmentBuilder::tensor(ArrayRef<std::string> dims, Type element) {
  SmallVector<StringAttr> names;
  SmallVector<int64_t> shape;
  for (const std::string &dim : dims) {
    names.push_back(b.getStringAttr(dim));
    shape.push_back(dimSize(dim));
  }
  return namedTensor(shape, names, element);
}

Value SegmentBuilder::argument(Type type, StringRef role, StringRef name, Location loc) {
  auto attributes = b.getDictionaryAttr(
      {b.getNamedAttr(model::roleAttr, b.getStringAttr(role)), b.getNamedAttr(model::nameAttr, b.getStringAttr(name))});
  (void)function.insertArgument(function.getNumArguments(), type, attributes, loc);
  return function.getBody().front().getArguments().back();
}

FailureOr<Value> SegmentBuilder::value(const std::string &name, const OpDescription &op) {
  auto found = values.find(name);
  if (found != values.end())
    return found->second;
  const rt::ModelInput *input = rt::modelInput(name);
  if (!input)
    return emitError(location(op.location)) << op.kind << " reads '" << name << "', which no earlier op defines";
  Type type = input->isNumber ? f32 : Type(b.getI32Type());
  Value result = argument(tensor({"batch", "seq"}, type), "input", name, function.getLoc());
  values[name] = result;
  return result;
}

FailureOr<Value> SegmentBuilder::add(const OpDescription &, ArrayRef<Value> in) {
  return binary<model::AddOp>(in[0], in[1], compute());
}

FailureOr<Value> SegmentBuilder::mul(const OpDescription &, ArrayRef<Value> in) {
  return binary<model::MulOp>(in[0], in[1], compute());
}

FailureOr<Value> SegmentBuilder::scale(const OpDescription &op, ArrayRef<Value> in) {
  double factor = number(op, "factor");
  return factor == 1 ? in[0] : binary<model::MulOp>(in[0], constant(factor), compute());
}

// y = x W + b, contracted over the dimensions that x and W have in common. grouped_linear has one product per expert.
FailureOr<Value> SegmentBuilder::linear(const OpDescription &op, ArrayRef<Value> in) {
  bool perExpert = op.kind == "grouped_linear";
  Value x = in[0], weight = converted(in[1], compute());
  SmallVector<StringAttr> dims;
  SmallVector<int64_t> shape;
  for (auto [own, other] : {std::pair(x, weight), std::pair(weight, x)}) {
    auto type = cast<RankedTensorType>(own.getType());
    for (auto [dim, size] : llvm::zip_equal(dimNames(type), type.getShape()))
      if (dimIndex(other.getType(), dim) < 0 || (perExpert && own == x && dim == "expert")) {
        dims.push_back(dim);
        shape.push_back(size);
      }
  }
  Value y = b.create<model::ContractOp>(loc, namedTensor(shape, dims, compute()), x, weight);
  return in.size() > 2 ? binary<model::AddOp>(y, in[2], compute()) : y;
}

// The columns of a, then those of b; every head gets those of b if b has no heads. The result has a's other dimensions.
FailureOr<Value> SegmentBuilder::concat(const OpDescription &op, ArrayRef<Value> in) {
  const std::string &dim = op.strings.at("dim");
  if (!model.dims.contains(dim))
    return emitError(loc) << "concat needs a dim of the model for its result, got '" << dim << "'";
  return Value(b.create<model::ConcatOp>(loc, withLast(in[0], b.getStringAttr(dim), dimSize(dim)), in[0], in[1]));
}

FailureOr<Value> SegmentBuilder::rope(const OpDescription &op, ArrayRef<Value> in) {
  return withPositions(
      op, [&](Value positions) -> FailureOr<Value> { return rotated(*this, op, in[0], positions, compute()); });
}

FailureOr<Value> SegmentBuilder::alibi(const OpDescription &op, ArrayRef<Value> in) {
  return withPositions(op, [&](Value positions) -> FailureOr<Value> {
    auto both = espalier::alibi(*this, op, in, positions, model.dims.at("seq"), compute());
    if (failed(both))
      return failure();
    values[op.outputs[1]] = both->second;
    return both->first;
  });
}

FailureOr<Value> SegmentBuilder::temperature(const OpDescription &op, ArrayRef<Value> in) {
  return withPositions(op, [&](Value positions) -> FailureOr<Value> {
    return espalier::temperature(*this, op, in[0], positions, model.dims.at("seq"), compute());
  });
}

FailureOr<Value> SegmentBuilder::attention(const OpDescription &op, ArrayRef<Value> in) {
  auto q = cast<RankedTensorType>(in[0].getType()), v = cast<RankedTensorType>(in[2].getType());
  RankedTensorType out = withLast(in[0], dimNames(v).back(), v.getShape().back());
  double scale = number(op, "scale");
  if (phase)
    return attendCache(op, in, out, scale);
  bool isLimited = op.inputs.back() == "visible_from";
  SmallVector<Value> operands(in);
  if (double chunk = number(op, "chunk"); chunk > 0 && chunk < static_cast<double>(model.dims.at("seq"))) {
    FailureOr<Value> begins = withPositions(op, [&](Value positions) -> FailureOr<Value> {
      return chunkBegins(*this, positions, chunk, model.dims.at("seq"), isLimited ? in.back() : Value());
    });
    if (failed(begins))
      return failure();
    operands.resize(in.size() + (std::exchange(isLimited, true) ? 0 : 1));
    operands.back() = *begins;
    in = operands;
  }
  if ((number(op, "window") > 0 || isLimited) && number(op, "causal") == 0)
    return emitError(loc) << "attention with " << (isLimited ? "visible_from" : "a window") << " needs causal: true";
  SmallVector<Type> types(op.maxima.empty() ? 2 : 3, rowSums(q));
  types.front() = out;
  if (in.size() > (isLimited ? 4 : 3))
    return attend<model::SinkAttentionOp>(op, types, in, scale).getOut();
  auto attention = attend<model::AttentionOp>(op, types, in, scale);
  if (!op.maxima.empty())
    counters.emplace_back(op.maxima, attention.getLargest());
  return attention.getOut();
}

template <typename Op>
Op SegmentBuilder::attend(const OpDescription &op, TypeRange types, ValueRange in, double scale) {
  auto attend = b.create<Op>(loc, types, in);
  attend.setScaleAttr(b.getF64FloatAttr(scale));
  attend.setRateAttr(b.getF64FloatAttr(number(op, "rate")));
  attend.setIdAttr(b.getI64IntegerAttr(nextRandomId++));
  if (number(op, "causal") != 0)
    attend.setCausalAttr(b.getUnitAttr());
  limitScores(op, attend);
  return attend;
}

FailureOr<Value> SegmentBuilder::attendCache(const OpDescription &op, ArrayRef<Value> in, Type out, double scale) {
  if (double chunk = number(op, "chunk"); chunk > 0 && chunk < static_cast<double>(model.dims.at("seq")))
    return emitError(loc) << "generation keeps no chunks of attention: seq_length must be at most their "
                          << static_cast<int64_t>(chunk) << " tokens";
  if (number(op, "causal") == 0)
    return emitError(loc) << "attention that sees later tokens has no cache: run_mode predict needs causal attention";
  FailureOr<Value> positions = value("positions", op);
  if (failed(positions))
    return failure();
  std::string number = std::to_string(caches.size());
  auto cache = [&](Value rows, const std::string &name) {
    ArrayRef<StringAttr> dims = dimNames(rows.getType());
    ArrayRef<int64_t> shape = cast<RankedTensorType>(rows.getType()).getShape();
    Type type = namedTensor({shape[0], shape[2], dimSize("context"), shape[3]},
                            {dims[0], dims[2], b.getStringAttr("context"), dims[3]}, compute());
    return argument(type, "cache", name, loc);
  };
  Value keys = cache(in[1], "keys" + number), values = cache(in[2], "values" + number);
  SmallVector<Type> types = {out, keys.getType(), values.getType()};
  bool hasSinks = in.size() > 3;
  if (hasSinks)
    types.push_back(rowSums(in[0].getType()));
  auto attend = b.create<model::AttendCacheOp>(loc, types, ValueRange{in[0], in[1], in[2], *positions, keys, values});
  attend.setScaleAttr(b.getF64FloatAttr(scale));
  limitScores(op, attend);
  caches.emplace_back("keys" + number, attend.getNewKeys());
  caches.emplace_back("values" + number, attend.getNewValues());
  if (!hasSinks)
    return attend.getOut();
  Value share = unary<model::LogisticOp>(binary<model::SubOp>(attend.getLogSumExp(), in[3]));
  return binary<model::MulOp>(attend.getOut(), share, compute());
}

FailureOr<Value> SegmentBuilder::l2Norm(const OpDescription &op, ArrayRef<Value> in) {
  return espalier::l2Norm(*this, op, in[0], compute());
}

// The decays of a recurrence, and its step sizes.
FailureOr<Value> SegmentBuilder::decay(const OpDescription &op, ArrayRef<Value> in) {
  Value step = softplus(*this, binary<model::AddOp>(in[0], in[2]));
  values[op.outputs[1]] = step;
  return unary<model::NegOp>(binary<model::MulOp>(step, unary<model::ExpOp>(in[1])));
}

FailureOr<Value> SegmentBuilder::state(const OpDescription &op, ArrayRef<Value> in) {
  bool isRecurrence = op.kind == "recurrence";
  SmallVector<Value> operands(in);
  if (phase) {
    FailureOr<Value> positions = value("positions", op);
    FailureOr<Type> carried = carriedType(*this, op, in);
    if (failed(positions) || failed(carried))
      return failure();
    llvm::append_values(operands, *positions, argument(*carried, "cache", op.outputs.front(), loc));
  }
  FailureOr<Value> out = isRecurrence ? recurrence(*this, op, operands) : causalConv(*this, operands, compute());
  if (phase && succeeded(out))
    caches.emplace_back(op.outputs.front(), out->getDefiningOp()->getResult(1));
  return out;
}

FailureOr<Value> SegmentBuilder::dropout(const OpDescription &op, ArrayRef<Value> in) {
  double rate = phase ? 0 : number(op, "rate");
  int64_t id = nextRandomId++;
  if (rate == 0)
    return in[0];
  return Value(b.create<model::DropoutOp>(loc, in[0].getType(), in[0], b.getF64FloatAttr(rate), b.getI64IntegerAttr(id),
                                          ArrayAttr(), DenseI64ArrayAttr()));
}

// Also counts the weights.
FailureOr<Value> SegmentBuilder::crossEntropy(const OpDescription &, ArrayRef<Value> in) {
  if (phase)
    return logits = converted(in[0], f32);
  loss = summedLosses(*this, in, model.dims.at("vocab"));
  statistics = {{"loss_sum", loss}, {"token_count", sumAll(in[2])}};
  return loss;
}

FailureOr<Value> SegmentBuilder::furtherLoss(const OpDescription &op, ArrayRef<Value> in) {
  Value losses = summedLosses(*this, in, model.dims.at("vocab"));
  return uncountedLosses.emplace_back(binary<model::MulOp>(losses, constant(number(op, "factor"))));
}

// Returns the experts of each token, and its slots in them within the capacity.
FailureOr<Value> SegmentBuilder::route(const OpDescription &op, ArrayRef<Value> in) {
  Type places = tensor({"choice", "batch", "seq"}, b.getI32Type());
  Value scores = choiceScores(*this, op, in[0], in.size() > 1 ? in[1] : Value());
  auto route = b.create<model::RouteOp>(loc, TypeRange{places, places}, scores);
  route.setCapacityAttr(b.getI64IntegerAttr(dimSize("capacity")));
  if (double groups = number(op, "groups"); groups > 1) {
    route.setGroupsAttr(b.getI64IntegerAttr(static_cast<int64_t>(groups)));
    route.setKeptGroupsAttr(b.getI64IntegerAttr(static_cast<int64_t>(number(op, "kept_groups"))));
  }
  values[op.outputs[1]] = route.getSlots();
  if (phase)
    return route.getIds();
  ExpertLoads loads = expertLoads(*this, route.getIds(), in[0], dimSize("capacity"));
  std::string number = std::to_string(routes++);
  counters.emplace_back(std::string(rt::chosenCounter) + number, loads.chosen);
  if (loads.dropped)
    counters.emplace_back(std::string(rt::droppedCounter) + number, loads.dropped);
  return route.getIds();
}

FailureOr<Value> SegmentBuilder::gate(const OpDescription &op, ArrayRef<Value> in) {
  return expertWeights(*this, op, in[0], in[1]);
}

FailureOr<Value> SegmentBuilder::balanceLoss(const OpDescription &op, ArrayRef<Value> in) {
  if (number(op, "factor") == 0)
    return constant(0);
  return balanceLosses.emplace_back(espalier::balanceLoss(*this, op, in[0], in[1], in[2]));
}

FailureOr<Value> SegmentBuilder::zLoss(const OpDescription &op, ArrayRef<Value> in) {
  if (number(op, "factor") == 0)
    return constant(0);
  return balanceLosses.emplace_back(espalier::zLoss(*this, op, in[0], in[1]));
}

FailureOr<Value> SegmentBuilder::balanceBias(const OpDescription &, ArrayRef<Value> in) {
  return uncountedLosses.emplace_back(espalier::balanceBias(*this, in[0], in[1]));
}

FailureOr<Value> SegmentBuilder::dispatch(const OpDescription &, ArrayRef<Value> in) {
  Type rows = tensor({"expert", "batch", "capacity", dimNames(in[2].getType()).back().str()}, compute());
  return Value(b.create<model::DispatchOp>(loc, rows, in[0], in[1], in[2], in.size() > 3 ? in[3] : Value()));
}

FailureOr<Value> SegmentBuilder::combine(const OpDescription &, ArrayRef<Value> in) {
  Type rows = tensor({"batch", "seq", dimNames(in[2].getType()).back().str()}, compute());
  return Value(b.create<model::CombineOp>(loc, rows, in[0], in[1], in[2], in.size() > 3 ? in[3] : Value()));
}

/// Returns the builders of ops that are made of primitives and need nothing of the segment.
const std::map<std::string, ComposedOp> &composedOps() {
  static const std::map<std::string, ComposedOp> builders = {{"embed", embed},
                                                             {"shift", shift},
                                                             {"clamp", clamp},
                                                             {"xielu", xielu},
                                                             {"soft_cap", softCap},
                                                             {"activation", activation},
                                                             {"layer_norm", layerNorm},
                                                             {"rms_norm", rmsNorm},
                                                             {"plain_layer_norm", plainNorm},
                                                             {"plain_rms_norm", plainNorm}};
  return builders;
}

const std::map<std::string, SegmentBuilder::OpBuilderFunction> &SegmentBuilder::opBuilders() {
  static const std::map<std::string, OpBuilderFunction> builders = {{"add", &SegmentBuilder::add},
                                                                    {"mul", &SegmentBuilder::mul},
                                                                    {"scale", &SegmentBuilder::scale},
                                                                    {"linear", &SegmentBuilder::linear},
                                                                    {"concat", &SegmentBuilder::concat},
                                                                    {"rope", &SegmentBuilder::rope},
                                                                    {"alibi", &SegmentBuilder::alibi},
                                                                    {"temperature", &SegmentBuilder::temperature},
                                                                    {"attention", &SegmentBuilder::attention},
                                                                    {"l2_norm", &SegmentBuilder::l2Norm},
                                                                    {"causal_conv", &SegmentBuilder::state},
                                                                    {"decay", &SegmentBuilder::decay},
                                                                    {"recurrence", &SegmentBuilder::state},
                                                                    {"dropout", &SegmentBuilder::dropout},
                                                                    {"cross_entropy", &SegmentBuilder::crossEntropy},
                                                                    {"further_loss", &SegmentBuilder::furtherLoss},
                                                                    {"route", &SegmentBuilder::route},
                                                                    {"gate", &SegmentBuilder::gate},
                                                                    {"balance_loss", &SegmentBuilder::balanceLoss},
                                                                    {"balance_bias", &SegmentBuilder::balanceBias},
                                                                    {"z_loss", &SegmentBuilder::zLoss},
                                                                    {"dispatch", &SegmentBuilder::dispatch},
                                                                    {"grouped_linear", &SegmentBuilder::linear},
                                                                    {"combine", &SegmentBuilder::combine}};
  return builders;
}

// Every loss adds to the reported loss. All segments of a stage add to one statistic, which is cleared before each
// step. A segment may overwrite it only if no other segment adds to it.
void SegmentBuilder::finish(const SegmentDescription &segment) {
  SmallVector<Value> results = {values.at(segment.streamOut)};
  SmallVector<std::pair<StringRef, StringRef>> roles = {{loss     ? "loss"
                                                         : logits ? "logits"
                                                                  : "stream",
                                                         segment.streamOut}};
  for (auto &[name, cache] : caches) {
    results.push_back(cache);
    roles.emplace_back("cache", name);
  }
  bool addsAlways = llvm::any_of(model.segments, [](const SegmentDescription &other) {
    return llvm::any_of(other.ops, [](const OpDescription &op) { return isLayerLoss(op); });
  });
  for (Value balance : balanceLosses) {
    results.push_back(balance);
    roles.emplace_back("loss", "balance");
    if (statistics.empty())
      statistics.emplace_back("loss_sum", balance);
    else
      statistics.front().second = binary<model::AddOp>(statistics.front().second, balance);
  }
  for (Value uncounted : uncountedLosses) {
    results.push_back(uncounted);
    roles.emplace_back("loss", "uncounted");
  }
  UnitAttr always = addsAlways ? b.getUnitAttr() : UnitAttr();
  for (auto &[name, sum] : statistics) {
    Value statistic = argument(sum.getType(), "statistic", name, function.getLoc());
    results.push_back(b.create<model::AccumulateOp>(loc, sum.getType(), statistic, sum, always));
    roles.emplace_back("statistic", name);
  }
  for (auto &[name, count] : counters) {
    auto type = cast<RankedTensorType>(count.getType());
    bool isOfScores = isa<model::AttentionOp>(count.getDefiningOp());
    if (isOfScores) // [batch, seq, key-value heads, ..]
      type = namedTensor({type.getDimSize(2)}, {dimNames(type)[2]}, f32);
    Value counter = argument(type, "counter", name, function.getLoc());
    results.push_back(isOfScores ? Value(b.create<model::KeepMaximaOp>(loc, type, counter, count))
                                 : Value(b.create<model::AccumulateOp>(loc, type, counter, count, b.getUnitAttr())));
    roles.emplace_back("counter", name);
  }
  b.create<func::ReturnOp>(function.getLoc(), results);
  function.setType(b.getFunctionType(function.getBody().getArgumentTypes(), ValueRange(results).getTypes()));
  for (auto [index, role] : llvm::enumerate(roles)) {
    function.setResultAttr(index, model::roleAttr, b.getStringAttr(role.first));
    function.setResultAttr(index, model::nameAttr, b.getStringAttr(role.second));
  }
}

Value SegmentBuilder::oneToken(Value stream) {
  loc = function.getLoc();
  Value rows = argument(tensor({"batch"}, b.getI32Type()), "input", "rows", loc);
  auto type = cast<RankedTensorType>(stream.getType());
  Type one = namedTensor({type.getDimSize(0), 1, type.getDimSize(2)}, dimNames(type), type.getElementType());
  return b.create<model::TakeRowOp>(loc, one, stream, rows);
}

/// Generation has neither labels nor loss weights, and its sequences are one document each.
FailureOr<SmallVector<Value>> SegmentBuilder::operandsOf(const OpDescription &op) {
  SmallVector<Value> in;
  for (const std::string &name : op.inputs) {
    if (phase && ((op.kind == "cross_entropy" && !in.empty()) || name == "visible_from"))
      break;
    FailureOr<Value> input = value(name, op);
    if (failed(input))
      return failure();
    in.push_back(*input);
  }
  return in;
}

LogicalResult SegmentBuilder::build(const SegmentDescription &segment, ModuleOp module) {
  b.setInsertionPointToEnd(module.getBody());
  Location where = location(segment.location);
  function =
      b.create<func::FuncOp>(where, phase ? segment.kind + "." + phase->name : segment.kind, b.getFunctionType({}, {}));
  model::segmentAttr.set(function);
  b.setInsertionPointToStart(function.addEntryBlock());
  if (!segment.streamIn.empty())
    values[segment.streamIn] =
        argument(tensor({"batch", "seq", "hidden"}, compute()), "stream", segment.streamIn, where);
  for (const ParameterDescription &parameter : segment.parameters) {
    Type stored = parameter.isF32 ? f32 : element(dtypes.parameters);
    values[parameter.name] =
        argument(tensor(parameter.dims, stored), "parameter", parameter.name, location(parameter.location));
    if (parameter.frozen)
      function.setArgAttr(function.getNumArguments() - 1, model::frozenAttr, b.getUnitAttr());
  }
  bool hasLoss = llvm::any_of(segment.ops, [](const OpDescription &op) { return op.kind == "cross_entropy"; });
  if (phase && hasLoss && phase->tokens > 1 && !segment.streamIn.empty())
    values[segment.streamIn] = oneToken(values[segment.streamIn]);
  for (const OpDescription &op : segment.ops) {
    if (phase && (isLayerLoss(op) || op.kind == "balance_bias"))
      continue;
    loc = location(op.location);
    auto found = opBuilders().find(op.kind);
    auto composed = composedOps().find(op.kind);
    if (found == opBuilders().end() && composed == composedOps().end())
      return emitError(loc) << "unknown op '" << op.kind << "'";
    FailureOr<SmallVector<Value>> in = operandsOf(op);
    if (failed(in))
      return failure();
    FailureOr<Value> result =
        found == opBuilders().end() ? composed->second(*this, op, *in, compute()) : (this->*found->second)(op, *in);
    if (failed(result))
      return failure();
    values[op.outputs.front()] = *result;
  }
  finish(segment);
  return success();
}

} // namespace

OwningOpRef<ModuleOp> buildModel(MLIRContext &context, const ModelDescription &model, const DTypePolicy &dtypes,
                                 const ModelSizes &sizes) {
  context.loadDialect<model::ModelDialect, func::FuncDialect>();
  OpBuilder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  if (dtypes.gradients != DType::F32)
    model::gradientTypeAttr.set(*module, TypeAttr::get(elementType(builder, dtypes.gradients)));
  if (model.documentTokens > 0)
    model::documentTokensAttr.set(*module, builder.getF64FloatAttr(model.documentTokens));
  for (const SegmentDescription &segment : model.segments)
    if (failed(SegmentBuilder(builder, model, dtypes, sizes).build(segment, *module)))
      return nullptr;
  return module;
}

OwningOpRef<ModuleOp> buildGeneration(MLIRContext &context, const ModelDescription &model, const DTypePolicy &dtypes,
                                      const ModelSizes &sizes, ArrayRef<GenerationPhase> phases) {
  context.loadDialect<model::ModelDialect, func::FuncDialect>();
  OpBuilder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  for (const GenerationPhase &phase : phases)
    for (const SegmentDescription &segment : model.segments)
      if (failed(SegmentBuilder(builder, model, dtypes, sizes, &phase).build(segment, *module)))
        return nullptr;
  storeAsRead(*module, model);
  return module;
}

} // namespace espalier
