// One rank of a plan for generation: token ids in, its shard of the logits out.
#pragma once

#include "runtime/executor.h"
#include "runtime/run/rank.h"

#include <optional>

namespace espalier::rt {

class StartingWeights;

/// New tokens of one sequence at consecutive positions from `position` on. Cache entries from there on are overwritten.
struct Feed {
  uint32_t sequence = 0;
  int64_t position = 0;
  std::span<const int32_t> tokens;
};

/// The sizes of a plan for generation.
struct GenerationSizes {
  explicit GenerationSizes(const pb::Plan &plan);

  uint32_t ofReplica;   ///< sequences per replica
  uint32_t sequences;   ///< of all replicas, concatenated in replica order
  int64_t context;      ///< maximum tokens per sequence
  int64_t promptTokens; ///< maximum tokens per sequence in one prefill
  int64_t vocabulary;
};

/// A rank that executes the entries of a plan for generation.
class DecodingRank {
public:
  /// Null `weights` give initial values. Throws RankStopped, or the rank's own error.
  DecodingRank(const Program &program, const RankPlace &place, const StartingWeights *weights);

  /// Executes an entry together with all ranks: at most one feed per sequence, with room for `tokens` tokens each.
  void run(uint32_t entry, int64_t tokens, std::span<const Feed> feeds);

  /// Returns the logits of the last entry: [sequences of the replica, columns], a shard of the padded vocabulary. Empty
  /// on ranks without logits.
  std::span<const std::byte> logits();

  Communicator &communicator() { return *theCommunicator; }
  const Executor &executor() const { return *theExecutor; }

private:
  /// A feed of this rank's replica.
  struct OwnFeed {
    Feed feed;
    int64_t sequence; ///< in the replica
    int64_t firstRow; ///< row of the first token in the batch
  };
  std::vector<int32_t> pack(std::span<OwnFeed> own) const;
  void fill(const pb::Exchange &exchange, uint32_t index, std::span<const OwnFeed> own);

  const pb::Stage &stage;
  const uint32_t sequences, firstSequence; ///< of this rank's replica
  const bool packsTokens;
  const std::unique_ptr<Communicator> theCommunicator;
  ThreadPool pool;
  std::unique_ptr<Device> device;
  std::optional<Executor> theExecutor;
};

/// Copies the logits shard of `rank` for its replica's sequences into `all`: [sequences, vocabulary].
void placeLogits(const Program &program, int rank, std::span<const std::byte> part, std::span<float> all);

/// Returns the bytes of a logits shard, the same on all ranks of the last stage.
size_t logitsBytes(const pb::Plan &plan);

} // namespace espalier::rt
