// Copies samples into the input buffers of a plan.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/plan.pb.h"

#include <cstddef>
#include <memory>

namespace espalier::rt {

/// Writes one rank's micro-batches. Holds no memory that grows with use.
class BatchLoader {
public:
  /// Throws PlanError for an input that no sample has, or of another size than the samples', and DataError for an order
  /// that the set cannot have.
  BatchLoader(const pb::Plan &plan, int stage, const Dataset &dataset, SampleOrder order, int replica, int replicas);

  /// The replica's share of micro-batch `microBatch` of the step that begins after `consumed` samples.
  void load(int64_t consumed, int64_t microBatch, std::byte *inputs);

private:
  const pb::Settings &settings;
  const pb::Stage &stage;
  const Dataset &dataset;
  const BatchShare share;
  Sampler sampler;
  std::vector<int32_t> text; ///< one sample's tokens
};

} // namespace espalier::rt
