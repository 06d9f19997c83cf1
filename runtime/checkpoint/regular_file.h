// A file that is read by ranges. A FIFO, device or folder is an error and does not block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace espalier::rt {

/// Whether symbolic links are followed.
enum class Links { Followed, Refused };

/// An open regular file.
class RegularFile {
public:
  /// Throws PlanError if the file is missing, unreadable or not a regular file.
  explicit RegularFile(const std::filesystem::path &path, Links links = Links::Followed);
  ~RegularFile();
  RegularFile(const RegularFile &) = delete;
  RegularFile &operator=(const RegularFile &) = delete;

  const std::filesystem::path &path() const { return name; }
  /// Returns the size in bytes at the time of opening.
  uint64_t size() const { return bytes; }

  /// Fills `to` with the bytes from `offset` on. Throws PlanError if the file ends before.
  void read(uint64_t offset, std::span<std::byte> to) const;

  /// Passes a range to `take` in parts of a few MiB; `begin` is the part's offset within the range.
  void readParts(uint64_t offset, uint64_t count,
                 const std::function<void(uint64_t begin, std::span<const std::byte>)> &take) const;

private:
  std::filesystem::path name;
  int descriptor = -1;
  uint64_t bytes = 0;
};

/// Reads a whole small file. Throws PlanError like RegularFile, or if it has more than `most` bytes.
std::string readText(const std::filesystem::path &path, uint64_t most, Links links = Links::Followed);

} // namespace espalier::rt
