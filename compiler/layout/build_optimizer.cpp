// Builds the functions at the end of a step. update_programs.cpp has the update of each optimizer. Gradients are sums
// over tokens; gradient_scale normalizes, unscales and clips them in one multiplication. These functions do not
// communicate: schedules start the buckets' transfers before and after them.
#include "compiler/attributes/run_attributes.h"
#include "compiler/layout/update_programs.h"
#include "compiler/passes.h"
#include "dialects/attributes.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_BUILDOPTIMIZER
#include "compiler/passes.h.inc"

namespace {

/// Returns the model-file line of a bucket's first parameter.
LocationAttr locationOf(const SegmentLayout &segment, const SegmentBucket &bucket) {
  return segment.parameters[bucket.parameters.front()].location;
}

/// Returns whether the segment updates the bucket.
bool isUpdated(const SegmentBucket &bucket) { return !bucket.isTiedHere && !bucket.isFrozen; }

void buildNorm(ModuleOp module, const SegmentLayout &segment) {
  RegionFunction f(module, segment.kind + ".norm");
  Type f32 = f.b.getF32Type();
  Type scalar = namedTensor({}, {}, f32);
  Value statistic = f.argument(scalar, "statistic", "squared_norm");
  for (const SegmentBucket &bucket : segment.buckets) {
    if (!isUpdated(bucket) || bucket.normWeight == 0)
      continue;
    f.moveTo(locationOf(segment, bucket));
    Value gradient =
        f.argument(f.flat(bucket.partElements, bucket.summed), "accumulator", bucket.name, bucket.shareAxes);
    Value norm = f.b.create<model::SquaredNormOp>(f.loc, scalar, gradient, f.b.getF64FloatAttr(bucket.normWeight));
    statistic = f.b.create<model::AccumulateOp>(f.loc, scalar, statistic, norm, f.b.getUnitAttr());
  }
  f.result(statistic, "statistic", "squared_norm");
  f.finish();
}

/// Builds the function that adds the rank's shard of a micro-batch's gradient to the accumulator, for sharded
/// accumulators.
void buildAdd(ModuleOp module, const SegmentLayout &segment) {
  auto isAdded = [](const SegmentBucket &bucket) { return bucket.wholeGradientOffset && !bucket.isTiedHere; };
  if (llvm::none_of(segment.buckets, isAdded))
    return;
  RegionFunction f(module, segment.kind + ".add");
  for (const SegmentBucket &bucket : segment.buckets) {
    if (!isAdded(bucket))
      continue;
    f.moveTo(locationOf(segment, bucket));
    Type type = f.flat(bucket.partElements, bucket.summed);
    Value sum = f.argument(type, "accumulator", bucket.name, bucket.shareAxes);
    Value term = f.argument(type, "scattered", bucket.name, bucket.shareAxes);
    f.result(f.b.create<model::AccumulateOp>(f.loc, type, sum, term), "accumulator", bucket.name, bucket.shareAxes);
  }
  f.finish();
}

struct BuildOptimizerPass : impl::BuildOptimizerBase<BuildOptimizerPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    exec::OptimizerAttr optimizer = exec::optimizerAttr.of(module);
    if (!optimizer) {
      module.emitError("needs exec.optimizer, which the phase model sets");
      return signalPassFailure();
    }
    for (const SegmentLayout &segment : readSegments(module)) {
      if (llvm::all_of(segment.buckets, [](const SegmentBucket &bucket) { return bucket.isFrozen; }))
        continue;
      buildAdd(module, segment);
      buildNorm(module, segment);
      RegionFunction f(module, segment.kind + ".update");
      ClipFactors clips(f, segment, optimizer.getQkClipThreshold());
      for (const SegmentBucket &bucket : segment.buckets)
        if (isUpdated(bucket)) {
          f.moveTo(locationOf(segment, bucket));
          buildUpdate(f, bucket, segment.master, optimizer, clips);
        }
      f.finish();
    }
    RegionFunction decides(module, "step.scalars");
    decides.setAttribute(exec::maxGradNormAttr, decides.b.getF64FloatAttr(optimizer.getMaxGradNorm()));
    if (optimizer.getSkipSpikeFactor() > 0)
      decides.setAttribute(exec::limitsNormAttr, decides.b.getUnitAttr());
    decides.finish();
  }
};

} // namespace
} // namespace espalier
