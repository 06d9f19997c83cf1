// The work that a recompute policy repeats is the difference between its backward function and that of `none`. Library
// calls and collectives are compared one by one. Elementwise work is compared by its bytes, because it is fused
// differently.
#include "compiler/plan/read_terms.h"

#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"
#include "runtime/axes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/MathExtras.h"

#include <map>

using namespace mlir;

namespace espalier {

using planner::CollectiveKind;
using planner::CollectiveTerm;
using planner::ComputeClass;
using planner::ComputeTerm;
using planner::Monomial;
using planner::Phase;
using planner::Size;

namespace {

StringRef roleOf(DictionaryAttr attributes) {
  auto role = attributes ? attributes.getAs<StringAttr>("model.role") : StringAttr();
  return role ? role.getValue() : "";
}

StringRef nameOf(DictionaryAttr attributes) {
  auto name = attributes ? attributes.getAs<StringAttr>("model.name") : StringAttr();
  return name ? name.getValue() : "";
}

/// Returns the bucket of a step function's op: that of the first argument that the op depends on. May be empty.
StringRef bucketOf(Operation *op) {
  auto function = op->getParentOfType<func::FuncOp>();
  for (Value operand : op->getOperands()) {
    if (auto argument = dyn_cast<BlockArgument>(operand)) {
      DictionaryAttr attributes = function.getArgAttrDict(argument.getArgNumber());
      if (roleOf(attributes) == "accumulator" || roleOf(attributes) == "parameter")
        return nameOf(attributes);
    } else if (StringRef name = bucketOf(operand.getDefiningOp()); !name.empty()) {
      return name;
    }
  }
  return "";
}

bool isCollective(Operation *op) {
  return isa<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp>(op);
}

bool isProduct(Operation *op) { return isa<model::ContractOp, exec::ProductOp>(op); }

/// Returns whether the op is a library or runtime call or a collective. Such ops are read one by one and are not fused.
bool isSingle(Operation *op) {
  return isCollective(op) || isProduct(op) || isa<model::AttentionOp, model::AttentionGradOp>(op);
}

/// Returns whether the op moves bytes. An accumulation that only follows a product is done by the product.
bool movesBytes(Operation *op) {
  if (isSingle(op) || op->getNumResults() == 0 || op->getNumOperands() == 0)
    return false;
  if (auto accumulate = dyn_cast<model::AccumulateOp>(op))
    return !isa_and_nonnull<model::ContractOp, exec::ProductOp, model::EmbedGradOp>(accumulate.getX().getDefiningOp());
  return llvm::any_of(op->getResultTypes(), [](Type type) { return isa<RankedTensorType>(type); });
}

CollectiveKind kindOf(Operation *op) {
  if (isa<dist::AllReduceOp>(op))
    return CollectiveKind::AllReduce;
  if (isa<dist::AllToAllOp>(op))
    return CollectiveKind::AllToAll;
  return isa<dist::AllGatherOp>(op) ? CollectiveKind::AllGather : CollectiveKind::ReduceScatter;
}

ArrayAttr axesOf(Operation *op) { return op->getAttrOfType<ArrayAttr>("axes"); }

planner::Axis axisNamed(StringRef name) {
  return static_cast<planner::Axis>(llvm::find(meshAxes, name) - meshAxes.begin());
}

/// Returns the outermost axis of the group.
planner::Axis axisOf(Operation *op) { return axisNamed(cast<StringAttr>(axesOf(op)[0]).getValue()); }

using Positions = llvm::DenseMap<Operation *, int>; ///< positions of ops in their function's block

Positions positionsIn(func::FuncOp function) {
  Positions positions;
  for (auto [index, op] : llvm::enumerate(function.getBody().front()))
    positions[&op] = static_cast<int>(index);
  return positions;
}

/// Returns a text that is equal for the same work in another function: op, location in the model file, types.
std::string signature(Operation *op) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << op->getName() << op->getLoc();
  for (Type type : op->getOperandTypes())
    stream << type;
  for (Type type : op->getResultTypes())
    stream << type;
  return text;
}

class TermReader {
public:
  TermReader(ModuleOp module, const SegmentLayout &segment, const SizeReader &sizes, bool tiedStep,
             const EmittedWork *emitted)
      : module(module), segment(segment), sizes(sizes), tiedStep(tiedStep), emitted(emitted) {}

  planner::PatternTerms read() {
    if (function(".none.forward"))
      readPhases();
    readParameters();
    for (const char *name : {".norm", ".update"})
      if (func::FuncOp step = function(name))
        readStep(step);
    for (const SegmentBucket &bucket : segment.buckets)
      if (function(".update") && (tiedStep || !bucket.isTied))
        readTransfers(bucket);
    for (auto &[key, term] : stepCollectives)
      terms.collectives.push_back(term);
    if (!stepBytes.empty())
      terms.compute.push_back(memoryTerm("optimizer", Phase::Step, stepBytes));
    return std::move(terms);
  }

private:
  func::FuncOp function(const std::string &suffix) { return module.lookupSymbol<func::FuncOp>(segment.kind + suffix); }

  static ComputeTerm memoryTerm(const std::string &name, Phase phase, Size bytes) {
    ComputeTerm term;
    term.name = name;
    term.kind = ComputeClass::Memory;
    term.phase = phase;
    term.bytes = std::move(bytes);
    return term;
  }

  /// Returns the kernels and copies that do an op's work. Returns a single kernel if the emitted work is unknown.
  std::vector<EmittedPiece> piecesOf(Operation *op) const {
    if (emitted)
      return emitted->of(op).vec();
    return {{op->getName().stripDialect().str(), trafficOf(op)}};
  }

  /// Returns all bytes that an op reads and writes. Of a lookup table, only the selected rows count.
  Size trafficOf(Operation *op) const {
    Size bytes;
    if (emitted) {
      for (const EmittedPiece &piece : emitted->of(op))
        if (!isProduct(op) || piece.name == "matmul")
          for (const Monomial &part : piece.bytes)
            add(bytes, part);
      return bytes;
    }
    for (Value operand : op->getOperands())
      if (!isa<model::EmbedOp>(op))
        add(bytes, sizes.bytes(operand.getType()));
    for (Type type : op->getResultTypes())
      add(bytes, scaled(sizes.bytes(type), isa<model::EmbedOp>(op) ? 2 : 1));
    return bytes;
  }

  /// Returns the term of a product. m and n are dimensions of one operand and the result, k those that the result
  /// lacks, count those of all three.
  ComputeTerm productTerm(Operation *op, Phase phase) const {
    ComputeTerm term;
    term.kind = ComputeClass::MatMul;
    Monomial m{1, {}}, n{1, {}}, k{1, {}}, count{1, {}};
    auto read = [&](Value operand, Value other, Monomial &alone) {
      auto type = cast<RankedTensorType>(operand.getType());
      for (auto [name, size] : llvm::zip_equal(dimNames(type), type.getShape())) {
        bool shared = dimIndex(other.getType(), name) >= 0, kept = dimIndex(op->getResult(0).getType(), name) >= 0;
        Monomial &target = !shared ? alone : kept ? count : k;
        if (!shared || operand == op->getOperand(0))
          target = product(target, sizes.dimension(name, size));
      }
    };
    read(op->getOperand(0), op->getOperand(1), m);
    read(op->getOperand(1), op->getOperand(0), n);
    term.m = {m}, term.n = {n}, term.k = {k}, term.count = {count};
    bool isWeight = llvm::all_of(op->getUsers(), [](Operation *user) { return isa<model::AccumulateOp>(user); });
    term.phase = phase == Phase::Backward && isWeight ? Phase::Weight : phase;
    return term;
  }

  /// Returns the operations of attention on the rank with the most work. Under the causal mask this is the last context
  /// rank: its queries attend to all keys except half of as many keys as it has queries. With a window they attend to a
  /// window of keys; the whole sequence lacks the keys before its begin.
  Size attentionOperations(Operation *op) const {
    constexpr int cp = static_cast<int>(planner::Axis::Cp);
    auto positions = [&](unsigned operand) {
      return static_cast<double>(cast<RankedTensorType>(op->getOperand(operand).getType()).getDimSize(1));
    };
    double queries = positions(0), keys = positions(1), unseen = op->hasAttr("causal") ? queries / keys / 2 : 0;
    auto window = op->getAttrOfType<IntegerAttr>("window");
    double most = window ? std::min(keys, static_cast<double>(window.getInt())) : keys;
    if (most < keys)
      unseen = 1 - model::keysSeen(queries, keys, /*isCausal=*/true, most) / most;
    double allQueries = cast<CostedOp>(op).flops() / (1 - unseen) * keys / queries;
    Monomial every =
        product(scaled(replicaSamples(), allQueries / static_cast<double>(sizes.at().samples)), {1, {{cp, -1}}});
    if (unseen == 0)
      return {every};
    return {every, product(scaled(every, -0.5 * most / keys), {1, {{cp, -1}}})};
  }

  ComputeTerm singleTerm(Operation *op, Phase phase) const {
    ComputeTerm term;
    if (isProduct(op)) {
      term = productTerm(op, phase);
    } else {
      term.kind = ComputeClass::Attention;
      term.phase = phase;
      term.operations = attentionOperations(op);
    }
    term.name = isProduct(op) ? "contract" : op->getName().stripDialect().str();
    term.bytes = trafficOf(op);
    return term;
  }

  /// Returns the term of a collective without positions, because the ops beside it are unknown.
  CollectiveTerm collectiveTerm(Operation *op, Phase phase) const {
    CollectiveTerm term;
    term.name = op->getName().stripDialect().str();
    term.kind = kindOf(op);
    term.axis = axisOf(op);
    term.phase = phase;
    bool isGather = term.kind == CollectiveKind::AllGather;
    term.bytes = {sizes.bytes(isGather ? op->getResult(0).getType() : op->getOperand(0).getType())};
    return term;
  }

  /// Returns the term of a collective that starts at its position and is waited for by the first user of its result.
  CollectiveTerm collectiveTerm(Operation *op, Phase phase, const Positions &positions) const {
    CollectiveTerm term = collectiveTerm(op, phase);
    term.start = positions.lookup(op);
    term.wait = positions.lookup(op->getBlock()->getTerminator());
    for (Operation *user : op->getUsers())
      term.wait = std::min(term.wait, positions.lookup(user));
    return term;
  }

  static ComputeTerm at(ComputeTerm term, int position) {
    term.position = position;
    return term;
  }

  void readPhases() {
    readPhase(function(".none.forward"), Phase::Forward);
    readPhase(function(".none.backward"), Phase::Backward);
    for (const auto &[policy, index] : {std::pair("selective", 1), std::pair("full", 2)})
      if (func::FuncOp backward = function(std::string(".") + policy + ".backward"))
        readRepeats(function(".none.backward"), backward, index);
    readSaved();
  }

  void readPhase(func::FuncOp phaseFunction, Phase phase) {
    Positions positions = positionsIn(phaseFunction);
    for (Operation &op : phaseFunction.getBody().front()) {
      if (isCollective(&op))
        terms.collectives.push_back(collectiveTerm(&op, phase, positions));
      else if (isSingle(&op))
        terms.compute.push_back(at(singleTerm(&op, phase), positions.lookup(&op)));
      if (movesBytes(&op) ||
          (emitted && isProduct(&op))) // a product may have further kernels, such as the addition of a bias gradient
        for (EmittedPiece &piece : piecesOf(&op))
          if (!isProduct(&op) || piece.name != "matmul")
            terms.compute.push_back(at(memoryTerm(piece.name, phase, std::move(piece.bytes)), positions.lookup(&op)));
    }
  }

  void readRepeats(func::FuncOp none, func::FuncOp policy, int index) {
    std::map<std::string, int> known;
    Size bytes;
    for (Operation &op : none.getBody().front()) {
      if (isSingle(&op))
        ++known[signature(&op)];
      else if (movesBytes(&op))
        for (const Monomial &part : trafficOf(&op))
          add(bytes, scaled(part, -1));
    }
    auto flag = [&](auto term) {
      (index == 1 ? term.recomputedSelective : term.recomputedFull) = true;
      return term;
    };
    Positions positions = positionsIn(policy);
    size_t first = terms.compute.size();
    for (Operation &op : policy.getBody().front()) {
      if (movesBytes(&op))
        for (const Monomial &part : trafficOf(&op))
          add(bytes, part);
      if (!isSingle(&op) || known[signature(&op)]-- > 0)
        continue;
      if (isCollective(&op))
        terms.collectives.push_back(flag(collectiveTerm(&op, Phase::Recompute, positions)));
      else
        terms.compute.push_back(at(flag(singleTerm(&op, Phase::Recompute)), positions.lookup(&op)));
    }
    // The difference of two programs has no position in either. Position -1 is before all ops, so it hides nothing.
    terms.compute.insert(terms.compute.begin() + first,
                         at(flag(memoryTerm("element-wise work again", Phase::Recompute, bytes)), -1));
  }

  /// Reads the bytes that a call saves: its incoming stream if the backward pass reads it, and the results with the
  /// role `saved`.
  void readSaved() {
    const char *policies[] = {"none", "selective", "full"};
    for (int index = 0; index < 3; ++index) {
      bool hasPolicy = function(std::string(".") + policies[index] + ".forward") != nullptr;
      std::string policy = std::string(".") + (hasPolicy ? policies[index] : "none");
      func::FuncOp forward = function(policy + ".forward"), backward = function(policy + ".backward");
      Size &saved = terms.savedBytes[index];
      for (BlockArgument argument : backward.getArguments())
        if (roleOf(backward.getArgAttrDict(argument.getArgNumber())) == "stream")
          add(saved, sizes.bytes(argument.getType()));
      for (auto [number, type] : llvm::enumerate(forward.getResultTypes()))
        if (roleOf(forward.getResultAttrDict(number)) == "saved")
          add(saved, sizes.bytes(type));
    }
  }

  Monomial elementsOf(const SegmentParameter &parameter) const {
    Monomial elements{1, {}};
    for (auto [index, dim] : llvm::enumerate(parameter.dims)) {
      int64_t local = parameter.paddedShape[index];
      for (StringAttr axis : parameter.sharding.dims[index])
        local /= axis == "dp" ? sizes.at().dp : axis == "ep" ? sizes.at().ep : sizes.at().tp;
      elements = product(std::move(elements), sizes.dimension(dim, local));
    }
    return elements;
  }

  /// Reads the parameters by bucket, because each bucket is rounded up to full shards.
  void readParameters() {
    for (const SegmentBucket &bucket : segment.buckets) {
      planner::ParameterTerm term;
      term.name = bucket.name;
      term.tied = bucket.isTied;
      term.parameterBytes = static_cast<double>(bucket.elementBytes);
      term.gradientBytes = 4;
      term.optimizerBytes = segment.master ? 12 : 8;
      term.shareMultiple = bucketAlignment;
      for (size_t index : bucket.parameters) {
        const SegmentParameter &parameter = segment.parameters[index];
        for (const Axes &axes : parameter.sharding.dims)
          term.expert |= llvm::any_of(axes, [](StringAttr axis) { return axis == "ep"; });
        add(term.elements, elementsOf(parameter));
        auto taken = static_cast<int64_t>(llvm::alignTo(parameter.localElements, bucketAlignment));
        term.padding += static_cast<double>(taken - parameter.localElements);
      }
      terms.parameters.push_back(std::move(term));
    }
  }

  /// Reads the work of a step function. It works on flat ranges, so sizes are expressed as fractions of the bucket's
  /// parameter elements.
  void readStep(func::FuncOp step) {
    for (Operation &op : step.getBody().front()) {
      StringRef name = movesBytes(&op) ? bucketOf(&op) : "";
      if (name.empty())
        continue;
      const SegmentBucket &bucket = segment.bucket(name);
      if (!tiedStep && bucket.isTied)
        continue;
      double bytes = 0;
      for (const Monomial &part : trafficOf(&op))
        bytes += part.coefficient;
      for (size_t index : bucket.parameters) {
        Monomial elements =
            scaled(elementsOf(segment.parameters[index]), bytes / static_cast<double>(bucket.partElements));
        for (StringAttr axis : bucket.shareAxes)
          elements = product(elements, {1, {{static_cast<int>(axisNamed(axis.getValue())), -1}}});
        if (!bucket.shareAxes.empty()) // ZeRO also shards over cp, which step functions do not show
          elements = product(elements, {1, {{static_cast<int>(planner::Axis::Cp), -1}}});
        add(stepBytes, elements);
      }
    }
  }

  /// Reads the transfers that schedules start for a bucket. The sum of a tied bucket over stages is Problem::tiedBytes.
  void readTransfers(const SegmentBucket &bucket) {
    Axes sums;
    for (StringAttr axis : bucket.partialAxes)
      if (!llvm::is_contained(bucket.shareAxes, axis))
        sums.push_back(axis);
    addTransfer(bucket, CollectiveKind::AllReduce, sums, 4);
    addTransfer(bucket, CollectiveKind::ReduceScatter, bucket.shareAxes, 4);
    addTransfer(bucket, CollectiveKind::AllGather, bucket.shareAxes, static_cast<double>(bucket.elementBytes));
  }

  void addTransfer(const SegmentBucket &bucket, CollectiveKind kind, const Axes &axes, double width) {
    // A sum over several axes is priced as one sum over all replicas and one over tp. With one replica, only the sum
    // over tp remains.
    bool overExperts = llvm::any_of(axes, [](StringAttr name) { return name == "ep"; });
    for (StringAttr name : axes) {
      if (name == "ep")
        continue;
      CollectiveTerm term;
      term.name = kind == CollectiveKind::AllReduce   ? "all_reduce"
                  : kind == CollectiveKind::AllGather ? "all_gather"
                                                      : "reduce_scatter";
      term.kind = kind;
      term.phase = Phase::Step;
      term.axis = axisNamed(name.getValue());
      term.overExperts = overExperts && name == "dp";
      term.calls = 0;
      // Sums over stages start after all transfers between the stages.
      term.besideLastBackward = kind != CollectiveKind::AllGather && (!tiedStep || bucket.holders.empty());
      std::tuple key(static_cast<int>(term.kind), static_cast<int>(term.axis), term.overExperts,
                     term.besideLastBackward);
      CollectiveTerm &sum = stepCollectives.try_emplace(key, term).first->second;
      for (size_t index : bucket.parameters)
        add(sum.bytes, scaled(elementsOf(segment.parameters[index]), width));
      sum.calls += 1;
    }
  }

  ModuleOp module;
  const SegmentLayout &segment;
  const SizeReader &sizes;
  bool tiedStep;
  const EmittedWork *emitted;
  planner::PatternTerms terms;
  Size stepBytes;
  /// by kind, axis, whether over experts, and whether beside the last backward pass
  std::map<std::tuple<int, int, bool, bool>, CollectiveTerm> stepCollectives;
};

} // namespace

planner::PatternTerms readTerms(ModuleOp fused, const SegmentLayout &segment, const SizeReader &sizes, bool tiedStep,
                                const EmittedWork *emitted) {
  return TermReader(fused, segment, sizes, tiedStep, emitted).read();
}

Size readStreamBytes(ModuleOp module, const SizeReader &sizes) {
  Size bytes;
  for (auto function : module.getOps<func::FuncOp>())
    for (auto [index, type] : llvm::enumerate(function.getResultTypes()))
      if (bytes.empty() && roleOf(function.getResultAttrDict(index)) == "stream")
        bytes = {sizes.bytes(type)};
  return bytes;
}

Monomial readInputBytes(ModuleOp module, const SizeReader &sizes) {
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments())
      if (roleOf(function.getArgAttrDict(argument.getArgNumber())) == "input")
        return sizes.bytes(argument.getType());
  return {0, {}};
}

bool readsInputs(ModuleOp module, StringRef segment) {
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments())
      if (function.getName().split('.').first == segment && !argument.use_empty() &&
          roleOf(function.getArgAttrDict(argument.getArgNumber())) == "input")
        return true;
  return false;
}

namespace {

/// The fraction of expert slots that tokens can fill. The other slots are spare capacity.
struct FilledSlots {
  StringRef dimension;
  double share = 1;
  bool has(RankedTensorType type) const { return !dimension.empty() && dimIndex(type, dimension) >= 0; }
};

FilledSlots filledSlots(func::FuncOp forward) {
  FilledSlots filled;
  forward.walk([&](model::DispatchOp op) {
    constexpr unsigned slots = 2; // [expert, batch, capacity, hidden]
    auto type = cast<RankedTensorType>(op.getResult().getType());
    auto rows = static_cast<double>(type.getNumElements() / type.getShape().back());
    auto choices = static_cast<double>(cast<RankedTensorType>(op.getIds().getType()).getNumElements());
    filled = {dimNames(type)[slots], std::min(1.0, choices / rows)};
  });
  return filled;
}

} // namespace

double readFlops(ModuleOp partitioned, StringRef segment, ArrayRef<StringRef> phases) {
  auto function = [&](StringRef phase) {
    return partitioned.lookupSymbol<func::FuncOp>((segment + ".none." + phase).str());
  };
  FilledSlots filled = filledSlots(function("forward"));
  double flops = 0;
  for (StringRef phase : phases)
    function(phase).walk([&](Operation *op) {
      auto costed = dyn_cast<CostedOp>(op);
      if (!costed || !costed.isExpensive())
        return;
      bool isOfSlots = llvm::any_of(op->getOperandTypes(), [&](Type type) {
        auto tensor = dyn_cast<RankedTensorType>(type);
        return tensor && filled.has(tensor);
      });
      flops += costed.flops() * (isOfSlots ? filled.share : 1);
    });
  return flops;
}

} // namespace espalier
