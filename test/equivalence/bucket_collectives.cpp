#include "test/equivalence/bucket_collectives.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

/// Returns f32 in the MLIR context of the bucket.
static Type f32Of(const SegmentBucket &bucket) { return Float32Type::get(bucket.stored.getContext()); }

BucketCollectives::BucketCollectives(RankLayers &layers, const EvalContext &context)
    : layers(layers), context(context), stage(static_cast<uint32_t>(context.coordinate("pp"))) {}

llvm::Expected<Rendezvous::Parts> BucketCollectives::exchange(const SegmentBucket &bucket, ArrayRef<StringAttr> axes,
                                                              ArrayRef<uint32_t> holders, const char *what,
                                                              std::vector<double> values) {
  ++counts[what];
  int stages = std::max<int>(1, static_cast<int>(holders.size())), members = 1;
  for (StringAttr axis : axes)
    members *= static_cast<int>(context.axisSize(axis));
  auto holder = holders.empty() ? 0 : llvm::find(holders, stage) - holders.begin();
  std::string group = std::string(what) + " " + bucket.name;
  for (const MeshPlace &place : context.mesh) {
    bool isMember = llvm::any_of(axes, [&](StringAttr axis) { return axis == place.axis; });
    if (!isMember && (stages == 1 || place.axis != "pp"))
      group += " " + place.axis + "=" + std::to_string(place.coordinate);
  }
  auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, f32Of(bucket));
  return context.rendezvous->exchange(
      {group, static_cast<int>(holder * members + layers.positionOn(axes)), stages * members, what},
      Tensor(type, std::move(values)));
}

llvm::Error BucketCollectives::gather(const SegmentBucket &bucket, std::vector<double> share,
                                      std::vector<double> &whole) {
  auto parts = exchange(bucket, bucket.shareAxes, {}, "gather", std::move(share));
  if (!parts)
    return parts.takeError();
  whole.clear();
  for (const auto &part : *parts)
    whole.insert(whole.end(), part->values.begin(), part->values.end());
  return llvm::Error::success();
}

llvm::Error BucketCollectives::scatter(LayerState &layer, const SegmentBucket &bucket) {
  std::vector<double> &whole = layer.stores.at("whole accumulator/" + bucket.name);
  auto parts = exchange(bucket, bucket.shareAxes, {}, "scatter", whole);
  if (!parts)
    return parts.takeError();
  auto [first, end] = layers.ownPart(bucket);
  std::vector<double> &share = layer.stores["scattered/" + bucket.name];
  share.assign(bucket.partElements, 0.0);
  for (const auto &part : *parts)
    for (int64_t i = first; i < end; ++i)
      share[i - first] += part->values[i];
  for (double &value : share)
    value = roundToElement(f32Of(bucket), value);
  std::ranges::fill(whole, 0.0);
  return llvm::Error::success();
}

llvm::Error BucketCollectives::sumGradients() {
  for (LayerState &layer : layers.all())
    for (const SegmentBucket &bucket : layer.segment->buckets) {
      Axes axes = bucket.partialAxes;
      llvm::erase_if(axes, [&](StringAttr axis) {
        return bucket.wholeGradientOffset && llvm::is_contained(bucket.shareAxes, axis);
      });
      if (bucket.isTiedHere || bucket.isFrozen || (axes.empty() && bucket.holders.empty()))
        continue;
      std::vector<double> &values = layer.stores.at("accumulator/" + bucket.name);
      auto parts = exchange(bucket, axes, bucket.holders, "sum", values);
      if (!parts)
        return parts.takeError();
      for (size_t i = 0; i < values.size(); ++i) {
        double sum = 0;
        for (const auto &part : *parts)
          sum += part->values[i];
        values[i] = roundToElement(f32Of(bucket), sum);
      }
    }
  return llvm::Error::success();
}

llvm::Error BucketCollectives::gatherParameters() {
  for (LayerState &layer : layers.all())
    for (const SegmentBucket &bucket : layer.segment->buckets) {
      if (bucket.isTiedHere || bucket.shareAxes.empty() || bucket.wholeStoredOffset)
        continue;
      std::vector<double> &values = layer.stores.at("parameter/" + bucket.name);
      auto [first, end] = layers.ownPart(bucket);
      if (llvm::Error error = gather(bucket, {values.begin() + first, values.begin() + end}, values))
        return error;
    }
  return llvm::Error::success();
}

} // namespace espalier
