// The ranks of a plan for generation, which execute its entries together: token ids in, logits out. Other classes
// tokenize and sample.
#pragma once

#include "runtime/comm/local.h"
#include "runtime/generate/decoding_rank.h"
#include "runtime/program.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace espalier::rt {

/// Gathers the shards of the logits on all ranks, for ranks in separate processes.
class LogitsGather {
public:
  /// All ranks construct theirs in the same order while loading.
  LogitsGather(const Program &program, Communicator &communicator, int spins);
  /// `part` is this rank's shard, empty if it has none. Throws RankStopped.
  void run(std::span<const std::byte> part, std::span<float> all);

  /// Returns the shared memory in bytes that each rank needs.
  static size_t bytes(const Program &program);

private:
  const Program &program;
  Communicator &communicator;
  const int spins;
  const uint32_t group;
  const std::span<std::byte> parts; ///< receive buffer of all ranks' shards
};

/// Runs the prefill and decode entries of a plan.
class Decoder {
public:
  /// Starts the ranks as threads. `weights` must outlive this object; null gives initial values. `threads` is per rank;
  /// 0 divides the cores among the ranks. Throws PlanError if the plan is not for generation, MemoryError, or
  /// RankFailure.
  Decoder(const Program &program, const StartingWeights *weights, int threads);
  /// Makes one rank, which runs on the calling thread. All other processes must make the same calls. Throws
  /// RankStopped, or the rank's own error after the other ranks were told.
  Decoder(const Program &program, const StartingWeights *weights, const RankPlace &own);
  ~Decoder();
  Decoder(const Decoder &) = delete;

  const GenerationSizes &sizes() const { return theSizes; }

  /// Run an entry on at most one feed per sequence: prefill takes several tokens, decode takes one. Other sequences do
  /// not change. Throw RankFailure, or as the second constructor does; the decoder is unusable afterwards.
  void prefill(std::span<const Feed> feeds) { run(prefillEntry, theSizes.promptTokens, feeds); }
  void decode(std::span<const Feed> feeds) { run(decodeEntry, 1, feeds); }

  /// Whether prefill may take sequences that decode one token, with the same bits as decode.
  bool mixesPrompts() const { return program.backend().mixesPrompts(); }

  /// Returns the logits after the last token of the sequence's last feed, valid until the next run.
  std::span<const float> logits(uint32_t sequence) const;

private:
  struct OwnRank;
  void run(uint32_t entry, int64_t tokens, std::span<const Feed> feeds);
  void awaitRanks();
  void end();
  void rankLoop(int rank);
  bool awaitCommand(uint64_t &seen);
  void report();

  const Program &program;
  const uint32_t prefillEntry, decodeEntry;
  const GenerationSizes theSizes;
  const int threads;
  const StartingWeights *const weights;
  std::vector<float> allLogits; ///< [sequences, vocabulary]
  std::unique_ptr<OwnRank> own; ///< null if all ranks are threads of this process
  LocalWorld world;

  // The current command, guarded by `mutex`. Ranks read it without the mutex while `running` is above 0.
  std::mutex mutex;
  std::condition_variable told, done;
  uint64_t commands = 0; ///< number of commands so far
  int running = 0;       ///< ranks that have not finished the last command
  bool isEnding = false;
  uint32_t entry = 0;
  int64_t tokens = 0;
  std::span<const Feed> feeds;
  std::exception_ptr refusal; ///< an error in the weights that a rank found at start-up
  std::vector<std::jthread> ranks;
};

/// Returns why the plan is not for generation, with a way out; empty if it is.
std::string whyNotGenerating(const pb::Plan &plan);

} // namespace espalier::rt
