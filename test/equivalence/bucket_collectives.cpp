#include "test/equivalence/bucket_collectives.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

/// Returns f32 in the MLIR context of the bucket.
static Type f32Of(exec::BucketOp bucket) { return Float32Type::get(bucket.getContext()); }

BucketCollectives::BucketCollectives(RankLayers &layers, const EvalContext &context)
    : layers(layers), context(context), stage(static_cast<uint32_t>(context.coordinate("pp"))) {}

llvm::Expected<Rendezvous::Parts> BucketCollectives::exchange(exec::BucketOp bucket, ArrayRef<StringAttr> axes,
                                                              ArrayRef<int64_t> holders, const char *what,
                                                              std::vector<double> values) {
  ++counts[what];
  int stages = std::max<int>(1, static_cast<int>(holders.size())), members = 1;
  for (StringAttr axis : axes)
    members *= static_cast<int>(context.axisSize(axis));
  auto holder = holders.empty() ? 0 : llvm::find(holders, int64_t(stage)) - holders.begin();
  std::string group = std::string(what) + " " + bucket.getName().str();
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

llvm::Error BucketCollectives::gather(exec::BucketOp bucket, std::vector<double> share, std::vector<double> &whole) {
  auto parts = exchange(bucket, bucket.getShare(), {}, "gather", std::move(share));
  if (!parts)
    return parts.takeError();
  whole.clear();
  for (const auto &part : *parts)
    whole.insert(whole.end(), part->values.begin(), part->values.end());
  return llvm::Error::success();
}

llvm::Error BucketCollectives::scatter(LayerState &layer, exec::BucketOp bucket) {
  std::vector<double> &whole = layer.stores.at("whole accumulator/" + bucket.getName().str());
  auto parts = exchange(bucket, bucket.getShare(), {}, "scatter", whole);
  if (!parts)
    return parts.takeError();
  auto [first, end] = layers.ownPart(bucket);
  std::vector<double> &share = layer.stores["scattered/" + bucket.getName().str()];
  share.assign(bucket.getPartElements(), 0.0);
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
    for (exec::BucketOp bucket : layer.segment.buckets()) {
      SmallVector<StringAttr, 2> axes = bucket.getPartial();
      llvm::erase_if(axes, [&](StringAttr axis) {
        return bucket.getWholeGradientOffset() && llvm::is_contained(bucket.getShare(), axis);
      });
      if (bucket.getTiedHere() || bucket.getFrozen() || (axes.empty() && bucket.getHolders().empty()))
        continue;
      std::vector<double> &values = layer.stores.at("accumulator/" + bucket.getName().str());
      auto parts = exchange(bucket, axes, bucket.getHolders(), "sum", values);
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
    for (exec::BucketOp bucket : layer.segment.buckets()) {
      if (bucket.getTiedHere() || bucket.getShare().empty() || bucket.getWholeStoredOffset())
        continue;
      std::vector<double> &values = layer.stores.at("parameter/" + bucket.getName().str());
      auto [first, end] = layers.ownPart(bucket);
      if (llvm::Error error = gather(bucket, {values.begin() + first, values.begin() + end}, values))
        return error;
    }
  return llvm::Error::success();
}

} // namespace espalier
