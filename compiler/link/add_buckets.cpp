#include "compiler/link/add_buckets.h"

#include "compiler/link/plan_numbers.h"
#include "dialects/exec/dialect.h"
#include "format/axes.h"
#include "format/optimizers.h"

using namespace mlir;

namespace espalier {

using namespace rt;

static_assert(isSame(exec::Initializer::Zeros, pb::Initialization::ZEROS) &&
              isSame(exec::Initializer::Ones, pb::Initialization::ONES) &&
              isSame(exec::Initializer::Normal, pb::Initialization::NORMAL) &&
              exec::getMaxEnumValForInitializer() == pb::Initialization::Kind_MAX);

namespace {

/// Returns the leading axes of a split dimension that precede the first axis out of mesh order. These axes vary slower
/// than all others. Returns 0 if the axes are in mesh order.
uint32_t slowAxes(ArrayRef<StringAttr> axes) {
  for (size_t i = 1; i < axes.size(); ++i)
    if (exec::axisBit(axes[i]) < exec::axisBit(axes[i - 1]))
      return exec::axisBits(axes.take_front(i));
  return 0;
}

pb::DataType dataTypeOf(Type element) { return static_cast<pb::DataType>(static_cast<int>(*exec::dataType(element))); }

class BucketEmitter {
public:
  BucketEmitter(exec::BucketOp from, bool trains, PlanTables &tables)
      : from(from), name(from.getName().str()), tables(tables), trains(trains && !from.getFrozen()),
        stored(dataTypeOf(from.getStored())), summed(dataTypeOf(from.gradientType())), elements(from.getElements()),
        partElements(from.getPartElements()), share(exec::axisBits(from.getShare())),
        partial(exec::axisBits(from.getPartial()) |
                (from.getHolders().empty() || from.getFrozen() ? 0 : exec::axisBit("pp"))) {}

  pb::Bucket describe() {
    pb::Bucket bucket;
    bucket.set_name(name);
    bucket.set_type(stored);
    bucket.set_elements(elements);
    bucket.set_partial(partial);
    bucket.mutable_holders()->Assign(from.getHolders().begin(), from.getHolders().end());
    bucket.set_share(share);
    bucket.set_decay(from.getDecays());
    bucket.set_norm_weight(from.getNormWeight());
    bucket.set_frozen(from.getFrozen());
    bucket.set_optimizer(from.optimizerRow().number);
    bucket.set_rate_group(from.getRateGroup());
    std::optional<int64_t> wholeStored = from.getWholeStoredOffset(), wholeGradient = from.getWholeGradientOffset();
    uint32_t whole = value(name, stored, elements, {.isKept = !wholeStored});
    uint32_t own = share ? value(storedValue(from), stored, partElements, {.split = share}) : whole;
    uint32_t sum = trains ? value(name + ".gradient", summed, elements, calledGradient()) : 0;
    for (exec::ParameterOp parameter : from.parameters())
      addParameter(parameter, whole, sum, *bucket.add_parameters());
    *bucket.mutable_stored() = at(exec::Region::Parameters, from.getStoredOffset(),
                                  from.storedElements() * from.storedWidth(), wholeStored ? own : whole);
    if (wholeStored)
      *bucket.mutable_whole_stored() =
          at(exec::Region::WholeParameters, *wholeStored, elements * from.storedWidth(), whole);
    if (!trains)
      return bucket;
    if (wholeGradient) {
      *bucket.mutable_whole_gradient() =
          at(exec::Region::WholeGradients, *wholeGradient, elements * from.gradientWidth(), sum);
      sum = value(accumulatedValue(from), summed, partElements,
                  {.split = share, .partial = partial & ~share, .additions = 1});
    }
    *bucket.mutable_gradient() =
        at(exec::Region::Gradients, from.getGradientOffset(), from.gradientElements() * from.gradientWidth(), sum);
    uint64_t offset = from.getStateOffset();
    for (StringRef part : from.stateParts()) {
      uint32_t state = value(name + "." + part.str(), pb::F32, partElements, {.split = share});
      *bucket.add_state() = at(exec::Region::State, offset, partElements * 4, state);
      offset += partElements * 4;
    }
    return bucket;
  }

  /// Adds the bucket's transfers. Gradients are reduced over the stages that hold the bucket, then over the axes
  /// without shards, then scattered to shards. Shards are then reduced over replicas. If shards are accumulated, the
  /// scatter comes first and runs for each micro-batch.
  BucketTransfers addTransfers(const pb::Bucket &bucket) {
    BucketTransfers transfers;
    pb::Buffer source = bucket.gradient();
    bool addsShards = from.getWholeGradientOffset().has_value();
    uint32_t left = partial, pp = exec::axisBit("pp"), split = addsShards ? share : 0;
    if (addsShards) {
      left &= ~share;
      Held own = {.split = share, .partial = left, .isKept = false, .isPerMicroBatch = true};
      transfers.scatter = addScatter(bucket.whole_gradient(), own);
    }
    uint64_t summedElements = from.gradientElements();
    auto reduce = [&](const char *suffix, uint32_t axes, ArrayRef<int64_t> stages) {
      left &= ~axes;
      pb::Buffer sum = source;
      sum.set_value(value(name + suffix, summed, summedElements, {.split = split, .partial = left}));
      transfers.sums.push_back(add(name + suffix, pb::Transfer::ALL_REDUCE, axes, stages, source, sum));
      source = sum;
    };
    if (left & pp)
      reduce(".total", pp, from.getHolders());
    bool scattersSums = share && !addsShards && trains;
    uint32_t later = scattersSums ? exec::axisBit(replicateAxis) : 0; // summed in shards
    if (left & ~share & ~later)
      reduce(".sum", left & ~share & ~later, {});
    if (!share)
      return transfers;
    if (scattersSums) {
      left &= ~share;
      transfers.sums.push_back(addScatter(source, {.split = share, .partial = left}));
      source = part(source, tables.findValue(scatteredValue(from)));
      split = share;
      summedElements = partElements;
    }
    if (left & later)
      reduce(".replicated", left & later, {});
    bool isWhole = !from.getWholeStoredOffset();
    const pb::Buffer &kept = bucket.stored();
    transfers.gather =
        add(name + ".gather", pb::Transfer::ALL_GATHER, share, {},
            isWhole ? part(kept, tables.findValue(storedValue(from))) : kept, isWhole ? kept : bucket.whole_stored());
    return transfers;
  }

private:
  /// Describes which part of a value a rank holds. A value that is not kept has only temporary storage.
  struct Held {
    uint32_t split = 0, partial = 0, additions = 0;
    bool isKept = true, isPerMicroBatch = false;
  };

  /// Describes the value that layer calls accumulate gradients into.
  Held calledGradient() {
    bool isKept = !from.getWholeGradientOffset();
    return {.partial = partial, .additions = 1, .isKept = isKept, .isPerMicroBatch = !isKept};
  }

  pb::Value describe(const std::string &name, pb::DataType type, uint64_t elements, const Held &held) const {
    pb::Value value;
    value.set_name(name);
    value.set_type(type);
    value.set_elements(elements);
    value.set_split(held.split);
    value.set_partial(held.partial);
    value.set_resident(held.isKept);
    value.set_per_micro_batch(held.isPerMicroBatch);
    value.set_additions(held.additions);
    return value;
  }

  uint32_t value(const std::string &name, pb::DataType type, uint64_t elements, const Held &held) {
    return tables.value(describe(name, type, elements, held));
  }

  /// Adds an in-place reduce-scatter: each rank keeps its shard of the sum inside the same buffer.
  uint32_t addScatter(const pb::Buffer &whole, const Held &left) {
    uint32_t own = value(scatteredValue(from), summed, partElements, left);
    return add(name + ".scatter", pb::Transfer::REDUCE_SCATTER, share, {}, whole, part(whole, own));
  }

  static pb::Buffer at(exec::Region region, uint64_t offset, uint64_t bytes, uint32_t value) {
    pb::Buffer buffer;
    buffer.set_region(static_cast<uint32_t>(region));
    buffer.set_offset(offset);
    buffer.set_bytes(bytes);
    buffer.set_value(value);
    return buffer;
  }

  /// Returns the rank's shard of a buffer.
  pb::Buffer part(pb::Buffer whole, uint32_t value) const {
    whole.set_bytes(whole.bytes() / (elements / partElements));
    whole.set_part(share);
    whole.set_value(value);
    return whole;
  }

  uint32_t add(const std::string &name, pb::Transfer::Kind kind, uint32_t axes, ArrayRef<int64_t> stages,
               const pb::Buffer &source, const pb::Buffer &target) {
    pb::Transfer transfer;
    transfer.set_name(name);
    transfer.set_kind(kind);
    transfer.set_queue(tables.queue("gradients"));
    transfer.set_group(tables.group(axes, {stages.begin(), stages.end()}));
    *transfer.add_from() = source;
    *transfer.add_to() = target;
    transfer.set_location(tables.location(locationFor(name)));
    return tables.transfer(std::move(transfer));
  }

  /// Returns the model-file line of the bucket's first parameter.
  pb::Location locationFor(const std::string &transfer) {
    pb::Location location;
    if (auto line = dyn_cast<FileLineColLoc>(from.parameters().front().getLoc())) {
      location.set_file(line.getFilename().str());
      location.set_line(line.getLine());
      location.set_column(line.getColumn());
    }
    location.set_op(transfer);
    return location;
  }

  void addParameter(exec::ParameterOp parameter, uint32_t whole, uint32_t sum, pb::Parameter &entry) {
    entry.set_name(parameter.getName().str());
    entry.mutable_shape()->Assign(parameter.getShape().begin(), parameter.getShape().end());
    entry.mutable_padded_shape()->Assign(parameter.getPaddedShape().begin(), parameter.getPaddedShape().end());
    uint32_t split = parameter.axes();
    SmallVector<uint32_t> slow;
    for (ArrayAttr dim : parameter.getSharding().getDims()) {
      auto axes = llvm::to_vector(dim.getAsRange<StringAttr>());
      entry.add_split(exec::axisBits(axes));
      slow.push_back(slowAxes(axes));
    }
    if (llvm::any_of(slow, [](uint32_t axes) { return axes != 0; }))
      entry.mutable_slow()->Assign(slow.begin(), slow.end());
    entry.mutable_initialization()->set_kind(static_cast<pb::Initialization::Kind>(
        static_cast<int>(*exec::symbolizeInitializer(parameter.getInitializer()))));
    entry.mutable_initialization()->set_stddev(parameter.getStddev());
    entry.set_first(parameter.getFirst());
    std::string value = parameterValue(parameter);
    addPart(value, stored, parameter, whole, {.split = split, .isKept = !from.getWholeStoredOffset()});
    if (!trains)
      return;
    Held gradient = calledGradient();
    gradient.split |= split;
    addPart(value + ".gradient", summed, parameter, sum, gradient);
  }

  /// Adds the value of one parameter as a part of its bucket's value.
  void addPart(const std::string &value, pb::DataType type, exec::ParameterOp parameter, uint32_t whole,
               const Held &held) {
    pb::Value part = describe(value, type, parameter.localElements(), held);
    part.set_whole(whole + 1);
    part.set_first(parameter.getFirst());
    tables.value(part);
  }

  exec::BucketOp from;
  const std::string name;
  PlanTables &tables;
  const bool trains; ///< if false, the bucket has neither gradients nor optimizer state
  const pb::DataType stored, summed;
  const uint64_t elements, partElements;
  const uint32_t share, partial;
};

} // namespace

std::vector<BucketTransfers> addBuckets(ModuleOp module, bool trains, PlanTables &tables, pb::Plan &out) {
  std::vector<BucketTransfers> transfers;
  for (auto segment : module.getOps<exec::SegmentOp>())
    for (exec::BucketOp bucket : segment.buckets()) {
      if (bucket.getNumber() < static_cast<int64_t>(transfers.size())) // a tied bucket is its owner's
        continue;
      BucketEmitter emitter(bucket, trains, tables);
      *out.add_buckets() = emitter.describe();
      const pb::Bucket &made = out.buckets(out.buckets_size() - 1);
      transfers.push_back(trains ? emitter.addTransfers(made) : BucketTransfers());
    }
  return transfers;
}

} // namespace espalier
