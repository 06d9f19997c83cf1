// The folder of a run's checkpoints. A checkpoint is written next to its final name, renamed when all ranks are done,
// and then named in `latest`. So one checkpoint is loadable at every moment.
//
//   DIR/.lock                          locked by the run that writes here; released when its process ends
//   DIR/.run-TOKEN.part                the mark of this run while it starts; shows that all hosts share the folder
//   DIR/latest                         names the newest checkpoint and the checksum of its manifest
//   DIR/step-00000020/manifest.json    see manifest.h
//   DIR/step-00000020/rank-00003.safetensors
#pragma once

#include "messages/plan_error.h"

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace espalier::rt {

/// Returns the checkpoint folders of DIR: first the one named by `latest`, then the others from newest to oldest. The
/// order follows the sequence numbers in the manifests, which survive a copy of the folder. Checkpoints of older
/// versions have no number and are ordered by time.
std::vector<std::string> checkpointNames(const std::filesystem::path &folder);

/// Returns why `latest` is not valid: missing, damaged, or naming a missing checkpoint. Empty if it is valid.
std::string latestFault(const std::filesystem::path &folder);

/// Returns the checkpoint at a path: the newest one of a folder of checkpoints, or the path itself. Throws PlanError if
/// there is none.
std::filesystem::path checkpointAt(const std::filesystem::path &path);

/// Returns the newest complete checkpoint, or an empty name.
std::string latestCheckpoint(const std::filesystem::path &folder);

/// The token of a run whose first process has no folder of checkpoints.
constexpr const char *noToken = "none";

/// Throws PlanError unless `folder` has the mark of the process that has locked the folder of this run. Waits a moment
/// for the mark, because a network file system may show new files late. An empty token and noToken need no mark.
void requireSharedFolder(const std::filesystem::path &folder, const std::string &token);

/// A checkpoint is complete, but `latest` cannot name it. The text says which one --resume takes.
class LatestFault : public PlanError {
public:
  LatestFault(const std::string &text, std::string name) : PlanError(text), name(std::move(name)) {}
  std::string name; ///< of the checkpoint
};

/// A folder of checkpoints, locked by this run.
class CheckpointFolder {
public:
  /// Creates and locks the folder and removes unfinished files of killed runs. Throws PlanError if the folder is not
  /// writable or another run holds the lock.
  explicit CheckpointFolder(std::filesystem::path folder) : CheckpointFolder(std::move(folder), "") {}
  /// If `token` is not empty, does not lock: a process with that token already holds the lock.
  CheckpointFolder(std::filesystem::path folder, const std::string &token);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder &) = delete;
  CheckpointFolder &operator=(const CheckpointFolder &) = delete;

  const std::filesystem::path &path() const { return folder; }
  const std::string &token() const { return theToken; }

  /// Removes the mark of this run, after all processes have seen it.
  void removeMark() const noexcept;

  /// Returns a number above those of all checkpoints in the folder.
  uint64_t nextSequence() const;

  /// Returns the free bytes of the file system.
  uint64_t freeBytes() const;

  /// Returns the hidden folder in which the checkpoint of a step is written. It depends only on step and token.
  std::filesystem::path partial(int64_t step) const;
  /// Creates the hidden folder. Throws std::filesystem::filesystem_error.
  void begin(int64_t step) const;
  /// Writes the manifest, renames the folder to its final name and updates `latest`. Returns the name. Throws
  /// LatestFault if all but the last succeeds.
  std::string commit(int64_t step, const std::string &manifest) const;
  /// Removes the hidden folder of a step.
  void discard(int64_t step) const noexcept;

  /// Removes all but the newest `keep` checkpoints. Checkpoints in `apart` are neither counted nor removed.
  void prune(size_t keep, const std::set<std::string> &apart) const;

private:
  void sweep() const;
  void remove(const std::string &name) const;

  std::filesystem::path folder;
  std::string theToken; ///< of the lock's holder; part of the names of unfinished files
  int lock = -1;
};

} // namespace espalier::rt
