#include "test/emulator/access_map.h"

#include <algorithm>

namespace espalier::emulator {

void Clock::advance(size_t stream, uint64_t tick) {
  if (ticks.size() <= stream)
    ticks.resize(stream + 1);
  ticks[stream] = std::max(ticks[stream], tick);
}

void Clock::join(const Clock &other) {
  for (size_t stream = 0; stream < other.ticks.size(); ++stream)
    advance(stream, other.ticks[stream]);
}

std::optional<Race> AccessMap::add(const Mark &operation, const Clock &clock, const Accesses &accesses) {
  std::optional<Race> race;
  for (Range range : accesses.reads)
    if (auto found = read(operation, clock, range); found && !race)
      race = found;
  for (Range range : accesses.writes)
    if (auto found = write(operation, clock, range); found && !race)
      race = found;
  return race;
}

void AccessMap::forget(Range range) {
  split(range.end);
  states.erase(split(range.begin), states.lower_bound(range.end));
}

/// Splits the state that contains `at`. Returns the first state at or after `at`.
std::map<uint64_t, AccessMap::State>::iterator AccessMap::split(uint64_t at) {
  auto next = states.lower_bound(at);
  if (next == states.begin())
    return next;
  auto across = std::prev(next);
  if (across->second.end <= at)
    return next;
  State rest = across->second;
  across->second.end = at;
  return states.emplace_hint(next, at, std::move(rest));
}

std::optional<Race> AccessMap::read(const Mark &operation, const Clock &clock, Range range) {
  std::optional<Race> race;
  split(range.end);
  auto state = split(range.begin);
  uint64_t at = range.begin;
  while (at < range.end) {
    // Bytes that no operation has accessed yet.
    if (state == states.end() || state->first > at)
      state =
          states.emplace_hint(state, at, State{state == states.end() ? range.end : std::min(state->first, range.end)});
    State &now = state->second;
    if (now.writer && clock.at(now.writer->stream) < now.writer->tick && !race)
      race = Race{{at, now.end}, *now.writer->name, *operation.name, /*firstWrites=*/true, /*secondWrites=*/false};
    auto own = std::find_if(now.readers.begin(), now.readers.end(),
                            [&](const Mark &m) { return m.stream == operation.stream; });
    if (own == now.readers.end())
      now.readers.push_back(operation);
    else
      *own = operation;
    at = now.end;
    ++state;
  }
  return race;
}

std::optional<Race> AccessMap::write(const Mark &operation, const Clock &clock, Range range) {
  std::optional<Race> race;
  split(range.end);
  auto first = split(range.begin), last = states.lower_bound(range.end);
  for (auto state = first; state != last && !race; ++state) {
    const State &now = state->second;
    Range bytes{state->first, now.end};
    if (now.writer && clock.at(now.writer->stream) < now.writer->tick)
      race = Race{bytes, *now.writer->name, *operation.name, /*firstWrites=*/true, /*secondWrites=*/true};
    for (const Mark &reader : now.readers)
      if (!race && clock.at(reader.stream) < reader.tick)
        race = Race{bytes, *reader.name, *operation.name, /*firstWrites=*/false, /*secondWrites=*/true};
  }
  states.erase(first, last);
  states[range.begin] = {range.end, operation};
  return race;
}

} // namespace espalier::emulator
