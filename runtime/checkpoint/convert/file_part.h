// A range of a file that is read as a file of its own.
#pragma once

#include "runtime/checkpoint/regular_file.h"
#include "runtime/status.h"

#include <fmt/format.h>

namespace espalier::rt {

/// A range of bytes.
struct FileRange {
  uint64_t begin = 0, bytes = 0;
};

/// A range of an open file, which must outlive it. Offsets count from the begin of the range.
class FilePart {
public:
  /// The whole file.
  FilePart(const RegularFile &file) : file(file), range{0, file.size()} {} // NOLINT: a file is a part of itself
  /// Throws PlanError if the file ends before the range.
  FilePart(const RegularFile &file, const FileRange &range) : file(file), range(range) {
    if (range.begin > file.size() || range.bytes > file.size() - range.begin)
      throw PlanError(fmt::format("{}: has {} bytes, wanted {} from {}", file.path().string(), file.size(), range.bytes,
                                  range.begin));
  }

  const std::filesystem::path &path() const { return file.path(); }
  uint64_t size() const { return range.bytes; }
  /// Fills `to` with the bytes from `offset` on. Throws PlanError if the file ends before.
  void read(uint64_t offset, std::span<std::byte> to) const { file.read(range.begin + offset, to); }
  /// Passes `count` bytes to `take` in parts, as RegularFile does.
  void readParts(uint64_t offset, uint64_t count,
                 const std::function<void(uint64_t begin, std::span<const std::byte>)> &take) const {
    file.readParts(range.begin + offset, count, take);
  }

private:
  const RegularFile &file;
  const FileRange range;
};

} // namespace espalier::rt
