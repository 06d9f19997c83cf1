// One rank of a plan for generation: ids in, its part of the logits out.
#pragma once

#include "runtime/executor.h"
#include "runtime/train/rank.h"

#include <optional>

namespace espalier::rt {

class StartingWeights;

/// New tokens of one sequence. They follow each other from `position` on; what is kept from there on is overwritten.
struct Feed {
  uint32_t sequence = 0;
  int64_t position = 0;
  std::span<const int32_t> tokens;
};

/// Numbers of a plan for generation.
struct GenerationSizes {
  explicit GenerationSizes(const pb::Plan &plan);

  uint32_t ofReplica;   ///< sequences that one replica works on
  uint32_t sequences;   ///< of all replicas, one replica's behind the other's
  int64_t context;      ///< tokens that a sequence may have
  int64_t promptTokens; ///< of a sequence that prefill takes at most
  int64_t vocabulary;
};

class DecodingRank {
public:
  /// `weights`: null for initial ones. Throws RankStopped, or what the rank cannot do.
  DecodingRank(const Program &program, const RankPlace &place, const StartingWeights *weights);

  /// Goes through an entry with all ranks: at most one feed for each sequence, room for `tokens` of each.
  void run(uint32_t entry, int64_t tokens, std::span<const Feed> feeds);

  /// Those that the last entry left of the replica's sequences: [sequences, columns] of its part of the padded
  /// vocabulary; empty on ranks that have none.
  std::span<const std::byte> logits();

  Communicator &communicator() { return *theCommunicator; }
  const Executor &executor() const { return *theExecutor; }

private:
  void fill(const pb::Exchange &exchange, uint32_t index, int64_t tokens, std::span<const Feed> feeds);

  const pb::Stage &stage;
  const uint32_t sequences, firstSequence; ///< of this rank's replica
  const std::unique_ptr<Communicator> theCommunicator;
  ThreadPool pool;
  std::unique_ptr<Device> device;
  std::optional<Executor> theExecutor;
};

/// Copies the part of the logits that `rank` has, of its replica's sequences, to their places in [sequences, vocabulary].
void placeLogits(const Program &program, int rank, std::span<const std::byte> part, std::span<float> all);

/// Bytes of the part that each rank of the last stage has.
size_t logitsBytes(const pb::Plan &plan);

} // namespace espalier::rt
