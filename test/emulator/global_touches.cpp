#include "test/emulator/global_touches.h"

#include <algorithm>

namespace espalier::emulator {

GlobalTouches::Owners &GlobalTouches::page(uint64_t number) {
  if (number != lastNumber) {
    std::unique_ptr<Owners> &owners = pages[number];
    if (!owners)
      owners = std::make_unique<Owners>();
    last = owners.get();
    lastNumber = number;
  }
  return *last;
}

template <class F> std::optional<GlobalTouches::Conflict> GlobalTouches::forGranules(Range bytes, F visit) {
  for (uint64_t at = bytes.begin; at < bytes.end;) {
    Owners &owners = page(at / pageBytes);
    uint64_t end = std::min(bytes.end, (at / pageBytes + 1) * pageBytes);
    for (; at < end; at = (at / granuleBytes + 1) * granuleBytes)
      if (std::optional<Conflict> conflict = visit(owners, at % pageBytes / granuleBytes)) {
        conflict->address = at;
        return conflict;
      }
  }
  return std::nullopt;
}

std::optional<GlobalTouches::Conflict> GlobalTouches::read(Range bytes, uint32_t block, bool isNonCoherent) {
  readBytes.mark(bytes.begin, bytes.end);
  if (isNonCoherent)
    nonCoherentBytes.mark(bytes.begin, bytes.end);
  if (!block)
    return std::nullopt;
  return forGranules(bytes, [&](Owners &owners, uint64_t i) -> std::optional<Conflict> {
    uint32_t writer = owners.writers[i];
    uint32_t &reader = owners.readers[i];
    reader = reader && reader != block ? severalBlocks : block;
    if (writer && writer != block)
      return Conflict{0, writer, /*isWrite=*/true};
    return std::nullopt;
  });
}

std::optional<GlobalTouches::Conflict> GlobalTouches::write(Range bytes, uint32_t block) {
  writtenBytes.mark(bytes.begin, bytes.end);
  if (!block)
    return std::nullopt;
  return forGranules(bytes, [&](Owners &owners, uint64_t i) -> std::optional<Conflict> {
    uint32_t &writer = owners.writers[i];
    uint32_t reader = owners.readers[i];
    if (writer && writer != block)
      return Conflict{0, writer, /*isWrite=*/true};
    if (reader && reader != block)
      return Conflict{0, reader == severalBlocks ? 0 : reader, /*isWrite=*/false};
    writer = block;
    return std::nullopt;
  });
}

} // namespace espalier::emulator
