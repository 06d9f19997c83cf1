// Happens-before tracking per byte: the last write, the reads since then, and whether the next operation is ordered
// after them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "test/emulator/memory.h"

namespace espalier::emulator {

/// The bytes that an operation read and wrote.
struct Accesses {
  Ranges reads, writes;
};

/// A vector clock: an operation with clock c happens after operation n of stream s if c[s] >= n.
class Clock {
public:
  uint64_t at(size_t stream) const { return stream < ticks.size() ? ticks[stream] : 0; }
  void advance(size_t stream, uint64_t tick);
  void join(const Clock &other);

private:
  std::vector<uint64_t> ticks;
};

/// An operation in the history of a byte.
struct Mark {
  size_t stream;
  uint64_t tick; // its number in the stream, from 1
  std::shared_ptr<const std::string> name;
};

/// Two unordered accesses to the same bytes.
struct Race {
  Range bytes;
  std::string first, second; // names of operations
  bool firstWrites, secondWrites;
};

/// The access history of all bytes.
class AccessMap {
public:
  /// Records an operation's accesses. Returns the first race with an operation that is not ordered before it.
  std::optional<Race> add(const Mark &operation, const Clock &clock, const Accesses &accesses);
  /// Forgets the history of freed memory.
  void forget(Range range);

private:
  struct State {
    uint64_t end = 0;
    std::optional<Mark> writer = {};
    std::vector<Mark> readers = {}; // reads since the last write, the last one of each stream
  };
  std::map<uint64_t, State> states; // keyed by begin, without overlap
  std::map<uint64_t, State>::iterator split(uint64_t at);
  std::optional<Race> read(const Mark &operation, const Clock &clock, Range range);
  std::optional<Race> write(const Mark &operation, const Clock &clock, Range range);
};

} // namespace espalier::emulator
