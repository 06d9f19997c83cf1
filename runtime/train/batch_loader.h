// Copies samples into the memory from which a plan takes its inputs.
#pragma once

#include "runtime/data/dataset.h"
#include "runtime/data/sampler.h"
#include "runtime/mesh.h"
#include "runtime/plan.pb.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace espalier::rt {

/// Writes one rank's micro-batches: of each sample of its replica the part of the sequence that its coordinate on `cp`
/// gives. Holds no memory that grows with use.
class BatchLoader {
public:
  /// Samples at `end` and later places of the order repeat others and carry no loss. Throws PlanError for an input that
  /// no sample has, or of another size than the samples', and DataError for an order that the set cannot have.
  BatchLoader(const pb::Plan &plan, const Mesh &mesh, int rank, const Dataset &dataset, SampleOrder order,
              int64_t end = std::numeric_limits<int64_t>::max());

  BatchLoader(const BatchLoader &) = delete;

  /// Whether the plan has the input that leaves samples out of the loss.
  bool canLeaveOut() const { return hasWeights; }

  /// Gives the memory of exchange `index`.
  using Memory = std::function<std::byte *(uint32_t index)>;

  /// The replica's share of micro-batch `microBatch` of the step that begins after `consumed` samples.
  void load(int64_t consumed, int64_t microBatch, const Memory &memory);

private:
  /// An input of the rank's stage: an exchange, and what of a sample it takes.
  struct Input {
    uint32_t exchange;
    const void *from; ///< the first element of the rank's part of `sample`
  };

  const void *sampleField(const std::string &name) const;
  /// Copies the rank's part of `sample` to element `begin` of every input.
  void write(int64_t begin, const Memory &memory) const;

  const pb::Settings &settings;
  const Dataset &dataset;
  const BatchShare share;
  const int64_t first, length; ///< the rank's part of a sequence
  const int64_t end;
  const bool hasWeights;
  Sampler sampler;
  std::vector<int32_t> text; ///< one sample's tokens and the one that follows
  Sample sample;
  std::vector<Input> inputs;
};

} // namespace espalier::rt
