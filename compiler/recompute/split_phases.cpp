// Outlines a localized joint function into forward, backward and evaluate. Values that cross from forward to backward
// are saved. A recompute policy selects which crossing values are kept; backward recomputes the others from kept values
// and arguments. Recomputing clones a forward op into backward, so full, selective and no recompute differ only in the
// predicate `isKept`. Backward can be cut in two in the same way: the ops that only weight gradients need become a
// phase of their own, and the values that cross are saved.
#include "compiler/attributes/run_attributes.h"
#include "compiler/partition/layout.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_SPLITPHASES
#include "compiler/passes.h.inc"

namespace {

enum class Policy { None, Selective, Full };

/// Returns whether the op is the cotangent of a loss, which is the loss scale and known before backward. A stream has
/// dimensions.
bool isLossCotangent(Operation *op) {
  return isa<model::CotangentOp>(op) && dimNames(op->getResult(0).getType()).empty();
}

bool isCollective(Operation *op) { return isa<dist::AllReduceOp, dist::ReduceScatterOp>(op); }

/// Returns whether recomputing the value is cheaper than keeping it.
bool isNeverKept(Operation *op) { return isLossCotangent(op) || op->hasTrait<RepeatedInBackward>(); }

bool isExpensive(Operation *op) {
  auto costed = dyn_cast<CostedOp>(op);
  return costed && costed.isExpensive();
}

/// Returns whether the op adds to a product, or to such a sum, that has no other use. The product's epilogue can do
/// this.
bool isSumBehindProduct(Operation *op) {
  return isa<model::AddOp>(op) && llvm::any_of(op->getOperands(), [&](Value operand) {
           Operation *producer = operand.getDefiningOp();
           return producer && operand.hasOneUse() && operand.getType() == op->getResult(0).getType() &&
                  (isa<model::ContractOp>(producer) || isSumBehindProduct(producer));
         });
}

/// Assigns the ops and values of one joint function to phases.
class Phases {
public:
  Phases(func::FuncOp function, Policy policy, bool keepCollectives)
      : function(function), body(function.getBody().front()), backward(backwardOps(body)), policy(policy),
        keepCollectives(keepCollectives) {
    beginWithLoss();
    for (Operation &op : body.without_terminator())
      if (backward.contains(&op) && !isa<model::CotangentOp>(op)) // a cotangent reads only the type of the stream
        need(op.getOperands());
    // The gradient of an argument on which the result does not depend is a constant, without a path from the cotangent.
    for (auto [index, result] : llvm::enumerate(body.getTerminator()->getOperands()))
      if (isGradient(index))
        need(result);
  }

  StringRef resultRole(unsigned index) const {
    auto role = model::roleAttr.ofResult(func::FuncOp(function), index);
    return role ? role.getValue() : "";
  }
  /// Returns whether result `index` of the joint function belongs to backward.
  bool isGradient(unsigned index) const {
    return resultRole(index) == "cotangent" || resultRole(index) == "accumulator";
  }
  bool isSaved(Value value) const { return kept.contains(value); }
  /// Returns the values kept from forward to backward, in program order.
  SmallVector<Value> saved() const {
    SmallVector<Value> ordered;
    for (Operation &op : body)
      for (Value result : op.getResults())
        if (kept.contains(result))
          ordered.push_back(result);
    return ordered;
  }
  /// Returns whether the backward function contains the op: if it depends on the cotangent or is recomputed.
  bool runsInBackward(Operation *op) const { return backward.contains(op) || again.contains(op); }

  /// Returns the ops that the forward results depend on.
  llvm::DenseSet<Operation *> forwardOps(ValueRange results) const {
    llvm::DenseSet<Operation *> needed;
    SmallVector<Value> work(results.begin(), results.end());
    while (!work.empty()) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (op && needed.insert(op).second)
        llvm::append_range(work, op->getOperands());
    }
    return needed;
  }

private:
  /// In the last segment, moves the ops that depend only on the loss cotangent, up to the first expensive op, into
  /// forward. There the cross-entropy kernel has the logits, so their gradient is kept instead of them.
  void beginWithLoss() {
    auto cotangents = body.getOps<model::CotangentOp>();
    if (!llvm::all_of(cotangents, [](Operation *op) { return isLossCotangent(op); }))
      return;
    for (Operation &op : body.without_terminator()) {
      bool isDear = isExpensive(&op) || isa<model::AccumulateOp>(op) || isa<dist::DistDialect>(op.getDialect()) ||
                    isa<model::CotangentOp>(op);
      bool isFromLoss = llvm::all_of(op.getOperands(), [&](Value operand) {
        Operation *producer = operand.getDefiningOp();
        return !producer || !backward.contains(producer) || isLossCotangent(producer);
      });
      if (!isDear && isFromLoss)
        backward.erase(&op);
    }
  }

  /// Marks the values that backward needs as kept or recomputed.
  void need(ValueRange values) {
    SmallVector<Value> work(values.begin(), values.end());
    while (!work.empty()) {
      Value value = work.pop_back_val();
      Operation *producer = value.getDefiningOp();
      if (!producer || backward.contains(producer) || kept.contains(value))
        continue;
      if (isKept(value, producer)) {
        kept.insert(value);
        continue;
      }
      if (again.insert(producer).second)
        llvm::append_range(work, producer->getOperands());
    }
  }

  /// Matrix products (with their added terms), attention and row sums are expensive and kept. Other ops are
  /// element-wise and fuse into backward's kernels. Without recompute, values that a product of backward reads are also
  /// kept, because otherwise they would have to be stored again.
  bool isKept(Value value, Operation *producer) const {
    if (isNeverKept(producer))
      return false;
    if (isCollective(producer) && keepCollectives)
      return true;
    if (policy == Policy::Full)
      return false;
    if (isExpensive(producer) || isSumBehindProduct(producer) || producer->hasTrait<KeptForBackward>())
      return true;
    return policy == Policy::None && llvm::any_of(value.getUsers(), [&](Operation *user) {
             bool isGather = isa<dist::AllGatherOp>(user) && !backward.contains(user);
             if (isGather)
               return llvm::any_of(user->getUsers(), [&](Operation *next) { return isBackwardProduct(next); });
             return isBackwardProduct(user);
           });
  }

  bool isBackwardProduct(Operation *op) const { return backward.contains(op) && isExpensive(op); }

  func::FuncOp function;
  Block &body;
  llvm::DenseSet<Operation *> backward;
  Policy policy;
  bool keepCollectives;
  llvm::DenseSet<Value> kept;
  llvm::DenseSet<Operation *> again;
};

/// The part of backward that can be delayed: weight gradients whose products no other op needs. Column sums (gradients
/// of biases and norms) are not delayed, because they read values that are in use anyway.
class WeightPhase {
public:
  /// Without `isApart` nothing is delayed.
  WeightPhase(func::FuncOp function, const Phases &phases, bool isApart)
      : body(function.getBody().front()), phases(phases) {
    auto results = body.getTerminator()->getOperands();
    llvm::DenseSet<Operation *> core; // ops that the gradient of the incoming stream needs
    for (auto [index, result] : llvm::enumerate(results))
      if (phases.isGradient(index) && (!isApart || phases.resultRole(index) != "accumulator"))
        slice(result, core);
    for (Operation &op : body) // arguments of backward
      if (isa<model::CotangentOp>(op) && !isNeverKept(&op))
        core.insert(&op);
    now = core;
    for (auto [index, result] : llvm::enumerate(results)) {
      if (!isApart || phases.resultRole(index) != "accumulator")
        continue;
      llvm::DenseSet<Operation *> own;
      slice(result, own);
      bool waits = llvm::any_of(own, [&](Operation *op) { return !core.contains(op) && isExpensive(op); });
      if (waits)
        waiting.insert(index);
      else
        now.insert(own.begin(), own.end());
    }
    for (unsigned index : waiting)
      sliceLater(results[index]);
    findCrossing();
  }

  bool isEmpty() const { return waiting.empty(); }
  bool waits(unsigned result) const { return waiting.contains(result); }
  bool runsNow(Operation *op) const { return now.contains(op); }
  bool runsLater(Operation *op) const { return later.contains(op); }
  /// Returns whether this phase reads a value that forward keeps.
  bool reads(Value saved) const { return read.contains(saved); }
  /// Returns the values that backward passes to this phase, in program order.
  ArrayRef<Value> passed() const { return handedOver.getArrayRef(); }

private:
  /// Adds the backward ops that a value depends on to `ops`.
  void slice(Value value, llvm::DenseSet<Operation *> &ops) const {
    SmallVector<Value> work = {value};
    while (!work.empty()) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (op && phases.runsInBackward(op) && ops.insert(op).second)
        llvm::append_range(work, op->getOperands());
    }
  }

  /// Like slice(), but stops at values that backward has computed and that this phase does not recompute.
  void sliceLater(Value value) {
    SmallVector<Value> work = {value};
    while (!work.empty()) {
      Operation *op = work.pop_back_val().getDefiningOp();
      if (op && phases.runsInBackward(op) && (!now.contains(op) || isNeverKept(op)) && later.insert(op).second)
        llvm::append_range(work, op->getOperands());
    }
  }

  void findCrossing() {
    llvm::DenseSet<Value> crossing;
    for (Operation *op : later)
      for (Value operand : op->getOperands()) {
        Operation *producer = operand.getDefiningOp();
        if (!producer || later.contains(producer))
          continue;
        if (phases.runsInBackward(producer))
          crossing.insert(operand);
        else
          read.insert(operand);
      }
    for (Operation &op : body)
      for (Value result : op.getResults())
        if (crossing.contains(result))
          handedOver.insert(result);
  }

  Block &body;
  const Phases &phases;
  llvm::DenseSet<Operation *> now, later;
  llvm::SmallSetVector<unsigned, 8> waiting; ///< result indices of the joint function
  llvm::DenseSet<Value> read;
  llvm::SetVector<Value> handedOver;
};

/// Builds a phase as a function: arguments are added on demand, results with roles.
class PhaseBuilder {
public:
  PhaseBuilder(func::FuncOp joint, const Twine &name)
      : joint(joint), b(joint), phase(b.create<func::FuncOp>(joint.getLoc(), name.str(), b.getFunctionType({}, {}))) {
    b.setInsertionPointToStart(phase.addEntryBlock());
  }

  Value addArgument(Type type, DictionaryAttr attributes, Location loc) {
    (void)phase.insertArgument(phase.getNumArguments(), type, attributes, loc);
    return phase.getBody().front().getArguments().back();
  }

  void addArgument(Value joined, DictionaryAttr attributes) {
    map.map(joined, addArgument(joined.getType(), attributes, joined.getLoc()));
  }

  void addJointArgument(BlockArgument argument) {
    if (!map.contains(argument))
      addArgument(argument, joint.getArgAttrDict(argument.getArgNumber()));
  }

  Operation &clone(Operation &op) {
    for (Value operand : op.getOperands())
      if (auto argument = dyn_cast<BlockArgument>(operand))
        addJointArgument(argument);
    return *b.clone(op, map);
  }

  /// Like clone(), but without dropout: a dropout op becomes its operand, and attention keeps all weights.
  void cloneUndropped(Operation &op) {
    if (auto dropout = dyn_cast<model::DropoutOp>(op)) {
      auto argument = dyn_cast<BlockArgument>(dropout.getX());
      mapTo(dropout, argument ? this->argument(argument) : map.lookup(dropout.getX()));
    } else if (auto attention = dyn_cast<model::AttentionOp>(clone(op))) {
      attention.setRate(APFloat(0.0));
    }
  }

  /// Returns the phase's argument for an argument of the joint function.
  Value argument(BlockArgument joined) {
    addJointArgument(joined);
    return map.lookup(joined);
  }

  void mapTo(Value joined, Value value) { map.map(joined, value); }
  void mapToLossScale(model::CotangentOp cotangent) {
    mapTo(cotangent, b.create<model::ScalarOp>(cotangent.getLoc(), cotangent.getType(), "loss_scale"));
  }
  OpBuilder &builder() { return b; }

  /// Sets the results, which are values of the joint function or of this phase.
  void finish(ArrayRef<Value> results, ArrayRef<DictionaryAttr> attributes) {
    SmallVector<Value> mapped;
    for (Value result : results) {
      if (auto argument = dyn_cast<BlockArgument>(result))
        addJointArgument(argument);
      mapped.push_back(map.lookupOrDefault(result));
    }
    b.create<func::ReturnOp>(joint.getLoc(), mapped);
    phase.setType(b.getFunctionType(phase.getBody().getArgumentTypes(), ValueRange(mapped).getTypes()));
    for (auto [index, dictionary] : llvm::enumerate(attributes))
      phase.setResultAttrs(index, dictionary);
  }

private:
  func::FuncOp joint;
  OpBuilder b;
  func::FuncOp phase;
  IRMapping map;
};

/// A shard of a segment's incoming stream that is kept instead of the stream: [batch, seq / n, hidden], or split along
/// the next dimension that n devices can divide evenly.
struct SlicedInput {
  BlockArgument stream;
  ArrayAttr axes;
  int64_t dim = 0;
  RankedTensorType part;
};

class SegmentSplitter {
public:
  SegmentSplitter(func::FuncOp joint, bool keepCollectives, ArrayAttr sliceAxes, dist::MeshAttr mesh)
      : joint(joint), body(joint.getBody().front()), keepCollectives(keepCollectives), sliceAxes(sliceAxes),
        mesh(mesh) {}

  /// Without backward, only evaluate is emitted.
  LogicalResult run(bool hasBackward) {
    if (hasBackward && failed(emitPolicies()))
      return failure();
    emitEvaluation(Phases(joint, Policy::Full, /*keepCollectives=*/false));
    joint.erase();
    return success();
  }

private:
  LogicalResult emitPolicies() {
    auto policies = model::recomputeAttr.of(joint);
    OpBuilder b(joint);
    if (!policies)
      policies = b.getStrArrayAttr({"none"});
    for (Attribute attribute : policies) {
      auto policy = dyn_cast<StringAttr>(attribute);
      std::optional<Policy> known = policy ? policyOf(policy.getValue()) : std::nullopt;
      if (!known)
        return joint.emitError("needs recompute policies none, selective or full, got ") << attribute;
      Phases phases(joint, *known, keepCollectives);
      std::optional<SlicedInput> slice = *known == Policy::Full ? slicedInput() : std::nullopt;
      WeightPhase weight(joint, phases, model::splitBackwardAttr.isOn(joint));
      std::string prefix = (joint.getName() + "." + policy.getValue()).str();
      emitForward(phases, weight, prefix + ".forward", slice);
      emitBackward(phases, weight, prefix + ".backward", slice);
      if (!weight.isEmpty())
        emitWeight(phases, weight, prefix + ".weight");
    }
    return success();
  }

  static std::optional<Policy> policyOf(StringRef name) {
    return llvm::StringSwitch<std::optional<Policy>>(name)
        .Case("none", Policy::None)
        .Case("selective", Policy::Selective)
        .Case("full", Policy::Full)
        .Default(std::nullopt);
  }

  std::optional<SlicedInput> slicedInput() {
    int64_t parts = sliceAxes && mesh ? mesh.size(SmallVector<StringAttr>(sliceAxes.getAsRange<StringAttr>())) : 1;
    for (BlockArgument argument : joint.getArguments()) {
      auto role = model::roleAttr.ofArgument(joint, argument.getArgNumber());
      auto type = cast<RankedTensorType>(argument.getType());
      for (int64_t dim = 1; role && role.getValue() == "stream" && parts > 1 && dim < type.getRank(); ++dim) {
        SmallVector<int64_t> shape(type.getShape());
        if (shape[dim] % parts != 0)
          continue;
        shape[dim] /= parts;
        return SlicedInput{argument, sliceAxes, dim,
                           RankedTensorType::get(shape, type.getElementType(), type.getEncoding())};
      }
    }
    return std::nullopt;
  }

  DictionaryAttr saved(StringRef role, const Twine &name) {
    Builder b(joint.getContext());
    return b.getDictionaryAttr({b.getNamedAttr(model::roleAttr, b.getStringAttr(role)),
                                b.getNamedAttr(model::nameAttr, b.getStringAttr(name))});
  }

  /// Returns the attributes of the value with number `index` among those that forward keeps.
  DictionaryAttr kept(const WeightPhase &weight, Value value, size_t index) {
    return saved(weight.reads(value) ? "saved_for_weights" : "saved", "saved." + Twine(index));
  }

  DictionaryAttr passed(size_t index) { return saved("saved_by_backward", "passed." + Twine(index)); }

  /// The stream's shard comes after the values that forward keeps. A delayed gradient that reads the stream itself
  /// keeps the whole stream.
  DictionaryAttr keptSlice(const Phases &phases) { return saved("saved", "saved." + Twine(phases.saved().size())); }

  /// Adds the outgoing stream, and the results with the given roles.
  void addForwardResults(const Phases &phases, ArrayRef<StringRef> roles, SmallVectorImpl<Value> &results,
                         SmallVectorImpl<DictionaryAttr> &attributes) {
    for (auto [index, operand] : llvm::enumerate(body.getTerminator()->getOperands()))
      if (phases.resultRole(index) == "stream" || llvm::is_contained(roles, phases.resultRole(index))) {
        results.push_back(operand);
        attributes.push_back(joint.getResultAttrDict(index));
      }
  }

  /// Emits forward without dropout and without auxiliary losses, which serve training only.
  void emitEvaluation(const Phases &phases) {
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> attributes;
    bool hasLoss = phases.resultRole(0) == "loss";
    addForwardResults(phases, hasLoss ? ArrayRef<StringRef>("statistic") : ArrayRef<StringRef>(), results, attributes);
    PhaseBuilder phase(joint, joint.getName() + ".evaluate");
    auto needed = phases.forwardOps(results);
    for (Operation &op : body)
      if (needed.contains(&op))
        phase.cloneUndropped(op);
    phase.finish(results, attributes);
  }

  void emitForward(const Phases &phases, const WeightPhase &weight, const Twine &name,
                   const std::optional<SlicedInput> &slice) {
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> attributes;
    addForwardResults(phases, {"statistic", "counter"}, results, attributes);
    for (auto [index, value] : llvm::enumerate(phases.saved())) {
      results.push_back(value);
      attributes.push_back(kept(weight, value, index));
    }
    PhaseBuilder phase(joint, name);
    auto needed = phases.forwardOps(results);
    for (Operation &op : body)
      if (needed.contains(&op) && isLossCotangent(&op))
        phase.mapToLossScale(cast<model::CotangentOp>(op));
      else if (needed.contains(&op))
        phase.clone(op);
    if (slice) {
      Value stream = phase.argument(slice->stream);
      results.push_back(
          phase.builder().create<dist::SliceOp>(joint.getLoc(), slice->part, stream, slice->axes, slice->dim));
      attributes.push_back(keptSlice(phases));
    }
    phase.finish(results, attributes);
  }

  /// Gathers the incoming stream from its kept shard.
  void gatherStream(const Phases &phases, const SlicedInput &slice, PhaseBuilder &phase) {
    Value part = phase.addArgument(slice.part, keptSlice(phases), slice.stream.getLoc());
    phase.mapTo(slice.stream, phase.builder().create<dist::AllGatherOp>(joint.getLoc(), slice.stream.getType(), part,
                                                                        slice.axes, slice.dim));
  }

  void emitBackward(const Phases &phases, const WeightPhase &weight, const Twine &name,
                    const std::optional<SlicedInput> &slice) {
    PhaseBuilder phase(joint, name);
    for (auto [index, value] : llvm::enumerate(phases.saved()))
      phase.addArgument(value, kept(weight, value, index));
    if (slice)
      gatherStream(phases, *slice, phase);
    for (Operation &op : body) {
      auto cotangent = dyn_cast<model::CotangentOp>(op);
      if (isLossCotangent(&op)) {
        phase.mapToLossScale(cotangent);
      } else if (cotangent) {
        Builder b(joint.getContext());
        phase.addArgument(cotangent, b.getDictionaryAttr({b.getNamedAttr(model::roleAttr, b.getStringAttr("cotangent")),
                                                          b.getNamedAttr(model::nameAttr, b.getStringAttr("out"))}));
      } else if (weight.isEmpty() ? phases.runsInBackward(&op) : weight.runsNow(&op)) {
        phase.clone(op);
      }
    }
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> attributes;
    for (auto [index, operand] : llvm::enumerate(body.getTerminator()->getOperands()))
      if (phases.isGradient(index) && !weight.waits(index)) {
        results.push_back(operand);
        attributes.push_back(joint.getResultAttrDict(index));
      }
    for (auto [index, value] : llvm::enumerate(weight.passed())) {
      results.push_back(value);
      attributes.push_back(passed(index));
    }
    phase.finish(results, attributes);
  }

  void emitWeight(const Phases &phases, const WeightPhase &weight, const Twine &name) {
    PhaseBuilder phase(joint, name);
    for (auto [index, value] : llvm::enumerate(phases.saved()))
      if (weight.reads(value))
        phase.addArgument(value, kept(weight, value, index));
    for (auto [index, value] : llvm::enumerate(weight.passed()))
      phase.addArgument(value, passed(index));
    for (Operation &op : body)
      if (isLossCotangent(&op) && weight.runsLater(&op))
        phase.mapToLossScale(cast<model::CotangentOp>(op));
      else if (weight.runsLater(&op))
        phase.clone(op);
    SmallVector<Value> results;
    SmallVector<DictionaryAttr> attributes;
    for (auto [index, operand] : llvm::enumerate(body.getTerminator()->getOperands()))
      if (weight.waits(index)) {
        results.push_back(operand);
        attributes.push_back(joint.getResultAttrDict(index));
      }
    phase.finish(results, attributes);
  }

  func::FuncOp joint;
  Block &body;
  bool keepCollectives;
  ArrayAttr sliceAxes; ///< null: inputs are kept unsharded
  dist::MeshAttr mesh;
};

struct SplitPhasesPass : impl::SplitPhasesBase<SplitPhasesPass> {
  void runOnOperation() override {
    bool keepCollectives = dist::keepCollectivesAttr.isOn(getOperation());
    auto sliceAxes = dist::sliceInputsAttr.of(getOperation());
    auto mesh = dist::meshAttr.of(getOperation());
    bool hasBackward = exec::trains(getOperation());
    for (auto function : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      if (model::segmentAttr.isOn(function) &&
          failed(SegmentSplitter(function, keepCollectives, sliceAxes, mesh).run(hasBackward)))
        return signalPassFailure();
  }
};

} // namespace
} // namespace espalier
