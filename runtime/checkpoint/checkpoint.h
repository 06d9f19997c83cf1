// The checkpoints of a run: each rank saves the pieces that it owns and loads the pieces that it holds. commit.h
// describes the folder, manifest.h one checkpoint, background_save.h a save while training goes on.
#pragma once

#include "runtime/checkpoint/agree.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/kept_files.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/save_record.h"
#include "runtime/checkpoint/stored_checkpoint.h"

#include <optional>

namespace espalier::rt {

/// The checkpoint settings of a run.
struct CheckpointOptions {
  std::filesystem::path folder;
  bool resume = false;
  bool acceptChanges = false; ///< of the training setup, not of the model
  int64_t keep = 0;           ///< number of newest checkpoints to keep; 0: all
  int64_t steps = 0;          ///< of the run, in total
  int64_t saveEvery = 0;      ///< interval in steps; 0: only at the end
  int64_t maxUnsaved = 3;     ///< saves in a row whose failure ends the run
  std::string token = {};     ///< set if another process of the run holds the folder's lock; only that process prints
  std::vector<SideFile> kept = {};          ///< written into each checkpoint
  NonFinite nonFinite = NonFinite::Refused; ///< in a checkpoint that is loaded
};

/// The ranks of a process share one object. Each process has its own with the same content.
class Checkpoints {
public:
  /// Locks the folder, checks the free space and, if the run resumes, chooses the newest sound checkpoint. Called
  /// before ranks start. `data` describes the data that the run reads. Throws PlanError.
  Checkpoints(const CheckpointOptions &options, const Program &program, const std::string &data);

  /// Fills the rank's parameters and optimizer state with the threads of `pool` and returns the saved scalar state. A
  /// damaged checkpoint is reported and skipped for the one before it. Called by every rank. Returns nothing, on all
  /// ranks, if no checkpoint can be loaded; loadFault() then has the reason.
  std::optional<ScalarState> load(Executor &executor, Agreement &agreement, ThreadPool &pool);

  /// Loads the newest checkpoint that this run wrote or resumed from, like load(), while the run goes on. Called by
  /// every rank, when no save is in flight. Returns nothing, on all ranks, if there is none or it is damaged; `fault`
  /// then has the reason.
  std::optional<ScalarState> loadLastGood(Executor &executor, Agreement &agreement, ThreadPool &pool,
                                          std::string &fault);

  /// Writes a checkpoint of all ranks; called by every rank at the same step. A failed write is reported as by
  /// reject(). Returns a record on rank 0 if the checkpoint is on disk and named in `latest`.
  std::optional<SaveRecord> save(Executor &executor, Agreement &agreement, const ScalarState &state, bool isLast);

  /// Creates the hidden folder of a step unless another rank has, and returns its path. Any thread may call this.
  std::filesystem::path begin(int64_t step) const;
  /// Writes the draft of a save (unfinished.h) into the hidden folder of its step. Called by rank 0; any thread may
  /// call this. Throws DataError.
  void draft(const ScalarState &state) const;
  /// Writes the manifest from the notes of all ranks, moves the checkpoint to its final name and removes old ones.
  /// Called by rank 0 after all ranks have written their files; any thread may call this. Throws an exception with the
  /// reason if the disk fails.
  SaveRecord commit(const ScalarState &state);
  /// Returns the hidden folder of a step.
  std::filesystem::path partial(int64_t step) const { return folder.partial(step); }
  /// Removes the hidden folder of a step. Called by rank 0 when no rank writes.
  void discard(int64_t step) const noexcept { folder.discard(step); }
  /// Called by rank 0 when no rank writes. Removes what was written, then prints a warning: training continues, and the
  /// next save tries again. Throws FinalError for the last save, and when
  /// `maxUnsaved` saves in a row have failed.
  void reject(int64_t step, const std::string &fault, bool isLast);

  /// Returns the token that lets other processes of the run write into the same folder.
  const std::string &token() const { return folder.token(); }

  /// Ends the start of the run: all processes have seen that they share the folder. Called by rank 0.
  void start() const noexcept { folder.removeMark(); }

  /// Returns the folder of the newest checkpoint that this run wrote or loaded.
  std::filesystem::path lastGoodFolder() const { return folder.path() / lastGood; }

  /// Returns why no checkpoint could be loaded. This is a user error although a rank found it. Empty without an error.
  const std::string &loadFault() const { return theLoadFault; }

private:
  void requireRoom() const;
  Manifest manifestOf(const ScalarState &state) const;
  void chooseNext(bool isAloud);
  bool isOneChoice(Agreement &agreement);
  void loadChosen(Executor &executor, ThreadPool &pool) const;
  void passOver(const std::string &fault, bool isAloud);

  const CheckpointOptions options;
  const Program &program;
  Continuation continuation;
  CheckpointFolder folder;
  std::vector<std::string> candidates; ///< not examined yet; the next one is last
  std::optional<StoredCheckpoint> chosen;
  std::set<std::string> apart; ///< damaged, or of another run than this new one: neither counted nor removed
  std::string lastGood;        ///< name of the newest checkpoint that this run wrote, or of `chosen`
  std::string theLoadFault;
  int64_t unsaved = 0; ///< saves that have failed since the last good one, on rank 0
};

} // namespace espalier::rt
