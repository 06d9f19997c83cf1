// The zip files of torch.save: entries are not compressed and begin at multiples of 64 bytes.
#pragma once

#include "runtime/checkpoint/convert/file_part.h"
#include "runtime/files/atomic_file.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// The position of an entry's bytes in the file.
struct ZipEntry {
  uint64_t at = 0, bytes = 0;
  uint32_t crc = 0;
};

/// Returns whether the file begins with a zip signature.
bool isZip(const FilePart &file);

/// Returns the entries of a zip by name. Throws PlanError if an entry is compressed, encrypted, outside of the file,
/// overlapping or duplicate.
std::map<std::string, ZipEntry> readZip(const FilePart &file);

/// Returns the CRC-32 of zip entries, computed incrementally; `before` is 0 at first.
uint32_t zipChecksum(uint32_t before, std::span<const std::byte> bytes);

/// Writes a zip file.
class ZipWriter {
public:
  explicit ZipWriter(AtomicFile &file) : file(file) {}
  /// Appends an entry.
  void add(const std::string &name, std::span<const std::byte> bytes);
  /// Writes the directory. No entry may follow. Returns the number of bytes that were written.
  uint64_t finish();

private:
  struct Written {
    std::string name;
    uint64_t header = 0, bytes = 0;
    uint32_t crc = 0;
  };
  void write(std::string_view bytes);

  AtomicFile &file;
  uint64_t position = 0;
  std::vector<Written> entries;
};

} // namespace espalier::rt
