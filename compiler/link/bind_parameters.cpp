#include "compiler/link/bind_parameters.h"

#include <map>

using namespace mlir;

namespace espalier {

using namespace rt::pb;
using exec::Region;

namespace {

/// Bytes that a layer call keeps in one region.
struct KeptRegion {
  Region region;
  const char *memoryClass;
  uint64_t SegmentLayout::*bytes;
  bool isWhole = false; ///< the region holds gathered buffers
};

constexpr KeptRegion keptRegions[] = {{Region::Parameters, "parameters", &SegmentLayout::parameterBytes},
                                      {Region::Gradients, "gradients", &SegmentLayout::gradientBytes},
                                      {Region::State, "optimizer", &SegmentLayout::stateBytes},
                                      {Region::WholeParameters, "whole", &SegmentLayout::wholeStoredBytes, true},
                                      {Region::WholeGradients, "whole", &SegmentLayout::wholeGradientBytes, true}};

Call &addCall(const std::string &name, int32_t layer, Stage &stage) {
  Call &call = *stage.add_calls();
  call.set_name(name);
  call.set_layer(layer);
  call.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
  return call;
}

} // namespace

Call &addLayerCall(const LayerCall &from, const std::vector<SegmentLayout> &segments, Stage &stage) {
  std::string name = from.kind + (from.index < 0 ? "" : "." + std::to_string(from.index));
  Call &call = addCall(name, static_cast<int32_t>(from.layer), stage);
  for (const SegmentBucket &bucket : layoutOf(call, segments).buckets) {
    BucketUse &use = *call.add_buckets();
    use.set_bucket(bucket.number);
    use.set_owner(bucket.isTied ? 0 : from.layer); // the first segment owns a tied bucket
    use.set_updates(!bucket.isTiedHere);
  }
  return call;
}

Call &addStepCall(Stage &stage) { return addCall("step", -1, stage); }

const SegmentLayout &layoutOf(const Call &call, const std::vector<SegmentLayout> &segments) {
  StringRef kind = StringRef(call.name()).split('.').first;
  return *llvm::find_if(segments, [&](const SegmentLayout &segment) { return segment.kind == kind; });
}

void bindParameters(const std::vector<SegmentLayout> &segments, bool trains,
                    function_ref<uint32_t(const Call &)> wholeLifetime, Stage &stage, PlaceBuilder &places) {
  int calls = static_cast<int>(llvm::count_if(stage.calls(), isLayerCall)); // the call `step` is the last one
  bool isShared = llvm::any_of(layoutOf(stage.calls(calls - 1), segments).buckets,
                               [](const SegmentBucket &bucket) { return bucket.isTiedHere; });
  for (const KeptRegion &kept : ArrayRef(keptRegions).take_front(trains ? std::size(keptRegions) : 1)) {
    uint32_t first = 0;
    std::map<std::string, uint32_t> ofKind;
    for (int index = 0; index < calls; ++index) {
      Call &call = *stage.mutable_calls(index);
      const SegmentLayout &layout = layoutOf(call, segments);
      uint64_t bytes = layout.*kept.bytes;
      if (bytes == 0)
        continue;
      bool sharesFirst = isShared && index + 1 == calls;
      auto known = kept.isWhole ? ofKind.find(layout.kind) : ofKind.end();
      uint32_t place = sharesFirst ? first
                       : known != ofKind.end()
                           ? known->second
                           : places.take(bytes, kept.isWhole ? wholeLifetime(call) : 0, kept.memoryClass);
      ofKind[layout.kind] = place;
      if (index == 0)
        first = place;
      PlaceBuilder::bind(call, kept.region, place);
    }
  }
}

} // namespace espalier
