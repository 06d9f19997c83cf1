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
  int64_t (exec::SegmentOp::*bytes)();
  bool isWhole = false; ///< the region holds gathered buffers
};

constexpr KeptRegion keptRegions[] = {{Region::Parameters, "parameters", &exec::SegmentOp::getParameterBytes},
                                      {Region::Gradients, "gradients", &exec::SegmentOp::getGradientBytes},
                                      {Region::State, "optimizer", &exec::SegmentOp::getStateBytes},
                                      {Region::WholeParameters, "whole", &exec::SegmentOp::getWholeStoredBytes, true},
                                      {Region::WholeGradients, "whole", &exec::SegmentOp::getWholeGradientBytes, true}};

Call &addCall(const std::string &name, int32_t layer, Stage &stage) {
  Call &call = *stage.add_calls();
  call.set_name(name);
  call.set_layer(layer);
  call.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
  return call;
}

} // namespace

Call &addLayerCall(const LayerCall &from, ModuleOp module, Stage &stage) {
  std::string name = from.kind + (from.index < 0 ? "" : "." + std::to_string(from.index));
  Call &call = addCall(name, static_cast<int32_t>(from.layer), stage);
  for (exec::BucketOp bucket : segmentOf(call, module).buckets()) {
    BucketUse &use = *call.add_buckets();
    use.set_bucket(bucket.getNumber());
    use.set_owner(bucket.getTied() ? 0 : from.layer); // the first segment owns a tied bucket
    use.set_updates(!bucket.getTiedHere());
  }
  return call;
}

Call &addStepCall(Stage &stage) { return addCall("step", -1, stage); }

exec::SegmentOp segmentOf(const Call &call, ModuleOp module) {
  return exec::findSegment(module, StringRef(call.name()).split('.').first);
}

void bindParameters(ModuleOp module, bool trains, function_ref<uint32_t(const Call &)> wholeLifetime, Stage &stage,
                    PlaceBuilder &places) {
  int calls = static_cast<int>(llvm::count_if(stage.calls(), isLayerCall)); // the call `step` is the last one
  bool isShared = llvm::any_of(segmentOf(stage.calls(calls - 1), module).buckets(),
                               [](exec::BucketOp bucket) { return bucket.getTiedHere(); });
  for (const KeptRegion &kept : ArrayRef(keptRegions).take_front(trains ? std::size(keptRegions) : 1)) {
    uint32_t first = 0;
    std::map<StringRef, uint32_t> ofKind;
    for (int index = 0; index < calls; ++index) {
      Call &call = *stage.mutable_calls(index);
      exec::SegmentOp segment = segmentOf(call, module);
      uint64_t bytes = (segment.*kept.bytes)();
      if (bytes == 0)
        continue;
      bool sharesFirst = isShared && index + 1 == calls;
      auto known = kept.isWhole ? ofKind.find(segment.getKind()) : ofKind.end();
      uint32_t place = sharesFirst ? first
                       : known != ofKind.end()
                           ? known->second
                           : places.take(bytes, kept.isWhole ? wholeLifetime(call) : 0, kept.memoryClass);
      ofKind[segment.getKind()] = place;
      if (index == 0)
        first = place;
      PlaceBuilder::bind(call, kept.region, place);
    }
  }
}

} // namespace espalier
