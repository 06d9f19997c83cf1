#include "compiler/layout/segment_layout.h"

#include "compiler/attributes/run_attributes.h"
#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"

using namespace mlir;

namespace espalier {

const SegmentParameter &SegmentLayout::parameter(StringRef name) const {
  for (const SegmentParameter &parameter : parameters)
    if (parameter.name == name)
      return parameter;
  llvm_unreachable("a function reads a parameter that its segment does not declare");
}

const SegmentBucket &SegmentLayout::bucket(StringRef name) const {
  for (const SegmentBucket &bucket : buckets)
    if (bucket.name == name)
      return bucket;
  llvm_unreachable("a function reads a bucket that its segment does not have");
}

uint64_t SegmentLayout::parameterOffset(const SegmentParameter &parameter) const {
  const SegmentBucket &bucket = bucketOf(parameter);
  return bucket.wholeStoredOffset.value_or(bucket.storedOffset) + parameter.first * bucket.elementBytes;
}

uint64_t SegmentLayout::gradientOffset(const SegmentParameter &parameter) const {
  const SegmentBucket &bucket = bucketOf(parameter);
  return bucket.wholeGradientOffset.value_or(bucket.gradientOffset) + parameter.first * bucket.gradientElementBytes();
}

std::vector<std::string> stateParts(const SegmentLayout &segment, const SegmentBucket &bucket) {
  std::vector<std::string> parts;
  if (segment.master)
    parts.emplace_back(rt::masterKind);
  auto states = rt::optimizerRow(bucket.optimizer).states;
  parts.insert(parts.end(), states.begin(), states.end());
  return parts;
}

namespace {

Axes axesOf(ArrayAttr names) { return Axes(names.getAsRange<StringAttr>()); }

SegmentParameter readParameter(exec::ParameterOp op) {
  SegmentParameter parameter;
  parameter.name = op.getName().str();
  auto type = cast<RankedTensorType>(op.getLocal());
  for (StringAttr dim : dimNames(type))
    parameter.dims.push_back(dim.str());
  parameter.shape = op.getShape().vec();
  parameter.paddedShape = op.getPaddedShape().vec();
  parameter.sharding = Sharding(cast<dist::ShardingAttr>(op.getSharding()));
  parameter.initializer.kind =
      static_cast<Initializer::Kind>(static_cast<int>(*exec::symbolizeInitializer(op.getInitializer())));
  parameter.initializer.stddev = op.getStddev().convertToDouble();
  parameter.tiedTo = op.getTiedTo().value_or("").str();
  parameter.location = op.getLoc();
  parameter.localElements = type.getNumElements();
  parameter.first = static_cast<int64_t>(op.getFirst());
  return parameter;
}

/// `mesh` may be null if the segment has no slices of matrices.
SegmentBucket readBucket(exec::BucketOp op, dist::MeshAttr mesh) {
  SegmentBucket bucket;
  bucket.name = op.getName().str();
  bucket.number = static_cast<uint32_t>(op.getNumber());
  bucket.elements = static_cast<int64_t>(op.getElements());
  bucket.partElements = static_cast<int64_t>(op.getPartElements());
  bucket.stored = op.getStored();
  bucket.elementBytes = bucket.stored.getIntOrFloatBitWidth() / 8;
  bucket.partialAxes = axesOf(op.getPartial());
  bucket.shareAxes = axesOf(op.getShare());
  bucket.holders.assign(op.getHolders().begin(), op.getHolders().end());
  bucket.decays = op.getDecays();
  bucket.isFrozen = op.getFrozen();
  if (std::optional<StringRef> optimizer = op.getOptimizer())
    bucket.optimizer = rt::findOptimizer(optimizer->str())->number;
  bucket.rateGroup = static_cast<int64_t>(op.getRateGroup().value_or(0));
  llvm::append_range(bucket.matrix, op.getMatrix().value_or(ArrayRef<int64_t>()));
  for (auto [side, axes] : llvm::zip_equal(bucket.sides, ArrayRef({op.getRowAxesAttr(), op.getColumnAxesAttr()})))
    if (axes)
      side = {axesOf(axes), mesh ? mesh.size(axesOf(axes)) : 1};
  if (DictionaryAttr clip = op.getClipAttr())
    bucket.clip = {.counter = clip.getAs<StringAttr>("counter").str(),
                   .dim = clip.getAs<StringAttr>("dim").str(),
                   .exponent = clip.getAs<FloatAttr>("exponent").getValueAsDouble(),
                   .heads = clip.getAs<IntegerAttr>("heads").getInt(),
                   .columns = clip.getAs<IntegerAttr>("columns").getInt(),
                   .axes = axesOf(clip.getAs<ArrayAttr>("axes"))};
  bucket.signRate = op.getSignRate() ? op.getSignRate()->convertToDouble() : 0;
  bucket.normWeight = op.getNormWeight().convertToDouble();
  bucket.storedOffset = op.getStoredOffset();
  bucket.gradientOffset = op.getGradientOffset();
  bucket.stateOffset = op.getStateOffset();
  bucket.wholeGradientOffset = op.getWholeGradientOffset();
  bucket.wholeStoredOffset = op.getWholeStoredOffset();
  bucket.isTied = op.getTied();
  bucket.isTiedHere = op.getTiedHere();
  return bucket;
}

} // namespace

std::vector<SegmentLayout> readSegments(ModuleOp module) {
  std::vector<SegmentLayout> segments;
  auto mesh = dist::meshAttr.of(module);
  for (auto op : module.getOps<exec::SegmentOp>()) {
    SegmentLayout &segment = segments.emplace_back();
    segment.kind = op.getKind().str();
    segment.master = op.getMasters();
    segment.parameterBytes = op.getParameterBytes();
    segment.gradientBytes = op.getGradientBytes();
    segment.stateBytes = op.getStateBytes();
    segment.wholeGradientBytes = op.getWholeGradientBytes().value_or(0);
    segment.wholeStoredBytes = op.getWholeStoredBytes().value_or(0);
    for (auto bucketOp : op.getOps<exec::BucketOp>()) {
      SegmentBucket &bucket = segment.buckets.emplace_back(readBucket(bucketOp, mesh));
      bucket.summed = readGradientType(module, bucket.signRate > 0);
      for (auto parameterOp : bucketOp.getOps<exec::ParameterOp>()) {
        bucket.parameters.push_back(segment.parameters.size());
        segment.parameters.push_back(readParameter(parameterOp));
        segment.parameters.back().bucket = segment.buckets.size() - 1;
      }
    }
  }
  return segments;
}

} // namespace espalier
