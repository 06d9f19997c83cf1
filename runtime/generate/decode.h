// The ranks of a plan for generation, which go through its entries together: ids in, logits out. What the ids mean, and
// which come next, is for others.
#pragma once

#include "runtime/comm/local.h"
#include "runtime/generate/decoding_rank.h"
#include "runtime/program.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>

namespace espalier::rt {

/// Between ranks in processes of their own: the parts of the logits, from those that have one to all.
class LogitsGather {
public:
  /// All ranks make theirs in the same order as they load.
  LogitsGather(const Program &program, Communicator &communicator, int spins);
  /// `part`: this rank's, empty where it has none. Throws RankStopped.
  void run(std::span<const std::byte> part, std::span<float> all);

  /// Of memory that ranks share, for each of them.
  static size_t bytes(const Program &program);

private:
  const Program &program;
  Communicator &communicator;
  const int spins;
  const uint32_t group;
  const std::span<std::byte> parts; ///< of all ranks
};

class Decoder {
public:
  /// Starts the ranks as threads. `weights`: null for initial ones; outlives this. `threads`: of each rank; 0 shares
  /// the cores. Throws PlanError where the plan is none for generation, MemoryError, or RankFailure.
  Decoder(const Program &program, const StartingWeights *weights, int threads);
  /// One rank, of which the caller is the thread. All other processes make the same calls. Throws RankStopped, or what
  /// the rank cannot do, of which the others have heard then.
  Decoder(const Program &program, const StartingWeights *weights, const RankPlace &own);
  ~Decoder();
  Decoder(const Decoder &) = delete;

  const GenerationSizes &sizes() const { return theSizes; }

  /// Runs an entry on at most one feed for each sequence: several tokens of each, or one. Other sequences stay as they
  /// are. Throws RankFailure, or as the second constructor does; nothing works afterwards.
  void prefill(std::span<const Feed> feeds) { run(prefillEntry, theSizes.promptTokens, feeds); }
  void decode(std::span<const Feed> feeds) { run(decodeEntry, 1, feeds); }

  /// Logits that the last token of a feed has left, until the next run.
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
  std::unique_ptr<OwnRank> own; ///< null: all ranks are threads of this process
  LocalWorld world;

  // What the ranks are to do, under `mutex`; they read it while `running` is above 0.
  std::mutex mutex;
  std::condition_variable told, done;
  uint64_t commands = 0; ///< given so far
  int running = 0;       ///< ranks that have not finished the last one
  bool isEnding = false;
  uint32_t entry = 0;
  int64_t tokens = 0;
  std::span<const Feed> feeds;
  std::exception_ptr refusal; ///< of the weights, where a rank cannot begin with them
  std::vector<std::jthread> ranks;
};

/// Why the plan is none for generation, with what to do; empty where it is one.
std::string whyNotGenerating(const pb::Plan &plan);

} // namespace espalier::rt
