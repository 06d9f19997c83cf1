// Builds the entries, the queues, the transfers that schedules start, and the values that these transfers move.
#include "compiler/link/add_buckets.h"
#include "compiler/link/add_transfers.h"
#include "compiler/link/generation.h"
#include "compiler/link/write_tables.h"
#include "compiler/passes.h"
#include "compiler/plan/run_attributes.h"

using namespace mlir;

namespace espalier {

#define GEN_PASS_DEF_BUILDTRANSFERS
#include "compiler/passes.h.inc"

namespace {

/// Sets on each bucket the names of the transfers that reduce and scatter its gradients and gather its shards.
void nameTransfers(ModuleOp module, const rt::pb::Plan &plan, ArrayRef<BucketTransfers> buckets) {
  Builder b(module.getContext());
  auto nameOf = [&](int64_t transfer) -> Attribute {
    return b.getStringAttr(plan.transfers(static_cast<int>(transfer)).name());
  };
  module.walk([&](exec::BucketOp bucket) {
    const BucketTransfers &transfers = buckets[bucket.getNumber()];
    SmallVector<Attribute> sums;
    for (uint32_t sum : transfers.sums)
      sums.push_back(nameOf(sum));
    bucket.setSumsAttr(b.getArrayAttr(sums));
    if (transfers.scatter >= 0)
      bucket.setScatterAttr(cast<StringAttr>(nameOf(transfers.scatter)));
    if (transfers.gather >= 0)
      bucket.setGatherAttr(cast<StringAttr>(nameOf(transfers.gather)));
  });
}

struct BuildTransfersPass : impl::BuildTransfersBase<BuildTransfersPass> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    planner::Plan split = readPlan(module);
    std::vector<SegmentLayout> segments = readSegments(module);
    rt::pb::Plan plan;
    generates(module) ? addGenerationNames(module, split, plan) : addNames(module, split, plan);
    PlanTables tables(plan);
    if (generates(module))
      addGenerationTransfers(module, readRegions(module), split, tables, plan);
    else
      addStepTransfers(module, readRegions(module), split, tables);
    if (!trains(module)) {
      emitBuckets(segments, /*trains=*/false, tables, plan);
      return writeTables(plan, module);
    }
    std::vector<BucketTransfers> buckets = addBuckets(segments, tables, plan);
    writeTables(plan, module);
    nameTransfers(module, plan, buckets);
  }
};

} // namespace
} // namespace espalier
