// A save that does not stall training. At a step border, each rank copies the pieces that it owns to host memory. A
// thread of each rank then writes them, while training goes on. The agreement that every rank's file is on disk costs
// one message at the border of step S + 1, and none later: in every entry, all ranks sum their requests
// (runtime/train/rank_requests.h), and each rank adds a one while its thread writes. A sum of zero shows all ranks at
// the same step border that no thread writes any more.
//
//   step border   ranks                                       threads
//   S             copy, start the threads                     write and flush rank-*.safetensors, write its note
//   first border  exchange faults; rank 0 starts its thread   rank 0: manifest, rename, `latest`, old checkpoints
//   without one
//   that writes
//   next border   rank 0 reports the checkpoint
//   without ones
#pragma once

#include "runtime/background_thread.h"
#include "runtime/checkpoint/checkpoint.h"
#include "runtime/checkpoint/shard_file.h"

namespace espalier::rt {

/// One rank's part in the saves of a run that are written while training goes on. At most one save is in flight. All
/// ranks call the functions that change it at the same step borders.
class BackgroundSave {
public:
  /// Allocates the host memory of the copy. Throws PlanError, MemoryError, or std::runtime_error if the system refuses
  /// memory or a thread. The arguments must outlive this object.
  BackgroundSave(Checkpoints &checkpoints, const Program &program, Executor &executor, Agreement &agreement);
  /// Cancels a save in flight, which leaves its hidden folder behind.
  ~BackgroundSave();

  /// Returns whether a save is in flight. The same on all ranks.
  bool isActive() const { return phase != Phase::None; }
  /// Returns the step whose state is being saved.
  int64_t step() const { return state.step; }
  /// Returns whether this rank's thread works.
  bool isWriting() const { return thread.isBusy(); }

  /// Notes that a step has given a finite loss with the weights that are being saved. From then on, completeSave() of
  /// unfinished.h can complete the save after a lost process.
  void prove();
  /// Copies this rank's state and starts to write the copy. No save may be in flight.
  void begin(const ScalarState &saved);
  /// Goes to the next phase. Called when no rank's thread works. Returns a record on rank 0 if the checkpoint is now
  /// complete. A failed write is reported as by Checkpoints::reject() and ends the save.
  std::optional<SaveRecord> advance();
  /// Waits for the save in flight and returns its record like advance().
  std::optional<SaveRecord> finish();
  /// Cancels the save in flight and removes what was written.
  void abandon();

private:
  /// The work of the threads.
  enum class Phase { None, Files, Commit };

  void run(std::function<void()> work);
  void copy();
  void writeFile();

  Checkpoints &checkpoints;
  Executor &executor;
  Agreement &agreement;
  const ShardLayout layout;
  const std::unique_ptr<HostBlock> block;
  Phase phase = Phase::None;
  ScalarState state;
  double blockedSeconds = 0;
  bool isProofWritten = false; ///< on rank 0
  SaveRecord record;           ///< on rank 0
  std::atomic<bool> isCancelled = false;

  // Written by the thread while it works.
  std::string fault;
  double workSeconds = 0;

  BackgroundThread thread; ///< last, so that it ends first
};

} // namespace espalier::rt
