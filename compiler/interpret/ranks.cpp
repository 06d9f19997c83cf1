#include "compiler/interpret/ranks.h"

#include <algorithm>

namespace espalier {

static llvm::Error makeError(const std::string &text) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), text);
}

llvm::Expected<Rendezvous::Parts> Rendezvous::exchange(const Call &call, Tensor part) {
  std::unique_lock lock(mutex);
  std::pair key(call.group, calls[{call.group, call.position}]++);
  Round &round = rounds[key];
  if (round.arrived == 0) {
    round.parts.resize(call.members);
    round.operation = call.operation;
  }
  if (round.operation != call.operation)
    return makeError("group " + call.group + " meets for " + round.operation + " and for " + call.operation);
  round.parts[call.position] = std::make_shared<const Tensor>(std::move(part));
  ++round.arrived;
  changed.notify_all();
  std::string what = call.operation + " of group " + call.group;
  if (llvm::Error error = wait(lock, what, [&] { return round.arrived == call.members; }))
    return error;
  Parts parts = round.parts;
  if (++round.taken == call.members)
    rounds.erase(key);
  return parts;
}

void Rendezvous::send(int from, int to, int64_t tag, Tensor value) {
  std::unique_lock lock(mutex);
  queues[{from, to, tag}].push_back(std::move(value));
  changed.notify_all();
}

llvm::Expected<Tensor> Rendezvous::receive(int from, int to, int64_t tag) {
  std::unique_lock lock(mutex);
  std::deque<Tensor> &queue = queues[{from, to, tag}];
  std::string what =
      "message " + std::to_string(tag) + " from rank " + std::to_string(from) + " to rank " + std::to_string(to);
  if (llvm::Error error = wait(lock, what, [&] { return !queue.empty(); }))
    return error;
  Tensor value = std::move(queue.front());
  queue.pop_front();
  return value;
}

void Rendezvous::leave(bool hasFailed) {
  std::unique_lock lock(mutex);
  --active;
  if (hasFailed && failure.empty())
    failure = "another rank has failed";
  failIfStuck();
  changed.notify_all();
}

llvm::Error Rendezvous::wait(std::unique_lock<std::mutex> &lock, const std::string &what, const Condition &condition) {
  waiting[&condition] = what;
  failIfStuck();
  changed.wait(lock, [&] { return !failure.empty() || condition(); });
  waiting.erase(&condition);
  if (!condition())
    return makeError(failure);
  return llvm::Error::success();
}

/// Fails all waits if all active ranks wait and none of their conditions holds, because no rank is left to change that.
void Rendezvous::failIfStuck() {
  if (!failure.empty() || waiting.empty() || static_cast<int>(waiting.size()) < active)
    return;
  if (std::any_of(waiting.begin(), waiting.end(), [](auto &entry) { return (*entry.first)(); }))
    return;
  std::vector<std::string> texts;
  for (auto &[condition, what] : waiting)
    texts.push_back(what);
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  failure = "all ranks are blocked, waiting for";
  for (const std::string &text : texts)
    failure += (text == texts.front() ? " " : ", ") + text;
  changed.notify_all();
}

} // namespace espalier
