#include "compiler/link/add_buckets.h"

#include "compiler/link/plan_numbers.h"
#include "dialects/exec/dialect.h"
#include "format/axes.h"

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
      return axisBits(axes.take_front(i));
  return 0;
}

pb::DataType dataTypeOf(Type element) { return static_cast<pb::DataType>(static_cast<int>(*exec::dataType(element))); }
pb::DataType storedType(const SegmentBucket &bucket) { return dataTypeOf(bucket.stored); }
pb::DataType summedType(const SegmentBucket &bucket) { return dataTypeOf(bucket.summed); }

class BucketEmitter {
public:
  BucketEmitter(const SegmentLayout &segment, const SegmentBucket &from, bool trains, PlanTables &tables)
      : segment(segment), from(from), tables(tables), trains(trains && !from.isFrozen), share(axisBits(from.shareAxes)),
        partial(axisBits(from.partialAxes) | (from.holders.empty() || from.isFrozen ? 0 : exec::axisBit("pp"))) {}

  pb::Bucket describe() {
    pb::Bucket bucket;
    bucket.set_name(from.name);
    bucket.set_type(storedType(from));
    bucket.set_elements(from.elements);
    bucket.set_partial(partial);
    bucket.mutable_holders()->Assign(from.holders.begin(), from.holders.end());
    bucket.set_share(share);
    bucket.set_decay(from.decays);
    bucket.set_norm_weight(from.normWeight);
    bucket.set_frozen(from.isFrozen);
    bucket.set_optimizer(from.optimizer);
    bucket.set_rate_group(static_cast<uint32_t>(from.rateGroup));
    uint32_t stored = value(from.name, bucket.type(), from.elements, {.isKept = !from.wholeStoredOffset});
    uint32_t own = share ? value(storedValue(from), bucket.type(), from.partElements, {.split = share}) : stored;
    uint32_t sum = trains ? value(from.name + ".gradient", summedType(from), from.elements, wholeGradient()) : 0;
    for (size_t index : from.parameters)
      addParameter(segment.parameters[index], stored, sum, *bucket.add_parameters());
    *bucket.mutable_stored() = at(exec::Region::Parameters, from.storedOffset,
                                  from.storedElements() * from.elementBytes, from.wholeStoredOffset ? own : stored);
    if (from.wholeStoredOffset)
      *bucket.mutable_whole_stored() =
          at(exec::Region::WholeParameters, *from.wholeStoredOffset, from.elements * from.elementBytes, stored);
    if (!trains)
      return bucket;
    if (from.wholeGradientOffset) {
      *bucket.mutable_whole_gradient() =
          at(exec::Region::WholeGradients, *from.wholeGradientOffset, from.elements * from.gradientElementBytes(), sum);
      sum = value(accumulatedValue(from), summedType(from), from.partElements,
                  {.split = share, .partial = partial & ~share, .additions = 1});
    }
    *bucket.mutable_gradient() =
        at(exec::Region::Gradients, from.gradientOffset, from.gradientElements() * from.gradientElementBytes(), sum);
    uint64_t offset = from.stateOffset;
    for (const std::string &part : stateParts(segment, from)) {
      uint32_t state = value(from.name + "." + part, pb::F32, from.partElements, {.split = share});
      *bucket.add_state() = at(exec::Region::State, offset, from.partElements * 4, state);
      offset += from.partElements * 4;
    }
    return bucket;
  }

  /// Adds the bucket's transfers. Gradients are reduced over the stages that hold the bucket, then over the axes
  /// without shards, then scattered to shards. Shards are then reduced over replicas. If shards are accumulated, the
  /// scatter comes first and runs for each micro-batch.
  BucketTransfers addTransfers(const pb::Bucket &bucket) {
    BucketTransfers transfers;
    pb::Buffer source = bucket.gradient();
    uint32_t left = partial, pp = exec::axisBit("pp"), split = from.wholeGradientOffset ? share : 0;
    if (from.wholeGradientOffset) {
      left &= ~share;
      Held own = {.split = share, .partial = left, .isKept = false, .isPerMicroBatch = true};
      transfers.scatter = addScatter(bucket.whole_gradient(), own);
    }
    uint64_t elements = from.gradientElements();
    auto reduce = [&](const char *suffix, uint32_t axes, const std::vector<uint32_t> &stages) {
      left &= ~axes;
      pb::Buffer sum = source;
      sum.set_value(value(from.name + suffix, summedType(from), elements, {.split = split, .partial = left}));
      transfers.sums.push_back(add(from.name + suffix, pb::Transfer::ALL_REDUCE, axes, stages, source, sum));
      source = sum;
    };
    if (left & pp)
      reduce(".total", pp, from.holders);
    bool scattersSums = share && !from.wholeGradientOffset && trains;
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
      elements = from.partElements;
    }
    if (left & later)
      reduce(".replicated", left & later, {});
    uint32_t own = tables.findValue(storedValue(from));
    const pb::Buffer &stored = bucket.stored();
    transfers.gather = add(from.name + ".gather", pb::Transfer::ALL_GATHER, share, {},
                           from.wholeStoredOffset ? stored : part(stored, own),
                           from.wholeStoredOffset ? bucket.whole_stored() : stored);
    return transfers;
  }

private:
  /// Describes which part of a value a rank holds. A value that is not kept has only temporary storage.
  struct Held {
    uint32_t split = 0, partial = 0, additions = 0;
    bool isKept = true, isPerMicroBatch = false;
  };

  /// Describes the value that layer calls accumulate gradients into.
  Held wholeGradient() const {
    bool isKept = !from.wholeGradientOffset;
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
    uint32_t own = value(scatteredValue(from), summedType(from), from.partElements, left);
    return add(from.name + ".scatter", pb::Transfer::REDUCE_SCATTER, share, {}, whole, part(whole, own));
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
    whole.set_bytes(whole.bytes() / (from.elements / from.partElements));
    whole.set_part(share);
    whole.set_value(value);
    return whole;
  }

  uint32_t add(const std::string &name, pb::Transfer::Kind kind, uint32_t axes, const std::vector<uint32_t> &stages,
               const pb::Buffer &source, const pb::Buffer &target) {
    pb::Transfer transfer;
    transfer.set_name(name);
    transfer.set_kind(kind);
    transfer.set_queue(tables.queue("gradients"));
    transfer.set_group(tables.group(axes, stages));
    *transfer.add_from() = source;
    *transfer.add_to() = target;
    transfer.set_location(tables.location(locationFor(name)));
    return tables.transfer(std::move(transfer));
  }

  /// Returns the model-file line of the bucket's first parameter.
  pb::Location locationFor(const std::string &transfer) const {
    pb::Location location;
    LocationAttr at = segment.parameters[from.parameters.front()].location;
    if (auto line = dyn_cast<FileLineColLoc>(at)) {
      location.set_file(line.getFilename().str());
      location.set_line(line.getLine());
      location.set_column(line.getColumn());
    }
    location.set_op(transfer);
    return location;
  }

  void addParameter(const SegmentParameter &parameter, uint32_t stored, uint32_t sum, pb::Parameter &entry) {
    entry.set_name(parameter.name);
    entry.mutable_shape()->Assign(parameter.shape.begin(), parameter.shape.end());
    entry.mutable_padded_shape()->Assign(parameter.paddedShape.begin(), parameter.paddedShape.end());
    for (const Axes &axes : parameter.sharding.dims)
      entry.add_split(axisBits(axes));
    if (llvm::any_of(parameter.sharding.dims, [](const Axes &axes) { return slowAxes(axes) != 0; }))
      for (const Axes &axes : parameter.sharding.dims)
        entry.add_slow(slowAxes(axes));
    entry.mutable_initialization()->set_kind(
        static_cast<pb::Initialization::Kind>(static_cast<int>(parameter.initializer.kind)));
    entry.mutable_initialization()->set_stddev(parameter.initializer.stddev);
    entry.set_first(parameter.first);
    std::string name = parameterValue(segment, parameter);
    addPart(name, storedType(from), parameter, stored, {.isKept = !from.wholeStoredOffset});
    if (trains)
      addPart(name + ".gradient", summedType(from), parameter, sum, wholeGradient());
  }

  /// Adds the value of one parameter as a part of its bucket's value.
  void addPart(const std::string &name, pb::DataType type, const SegmentParameter &parameter, uint32_t whole,
               Held held) {
    for (const Axes &axes : parameter.sharding.dims)
      held.split |= axisBits(axes);
    pb::Value part = describe(name, type, parameter.localElements, held);
    part.set_whole(whole + 1);
    part.set_first(parameter.first);
    tables.value(part);
  }

  const SegmentLayout &segment;
  const SegmentBucket &from;
  PlanTables &tables;
  const bool trains; ///< if false, the bucket has neither gradients nor optimizer state
  uint32_t share, partial;
};

} // namespace

std::vector<BucketTransfers> addBuckets(const std::vector<SegmentLayout> &segments, bool trains, PlanTables &tables,
                                        pb::Plan &out) {
  std::vector<BucketTransfers> transfers;
  for (const SegmentLayout &segment : segments)
    for (const SegmentBucket &bucket : segment.buckets) {
      if (bucket.number < transfers.size()) // a tied bucket and its transfers are its owner's
        continue;
      BucketEmitter emitter(segment, bucket, trains, tables);
      *out.add_buckets() = emitter.describe();
      const pb::Bucket &made = out.buckets(out.buckets_size() - 1);
      transfers.push_back(trains ? emitter.addTransfers(made) : BucketTransfers());
    }
  return transfers;
}

} // namespace espalier
