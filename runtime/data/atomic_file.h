// Output that is whole or absent: bytes go to a hidden neighbour of the target, which takes the
// target's name only at commit(). An interrupted run leaves at most the neighbour, whose name no
// reader accepts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace espalier::rt {

class AtomicFile {
public:
  /// Opens the neighbour for writing; throws DataError when the folder does not allow it.
  explicit AtomicFile(std::string path);
  /// Removes the neighbour unless committed.
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  /// Appends; throws DataError when the disk is full.
  void write(const void *data, size_t bytes);
  template <typename T> void write(std::span<const T> values) { write(values.data(), values.size_bytes()); }
  /// Flushes to the disk and gives the file its name.
  void commit();
  const std::string &path() const { return target; }

private:
  std::string target;
  std::string neighbour;
  std::FILE *file = nullptr;
};

/// A file of this text, whole or absent; throws DataError.
void writeWhole(const std::filesystem::path &path, std::string_view text);

} // namespace espalier::rt
