#include "test/emulator/queue.h"

#include <algorithm>
#include <utility>

namespace espalier::emulator {

Queue::Queue(uint64_t seed) : seed(seed), random(seed) { open(/*isBlocking=*/true); }

Stream *Queue::open(bool isBlocking, int device) {
  streams.push_back(std::make_unique<Stream>(Stream{.number = opened++, .isBlocking = isBlocking, .device = device}));
  return streams.back().get();
}

/// Runs the stream's remaining work, without ordering it before the host.
void Queue::close(Stream *stream) {
  while (!stream->pending.empty())
    if (!step(stream->last) && onIdle)
      onIdle();
  std::erase_if(streams, [&](const auto &owned) { return owned.get() == stream; });
}

bool Queue::owns(const Stream *stream) const {
  return std::any_of(streams.begin(), streams.end(), [&](const auto &owned) { return owned.get() == stream; });
}

Stream *Queue::neighbour(Stream *stream) {
  auto own = std::find_if(streams.begin(), streams.end(), [&](const auto &one) { return one.get() == stream; });
  for (size_t i = 1; i < streams.size(); ++i) {
    Stream *other = streams[(own - streams.begin() + i) % streams.size()].get();
    if (other != legacy() && other->device == stream->device && other->last)
      return other;
  }
  return stream;
}

void Queue::enqueue(Stream *stream, Operation operation) {
  auto work = std::make_shared<Work>();
  work->run = std::move(operation.run);
  work->isReady = std::move(operation.isReady);
  if (work->isReady)
    shared.push_back(work);
  work->waits = std::exchange(stream->waits, {});
  work->clock = host;
  work->clock.join(stream->waited);
  auto waitFor = [&](const Stream &other) {
    if (!other.last)
      return;
    work->clock.join(other.last->clock);
    work->waits.push_back(other.last);
  };
  // The legacy stream waits for all blocking streams, and they wait for it.
  if (stream == legacy()) {
    for (const auto &other : streams)
      if (other->isBlocking && other.get() != stream)
        waitFor(*other);
  } else if (stream->isBlocking) {
    waitFor(*legacy());
  }
  work->mark = {stream->number, ++stream->ticks, std::make_shared<const std::string>(std::move(operation.name))};
  work->clock.advance(stream->number, stream->ticks);
  stream->waited = work->clock;
  stream->last = work;
  stream->pending.push_back(work);
}

void Queue::record(Event &event, Stream *stream) {
  enqueue(stream, {"record of an event", [] { return Accesses(); }});
  event.recorded = stream->last;
}

void Queue::wait(Stream *stream, const Event &event) {
  if (!event.recorded)
    return;
  stream->waits.push_back(event.recorded);
  stream->waited.join(event.recorded->clock);
}

Stream *Queue::streamOf(const Work &work) const {
  for (const auto &stream : streams)
    if (stream->number == work.mark.stream)
      return stream.get();
  return nullptr;
}

/// Follows the dependencies of `wanted` to work that can run now: `wanted` itself or work that it waits for.
std::shared_ptr<Work> Queue::runnable(const std::shared_ptr<Work> &wanted) const {
  std::shared_ptr<Work> work = wanted;
  while (true) {
    work = streamOf(*work)->pending.front();
    auto open = std::find_if(work->waits.begin(), work->waits.end(), [](const auto &other) { return !other->isDone; });
    if (open == work->waits.end())
      return work;
    work = *open;
  }
}

/// Returns whether the work may run. After a fault all work may, because it is dropped and must not wait for other
/// devices.
bool Queue::mayRun(Work &work) {
  if (isBroken || !work.isReady)
    return true;
  try {
    return work.isReady();
  } catch (const std::exception &fault) {
    isBroken = true;
    onFault(fault);
    return true;
  }
}

/// Advances the work by one step. Returns whether anything ran. If the work waits for other devices, these may wait for
/// other work of this device.
bool Queue::step(const std::shared_ptr<Work> &work) {
  std::vector<std::shared_ptr<Work>> choice;
  if (seed) {
    for (const auto &stream : streams)
      if (!stream->pending.empty() && runnable(stream->pending.front()) == stream->pending.front())
        choice.push_back(stream->pending.front());
    std::shuffle(choice.begin(), choice.end(), random);
  } else {
    choice.push_back(runnable(work));
    if (!mayRun(*choice.front()))
      for (const auto &other : shared)
        choice.push_back(runnable(other));
  }
  for (const auto &next : choice)
    if (mayRun(*next)) {
      run(*streamOf(*next));
      return true;
    }
  return false;
}

bool Queue::advance(const std::shared_ptr<Work> &work) {
  if (!work->isDone)
    step(work);
  if (work->isDone)
    host.join(work->clock);
  return work->isDone;
}

void Queue::finish(std::shared_ptr<Work> work) {
  while (!work->isDone)
    if (!step(work) && onIdle)
      onIdle();
  host.join(work->clock);
}

void Queue::finishAll() {
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i]->last)
      finish(streams[i]->last);
}

void Queue::finishAll(int device) {
  for (size_t i = 0; i < streams.size(); ++i)
    if (streams[i]->device == device && streams[i]->last)
      finish(streams[i]->last);
}

bool Queue::carryOn() {
  bool isAny = !shared.empty();
  for (const auto &work : std::vector(shared))
    if (!work->isDone)
      step(work);
  return isAny;
}

void Queue::run(Stream &stream) {
  std::shared_ptr<Work> work = stream.pending.front();
  stream.pending.pop_front();
  if (work->isReady)
    std::erase(shared, work);
  if (!isBroken) {
    try {
      Accesses touched = work->run();
      if (auto race = accesses.add(work->mark, work->clock, touched)) {
        isBroken = true;
        onRace(*race);
      }
    } catch (const std::exception &fault) {
      isBroken = true;
      onFault(fault);
    }
  }
  work->run = nullptr;
  work->isReady = nullptr;
  work->waits.clear();
  work->isDone = true;
  work->doneAt = std::chrono::steady_clock::now();
}

} // namespace espalier::emulator
