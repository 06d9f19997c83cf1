// Atomic file output. Bytes go to a hidden temporary file beside the target, and commit() renames that file to the
// target. An interrupted run leaves at most the temporary file, whose name no reader accepts.
#pragma once

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace espalier::rt {

/// How far the bytes of a file must have come before it appears.
enum class Flush { ToDisk, ToSystem };

/// An output file that appears complete or not at all.
class AtomicFile {
public:
  /// Opens the temporary file. Throws DataError if the folder is not writable.
  explicit AtomicFile(std::string path);
  /// Removes the temporary file unless commit() was called.
  ~AtomicFile();
  AtomicFile(const AtomicFile &) = delete;
  AtomicFile &operator=(const AtomicFile &) = delete;

  /// Appends bytes. Throws DataError if the disk is full.
  void write(const void *data, size_t bytes);
  /// Appends values in their binary form.
  template <typename T> void write(std::span<const T> values) { write(values.data(), values.size_bytes()); }
  /// Renames the file to the target after its bytes have reached the disk, or the system alone. A crash of the machine
  /// may damage a file that has only reached the system.
  void commit(Flush flush = Flush::ToDisk);
  /// Returns the path of the target.
  const std::string &path() const { return target; }

private:
  std::string target;
  std::string neighbour;
  std::FILE *file = nullptr;
};

/// Writes a file atomically. Throws DataError.
void writeWhole(const std::filesystem::path &path, std::string_view text, Flush flush = Flush::ToDisk);

/// Waits until the bytes of a written file are on the disk. Throws DataError.
void syncFile(const std::filesystem::path &path);

} // namespace espalier::rt
