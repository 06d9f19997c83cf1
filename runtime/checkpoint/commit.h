// The folder of a run's checkpoints. A checkpoint is written beside its final name, renamed when all ranks are done and
// only then named in `latest`: at every moment one is loadable.
//
//   DIR/.lock                          held by the run that writes here; dies with its process
//   DIR/latest                         names the newest checkpoint and the checksum of its manifest
//   DIR/step-00000020/manifest.json    manifest.h
//   DIR/step-00000020/rank-00003.safetensors
#pragma once

#include <cstdint>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

namespace espalier::rt {

/// The checkpoint folders of DIR, the one that `latest` names first, the others from newest to oldest: by the sequence
/// numbers of their manifests, which a copy of the folder keeps, and those of older programs, which have none, by time.
std::vector<std::string> checkpointNames(const std::filesystem::path &folder);

/// Why `latest` is not to be believed: missing, damaged, or naming what is not there; empty where it is.
std::string latestFault(const std::filesystem::path &folder);

/// The checkpoint that a path means: the newest one of a folder of checkpoints, or the path itself. Throws PlanError
/// where there is none.
std::filesystem::path checkpointAt(const std::filesystem::path &path);

/// The newest complete checkpoint, empty where there is none.
std::string latestCheckpoint(const std::filesystem::path &folder);

/// The folder while a run holds it.
class CheckpointFolder {
public:
  /// Makes and locks it and removes what killed runs left half written. Throws PlanError where it cannot be written or
  /// another run holds it.
  explicit CheckpointFolder(std::filesystem::path folder) : CheckpointFolder(std::move(folder), "") {}
  /// The same, unless `token` is not empty: then a process with that token holds the folder.
  CheckpointFolder(std::filesystem::path folder, const std::string &token);
  ~CheckpointFolder();
  CheckpointFolder(const CheckpointFolder &) = delete;
  CheckpointFolder &operator=(const CheckpointFolder &) = delete;

  const std::filesystem::path &path() const { return folder; }
  const std::string &token() const { return theToken; }

  /// A number above those of all checkpoints that are there.
  uint64_t nextSequence() const;

  /// Bytes that may still be written there.
  uint64_t freeBytes() const;

  /// The hidden folder in which the checkpoint of a step is written; the same wherever the token is.
  std::filesystem::path partial(int64_t step) const;
  /// Makes it. Throws as the file system refuses.
  void begin(int64_t step) const;
  /// Gives it its name with the manifest in it, and names it in `latest`. Returns the name.
  std::string commit(int64_t step, const std::string &manifest) const;
  void discard(int64_t step) const noexcept;

  /// Removes all but the newest `keep` checkpoints; those of `apart` neither count nor go.
  void prune(size_t keep, const std::set<std::string> &apart) const;

private:
  void sweep() const;
  void remove(const std::string &name) const;

  std::filesystem::path folder;
  std::string theToken; ///< of the process that holds it, in the names of what is not finished
  int lock = -1;
};

} // namespace espalier::rt
