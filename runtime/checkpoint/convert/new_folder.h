// A folder that is written completely or not at all.
#pragma once

#include <filesystem>

namespace espalier::rt {

/// A new folder under a hidden name. The destructor removes it unless commit() was called.
class NewFolder {
public:
  /// Throws PlanError if `wanted` exists and is not empty, or cannot be created.
  explicit NewFolder(const std::filesystem::path &wanted);
  ~NewFolder();
  NewFolder(const NewFolder &) = delete;

  /// Returns the folder to write to.
  const std::filesystem::path &path() const { return partial; }
  /// Renames the folder to its final name. Throws PlanError.
  void commit();

private:
  std::filesystem::path target, partial;
  int hold = -1; ///< of holdPartial()
};

} // namespace espalier::rt
