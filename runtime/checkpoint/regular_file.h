// A file to read by ranges. A FIFO, a device or a folder in its place is an error, not a wait.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>

namespace espalier::rt {

enum class Links { Followed, Refused };

class RegularFile {
public:
  /// Throws PlanError if the file is missing, unreadable or no regular file.
  explicit RegularFile(const std::filesystem::path &path, Links links = Links::Followed);
  ~RegularFile();
  RegularFile(const RegularFile &) = delete;
  RegularFile &operator=(const RegularFile &) = delete;

  const std::filesystem::path &path() const { return name; }
  /// Bytes when it was opened.
  uint64_t size() const { return bytes; }

  /// Fills `to` with the bytes from `offset` on. Throws PlanError where the file ends before.
  void read(uint64_t offset, std::span<std::byte> to) const;

  /// Hands a range on in parts of a few MiB: `take` is told where a part begins within the range.
  void readParts(uint64_t offset, uint64_t count,
                 const std::function<void(uint64_t begin, std::span<const std::byte>)> &take) const;

private:
  std::filesystem::path name;
  int descriptor = -1;
  uint64_t bytes = 0;
};

/// The whole of a small file. Throws PlanError as RegularFile does, or if it has more than `most` bytes.
std::string readText(const std::filesystem::path &path, uint64_t most, Links links = Links::Followed);

} // namespace espalier::rt
