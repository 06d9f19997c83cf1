// Copies samples into the input buffers of a plan.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/plan.pb.h"

#include <cstddef>
#include <memory>

namespace espalier::rt {

/// Writes one rank's micro-batches. Holds no memory that grows with use.
class BatchLoader {
public:
  /// Throws PlanError for an input that no sample has, or of another size than the samples'.
  BatchLoader(const pb::Plan &plan, int stage, const Dataset &dataset, int replica, int replicas);

  /// Samples [first + (m * replicas + replica) * micro_batch_size, + micro_batch_size), past the
  /// end starting over.
  void load(int64_t first, int64_t microBatch, std::byte *inputs);

private:
  const pb::Settings &settings;
  const pb::Stage &stage;
  const Dataset &dataset;
  const int64_t replica, replicas;
  std::vector<int32_t> text; ///< one sample's tokens
};

} // namespace espalier::rt
