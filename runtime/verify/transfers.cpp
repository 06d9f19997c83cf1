// In-flight transfers in the simulation. Between START and WAIT, no step may write a transfer's sources or access its
// targets, except later transfers on the same queue.
#include "runtime/verify/limits.h"
#include "runtime/verify/play.h"

#include <algorithm>
#include <utility>

namespace espalier::rt::verify {

void Play::startTransfer(const pb::Flight &flight) {
  const pb::Transfer &transfer = view.plan.transfers(static_cast<int>(flight.transfer()));
  const std::vector<Operand> &operands = view.transfers[flight.transfer()];
  microBatch = flight.micro_batch() + round * advance;
  setSlots(flight.call(), flight.slots());
  writers.push_back({action, round * advance, -1});
  auto [opened, isNew] = inFlight.try_emplace({flight.transfer(), flight.call(), microBatch});
  if (!isNew)
    return add("{}/{} is still in flight", transfer.name(), microBatch);
  if (++openOnQueue[transfer.queue()] == maxOpen + 1)
    add("more than {} transfers in flight on queue '{}'", maxOpen,
        view.plan.queues(static_cast<int>(transfer.queue())).name());
  readSources(transfer, operands, opened->second);
  writeTargets(transfer, operands, opened->second);
  for (const auto &[memory, span] : opened->second.read)
    memories[static_cast<size_t>(memory)].open(span, /*isWrite=*/false, transfer.queue());
  for (const auto &[memory, span] : opened->second.written)
    memories[static_cast<size_t>(memory)].open(span, /*isWrite=*/true, transfer.queue());
}

void Play::readSources(const pb::Transfer &transfer, const std::vector<Operand> &operands, OpenTransfer &opened) {
  for (size_t i = 0; i < static_cast<size_t>(transfer.from_size()); ++i) {
    checkReady(operands[i], transfer.queue(), transfer.name() + " moves");
    Where at = where(operands[i].region);
    Span span = spanOf(operands[i], at);
    opened.read.push_back({at.memory, {span.begin, span.end, 0}});
  }
}

void Play::writeTargets(const pb::Transfer &transfer, const std::vector<Operand> &operands, OpenTransfer &opened) {
  size_t sources = static_cast<size_t>(transfer.from_size());
  for (size_t i = sources; i < operands.size(); ++i) {
    const Operand &to = operands[i];
    std::optional<Instance> instance = instanceOf(to);
    Where at = where(to.region);
    Span span = spanOf(to, at);
    if (!instance || !checkFree(at, span, transfer.queue(), describe(*instance)))
      continue;
    for (const Span &given : filled)
      if (at.memory == pb::HOST && given.overlaps(span))
        return add("{} writes over what the host fills", transfer.name());
    const ValueInfo &info = view.values[to.value];
    Content content = contentOf(to, at, *instance);
    bool isKept = info.part == ValueInfo::Stored || info.part == ValueInfo::State;
    // Gathered shards keep the version of the shards.
    bool isBrought = sources > 0 && isKept && view.values[operands[i - sources].value].root == info.root;
    uint32_t version = 0;
    if (isBrought) {
      Where there = where(operands[i - sources].region);
      bytesOf(there).check(spanOf(operands[i - sources], there), [&](const Content &old) {
        version = old.version;
        return true;
      });
    }
    // Writing shards in place destroys the unsharded value. Only the zeros between parameters remain.
    auto clear = [](int64_t, Content &old) { old = old.isPadding ? old : Content(); };
    if (span.part && !opened.read.empty())
      for (const auto &[memory, source] : opened.read)
        if (memory == at.memory && source.overlaps(span))
          bytesOf(at).change({span.begin, span.end, 0}, clear);
    bytesOf(at).change(span, [&](int64_t, Content &old) {
      Content before = std::exchange(old, content);
      old.version = isBrought ? version : isKept ? before.version + 1 : 0;
      old.isPadding = before.isPadding && info.part == ValueInfo::Total; // a sum of zeros is zero
      old.sum = old.isPadding ? before.sum : 0;
    });
    if (transfer.kind() == pb::Transfer::COPY) {
      copyTags(operands[i - sources], at, span);
      beginSums(operands[i - sources], to, *instance);
    }
    opened.written.push_back({at.memory, {span.begin, span.end, 0}});
  }
}

/// Copies the tags of a value's slices, so that the copy of a slice keeps the meaning that a transfer gave it.
void Play::copyTags(const Operand &from, const Where &to, const Span &target) {
  Where there = where(from.region);
  Span source = spanOf(from, there);
  std::vector<std::pair<Span, uint32_t>> tags;
  bytesOf(there).forEach([&](const Span &piece, const Content &content) {
    if (content.kind == Content::Ready && content.tag && piece.begin < source.end && source.begin < piece.end) {
      int64_t begin = std::max(piece.begin, source.begin), end = std::min(piece.end, source.end);
      tags.push_back({{target.begin + begin - source.begin, target.begin + end - source.begin, 0}, content.tag});
    }
  });
  for (const auto &[span, tag] : tags)
    bytesOf(to).change(span, [&, is = tag](int64_t, Content &content) { content.tag = is; });
}

/// Marks the sums of this entry that the host has initialized as sums without terms. A read before all terms are added
/// then fails.
void Play::beginSums(const Operand &from, const Operand &to, const Instance &instance) {
  Span source = spanOf(from, where(from.region));
  auto isFilled = [&](const Span &given) { return given.overlaps(source); };
  if (where(from.region).memory != pb::HOST || std::ranges::none_of(filled, isFilled))
    return;
  Where at = where(to.region);
  for (uint32_t value = 0; value < view.values.all().size(); ++value) {
    const ValueInfo &info = view.values[value];
    bool isWithin = info.root == instance.value && to.valueBegin <= info.begin && info.end <= to.valueEnd;
    if (!isWithin || !info.isSum || sums.expected(value, instance) == 0)
      continue;
    int64_t origin = at.base + to.origin;
    bytesOf(at).change({origin + info.begin, origin + info.end, 0}, [&](int64_t, Content &content) {
      content.kind = Content::Sum;
      content.sum = value;
      content.terms = 0;
    });
  }
}

void Play::waitForTransfer(const pb::Flight &flight) {
  microBatch = flight.micro_batch() + round * advance;
  const pb::Transfer &transfer = view.plan.transfers(static_cast<int>(flight.transfer()));
  auto found = inFlight.find({flight.transfer(), flight.call(), microBatch});
  if (found == inFlight.end())
    return add("waits for {}/{}, which was not started", transfer.name(), microBatch);
  for (const auto &[memory, span] : found->second.read)
    memories[static_cast<size_t>(memory)].close(span, /*isWrite=*/false);
  for (const auto &[memory, span] : found->second.written)
    memories[static_cast<size_t>(memory)].close(span, /*isWrite=*/true);
  --openOnQueue[transfer.queue()];
  inFlight.erase(found);
}

} // namespace espalier::rt::verify
