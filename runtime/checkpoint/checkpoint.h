// The checkpoints of a run: each rank saves the pieces that it speaks for and loads those that it holds. What a
// checkpoint is on disk stands in commit.h (the folder) and manifest.h (one checkpoint).
#pragma once

#include "runtime/checkpoint/agree.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/manifest.h"
#include "runtime/checkpoint/stored_checkpoint.h"

#include <optional>

namespace espalier::rt {

struct CheckpointOptions {
  std::filesystem::path folder;
  bool resume = false;
  bool acceptChanges = false; ///< of what the run trains on and how, not of the model
  int64_t keep = 0;           ///< newest ones that stay; 0: all
  int64_t steps = 0;          ///< of the run, in total
  int64_t saveEvery = 0;      ///< steps between two; 0: at the end only
  std::string token = {};     ///< of the folder, where another process of the run holds it; that one speaks
};

/// Shared by the ranks of a process; each process has its own of the same content.
class Checkpoints {
public:
  /// Before ranks start: takes the folder, looks whether there is room, and where the run resumes chooses the newest
  /// sound checkpoint. `data` is what the run reads, in words. Throws PlanError.
  Checkpoints(const CheckpointOptions &options, const Program &program, const std::string &data);

  /// Fills the rank's parameters and optimizer state and returns where the run stood. A damaged checkpoint is told
  /// aloud and the one before it taken. Called by every rank. None where no checkpoint can be loaded, on all ranks;
  /// loadFault() has the reason then.
  std::optional<ScalarState> load(Executor &executor, Agreement &agreement);

  /// Writes a checkpoint of all ranks; called by every rank at the same step. What the disk refuses is told aloud and
  /// left to the next save; the last one throws PlanError. True where it is on disk and named in `latest`.
  bool save(Executor &executor, Agreement &agreement, const ScalarState &state, bool isLast);

  /// What the other processes of the run need to write into the same folder.
  const std::string &token() const { return folder.token(); }

  /// Why no checkpoint could be loaded: the user's error, though a rank met it. Empty where none is to blame.
  const std::string &loadFault() const { return theLoadFault; }

private:
  void requireRoom() const;
  void chooseNext(bool isAloud);
  void loadPieces(Executor &executor) const;
  bool isOneChoice(Agreement &agreement);
  void passOver(const std::string &fault, bool isAloud);
  Shard writeShard(Executor &executor, int64_t step) const;
  void commit(const ScalarState &state);

  const CheckpointOptions options;
  const Program &program;
  Continuation continuation;
  CheckpointFolder folder;
  std::vector<std::string> candidates; ///< not looked at yet, the next one last
  std::optional<StoredCheckpoint> chosen;
  std::set<std::string> apart; ///< neither counted nor removed: damaged, or of another run than this one, which begins anew
  std::string lastGood; ///< name of the newest checkpoint that this run wrote, or of `chosen`
  std::string theLoadFault;
};

} // namespace espalier::rt
