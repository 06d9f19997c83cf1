// The work that a recompute policy repeats is the difference between its backward function and that of `none`. Library
// calls and collectives are compared one by one. Elementwise work is compared by its bytes, because it is fused
// differently.
#include "compiler/profile/read_terms.h"

#include "compiler/partition/layout.h"
#include "compiler/profile/op_terms.h"
#include "dialects/attributes.h"
#include "dialects/model/dialect.h"
#include "format/model_inputs.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/MathExtras.h"

#include <map>
#include <set>

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
  auto role = model::roleAttr.in(attributes);
  return role ? role.getValue() : "";
}

StringRef nameOf(DictionaryAttr attributes) {
  auto name = model::nameAttr.in(attributes);
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

/// Returns the ranks of an axis that splits parameters.
int ranksOf(StringRef axis, const ProfilePoint &point) {
  return axis == "dp" ? point.dp : axis == "cp" ? point.cp : axis == "ep" ? point.ep : point.tp;
}

/// Returns whether the parameters of a bucket are those of experts. Other parameters have other axes.
bool isOfExperts(exec::BucketOp bucket) {
  return llvm::any_of(bucket.parameters(), [](exec::ParameterOp parameter) {
    return llvm::any_of(dimNames(parameter.getLocal()), [](StringAttr dim) { return dim == "expert"; });
  });
}

/// Returns whether context ranks hold different experts, so that neither sums of gradients nor ZeRO include cp.
bool isWithoutContext(exec::BucketOp bucket, const SizeReader &sizes) {
  return sizes.at().expertsOverContext && isOfExperts(bucket);
}

/// Returns the share of a bucket's elements that a rank updates.
Monomial ofShard(Monomial elements, exec::BucketOp bucket, const SizeReader &sizes) {
  for (StringAttr axis : bucket.getShare())
    if (axis != "cp")
      elements = product(elements, {1, {{static_cast<int>(axisNamed(axis.getValue())), -1}}});
  // ZeRO also shards over cp, which most profiles of step functions do not have.
  if (!bucket.getShare().empty() && !isWithoutContext(bucket, sizes))
    elements = product(elements, {1, {{static_cast<int>(planner::Axis::Cp), -1}}});
  return elements;
}

/// Replaces the number of shards of the profile by that of a plan, in a size that counts the matrices of a shard.
void scaleToShard(Size &size, exec::BucketOp bucket, const SizeReader &sizes) {
  auto shards = static_cast<double>(bucket.getElements()) / static_cast<double>(bucket.getPartElements());
  for (Monomial &part : size)
    part = ofShard(scaled(part, shards), bucket, sizes);
}

/// Returns the collectives of QK-clip. An update program reduces the maxima of each attention over all replicas.
/// Profiles of one replica have no such collective, so the terms are made from the counters. Nothing overlaps with
/// them.
std::vector<CollectiveTerm> clipTerms(exec::SegmentOp segment, const SizeReader &sizes) {
  constexpr double f32Bytes = 4;
  std::vector<CollectiveTerm> terms;
  std::set<StringRef> counters;
  for (exec::BucketOp bucket : segment.buckets()) {
    exec::BucketClipAttr clip = bucket.getClipAttr();
    if (!clip || !counters.insert(clip.getCounter()).second)
      continue;
    CollectiveTerm &term = terms.emplace_back();
    term.name = "all_reduce";
    term.phase = Phase::Step;
    term.axis = planner::Axis::Dp;
    term.overExperts = sizes.at().ep > 1;
    term.bytes = {scaled(sizes.dimension(clip.getDim(), clip.getHeads()), f32Bytes)};
  }
  return terms;
}

class TermReader {
public:
  TermReader(ModuleOp module, exec::SegmentOp segment, const SizeReader &sizes, bool tiedStep,
             const EmittedWork *emitted)
      : module(module), segment(segment), sizes(sizes), tiedStep(tiedStep), ops(sizes, emitted) {}

  planner::PatternTerms read() {
    if (function(".none.forward"))
      readPhases();
    readParameters();
    for (const char *name : {".norm", ".update"})
      if (func::FuncOp step = function(name))
        readStep(step);
    for (exec::BucketOp bucket : segment.buckets())
      if (function(".update") && (tiedStep || !bucket.getTied()))
        readTransfers(bucket);
    for (auto &[key, term] : stepCollectives)
      terms.collectives.push_back(term);
    llvm::append_range(terms.collectives, clipTerms(segment, sizes));
    if (!stepBytes.empty())
      terms.compute.push_back(memoryTerm("optimizer", Phase::Step, stepBytes));
    return std::move(terms);
  }

private:
  func::FuncOp function(const std::string &suffix) {
    return module.lookupSymbol<func::FuncOp>((segment.getKind() + suffix).str());
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
        terms.collectives.push_back(ops.collectiveTerm(&op, phase, positions));
      else if (isSingle(&op))
        terms.compute.push_back(at(ops.singleTerm(&op, phase), positions.lookup(&op)));
      for (EmittedPiece &piece : ops.memoryPiecesOf(&op))
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
        for (const Monomial &part : ops.trafficOf(&op))
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
        for (const Monomial &part : ops.trafficOf(&op))
          add(bytes, part);
      if (!isSingle(&op) || known[signature(&op)]-- > 0)
        continue;
      if (isCollective(&op))
        terms.collectives.push_back(flag(ops.collectiveTerm(&op, Phase::Recompute, positions)));
      else
        terms.compute.push_back(at(flag(ops.singleTerm(&op, Phase::Recompute)), positions.lookup(&op)));
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

  Monomial elementsOf(exec::ParameterOp parameter) const {
    Monomial elements{1, {}};
    for (auto [dim, size, axes] : llvm::zip_equal(dimNames(parameter.getLocal()), parameter.getPaddedShape(),
                                                  parameter.getSharding().getDims())) {
      int64_t local = size;
      for (auto axis : axes.template getAsRange<StringAttr>())
        local /= ranksOf(axis, sizes.at());
      elements = product(std::move(elements), sizes.dimension(dim, local));
    }
    return elements;
  }

  /// Reads the parameters by bucket, because each bucket is rounded up to full shards.
  void readParameters() {
    for (exec::BucketOp bucket : segment.buckets()) {
      planner::ParameterTerm term;
      term.name = bucket.getName().str();
      term.tied = bucket.getTied();
      term.parameterBytes = static_cast<double>(bucket.storedWidth());
      term.isFrozen = bucket.getFrozen();
      term.gradientBytes = bucket.getFrozen() ? 0 : static_cast<double>(bucket.gradientWidth());
      term.optimizerBytes = bucket.getFrozen() ? 0 : 4 * static_cast<double>(bucket.stateParts().size());
      term.shareMultiple = exec::bucketAlignment;
      if (!bucket.getMatrix().empty()) {
        term.shareMultiple = 0;
        for (exec::ParameterOp parameter : bucket.parameters())
          term.matrices += static_cast<double>(parameter.localElements()) /
                           static_cast<double>(bucket.getMatrix()[0] * bucket.getMatrix()[1]);
      }
      term.expert = isOfExperts(bucket) && (sizes.at().ep > 1 || sizes.at().expertsOverContext);
      for (exec::ParameterOp parameter : bucket.parameters()) {
        add(term.elements, elementsOf(parameter));
        auto taken = static_cast<int64_t>(llvm::alignTo(parameter.localElements(), exec::bucketAlignment));
        term.padding += static_cast<double>(taken - parameter.localElements());
      }
      terms.parameters.push_back(std::move(term));
    }
  }

  /// Reads the work of a step function. It works on flat ranges, so sizes are expressed as fractions of the bucket's
  /// parameter elements.
  void readStep(func::FuncOp step) {
    for (Operation &op : step.getBody().front()) {
      StringRef name = movesBytes(&op) || isProduct(&op) || isCollective(&op) ? bucketOf(&op) : "";
      if (name.empty())
        continue;
      exec::BucketOp bucket = segment.bucket(name);
      if (!tiedStep && bucket.getTied())
        continue;
      if (isProduct(&op)) {
        terms.compute.push_back(stepProduct(&op, bucket));
        continue;
      }
      if (isCollective(&op)) {
        terms.collectives.push_back(ops.collectiveTerm(&op, Phase::Step));
        scaleToShard(terms.collectives.back().bytes, bucket, sizes);
        continue;
      }
      double bytes = 0;
      for (const Monomial &part : ops.trafficOf(&op))
        bytes += part.coefficient;
      for (exec::ParameterOp parameter : bucket.parameters())
        add(stepBytes, ofShard(scaled(elementsOf(parameter), bytes / static_cast<double>(bucket.getPartElements())),
                               bucket, sizes));
    }
  }

  /// Returns the term of a product of the matrices of a shard.
  planner::ComputeTerm stepProduct(Operation *op, exec::BucketOp bucket) const {
    planner::ComputeTerm term = ops.singleTerm(op, Phase::Step);
    scaleToShard(term.count, bucket, sizes);
    scaleToShard(term.bytes, bucket, sizes);
    return term;
  }

  /// Reads the transfers that schedules start for a bucket. The sum of a tied bucket over stages is Problem::tiedBytes.
  void readTransfers(exec::BucketOp bucket) {
    Axes sums;
    for (StringAttr axis : bucket.getPartial())
      if (!llvm::is_contained(bucket.getShare(), axis))
        sums.push_back(axis);
    if (bucket.getFrozen())
      return addTransfer(bucket, CollectiveKind::AllGather, replicaAxes(bucket),
                         static_cast<double>(bucket.storedWidth()));
    auto summedBytes = static_cast<double>(bucket.gradientWidth());
    addTransfer(bucket, CollectiveKind::AllReduce, sums, summedBytes);
    addTransfer(bucket, CollectiveKind::ReduceScatter, bucket.getShare(), summedBytes);
    addTransfer(bucket, CollectiveKind::AllGather, bucket.getShare(), static_cast<double>(bucket.storedWidth()));
  }

  /// Returns the axes over which ZeRO 3 shards a frozen bucket. Profiles are read under ZeRO 1 and 0.
  Axes replicaAxes(exec::BucketOp bucket) const {
    Axes axes;
    auto add = [&](StringRef name, int64_t ranks) {
      bool isSplit = llvm::any_of(bucket.parameters(),
                                  [&](exec::ParameterOp parameter) { return parameter.axes() & exec::axisBit(name); });
      if (sizes.at().zero > 0 && ranks > 1 && !isSplit)
        axes.push_back(StringAttr::get(bucket.getContext(), name));
    };
    add("dp", sizes.at().dp);
    add("ep", sizes.at().ep);
    return axes;
  }

  void addTransfer(exec::BucketOp bucket, CollectiveKind kind, const Axes &axes, double width) {
    // A sum over several axes is priced as one sum over all replicas and one over tp. With one replica, only the sum
    // over tp remains.
    bool overExperts = llvm::any_of(axes, [](StringAttr name) { return name == "ep"; });
    for (StringAttr name : axes) {
      if (name == "ep" || name == "cp")
        continue;
      CollectiveTerm term;
      term.name = kind == CollectiveKind::AllReduce   ? "all_reduce"
                  : kind == CollectiveKind::AllGather ? "all_gather"
                                                      : "reduce_scatter";
      term.kind = kind;
      term.phase = Phase::Step;
      term.axis = axisNamed(name.getValue());
      term.overExperts = overExperts && name == "dp";
      term.withoutContext = name == "dp" && isWithoutContext(bucket, sizes);
      term.ofFrozen = bucket.getFrozen();
      term.calls = 0;
      // Sums over stages start after all transfers between the stages.
      term.besideLastBackward = kind != CollectiveKind::AllGather && (!tiedStep || bucket.getHolders().empty());
      std::tuple key(static_cast<int>(term.kind), static_cast<int>(term.axis), term.overExperts, term.withoutContext,
                     term.besideLastBackward, term.ofFrozen);
      CollectiveTerm &sum = stepCollectives.try_emplace(key, term).first->second;
      for (exec::ParameterOp parameter : bucket.parameters())
        add(sum.bytes, scaled(elementsOf(parameter), width));
      sum.calls += 1;
    }
  }

  ModuleOp module;
  exec::SegmentOp segment;
  const SizeReader &sizes;
  bool tiedStep;
  OpTerms ops;
  planner::PatternTerms terms;
  Size stepBytes;
  /// by kind, axis, whether over experts, whether without context, whether beside the last backward pass, and whether
  /// of frozen parameters
  std::map<std::tuple<int, int, bool, bool, bool, bool>, CollectiveTerm> stepCollectives;
};

} // namespace

planner::PatternTerms readTerms(ModuleOp fused, exec::SegmentOp segment, const SizeReader &sizes, bool tiedStep,
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
  Monomial each{0, {}};
  std::set<StringRef> read;
  for (auto function : module.getOps<func::FuncOp>())
    for (BlockArgument argument : function.getArguments())
      if (DictionaryAttr attributes = function.getArgAttrDict(argument.getArgNumber()); roleOf(attributes) == "input") {
        each = sizes.bytes(argument.getType());
        if (StringAttr name = model::nameAttr.in(attributes))
          read.insert(name.getValue());
      }
  return scaled(each, llvm::count_if(rt::modelInputs, [&](const rt::ModelInput &input) {
                  return input.isAlwaysPlaced || read.contains(input.name);
                }));
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
