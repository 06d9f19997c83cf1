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
LocationAttr locationOf(exec::BucketOp bucket) { return bucket.parameters().front().getLoc(); }

void buildNorm(ModuleOp module, exec::SegmentOp segment) {
  RegionFunction f(module, (segment.getKind() + ".norm").str());
  Type f32 = f.b.getF32Type();
  Type scalar = namedTensor({}, {}, f32);
  Value statistic = f.argument(scalar, "statistic", "squared_norm");
  for (exec::BucketOp bucket : segment.buckets()) {
    if (!bucket.isUpdatedHere() || bucket.getNormWeight() == 0)
      continue;
    f.moveTo(locationOf(bucket));
    Value gradient = f.argument(f.flat(bucket.getPartElements(), bucket.gradientType()), "accumulator",
                                bucket.getName(), bucket.getShareAttr());
    Value norm = f.b.create<model::SquaredNormOp>(f.loc, scalar, gradient, bucket.getNormWeightAttr());
    statistic = f.b.create<model::AccumulateOp>(f.loc, scalar, statistic, norm, f.b.getUnitAttr());
  }
  f.result(statistic, "statistic", "squared_norm");
  f.finish();
}

/// Builds the function that adds the rank's shard of a micro-batch's gradient to the accumulator, for sharded
/// accumulators.
void buildAdd(ModuleOp module, exec::SegmentOp segment) {
  auto isAdded = [](exec::BucketOp bucket) { return bucket.getWholeGradientOffset() && !bucket.getTiedHere(); };
  if (llvm::none_of(segment.buckets(), isAdded))
    return;
  RegionFunction f(module, (segment.getKind() + ".add").str());
  for (exec::BucketOp bucket : segment.buckets()) {
    if (!isAdded(bucket))
      continue;
    f.moveTo(locationOf(bucket));
    Type type = f.flat(bucket.getPartElements(), bucket.gradientType());
    Value sum = f.argument(type, "accumulator", bucket.getName(), bucket.getShareAttr());
    Value term = f.argument(type, "scattered", bucket.getName(), bucket.getShareAttr());
    f.result(f.b.create<model::AccumulateOp>(f.loc, type, sum, term), "accumulator", bucket.getName(),
             bucket.getShareAttr());
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
    for (exec::SegmentOp segment : llvm::make_early_inc_range(module.getOps<exec::SegmentOp>())) {
      if (llvm::all_of(segment.buckets(), [](exec::BucketOp bucket) { return bucket.getFrozen(); }))
        continue;
      buildAdd(module, segment);
      buildNorm(module, segment);
      RegionFunction f(module, (segment.getKind() + ".update").str());
      ClipFactors clips(f, segment, optimizer.getQkClipThreshold());
      for (exec::BucketOp bucket : segment.buckets())
        if (bucket.isUpdatedHere()) {
          f.moveTo(locationOf(bucket));
          buildUpdate(f, bucket, optimizer, clips);
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
