// Happens-before over bytes: which operation wrote each byte last, which have read it since, and whether the next one
// comes after them.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "test/emulator/memory.h"

namespace espalier::emulator {

/// Bytes that an operation read and wrote.
struct Accesses {
  Ranges reads, writes;
};

/// How far into each stream: an operation with clock c comes after operation n of stream s if c[s] >= n.
class Clock {
public:
  uint64_t at(size_t stream) const { return stream < ticks.size() ? ticks[stream] : 0; }
  void advance(size_t stream, uint64_t tick);
  void join(const Clock &other);

private:
  std::vector<uint64_t> ticks;
};

/// An operation as the map remembers it.
struct Mark {
  size_t stream;
  uint64_t tick; // its number in the stream, from 1
  std::shared_ptr<const std::string> name;
};

struct Race {
  Range bytes;
  std::string first, second; // names of operations
  bool firstWrites, secondWrites;
};

class AccessMap {
public:
  /// Adds what the operation did; gives the first race with an operation that its clock does not come after.
  std::optional<Race> add(const Mark &operation, const Clock &clock, const Accesses &accesses);
  /// Of memory that is given back, nothing is remembered.
  void forget(Range range);

private:
  struct State {
    uint64_t end = 0;
    std::optional<Mark> writer = {};
    std::vector<Mark> readers = {}; // since then, the last of each stream
  };
  std::map<uint64_t, State> states; // by begin, apart from one another
  std::map<uint64_t, State>::iterator split(uint64_t at);
  std::optional<Race> read(const Mark &operation, const Clock &clock, Range range);
  std::optional<Race> write(const Mark &operation, const Clock &clock, Range range);
};

} // namespace espalier::emulator
