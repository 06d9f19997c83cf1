#include "runtime/verify/values.h"

#include "format/optimizers.h"
#include "runtime/verify/library_functions.h"

#include <algorithm>

namespace espalier::rt::verify {

Values::Values(const pb::Plan &plan, const Mesh &mesh) : plan(plan), mesh(mesh) {
  for (int i = 0; i < plan.values_size(); ++i) {
    const pb::Value &value = plan.values(i);
    ValueInfo &info = infos.emplace_back();
    info.root = value.whole() > 0 ? value.whole() - 1 : static_cast<uint32_t>(i);
    info.width = widthOf(value.type());
    info.begin = value.whole() > 0 ? static_cast<int64_t>(value.first()) * info.width : 0;
    info.end = info.begin + static_cast<int64_t>(value.elements()) * info.width;
    info.isPerMicroBatch = value.per_micro_batch();
    info.isResident = value.resident();
  }
  addBuckets();
  followTransfers();
  findStageValues();
  findSums();
  for (ValueInfo &info : infos) {
    const ValueInfo &root = infos[info.root];
    info.isPerMicroBatch = root.isPerMicroBatch;
    info.isResident = root.isResident;
    info.layering = root.layering;
    info.part = root.part;
    info.bucket = root.bucket;
    info.share = root.share;
    info.shares = root.shares;
    info.isOfMatrices = root.isOfMatrices;
    info.isSum |= root.part == ValueInfo::Gradient;
  }
}

void Values::addBuckets() {
  auto mark = [&](const pb::Buffer &buffer, ValueInfo::Part part, int bucket, bool isKept = true) -> ValueInfo & {
    ValueInfo &info = infos[infos[buffer.value()].root];
    info.part = part;
    info.bucket = static_cast<uint32_t>(bucket);
    info.isOfMatrices = optimizerRow(plan.buckets(bucket).optimizer()).isForMatrices;
    info.layering = ValueInfo::OfBucket;
    info.isResident = isKept;
    return info;
  };
  for (int i = 0; i < plan.buckets_size(); ++i) {
    const pb::Bucket &bucket = plan.buckets(i);
    auto markShare = [&](ValueInfo &info) {
      info.share = mesh.divided(bucket.share());
      info.shares = mesh.count(bucket.share());
    };
    ValueInfo &stored = mark(bucket.stored(), ValueInfo::Stored, i);
    if (bucket.has_whole_stored()) {
      markShare(stored);
      mark(bucket.whole_stored(), ValueInfo::Gathered, i, /*isKept=*/false);
    }
    if (bucket.has_gradient())
      mark(bucket.gradient(), ValueInfo::Gradient, i);
    if (bucket.has_whole_gradient()) {
      markShare(infos[infos[bucket.gradient().value()].root]);
      mark(bucket.whole_gradient(), ValueInfo::Gradient, i, /*isKept=*/false);
    }
    for (const pb::Buffer &state : bucket.state())
      mark(state, ValueInfo::State, i);
  }
}

/// Marks every result of transfers of a bucket's gradient as the gradient's total, over any number of transfers.
void Values::followTransfers() {
  for (bool isChanged = true; isChanged;) {
    isChanged = false;
    for (const pb::Transfer &transfer : plan.transfers())
      for (int i = 0; i < std::min(transfer.from_size(), transfer.to_size()); ++i)
        isChanged |= inherit(transfer, i);
  }
}

bool Values::inherit(const pb::Transfer &transfer, int pair) {
  const pb::Buffer &from = transfer.from(pair), &to = transfer.to(pair);
  uint32_t sourceRoot = infos[from.value()].root, targetRoot = infos[to.value()].root;
  ValueInfo &source = infos[sourceRoot], &target = infos[targetRoot];
  bool isSum = source.part == ValueInfo::Gradient || source.part == ValueInfo::Total;
  if (isSum && target.part == ValueInfo::None) {
    target.part = ValueInfo::Total;
    target.bucket = source.bucket;
    target.share = source.share;
    target.shares = source.shares;
    target.isOfMatrices = source.isOfMatrices;
    target.layering = ValueInfo::OfBucket;
    return true;
  }
  // Shards that are gathered in place are shards of the gathered value.
  bool isInPlace = from.region() == to.region() && from.offset() == to.offset() && from.part();
  if (transfer.kind() == pb::Transfer::ALL_GATHER && isInPlace && target.part == ValueInfo::Stored &&
      sourceRoot == from.value() && source.part == ValueInfo::None) {
    source = target;
    return true;
  }
  // A slice of the same root gets a tag if it has another meaning, such as an all-reduced sum.
  uint32_t &tag = infos[to.value()].tag;
  if (source.part == ValueInfo::None && sourceRoot == targetRoot && from.value() != to.value() && tag == 0) {
    tag = to.value() + 1;
    return true;
  }
  return false;
}

/// Marks the values that belong to the stage and have no layer: host staging buffers, copies of them, and resident
/// values in a region that all calls of a stage bind to the same memory.
void Values::findStageValues() {
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Exchange &exchange : stage.exchanges())
      infos[infos[exchange.buffer().value()].root].layering = ValueInfo::OfStage;
  for (const pb::Transfer &transfer : plan.transfers())
    for (int i = 0; transfer.kind() == pb::Transfer::COPY && i < transfer.to_size(); ++i)
      if (infos[infos[transfer.from(i).value()].root].layering == ValueInfo::OfStage)
        infos[infos[transfer.to(i).value()].root].layering = ValueInfo::OfStage;
  std::vector<bool> isShared(static_cast<size_t>(plan.regions_size()), true);
  for (const pb::Stage &stage : plan.stages()) {
    std::vector<const pb::Binding *> first(isShared.size(), nullptr);
    for (const pb::Call &call : stage.calls())
      for (const pb::Binding &binding : call.bindings()) {
        const pb::Binding *&kept = first[binding.region()];
        kept = kept ? kept : &binding;
        if (kept->place() != binding.place() || kept->offset() != binding.offset())
          isShared[binding.region()] = false;
      }
  }
  std::vector<bool> isApart(infos.size(), false); // by value: whether calls bind the value's region differently
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (const pb::Instruction &instruction : subprogram.instructions())
      forEachBuffer(plan, instruction, [&](const pb::Buffer &buffer) {
        if (!isShared[buffer.region()])
          isApart[infos[buffer.value()].root] = true;
      });
  for (size_t i = 0; i < infos.size(); ++i)
    if (infos[i].isResident && infos[i].layering == ValueInfo::OfCall && !isApart[i])
      infos[i].layering = ValueInfo::OfStage;
}

/// Marks the values that all calls add to and that the host sets, such as loss, tokens and the norm, and the gradients
/// of buckets. Other resident values that calls add to, such as counters, keep their sums from entry to entry.
void Values::findSums() {
  std::vector<bool> isSet(infos.size(), false); // by root
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Exchange &exchange : stage.exchanges())
      isSet[infos[exchange.buffer().value()].root] = true;
  auto mark = [&](const pb::Buffer &buffer, pb::Operand::Access access) {
    ValueInfo &info = infos[buffer.value()];
    const ValueInfo &root = infos[info.root];
    info.isSum |=
        access == pb::Operand::ADD && isSet[info.root] && root.isResident && root.layering == ValueInfo::OfStage;
  };
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (const pb::Instruction &instruction : subprogram.instructions()) {
      const pb::Launch &launch = instruction.launch();
      for (int i = 0; i < launch.buffers_size(); ++i)
        mark(launch.buffers(i), plan.kernels(static_cast<int>(launch.kernel())).operands(i).access());
      std::optional<std::vector<OperandRule>> rules = operandsOf(instruction.call());
      for (int i = 0; i < instruction.call().buffers_size() && rules; ++i)
        mark(instruction.call().buffers(i), (*rules)[static_cast<size_t>(i)].access);
    }
}

Operand Values::operandOf(const pb::Buffer &buffer, Access access) const {
  const ValueInfo &info = infos[buffer.value()];
  Operand operand;
  operand.region = static_cast<int>(buffer.region());
  operand.access = access;
  Range bytes = bytesOf(buffer, plan, mesh);
  operand.span = {bytes.least, bytes.greatest, mesh.divided(buffer.part())};
  operand.value = buffer.value();
  operand.layer = buffer.layer();
  operand.valueBegin = info.begin;
  operand.valueEnd = info.end;
  // If the value itself is a shard, each rank has a different shard, and the span covers all of them.
  if (operand.span.part && static_cast<int64_t>(buffer.bytes()) == info.end - info.begin)
    operand.valueEnd = info.begin + bytes.greatest - bytes.least;
  operand.origin = operand.span.begin - operand.valueBegin;
  return operand;
}

std::optional<Instance> Values::instanceOf(uint32_t value, int32_t layer, const pb::Call &call,
                                           uint32_t microBatch) const {
  const ValueInfo &info = infos[value];
  Instance instance = {info.root, 0, info.isPerMicroBatch ? microBatch : 0};
  if (info.layering == ValueInfo::OfCall)
    instance.layer = call.layer() + layer;
  if (info.layering != ValueInfo::OfBucket)
    return instance;
  const pb::BucketUse *use = useOf(call, info.bucket);
  if (!use)
    return std::nullopt;
  instance.layer = static_cast<int32_t>(use->owner());
  return instance;
}

} // namespace espalier::rt::verify
