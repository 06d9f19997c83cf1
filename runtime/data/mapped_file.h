// A file mapped read-only into memory. Pages are read as they are touched, so a file larger than
// memory is fine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace espalier::rt {

class MappedFile {
public:
  MappedFile() = default;
  /// Maps the whole of `path`; throws DataError when it is absent, unreadable or no regular file.
  explicit MappedFile(const std::string &path);
  ~MappedFile();
  MappedFile(MappedFile &&other) noexcept;
  MappedFile &operator=(MappedFile &&other) noexcept;
  MappedFile(const MappedFile &) = delete;
  MappedFile &operator=(const MappedFile &) = delete;

  std::span<const uint8_t> bytes() const { return {start, length}; }

private:
  const uint8_t *start = nullptr; // null for an empty file, which mmap refuses
  size_t length = 0;
};

/// True when `path` is a regular file (links are followed).
bool isRegularFile(const std::string &path);

/// The whole of a file as text; throws DataError when it is unreadable or longer than `limitBytes`.
std::string readWholeFile(const std::string &path, uint64_t limitBytes);

} // namespace espalier::rt
