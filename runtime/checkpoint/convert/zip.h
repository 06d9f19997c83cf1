// The zip files of torch.save: entries are stored, not compressed, and begin at multiples of 64 bytes.
#pragma once

#include "runtime/checkpoint/regular_file.h"
#include "runtime/data/atomic_file.h"

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// Where an entry's bytes are in the file.
struct ZipEntry {
  uint64_t at = 0, bytes = 0;
  uint32_t crc = 0;
};

/// Whether the file begins as a zip does.
bool isZip(const RegularFile &file);

/// The entries of a zip by name. Throws PlanError where one is compressed or encrypted, lies outside of the file or
/// over another, or comes twice.
std::map<std::string, ZipEntry> readZip(const RegularFile &file);

/// The checksum of a zip's entries over bytes that come in parts; begins with 0.
uint32_t zipChecksum(uint32_t before, std::span<const std::byte> bytes);

class ZipWriter {
public:
  explicit ZipWriter(AtomicFile &file) : file(file) {}
  void add(const std::string &name, std::span<const std::byte> bytes);
  /// Writes the directory; nothing may follow.
  void finish();

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
