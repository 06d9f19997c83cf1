// Copies samples into the host staging buffers from which a plan reads its inputs.
#pragma once

#include "format/mesh.h"
#include "format/model_inputs.h"
#include "format/plan.pb.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/packing.h"
#include "runtime/dataset/sampler.h"

#include <cstddef>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier::rt {

/// Writes one rank's micro-batches. From each sample of its data-parallel replica, the loader takes the sequence shard
/// of the rank's `cp` coordinate. Its memory does not grow with use.
class BatchLoader {
public:
  /// Creates a loader for one rank. Samples at positions from `end` on repeat earlier samples and have loss weight 0.
  /// Throws PlanError if a sample has no such input or if its size differs, and DataError if the dataset does not
  /// support `order`.
  BatchLoader(const pb::Plan &plan, const Mesh &mesh, int rank, const Dataset &dataset, SampleOrder order,
              int64_t end = std::numeric_limits<int64_t>::max());

  BatchLoader(const BatchLoader &) = delete;

  /// Returns whether the plan has the input that excludes samples from the loss.
  bool canLeaveOut() const { return hasWeights; }

  /// Returns the memory of the host staging buffer with this index.
  using Memory = std::function<std::byte *(uint32_t index)>;

  /// Loads the replica's micro-batch `microBatch` of the step that begins after `consumed` samples.
  void load(int64_t consumed, int64_t microBatch, const Memory &memory);

  /// Describes the documents of a step of `samples`; empty if the dataset is not packed by work.
  std::optional<PackedStep> describePacking(int64_t consumed, int64_t samples) const;

private:
  /// An input of the rank's stage: the staging buffer, and the sample field that it receives.
  struct Input {
    uint32_t exchange;
    const char *from; ///< the field's first byte
    bool isZigzag;    ///< whether the rank's shard is two runs of the field
  };

  /// The labels and weights of a module that predicts further tokens.
  struct Further {
    std::vector<int32_t> labels;
    std::vector<float> weights;
  };

  const void *sampleField(const ModelInput &input);
  /// Copies the rank's shard of `sample` to element `begin` of every input.
  void write(int64_t begin, const Memory &memory) const;

  const pb::Settings &settings;
  const Dataset &dataset;
  const BatchShare share;
  const int64_t contextRank, contextRanks;
  const int64_t length; ///< of the rank's shard of a sequence
  const int64_t end;
  const bool hasWeights;
  Sampler sampler;
  std::vector<int32_t> text; ///< the tokens of one sample and the token after them
  Sample sample;
  std::map<int, Further> further; ///< by the number of tokens; only those that the plan reads
  std::vector<Input> inputs;
};

} // namespace espalier::rt
