// Reads the parameter shardings of the localized joint functions and forms buckets. A bucket packs parameters in the
// regions parameters, gradients and state of a layer call. If two segments with tied parameters are on one stage, they
// use one region: offsets of the second segment continue those of the first.
#include "compiler/attributes/run_attributes.h"
#include "compiler/codegen/guards.h"
#include "compiler/layout/segment_layout.h"
#include "compiler/layout/stage_calls.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/MathExtras.h"

#include <map>
#include <numeric>
#include <utility>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_FORMBUCKETS
#include "compiler/passes.h.inc"

namespace {

/// A parameter and the properties that select its bucket.
struct FormedParameter {
  SegmentParameter parameter;
  RankedTensorType local;
  std::string
      tied; ///< for a parameter that is tied across segments, the owner's name, such as "embed.table"; else empty
  Axes partialAxes,
      shareAxes;        ///< axes over which gradients are summed after the last micro-batch, and axes of ZeRO shards
  int64_t replicas = 1; ///< ranks of a stage that hold the same elements of the reduced gradient
  bool decays = false, isFrozen = false;
  rt::pb::Optimizer optimizer = rt::pb::ADAMW;
  double signRate = 0;             ///< step of the optimizer Sign
  SmallVector<int64_t, 2> matrix;  ///< rows and columns of the slice if the optimizer needs whole matrices
  std::array<MatrixSide, 2> sides; ///< the split of rows and of columns
  int64_t rateGroup = 0;           ///< above 0: the group of parameters with its own learning rate
  std::optional<BucketClip> clip;
};

struct FormedSegment {
  func::FuncOp function;
  SegmentLayout layout;
  std::vector<FormedParameter> parameters; ///< in the order of the function's arguments
};

/// Reads the parameters from the arguments of a localized joint function.
class ParameterReader {
public:
  ParameterReader(ModuleOp module, const planner::Plan &plan)
      : plan(plan), layout(module), sizes(model::sizesAttr.of(module)),
        optimizer(*exec::optimizerAttr.of(module).getType()), runs(readRuns(module)) {}

  FailureOr<std::vector<FormedParameter>> read(func::FuncOp function) {
    std::vector<FormedParameter> parameters;
    for (BlockArgument argument : function.getArguments()) {
      auto role = model::roleAttr.ofArgument(function, argument.getArgNumber());
      if (!role || role.getValue() != "parameter")
        continue;
      if (failed(readParameter(function, argument, parameters.emplace_back())))
        return failure();
    }
    return parameters;
  }

private:
  LogicalResult readParameter(func::FuncOp function, BlockArgument argument, FormedParameter &out) {
    auto name = model::nameAttr.ofArgument(function, argument.getArgNumber());
    auto place = dist::shardingAttr.ofArgument(function, argument.getArgNumber());
    auto all = model::parametersAttr.of(function);
    auto facts = all && name ? all.getAs<exec::ParameterAttr>(name.getValue()) : exec::ParameterAttr();
    out.local = dyn_cast<RankedTensorType>(argument.getType());
    if (!place || !facts || !out.local || place.getDims().size() != dimNames(out.local).size())
      return emitError(argument.getLoc()) << "parameter " << name << " of @" << function.getSymName()
                                          << " needs dist.sharding and an entry in model.parameters, as earlier phases "
                                             "leave them";
    SegmentParameter &parameter = out.parameter;
    parameter.name = name.str();
    parameter.location = argument.getLoc();
    parameter.sharding = Sharding(place);
    parameter.localElements = out.local.getNumElements();
    for (auto [size, axes, dim] : llvm::zip_equal(out.local.getShape(), parameter.sharding.dims, dimNames(out.local))) {
      parameter.paddedShape.push_back(size * layout.size(axes));
      auto unpadded = sizes ? sizes.getAs<IntegerAttr>(dim) : IntegerAttr();
      parameter.shape.push_back(unpadded ? unpadded.getInt() : parameter.paddedShape.back());
    }
    parameter.initializer.kind = static_cast<Initializer::Kind>(static_cast<int>(facts.getInitializer()));
    parameter.initializer.stddev = facts.getStddev();
    parameter.tiedTo = facts.getTiedTo().str();
    out.isFrozen = bool(function.getArgAttr(argument.getArgNumber(), model::frozenAttr));
    out.decays = facts.getDecays() && !out.isFrozen;
    out.rateGroup = out.isFrozen ? 0 : facts.getRateGroup();
    if (exec::ClipAttr clip = facts.getClip())
      readClip(function, clip, out);
    readAxes(function, out);
    if (out.isFrozen || !exec::trains(function->getParentOfType<ModuleOp>()))
      return success();
    if (facts.getSignRate() > 0) {
      out.optimizer = rt::pb::SIGN;
      out.signRate = facts.getSignRate();
      out.decays = false;
      out.rateGroup = 0; // the optimizer has no learning rate
      return success();
    }
    return chooseOptimizer(function, argument, out);
  }

  /// The columns of the weight begin with the dimension of its key-value heads.
  void readClip(func::FuncOp function, exec::ClipAttr clip, FormedParameter &out) const {
    out.clip = {.counter = clip.getCounter().str(), .dim = clip.getHeads().str(), .exponent = clip.getExponent()};
    llvm::copy_if(partialOf(function, "counter", out.clip->counter), std::back_inserter(out.clip->axes),
                  [&](StringAttr axis) { return layout.mesh().size(axis.getValue()) > 1; });
    ArrayRef<int64_t> shape = out.local.getShape();
    int heads = dimIndex(out.local, out.clip->dim);
    out.clip->heads = shape[heads];
    for (int64_t size : shape.drop_front(heads + 1))
      out.clip->columns *= size;
  }

  /// Sets the optimizer of a trained parameter. An optimizer for matrices updates the weights of products of the
  /// layers, which are neither in the first nor in the last segment.
  LogicalResult chooseOptimizer(func::FuncOp function, BlockArgument argument, FormedParameter &out) const {
    if (!optimizer.isForMatrices) {
      out.optimizer = optimizer.number;
      return success();
    }
    StringRef kind = function.getSymName();
    if (runs.size() < 3 || kind == runs.front().kind || kind == runs.back().kind)
      return success();
    std::optional<size_t> batch, rows;
    rows = findRows(argument, batch);
    if (!rows)
      return success();
    const SegmentParameter &parameter = out.parameter;
    ArrayRef<int64_t> shape = out.local.getShape();
    out.optimizer = optimizer.number;
    out.matrix = {1, 1};
    for (size_t d = *batch; d < shape.size(); ++d) {
      int side = d < *batch + *rows ? 0 : 1;
      out.matrix[side] *= shape[d];
      llvm::append_range(out.sides[side].axes, parameter.sharding.dims[d]);
      out.sides[side].parts *= layout.size(parameter.sharding.dims[d]);
    }
    if (int64_t elements = out.matrix[0] * out.matrix[1]; elements % bucketAlignment != 0) {
      bool isSlice = out.sides[0].parts * out.sides[1].parts > 1;
      return emitError(parameter.location)
             << optimizer.name << " needs matrices whose elements " << (isSlice ? "on a rank " : "")
             << "are a multiple of " << bucketAlignment << ", and parameter " << parameter.name << " has "
             << out.matrix[0] << " times " << out.matrix[1] << "; choose other sizes, "
             << (isSlice ? "a smaller model_parallel, " : "") << "or another optimizer.type";
    }
    return success();
  }

  /// Returns the number of dimensions that are rows, if the parameter is the matrix of a product: of its dimensions,
  /// first those of a batch, then those that the product contracts, then its columns. Sets the number of dimensions of
  /// the batch.
  static std::optional<size_t> findRows(BlockArgument argument, std::optional<size_t> &batch) {
    SmallVector<Value> left = {argument};
    model::ContractOp first;
    while (!left.empty())
      for (Operation *user : left.pop_back_val().getUsers()) {
        if (isa<model::ConvertOp>(user))
          left.push_back(user->getResult(0));
        auto contract = dyn_cast<model::ContractOp>(user);
        if (contract && (!first || contract->isBeforeInBlock(first)))
          first = contract;
      }
    if (!first)
      return std::nullopt;
    ArrayRef<StringAttr> dims = dimNames(argument.getType());
    auto hasArgument = [&](Value side) { return llvm::equal(dimNames(side.getType()), dims); };
    Value other = hasArgument(first.getA()) ? first.getB() : first.getA();
    auto isIn = [&](Value value, StringAttr dim) { return dimIndex(value.getType(), dim) >= 0; };
    std::string order; // b, r or c per dimension
    for (StringAttr dim : dims)
      order += !isIn(first.getResult(), dim) ? 'r' : isIn(other, dim) ? 'b' : 'c';
    size_t rows = llvm::count(order, 'r'), columns = llvm::count(order, 'c');
    batch = order.size() - rows - columns;
    bool isOrdered = order == std::string(*batch, 'b') + std::string(rows, 'r') + std::string(columns, 'c');
    return isOrdered && rows > 0 && columns > 0 ? std::optional(rows) : std::nullopt;
  }

  /// A frozen parameter has no gradient that is summed. ZeRO 3 shards it over all replicas.
  void readAxes(func::FuncOp function, FormedParameter &out) {
    Axes partial = partialOf(function, "accumulator", out.parameter.name);
    int64_t shares = 1, splits = 1;
    bool isShared = plan.zero >= (out.isFrozen ? 3 : 1);
    for (StringAttr axis : layout.mesh().getAxes()) {
      // Iterating in mesh order fixes the order of the reduction and names a group by its axes in mesh order.
      bool isMany = layout.mesh().size(axis.getValue()) > 1, isSummed = llvm::is_contained(partial, axis) && isMany;
      if (isSummed)
        out.partialAxes.push_back(axis);
      bool isOfSamples = axis == "dp" || axis == "cp" || axis == "ep";
      bool isSplit =
          llvm::any_of(out.parameter.sharding.dims, [&](const Axes &axes) { return llvm::is_contained(axes, axis); });
      // A parameter that is applied to whole sequences has the same gradient on all context-parallel ranks.
      if (isShared && isOfSamples && (isSummed || (out.isFrozen && isMany)) && !isSplit) {
        out.shareAxes.push_back(axis);
        shares *= layout.mesh().size(axis.getValue());
      }
    }
    for (const Axes &axes : out.parameter.sharding.dims)
      splits *= layout.size(axes);
    out.replicas = plan.ranks() / plan.pp / splits / shares;
  }

  /// Returns the axes over which an argument of the function is partial.
  static Axes partialOf(func::FuncOp function, StringRef ofRole, StringRef name) {
    for (unsigned index = 0; index < function.getNumArguments(); ++index) {
      auto role = model::roleAttr.ofArgument(function, index);
      auto place = dist::shardingAttr.ofArgument(function, index);
      auto other = model::nameAttr.ofArgument(function, index);
      if (place && role && other && role.getValue() == ofRole && other.getValue() == name)
        return Sharding(place).partial;
    }
    return {};
  }

  const planner::Plan &plan;
  Layout layout;
  DictionaryAttr sizes;
  const rt::OptimizerRow &optimizer;
  std::vector<SegmentRun> runs;
};

/// Forms the buckets of one segment and assigns its parameters to them.
class BucketBuilder {
public:
  BucketBuilder(FormedSegment &formed, const planner::Plan &plan, const Layout &layout, ModuleOp module)
      : formed(formed), segment(formed.layout), plan(plan), layout(layout), module(module) {}

  /// Forms the buckets. Tied parameters come first, sorted by their owner's name. Both segments then list them, and the
  /// buckets that follow, in the same order.
  void build() {
    std::map<std::string, FormedParameter *> tied;
    for (FormedParameter &parameter : formed.parameters)
      if (!parameter.tied.empty())
        tied.emplace(parameter.tied, &parameter);
    for (auto &[name, parameter] : tied)
      put(*parameter);
    for (FormedParameter &parameter : formed.parameters)
      if (parameter.tied.empty())
        put(parameter);
    for (SegmentBucket &bucket : segment.buckets) {
      int64_t parts = layout.size(bucket.shareAxes);
      // The elements of a slice of a matrix are a multiple of the alignment.
      int64_t unit = bucket.matrix.empty() ? bucketAlignment : bucket.matrix[0] * bucket.matrix[1];
      if (bucket.clip) // shards are whole rows
        unit = std::lcm(unit, bucket.clip->heads * bucket.clip->columns);
      bucket.elements = static_cast<int64_t>(llvm::alignTo(bucket.elements, parts * unit));
      bucket.partElements = bucket.elements / parts;
    }
  }

private:
  /// Returns the bucket for a parameter and adds it if needed. Each tied parameter, and each weight that QK-clip
  /// scales, has its own bucket.
  SegmentBucket &bucketFor(const FormedParameter &parameter) {
    double weight = parameter.isFrozen || parameter.signRate > 0 ? 0 : 1.0 / static_cast<double>(parameter.replicas);
    bool isTied = !parameter.tied.empty(), isApart = isTied || parameter.clip,
         acrossStages = isTied && headStage(plan) > 0;
    if (acrossStages)
      weight /= 2;
    Type stored = parameter.local.getElementType();
    for (auto [index, bucket] : llvm::enumerate(segment.buckets))
      if (!isApart && !isAlone[index] && bucket.decays == parameter.decays && bucket.isFrozen == parameter.isFrozen &&
          bucket.stored == stored && bucket.partialAxes == parameter.partialAxes &&
          bucket.shareAxes == parameter.shareAxes && bucket.optimizer == parameter.optimizer &&
          bucket.matrix == parameter.matrix && bucket.sides == parameter.sides &&
          bucket.rateGroup == parameter.rateGroup && bucket.normWeight == weight &&
          bucket.signRate == parameter.signRate)
        return bucket;
    SegmentBucket bucket;
    bucket.name = isTied ? parameter.tied : freeName(parameter);
    bucket.stored = stored;
    bucket.elementBytes = stored.getIntOrFloatBitWidth() / 8;
    bucket.summed = readGradientType(module, parameter.signRate > 0);
    bucket.partialAxes = parameter.partialAxes;
    bucket.shareAxes = parameter.shareAxes;
    if (plan.zero >= 2 && !bucket.shareAxes.empty() && !parameter.isFrozen)
      bucket.wholeGradientOffset = 0;
    if (plan.zero >= 3 && !bucket.shareAxes.empty())
      bucket.wholeStoredOffset = 0;
    bucket.decays = parameter.decays;
    bucket.isFrozen = parameter.isFrozen;
    bucket.optimizer = parameter.optimizer;
    bucket.matrix = parameter.matrix;
    bucket.sides = parameter.sides;
    bucket.signRate = parameter.signRate;
    bucket.rateGroup = parameter.rateGroup;
    bucket.normWeight = weight;
    if (acrossStages)
      bucket.holders = {0, static_cast<uint32_t>(headStage(plan))};
    bucket.isTied = !parameter.parameter.tiedTo.empty();
    bucket.isTiedHere = bucket.isTied && headStage(plan) == 0;
    bucket.clip = parameter.clip;
    isAlone.push_back(isApart);
    return segment.buckets.emplace_back(std::move(bucket));
  }

  std::string freeName(const FormedParameter &parameter) const {
    const char *suffix = parameter.isFrozen          ? ".frozen"
                         : !parameter.matrix.empty() ? ".matrices"
                         : parameter.signRate > 0    ? ".signs"
                         : parameter.decays          ? ".decayed"
                                                     : ".plain";
    std::string base = segment.kind + suffix, name = base;
    for (int number = 2; llvm::any_of(segment.buckets, [&](const SegmentBucket &b) { return b.name == name; });
         ++number)
      name = base + std::to_string(number);
    return name;
  }

  void put(FormedParameter &from) {
    SegmentBucket &bucket = bucketFor(from);
    from.parameter.bucket = &bucket - segment.buckets.data();
    from.parameter.first = bucket.elements;
    bucket.elements += static_cast<int64_t>(llvm::alignTo(from.parameter.localElements, bucketAlignment));
  }

  FormedSegment &formed;
  SegmentLayout &segment;
  const planner::Plan &plan;
  const Layout &layout;
  ModuleOp module;
  std::vector<bool> isAlone; ///< by bucket; true if the bucket takes no further parameters
};

/// Assigns offsets to a bucket that the segment owns, after the segment's current bytes.
void place(SegmentBucket &bucket, SegmentLayout &segment, uint64_t guard) {
  auto take = [guard](uint64_t &end, uint64_t bytes) { return std::exchange(end, end + alignUp(bytes, guard)); };
  bucket.storedOffset = take(segment.parameterBytes, bucket.storedElements() * bucket.elementBytes);
  if (!bucket.isFrozen) {
    bucket.gradientOffset = take(segment.gradientBytes, bucket.gradientElements() * bucket.gradientElementBytes());
    bucket.stateOffset = take(segment.stateBytes, stateParts(segment, bucket).size() * bucket.partElements * 4);
  }
  if (bucket.wholeGradientOffset)
    bucket.wholeGradientOffset = take(segment.wholeGradientBytes, bucket.elements * bucket.gradientElementBytes());
  if (bucket.wholeStoredOffset)
    bucket.wholeStoredOffset = take(segment.wholeStoredBytes, bucket.elements * bucket.elementBytes);
}

void copyBytes(const SegmentLayout &from, SegmentLayout &to) {
  to.parameterBytes = from.parameterBytes;
  to.gradientBytes = from.gradientBytes;
  to.stateBytes = from.stateBytes;
  to.wholeGradientBytes = from.wholeGradientBytes;
  to.wholeStoredBytes = from.wholeStoredBytes;
}

/// Numbers the buckets of all segments and assigns their offsets in the regions.
void placeBuckets(std::vector<FormedSegment> &segments, uint64_t guard) {
  uint32_t numbers = 0;
  std::map<std::string, SegmentBucket *> byName;
  std::map<std::string, SegmentLayout *> byKind;
  for (FormedSegment &formed : segments) {
    SegmentLayout &segment = formed.layout;
    byKind[segment.kind] = &segment;
    SegmentLayout *owner = nullptr;
    for (const SegmentBucket &bucket : segment.buckets)
      if (bucket.isTiedHere)
        owner = byKind.at(StringRef(bucket.name).split('.').first.str());
    if (owner) // continue the owner's regions
      copyBytes(*owner, segment);
    for (SegmentBucket &bucket : segment.buckets) {
      auto [known, isNew] = byName.try_emplace(bucket.name, &bucket);
      bucket.number = isNew ? numbers++ : known->second->number;
      if (bucket.isTiedHere) {
        bucket.storedOffset = known->second->storedOffset;
        bucket.gradientOffset = known->second->gradientOffset;
        bucket.stateOffset = known->second->stateOffset;
        bucket.wholeGradientOffset = known->second->wholeGradientOffset;
        bucket.wholeStoredOffset = known->second->wholeStoredOffset;
      } else {
        place(bucket, segment, guard);
      }
    }
    if (owner)
      copyBytes(segment, *owner);
  }
}

/// Writes segments, buckets and parameters as ops.
class SegmentWriter {
public:
  explicit SegmentWriter(ModuleOp module) : b(OpBuilder::atBlockEnd(module.getBody())) {}

  void write(const FormedSegment &formed) {
    const SegmentLayout &segment = formed.layout;
    Location loc = func::FuncOp(formed.function).getLoc();
    auto op = b.create<exec::SegmentOp>(loc, segment.kind, segment.master, segment.parameterBytes,
                                        segment.gradientBytes, segment.stateBytes, bytes(segment.wholeGradientBytes),
                                        bytes(segment.wholeStoredBytes));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&op.getBody().emplaceBlock());
    for (auto [index, bucket] : llvm::enumerate(segment.buckets))
      write(formed, bucket, index);
  }

private:
  ArrayAttr axes(ArrayRef<StringAttr> names) {
    return b.getArrayAttr(SmallVector<Attribute>(names.begin(), names.end()));
  }

  ArrayAttr axesIfAny(ArrayRef<StringAttr> names) { return names.empty() ? ArrayAttr() : axes(names); }

  /// Returns an attribute only if the count or offset is present.
  IntegerAttr bytes(std::optional<uint64_t> count) {
    return count.value_or(0) > 0 ? b.getI64IntegerAttr(static_cast<int64_t>(*count)) : IntegerAttr();
  }
  DictionaryAttr clipIfAny(const std::optional<BucketClip> &clip) {
    if (!clip)
      return {};
    return b.getDictionaryAttr(
        {b.getNamedAttr("counter", b.getStringAttr(clip->counter)), b.getNamedAttr("dim", b.getStringAttr(clip->dim)),
         b.getNamedAttr("exponent", b.getF64FloatAttr(clip->exponent)),
         b.getNamedAttr("heads", b.getI64IntegerAttr(clip->heads)),
         b.getNamedAttr("columns", b.getI64IntegerAttr(clip->columns)), b.getNamedAttr("axes", axes(clip->axes))});
  }
  IntegerAttr offset(std::optional<uint64_t> at) {
    return at ? b.getI64IntegerAttr(static_cast<int64_t>(*at)) : IntegerAttr();
  }

  void write(const FormedSegment &formed, const SegmentBucket &bucket, size_t index) {
    Location loc = func::FuncOp(formed.function).getLoc();
    SmallVector<int64_t> holders(bucket.holders.begin(), bucket.holders.end());
    auto op = b.create<exec::BucketOp>(
        loc, bucket.name, bucket.number, bucket.stored, bucket.elements, bucket.partElements, axes(bucket.partialAxes),
        axes(bucket.shareAxes), holders, bucket.decays, bucket.isFrozen, APFloat(bucket.normWeight),
        bucket.storedOffset, bucket.gradientOffset, bucket.stateOffset, offset(bucket.wholeGradientOffset),
        offset(bucket.wholeStoredOffset), bucket.isTied, bucket.isTiedHere,
        bucket.optimizer == rt::pb::ADAMW ? StringAttr() : b.getStringAttr(rt::optimizerRow(bucket.optimizer).name),
        bucket.matrix.empty() ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(bucket.matrix),
        bucket.signRate > 0 ? b.getF64FloatAttr(bucket.signRate) : FloatAttr(),
        bucket.rateGroup == 0 ? IntegerAttr() : b.getI64IntegerAttr(bucket.rateGroup), axesIfAny(bucket.sides[0].axes),
        axesIfAny(bucket.sides[1].axes), clipIfAny(bucket.clip));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(&op.getBody().emplaceBlock());
    for (const FormedParameter &from : formed.parameters) {
      const SegmentParameter &parameter = from.parameter;
      if (parameter.bucket != index)
        continue;
      auto initializer = static_cast<exec::Initializer>(static_cast<int>(parameter.initializer.kind));
      b.create<exec::ParameterOp>(parameter.location, parameter.name, from.local, parameter.shape,
                                  parameter.paddedShape, parameter.sharding.attribute(b.getContext()), parameter.first,
                                  exec::stringifyInitializer(initializer), APFloat(parameter.initializer.stddev),
                                  parameter.tiedTo.empty() ? StringAttr() : b.getStringAttr(parameter.tiedTo));
    }
  }

  OpBuilder b;
};

/// Sets the owner's name on both parameters of each tie.
LogicalResult nameTies(std::vector<FormedSegment> &segments) {
  for (FormedSegment &segment : segments)
    for (FormedParameter &parameter : segment.parameters) {
      const std::string &owner = parameter.parameter.tiedTo;
      if (owner.empty())
        continue;
      parameter.tied = owner;
      bool isFound = false;
      for (FormedSegment &other : segments)
        for (FormedParameter &owned : other.parameters)
          if (other.layout.kind + "." + owned.parameter.name == owner) {
            owned.tied = owner;
            isFound = &other < &segment;
          }
      if (!isFound)
        return emitError(parameter.parameter.location)
               << parameter.parameter.name << " is tied to " << owner << ", which no segment before @"
               << segment.layout.kind << " has";
    }
  return success();
}

struct FormBucketsPass : impl::FormBucketsBase<FormBucketsPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<planner::Plan> read = readPlan(module);
    if (failed(read))
      return signalPassFailure();
    exec::OptimizerAttr optimizer = exec::optimizerAttr.of(module);
    if (!optimizer) {
      module.emitError("needs exec.optimizer, which the phase model sets");
      return signalPassFailure();
    }
    const planner::Plan &plan = *read;
    Layout layout(module);
    ParameterReader reader(module, plan);
    std::vector<FormedSegment> segments;
    for (auto function : module.getOps<func::FuncOp>()) {
      auto [kind, phase] = function.getSymName().split('.');
      if (!model::segmentAttr.isOn(function) || phase == "prefill") // decode has the same parameters
        continue;
      auto parameters = reader.read(function);
      if (failed(parameters))
        return signalPassFailure();
      FormedSegment &segment = segments.emplace_back(FormedSegment{function, {}, std::move(*parameters)});
      segment.layout.kind = kind.str();
      segment.layout.master = optimizer.getMasters() && llvm::any_of(segment.parameters, [](const FormedParameter &p) {
                                return !p.isFrozen && !p.local.getElementType().isF32();
                              });
    }
    if (failed(nameTies(segments)))
      return signalPassFailure();
    for (FormedSegment &segment : segments)
      BucketBuilder(segment, plan, layout, module).build();
    placeBuckets(segments, guardBytes(module));
    SegmentWriter writer(module);
    for (const FormedSegment &segment : segments)
      writer.write(segment);
  }
};

} // namespace
} // namespace espalier
