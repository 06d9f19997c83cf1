// A read-only memory mapping of a file. The system reads pages on first access, so the file may be larger than memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace espalier::rt {

/// Owns a mapping.
class MappedFile {
public:
  MappedFile() = default;
  /// Maps all of `path`. Throws DataError if the file is missing, unreadable or not a regular file.
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  /// Returns the content of the file.
  std::span<const uint8_t> bytes() const { return {start, length}; }

private:
  const uint8_t *start = nullptr; // null for an empty file, which mmap rejects
  size_t length = 0;
};

/// Returns whether `path` is a regular file, or a link to one.
bool isRegularFile(const std::string &path);

/// Returns the content of a file. Throws DataError if the file is unreadable or longer than `limitBytes`.
std::string readWholeFile(const std::string &path, uint64_t limitBytes);

} // namespace espalier::rt
