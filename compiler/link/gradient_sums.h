// Writes the transfers that sum gradients over ranks: once per step for gradients that a rank accumulates whole, and
// once per micro-batch for gradients that are accumulated in shards.
#pragma once

#include "compiler/link/list_context.h"
#include "compiler/link/place_gathers.h"

namespace espalier {

/// Scatters each micro-batch's gradients of a layer call and adds the rank's shards to its accumulators.
class ScatteredGradients {
public:
  explicit ScatteredGradients(const ListContext &context) : context(context) {}

  /// Starts the reduce-scatters of the gradients that a layer call has completed.
  void scatter(int chunk, uint32_t call, uint32_t microBatch);

  /// Adds scattered gradients to the accumulators, so that their slots may be overwritten. Adds those of one slot, or
  /// all of them.
  void add(std::optional<WholeSlot> slot);

private:
  /// The gradients of a layer call and micro-batch that are not yet accumulated.
  struct Scattered {
    WholeSlot slot;
    int chunk;
    uint32_t call, microBatch;
    std::vector<rt::pb::Flight> flights;
    std::set<uint32_t> buckets;
  };

  const ListContext &context;
  std::vector<Scattered> scattered;
  std::set<uint32_t> accumulated; ///< layer calls whose shards have been accumulated before
};

/// Starts the sums of a step.
class GradientSums {
public:
  /// Assigns the sums over a stage's ranks to the last RUN that adds to the bucket, over all layer calls and chunks.
  /// The sums start after that RUN.
  GradientSums(const ListContext &context, OpenTransfers &open);

  /// Returns whether sums start after a layer call of an item of the schedule.
  bool startAfter(size_t item, uint32_t call) const { return sumsBehind.count({item, call}) > 0; }
  /// Starts the sums that follow a layer call of an item.
  void start(size_t item, uint32_t call) { start(sumsBehind.at({item, call})); }

  /// Adds the sums that need all gradients: sums of shards, and then, after all transfers between stages, sums over
  /// several stages. All shards must have been accumulated. Waits for all sums.
  void finish();

private:
  /// A bucket, with the layer call that updates it.
  struct BucketOfCall {
    int chunk;
    uint32_t call, bucket;
  };

  void start(llvm::ArrayRef<BucketOfCall> buckets);

  const ListContext &context;
  OpenTransfers &open;
  std::map<std::pair<size_t, uint32_t>, std::vector<BucketOfCall>> sumsBehind; ///< by item and layer call
};

} // namespace espalier
