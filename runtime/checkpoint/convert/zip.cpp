// Sizes are taken from the central directory only, and only if the file is large enough.
#include "runtime/checkpoint/convert/zip.h"

#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <zlib.h>

namespace espalier::rt {
namespace {

constexpr uint32_t localSignature = 0x04034b50, centralSignature = 0x02014b50, endSignature = 0x06054b50;
constexpr uint32_t end64Signature = 0x06064b50, locator64Signature = 0x07064b50;
constexpr uint64_t endBytes = 22, end64Bytes = 56, locatorBytes = 20, centralBytes = 46, localBytes = 30;
constexpr uint64_t mostComment = 65535, mostDirectoryBytes = uint64_t(64) << 20, alignment = 64;
constexpr uint32_t full32 = 0xffffffff;
constexpr uint16_t full16 = 0xffff, extra64 = 1, version = 45;

[[noreturn]] void refuse(const FilePart &file, const std::string &reason) {
  throw PlanError(fmt::format("{}: damaged zip: {}", file.path().string(), reason));
}

/// Reads little-endian numbers of a range. A read past the end is an error of the file.
class Bytes {
public:
  Bytes(const FilePart &file, uint64_t at, uint64_t count) : file(file) {
    if (at > file.size() || count > file.size() - at)
      refuse(file, fmt::format("{} bytes at {} in a file of {}", count, at, file.size()));
    text.resize(count);
    file.read(at, std::as_writable_bytes(std::span(text)));
  }
  uint64_t number(uint64_t at, int width) const {
    if (at + width > text.size())
      refuse(file, "its directory ends within an entry");
    uint64_t value = 0;
    for (int i = width; i-- > 0;)
      value = value << 8 | static_cast<unsigned char>(text[at + i]);
    return value;
  }
  std::string string(uint64_t at, uint64_t count) const {
    if (at + count > text.size())
      refuse(file, "its directory ends within an entry");
    return text.substr(at, count);
  }
  uint64_t size() const { return text.size(); }

private:
  const FilePart &file;
  std::string text;
};

struct Directory {
  uint64_t at = 0, bytes = 0, entries = 0;
};

/// Finds the directory by its end record, the last record of the file except for a comment.
Directory findDirectory(const FilePart &file) {
  uint64_t tail = std::min(file.size(), endBytes + mostComment);
  Bytes bytes(file, file.size() - tail, tail);
  for (uint64_t back = endBytes; back <= tail; ++back) {
    uint64_t at = tail - back;
    if (bytes.number(at, 4) != endSignature || bytes.number(at + 20, 2) != back - endBytes)
      continue;
    Directory found{bytes.number(at + 16, 4), bytes.number(at + 12, 4), bytes.number(at + 10, 2)};
    uint64_t end = file.size() - back;
    if (end < locatorBytes)
      return found;
    Bytes locator(file, end - locatorBytes, locatorBytes);
    if (locator.number(0, 4) != locator64Signature)
      return found;
    Bytes end64(file, locator.number(8, 8), end64Bytes);
    if (end64.number(0, 4) != end64Signature)
      refuse(file, "its 64-bit end record is not at the offset of its locator");
    return {end64.number(48, 8), end64.number(40, 8), end64.number(32, 8)};
  }
  refuse(file, "it has no end record");
}

struct Central {
  std::string name;
  uint64_t header = 0, bytes = 0;
  uint32_t crc = 0;
};

/// Reads the entry at `at` and moves `at` past it.
Central readCentral(const FilePart &file, const Bytes &bytes, uint64_t &at) {
  if (bytes.number(at, 4) != centralSignature)
    refuse(file, fmt::format("no entry at {} of its directory", at));
  uint64_t flags = bytes.number(at + 8, 2), method = bytes.number(at + 10, 2);
  uint64_t stored = bytes.number(at + 20, 4), nameBytes = bytes.number(at + 28, 2), extra = bytes.number(at + 30, 2);
  Central central{bytes.string(at + centralBytes, nameBytes), bytes.number(at + 42, 4), bytes.number(at + 24, 4),
                  static_cast<uint32_t>(bytes.number(at + 16, 4))};
  if (flags & 1 || method != 0)
    refuse(file, fmt::format("entry '{}' is {}; entries are stored as they are", central.name,
                             flags & 1 ? "encrypted" : "compressed"));
  // Values that do not fit in 32 bits are stored in an extra field, in this order.
  for (uint64_t field = at + centralBytes + nameBytes, end = field + extra; field + 4 <= end;) {
    uint64_t length = bytes.number(field + 2, 2), value = field + 4;
    if (bytes.number(field, 2) == extra64)
      for (uint64_t *wide : {&central.bytes, &stored, &central.header})
        if (*wide == full32 && value + 8 <= field + 4 + length) {
          *wide = bytes.number(value, 8);
          value += 8;
        }
    field += 4 + length;
  }
  if (stored != central.bytes)
    refuse(file, fmt::format("entry '{}' has {} bytes and stores {}", central.name, central.bytes, stored));
  at += centralBytes + nameBytes + extra + bytes.number(at + 32, 2);
  return central;
}

void putNumber(std::string &text, uint64_t value, int width) {
  for (int i = 0; i < width; ++i)
    text.push_back(i < 8 ? static_cast<char>(value >> (8 * i)) : '\0');
}

} // namespace

bool isZip(const FilePart &file) {
  uint32_t first = 0;
  if (file.size() >= endBytes)
    file.read(0, std::as_writable_bytes(std::span(&first, 1)));
  return first == localSignature;
}

std::map<std::string, ZipEntry> readZip(const FilePart &file) {
  Directory directory = findDirectory(file);
  if (directory.bytes > mostDirectoryBytes)
    refuse(file, fmt::format("a directory of {} bytes, at most {} are read", directory.bytes, mostDirectoryBytes));
  Bytes bytes(file, directory.at, directory.bytes);
  std::map<std::string, ZipEntry> entries;
  std::vector<std::pair<uint64_t, uint64_t>> extents;
  uint64_t at = 0;
  for (uint64_t i = 0; i < directory.entries; ++i) {
    Central central = readCentral(file, bytes, at);
    Bytes local(file, central.header, localBytes);
    if (local.number(0, 4) != localSignature)
      refuse(file, fmt::format("entry '{}' is not at {}", central.name, central.header));
    uint64_t begin = central.header + localBytes + local.number(26, 2) + local.number(28, 2);
    if (begin > directory.at || central.bytes > directory.at - begin)
      refuse(file, fmt::format("entry '{}' has {} bytes from {}, the directory begins at {}", central.name,
                               central.bytes, begin, directory.at));
    extents.emplace_back(central.header, begin + central.bytes);
    if (!entries.try_emplace(central.name, ZipEntry{begin, central.bytes, central.crc}).second)
      refuse(file, fmt::format("entry '{}' comes twice", central.name));
  }
  std::ranges::sort(extents);
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].first < extents[i - 1].second)
      refuse(file, fmt::format("two entries overlap at {}", extents[i].first));
  return entries;
}

uint32_t zipChecksum(uint32_t before, std::span<const std::byte> bytes) {
  return static_cast<uint32_t>(crc32_z(before, reinterpret_cast<const Bytef *>(bytes.data()), bytes.size()));
}

void ZipWriter::write(std::string_view bytes) {
  file.write(bytes.data(), bytes.size());
  position += bytes.size();
}

void ZipWriter::add(const std::string &name, std::span<const std::byte> bytes) {
  Written entry{name, position, bytes.size(), zipChecksum(0, bytes)};
  bool isWide = entry.bytes >= full32;
  std::string extra;
  if (isWide) {
    putNumber(extra, extra64, 2);
    putNumber(extra, 16, 2);
    putNumber(extra, entry.bytes, 8);
    putNumber(extra, entry.bytes, 8);
  }
  // Entry data is aligned to 64 bytes. An extra field of torch's name for this purpose holds the padding.
  uint64_t begin = position + localBytes + name.size() + extra.size() + 4;
  uint64_t fill = (alignment - begin % alignment) % alignment;
  extra += "FB";
  putNumber(extra, fill, 2);
  extra.append(fill, 'Z');
  std::string header;
  putNumber(header, localSignature, 4);
  putNumber(header, isWide ? version : 0, 2);
  putNumber(header, 0x0800, 2); // names in UTF-8
  putNumber(header, 0, 2);      // stored
  putNumber(header, 0, 4);      // a constant time, so that the same tensors give the same bytes
  putNumber(header, entry.crc, 4);
  putNumber(header, isWide ? full32 : entry.bytes, 4);
  putNumber(header, isWide ? full32 : entry.bytes, 4);
  putNumber(header, name.size(), 2);
  putNumber(header, extra.size(), 2);
  write(header + name + extra);
  file.write(bytes);
  position += bytes.size();
  entries.push_back(entry);
}

uint64_t ZipWriter::finish() {
  uint64_t begin = position;
  for (const Written &entry : entries) {
    std::string extra;
    if (entry.bytes >= full32) {
      putNumber(extra, entry.bytes, 8);
      putNumber(extra, entry.bytes, 8);
    }
    if (entry.header >= full32)
      putNumber(extra, entry.header, 8);
    if (!extra.empty()) {
      std::string head;
      putNumber(head, extra64, 2);
      putNumber(head, extra.size(), 2);
      extra = head + extra;
    }
    std::string header;
    putNumber(header, centralSignature, 4);
    putNumber(header, extra.empty() ? 0 : version, 2);
    putNumber(header, extra.empty() ? 0 : version, 2);
    putNumber(header, 0x0800, 2);
    putNumber(header, 0, 6);
    putNumber(header, entry.crc, 4);
    putNumber(header, std::min<uint64_t>(entry.bytes, full32), 4);
    putNumber(header, std::min<uint64_t>(entry.bytes, full32), 4);
    putNumber(header, entry.name.size(), 2);
    putNumber(header, extra.size(), 2);
    putNumber(header, 0, 10);
    putNumber(header, std::min<uint64_t>(entry.header, full32), 4);
    write(header + entry.name + extra);
  }
  uint64_t bytes = position - begin, end64 = position;
  std::string end;
  putNumber(end, end64Signature, 4);
  putNumber(end, end64Bytes - 12, 8);
  putNumber(end, version, 2);
  putNumber(end, version, 2);
  putNumber(end, 0, 8);
  putNumber(end, entries.size(), 8);
  putNumber(end, entries.size(), 8);
  putNumber(end, bytes, 8);
  putNumber(end, begin, 8);
  putNumber(end, locator64Signature, 4);
  putNumber(end, 0, 4);
  putNumber(end, end64, 8);
  putNumber(end, 1, 4);
  putNumber(end, endSignature, 4);
  putNumber(end, 0, 4);
  putNumber(end, std::min<uint64_t>(entries.size(), full16), 2);
  putNumber(end, std::min<uint64_t>(entries.size(), full16), 2);
  putNumber(end, std::min<uint64_t>(bytes, full32), 4);
  putNumber(end, std::min<uint64_t>(begin, full32), 4);
  putNumber(end, 0, 2);
  write(end);
  return position;
}

} // namespace espalier::rt
