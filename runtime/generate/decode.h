// The ranks of a plan for generation, as threads that go through its entries together: ids in, logits out. What the ids
// mean, and which come next, is for others.
#pragma once

#include "runtime/comm/local.h"
#include "runtime/program.h"

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <thread>

namespace espalier::rt {

class Executor;
class Weights;

/// New tokens of one sequence. They follow each other from `position` on; what is kept from there on is overwritten.
struct Feed {
  uint32_t sequence = 0;
  int64_t position = 0;
  std::span<const int32_t> tokens;
};

class Decoder {
public:
  /// Starts the ranks, with parameters of `checkpoint`, or initial ones where it is empty. `threads`: of each rank; 0
  /// shares the cores. Throws PlanError where the plan is none for generation, MemoryError, or RankFailure.
  Decoder(const Program &program, const std::filesystem::path &checkpoint, int threads);
  ~Decoder();
  Decoder(const Decoder &) = delete;

  uint32_t sequences() const;    ///< that it works on at once
  int64_t context() const;       ///< tokens that a sequence may have
  int64_t promptTokens() const;  ///< of a sequence that prefill() takes at most
  int64_t vocabulary() const;

  /// Runs an entry on at most one feed for each sequence: several tokens of each, or one. Other sequences stay as they
  /// are. Throws RankFailure; nothing works afterwards.
  void prefill(std::span<const Feed> feeds) { run(prefillEntry, promptTokens(), feeds); }
  void decode(std::span<const Feed> feeds) { run(decodeEntry, 1, feeds); }

  /// Logits that the last token of a feed has left, until the next run.
  std::span<const float> logits(uint32_t sequence) const;

private:
  void run(uint32_t entry, int64_t tokens, std::span<const Feed> feeds);
  void awaitRanks();
  void end();
  void rankLoop(int rank);
  bool awaitCommand(uint64_t &seen);
  void report();
  void runEntry(Executor &executor);
  void fill(Executor &executor, const pb::Exchange &exchange, uint32_t index) const;
  void collect(Executor &executor, const pb::Exchange &exchange, uint32_t index);

  const Program &program;
  const uint32_t prefillEntry, decodeEntry;
  const int threads;
  std::unique_ptr<const Weights> weights;
  LocalWorld world;
  std::vector<float> allLogits; ///< [sequences, vocabulary]

  // What the ranks are to do, under `mutex`; they read it while `running` is above 0.
  std::mutex mutex;
  std::condition_variable told, done;
  uint64_t commands = 0; ///< given so far
  int running = 0;       ///< ranks that have not finished the last one
  bool isEnding = false;
  uint32_t entry = 0;
  int64_t tokens = 0;
  std::span<const Feed> feeds;
  std::vector<std::jthread> ranks;
};

/// Why the plan is none for generation, with what to do; empty where it is one.
std::string whyNotGenerating(const pb::Plan &plan);

} // namespace espalier::rt
