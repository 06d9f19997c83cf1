// Reads the parameter shardings of the localized joint functions and forms buckets. A bucket packs parameters in the
// regions parameters, gradients and state of a layer call. If two segments with tied parameters are on one stage, they
// use one region: offsets of the second segment continue those of the first.
#include "compiler/attributes/run_attributes.h"
#include "compiler/codegen/guards.h"
#include "compiler/layout/stage_calls.h"
#include "compiler/partition/layout.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"
#include "format/optimizers.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/MathExtras.h"

#include <map>
#include <memory>
#include <numeric>
#include <utility>

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_FORMBUCKETS
#include "compiler/passes.h.inc"

namespace {

/// Attributes of ops that form-buckets has not created yet.
using BucketFacts = exec::BucketOp::Properties;
using ParameterFacts = exec::ParameterOp::Properties;

/// A parameter and the facts that all parameters of its bucket have in common.
struct FormedParameter {
  Location location;
  ParameterFacts facts;
  BucketFacts bucket; ///< has a name if the parameter is tied: that of its owner, such as "embed.table"

  StringRef name() const { return facts.name.getValue(); }
  RankedTensorType local() const { return cast<RankedTensorType>(facts.local.getValue()); }
};

struct FormedSegment {
  func::FuncOp function;
  std::vector<FormedParameter> parameters; ///< in the order of the function's arguments

  StringRef kind() const { return func::FuncOp(function).getSymName().split('.').first; }
};

/// Reads the parameters from the arguments of a localized joint function.
class ParameterReader {
public:
  ParameterReader(ModuleOp module, const planner::Plan &plan)
      : module(module), b(module.getContext()), plan(plan), layout(module), sizes(model::sizesAttr.of(module)),
        optimizer(*exec::optimizerAttr.of(module).getType()), runs(readRuns(module)) {}

  FailureOr<std::vector<FormedParameter>> read(func::FuncOp function) {
    std::vector<FormedParameter> parameters;
    for (BlockArgument argument : function.getArguments()) {
      auto role = model::roleAttr.ofArgument(function, argument.getArgNumber());
      if (!role || role.getValue() != "parameter")
        continue;
      if (failed(
              readParameter(function, argument, parameters.emplace_back(FormedParameter{argument.getLoc(), {}, {}}))))
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
    auto local = dyn_cast<RankedTensorType>(argument.getType());
    if (!place || !facts || !local || place.getDims().size() != dimNames(local).size())
      return emitError(argument.getLoc()) << "parameter " << name << " of @" << function.getSymName()
                                          << " needs dist.sharding and an entry in model.parameters, as earlier phases "
                                             "leave them";
    SmallVector<int64_t> shape, paddedShape;
    for (auto [size, axes, dim] : llvm::zip_equal(local.getShape(), Sharding(place).dims, dimNames(local))) {
      paddedShape.push_back(size * layout.size(axes));
      auto unpadded = sizes ? sizes.getAs<IntegerAttr>(dim) : IntegerAttr();
      shape.push_back(unpadded ? unpadded.getInt() : paddedShape.back());
    }
    out.facts.name = name;
    out.facts.local = TypeAttr::get(local);
    out.facts.shape = b.getDenseI64ArrayAttr(shape);
    out.facts.padded_shape = b.getDenseI64ArrayAttr(paddedShape);
    out.facts.sharding = place;
    out.facts.initializer = b.getStringAttr(exec::stringifyInitializer(facts.getInitializer()));
    out.facts.stddev = b.getF64FloatAttr(facts.getStddev());
    if (!facts.getTiedTo().empty())
      out.facts.tied_to = b.getStringAttr(facts.getTiedTo());
    bool isFrozen = bool(function.getArgAttr(argument.getArgNumber(), model::frozenAttr)),
         trains = exec::trains(module), hasSignRate = !isFrozen && trains && facts.getSignRate() > 0;
    readAxes(function, isFrozen, hasSignRate, out);
    out.bucket.stored = TypeAttr::get(local.getElementType());
    if (Type summed = readGradientType(module, hasSignRate); !summed.isF32())
      out.bucket.summed = TypeAttr::get(summed);
    if (exec::ClipAttr clip = facts.getClip())
      out.bucket.clip = readClip(function, clip, local);
    if (isFrozen) {
      out.bucket.frozen = b.getUnitAttr();
      return success();
    }
    if (hasSignRate) { // the optimizer Sign has neither a learning rate nor weight decay
      out.bucket.optimizer = b.getStringAttr("Sign");
      out.bucket.sign_rate = b.getF64FloatAttr(facts.getSignRate());
      return success();
    }
    if (facts.getDecays())
      out.bucket.decays = b.getUnitAttr();
    out.bucket.rate_group = b.getI64IntegerAttr(facts.getRateGroup());
    return trains ? chooseOptimizer(function, argument, out) : success();
  }

  /// The columns of the weight begin with the dimension of its key-value heads.
  exec::BucketClipAttr readClip(func::FuncOp function, exec::ClipAttr clip, RankedTensorType local) const {
    Axes axes;
    llvm::copy_if(partialOf(function, "counter", clip.getCounter()), std::back_inserter(axes),
                  [&](StringAttr axis) { return layout.mesh().size(axis.getValue()) > 1; });
    int heads = dimIndex(local, clip.getHeads());
    int64_t columns = 1;
    for (int64_t size : local.getShape().drop_front(heads + 1))
      columns *= size;
    return exec::BucketClipAttr::get(clip.getContext(), clip.getCounter(), clip.getHeads(), clip.getExponent(),
                                     local.getDimSize(heads), columns, axes);
  }

  /// Sets the optimizer of a trained parameter. An optimizer for matrices updates the weights of products of the
  /// layers, which are neither in the first nor in the last segment.
  LogicalResult chooseOptimizer(func::FuncOp function, BlockArgument argument, FormedParameter &out) {
    if (!optimizer.isForMatrices) {
      out.bucket.optimizer = b.getStringAttr(optimizer.name);
      return success();
    }
    StringRef kind = function.getSymName();
    if (runs.size() < 3 || kind == runs.front().kind || kind == runs.back().kind)
      return success();
    std::optional<size_t> batch, rows;
    rows = findRows(argument, batch);
    if (!rows)
      return success();
    ArrayRef<int64_t> shape = out.local().getShape();
    Sharding sharding(out.facts.sharding);
    int64_t matrix[2] = {1, 1}, parts = 1;
    SmallVector<Attribute> axes[2];
    for (size_t d = *batch; d < shape.size(); ++d) {
      int side = d < *batch + *rows ? 0 : 1;
      matrix[side] *= shape[d];
      llvm::append_range(axes[side], sharding.dims[d]);
      parts *= layout.size(sharding.dims[d]);
    }
    out.bucket.optimizer = b.getStringAttr(optimizer.name);
    out.bucket.matrix = b.getDenseI64ArrayAttr(matrix);
    out.bucket.row_axes = b.getArrayAttr(axes[0]);
    out.bucket.column_axes = b.getArrayAttr(axes[1]);
    if (matrix[0] * matrix[1] % exec::bucketAlignment != 0)
      return emitError(out.location) << optimizer.name << " needs matrices whose elements "
                                     << (parts > 1 ? "on a rank " : "") << "are a multiple of " << exec::bucketAlignment
                                     << ", and parameter " << out.name() << " has " << matrix[0] << " times "
                                     << matrix[1] << "; choose other sizes, "
                                     << (parts > 1 ? "a smaller model_parallel, " : "") << "or another optimizer.type";
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

  /// Sets the axes of sums and shards, and the weight in the gradient norm. A frozen parameter has no gradient that is
  /// summed. ZeRO 3 shards it over all replicas.
  void readAxes(func::FuncOp function, bool isFrozen, bool hasSignRate, FormedParameter &out) {
    Axes partial = partialOf(function, "accumulator", out.name());
    SmallVector<Attribute> sums, shards;
    int64_t parts = 1;
    Sharding sharding(out.facts.sharding);
    bool isShared = plan.zero >= (isFrozen ? 3 : 1);
    for (StringAttr axis : layout.mesh().getAxes()) {
      // Iterating in mesh order fixes the order of the reduction and names a group by its axes in mesh order.
      bool isMany = layout.mesh().size(axis.getValue()) > 1, isSummed = llvm::is_contained(partial, axis) && isMany;
      if (isSummed)
        sums.push_back(axis);
      bool isOfSamples = axis == "dp" || axis == "cp" || axis == "ep";
      bool isSplit = llvm::any_of(sharding.dims, [&](const Axes &axes) { return llvm::is_contained(axes, axis); });
      // A parameter that is applied to whole sequences has the same gradient on all context-parallel ranks.
      if (isShared && isOfSamples && (isSummed || (isFrozen && isMany)) && !isSplit) {
        shards.push_back(axis);
        parts *= layout.mesh().size(axis.getValue());
      }
    }
    for (const Axes &axes : sharding.dims)
      parts *= layout.size(axes);
    out.bucket.partial = b.getArrayAttr(sums);
    out.bucket.share = b.getArrayAttr(shards);
    if (plan.zero >= 2 && !shards.empty() && !isFrozen)
      out.bucket.whole_gradient_offset = b.getI64IntegerAttr(0);
    if (plan.zero >= 3 && !shards.empty())
      out.bucket.whole_stored_offset = b.getI64IntegerAttr(0);
    // Ranks of a stage that hold the same elements of the reduced gradient count them once.
    int64_t replicas = plan.ranks() / plan.pp / parts;
    double weight = isFrozen || hasSignRate ? 0 : 1.0 / static_cast<double>(replicas);
    out.bucket.norm_weight = b.getF64FloatAttr(weight);
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

  ModuleOp module;
  Builder b;
  const planner::Plan &plan;
  Layout layout;
  DictionaryAttr sizes;
  const rt::OptimizerRow &optimizer;
  std::vector<SegmentRun> runs;
};

/// Forms the buckets of one segment and assigns its parameters to them.
class BucketBuilder {
public:
  BucketBuilder(const FormedSegment &formed, const planner::Plan &plan, const Layout &layout, ModuleOp module)
      : formed(formed), plan(plan), layout(layout), b(OpBuilder::atBlockEnd(module.getBody())) {
    bool hasMasters =
        exec::optimizerAttr.of(module).getMasters() && llvm::any_of(formed.parameters, [](const FormedParameter &p) {
          return !p.bucket.frozen && !p.local().getElementType().isF32();
        });
    segment = b.create<exec::SegmentOp>(func::FuncOp(formed.function).getLoc(), formed.kind(), hasMasters, 0, 0, 0);
    segment.getBody().emplaceBlock();
  }

  /// Forms the buckets. Tied parameters come first, sorted by their owner's name. Both segments then list them, and the
  /// buckets that follow, in the same order.
  exec::SegmentOp build() {
    std::map<StringRef, const FormedParameter *> tied;
    for (const FormedParameter &parameter : formed.parameters)
      if (parameter.bucket.name)
        tied.emplace(parameter.bucket.name.getValue(), &parameter);
    for (auto &[name, parameter] : tied)
      put(*parameter);
    for (const FormedParameter &parameter : formed.parameters)
      if (!parameter.bucket.name)
        put(parameter);
    for (exec::BucketOp bucket : segment.buckets()) {
      int64_t parts = layout.size(bucket.getShare());
      // The elements of a slice of a matrix are a multiple of the alignment.
      ArrayRef<int64_t> matrix = bucket.getMatrix();
      int64_t unit = matrix.empty() ? exec::bucketAlignment : matrix[0] * matrix[1];
      if (exec::BucketClipAttr clip = bucket.getClipAttr()) // shards are whole rows
        unit = std::lcm(unit, clip.getHeads() * clip.getColumns());
      bucket.setElements(static_cast<int64_t>(llvm::alignTo(bucket.getElements(), parts * unit)));
      bucket.setPartElements(bucket.getElements() / parts);
    }
    return segment;
  }

private:
  /// Creates an op with the given attributes at the end of a region.
  template <typename Op> Op create(Location loc, const typename Op::Properties &facts, Region &parent) {
    OperationState state(loc, Op::getOperationName());
    state.getOrAddProperties<typename Op::Properties>() = facts;
    if constexpr (Op::template hasTrait<OpTrait::OneRegion>())
      state.addRegion()->emplaceBlock();
    b.setInsertionPointToEnd(&parent.front());
    return cast<Op>(b.create(state));
  }

  /// Returns the bucket for a parameter and adds it if needed. Each tied parameter, and each weight that QK-clip
  /// scales, has its own bucket.
  exec::BucketOp bucketFor(const FormedParameter &parameter) {
    BucketFacts facts = parameter.bucket;
    if (!facts.name && !facts.clip)
      for (auto [index, bucket] : llvm::enumerate(segment.buckets()))
        if (keys[index] == facts)
          return bucket;
    keys.push_back(facts);
    bool acrossStages = facts.name && headStage(plan) > 0;
    SmallVector<int64_t, 2> holders;
    if (acrossStages) {
      holders = {0, headStage(plan)};
      facts.norm_weight = b.getF64FloatAttr(facts.norm_weight.getValueAsDouble() / 2);
    }
    if (parameter.facts.tied_to) {
      facts.tied = b.getUnitAttr();
      facts.tied_here = headStage(plan) == 0 ? b.getUnitAttr() : UnitAttr();
    }
    if (!facts.name)
      facts.name = freeName(facts);
    facts.holders = b.getDenseI64ArrayAttr(holders);
    facts.number = facts.elements = facts.part_elements = facts.stored_offset = facts.gradient_offset =
        facts.state_offset = b.getI64IntegerAttr(0);
    return create<exec::BucketOp>(segment.getLoc(), facts, segment.getBody());
  }

  StringAttr freeName(const BucketFacts &facts) {
    StringRef suffix = facts.frozen      ? ".frozen"
                       : facts.matrix    ? ".matrices"
                       : facts.sign_rate ? ".signs"
                       : facts.decays    ? ".decayed"
                                         : ".plain";
    std::string base = (formed.kind() + suffix).str(), name = base;
    for (int number = 2; segment.bucket(name); ++number)
      name = base + std::to_string(number);
    return b.getStringAttr(name);
  }

  void put(const FormedParameter &from) {
    exec::BucketOp bucket = bucketFor(from);
    ParameterFacts facts = from.facts;
    facts.first = bucket.getElementsAttr();
    auto parameter = create<exec::ParameterOp>(from.location, facts, bucket.getBody());
    bucket.setElements(bucket.getElements() +
                       static_cast<int64_t>(llvm::alignTo(parameter.localElements(), exec::bucketAlignment)));
  }

  const FormedSegment &formed;
  const planner::Plan &plan;
  const Layout &layout;
  OpBuilder b;
  exec::SegmentOp segment;
  std::vector<BucketFacts> keys; ///< by bucket: what its parameters have in common
};

/// Bytes of the regions of a segment's calls.
struct RegionEnds {
  int64_t parameters = 0, gradients = 0, state = 0, wholeGradients = 0, wholeStored = 0;
};

/// Assigns offsets to a bucket that the segment owns, after the segment's current bytes.
void place(exec::BucketOp bucket, RegionEnds &ends, uint64_t guard) {
  auto take = [guard](int64_t &end, int64_t bytes) {
    return std::exchange(end, end + static_cast<int64_t>(alignUp(bytes, guard)));
  };
  bucket.setStoredOffset(take(ends.parameters, bucket.storedElements() * bucket.storedWidth()));
  if (!bucket.getFrozen()) {
    auto parts = static_cast<int64_t>(bucket.stateParts().size());
    bucket.setGradientOffset(take(ends.gradients, bucket.gradientElements() * bucket.gradientWidth()));
    bucket.setStateOffset(take(ends.state, parts * bucket.getPartElements() * 4));
  }
  if (bucket.getWholeGradientOffset())
    bucket.setWholeGradientOffset(take(ends.wholeGradients, bucket.getElements() * bucket.gradientWidth()));
  if (bucket.getWholeStoredOffset())
    bucket.setWholeStoredOffset(take(ends.wholeStored, bucket.getElements() * bucket.storedWidth()));
}

/// Numbers the buckets of all segments and assigns their offsets in the regions. A segment with a bucket that is tied
/// here continues the regions of the owner.
void placeBuckets(ArrayRef<exec::SegmentOp> segments, uint64_t guard) {
  int64_t numbers = 0;
  std::map<StringRef, exec::BucketOp> byName;
  std::map<StringRef, std::shared_ptr<RegionEnds>> byKind;
  for (exec::SegmentOp segment : segments) {
    std::shared_ptr<RegionEnds> &ends = byKind[segment.getKind()];
    for (exec::BucketOp bucket : segment.buckets())
      if (bucket.getTiedHere())
        ends = byKind.at(bucket.getName().split('.').first);
    if (!ends)
      ends = std::make_shared<RegionEnds>();
    for (exec::BucketOp bucket : segment.buckets()) {
      auto [known, isNew] = byName.try_emplace(bucket.getName(), bucket);
      exec::BucketOp owner = known->second;
      bucket.setNumber(isNew ? numbers++ : owner.getNumber());
      if (bucket.getTiedHere()) {
        bucket.setStoredOffset(owner.getStoredOffset());
        bucket.setGradientOffset(owner.getGradientOffset());
        bucket.setStateOffset(owner.getStateOffset());
        bucket.setWholeGradientOffset(owner.getWholeGradientOffset());
        bucket.setWholeStoredOffset(owner.getWholeStoredOffset());
      } else {
        place(bucket, *ends, guard);
      }
    }
  }
  for (exec::SegmentOp segment : segments) {
    const RegionEnds &ends = *byKind.at(segment.getKind());
    segment.setParameterBytes(ends.parameters);
    segment.setGradientBytes(ends.gradients);
    segment.setStateBytes(ends.state);
    segment.setWholeGradientBytes(ends.wholeGradients);
    segment.setWholeStoredBytes(ends.wholeStored);
  }
}

/// Names the bucket of both parameters of each tie after the owner.
LogicalResult nameTies(std::vector<FormedSegment> &segments) {
  for (FormedSegment &segment : segments)
    for (FormedParameter &parameter : segment.parameters) {
      StringAttr owner = parameter.facts.tied_to;
      if (!owner)
        continue;
      parameter.bucket.name = owner;
      bool isFound = false;
      for (FormedSegment &other : segments)
        for (FormedParameter &owned : other.parameters)
          if ((other.kind() + "." + owned.name()).str() == owner) {
            owned.bucket.name = owner;
            isFound = &other < &segment;
          }
      if (!isFound)
        return emitError(parameter.location) << parameter.name() << " is tied to " << owner.getValue()
                                             << ", which no segment before @" << segment.kind() << " has";
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
      StringRef phase = function.getSymName().split('.').second;
      if (!model::segmentAttr.isOn(function) || phase == "prefill") // decode has the same parameters
        continue;
      auto parameters = reader.read(function);
      if (failed(parameters))
        return signalPassFailure();
      segments.push_back({function, std::move(*parameters)});
    }
    if (failed(nameTies(segments)))
      return signalPassFailure();
    SmallVector<exec::SegmentOp> ops;
    for (const FormedSegment &segment : segments)
      ops.push_back(BucketBuilder(segment, plan, layout, module).build());
    placeBuckets(ops, guardBytes(module));
  }
};

} // namespace
} // namespace espalier
