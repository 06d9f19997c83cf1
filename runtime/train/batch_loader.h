// Copies samples into the input buffers of a plan.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <cstddef>
#include <memory>

namespace espalier::rt {

/// Writes one rank's micro-batches: of each sample of its replica the part of the sequence that its coordinate on `cp`
/// gives. Holds no memory that grows with use.
class BatchLoader {
public:
  /// Throws PlanError for an input that no sample has, or of another size than the samples', and DataError for an order
  /// that the set cannot have.
  BatchLoader(const pb::Plan &plan, const Mesh &mesh, int rank, const Dataset &dataset, SampleOrder order);

  /// The replica's share of micro-batch `microBatch` of the step that begins after `consumed` samples.
  void load(int64_t consumed, int64_t microBatch, std::byte *inputs);

private:
  /// Copies the rank's part of `sample` to element `begin` of every input.
  void write(int64_t begin, std::byte *inputs) const;

  const pb::Settings &settings;
  const pb::Stage &stage;
  const Dataset &dataset;
  const BatchShare share;
  const int64_t first, length; ///< the rank's part of a sequence
  Sampler sampler;
  std::vector<int32_t> text; ///< one sample's tokens and the one that follows
  Sample sample;
};

} // namespace espalier::rt
