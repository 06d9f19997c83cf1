// Output of several files that is whole or absent.
#pragma once

#include <filesystem>

namespace espalier::rt {

/// A folder while it is written: hidden beside its place, and gone unless it was given its name.
class NewFolder {
public:
  /// Throws PlanError where `wanted` is there and not empty, or cannot be made.
  explicit NewFolder(const std::filesystem::path &wanted);
  ~NewFolder();
  NewFolder(const NewFolder &) = delete;

  /// Where to write.
  const std::filesystem::path &path() const { return partial; }
  void commit();

private:
  std::filesystem::path target, partial;
};

} // namespace espalier::rt
