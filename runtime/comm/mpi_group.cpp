// Each slice has a phase that moves shards and, for an ALL_REDUCE, a phase that moves results. A member enters a phase
// only after its messages of the previous phase are complete, so messages between two members match in phase order.
#include "runtime/comm/mpi_group.h"

#include "runtime/comm/reduce.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {
namespace {

constexpr size_t mostStaged = 8 << 20, leastStagedOfOne = 64 << 10, mostStagedOfOne = 1 << 20;

/// The staging bytes of each member, in whole cache lines, so that each member's elements are aligned.
constexpr size_t stagedBytesOf(size_t ranks) {
  constexpr size_t lineBytes = 64;
  return std::clamp(mostStaged / ranks, leastStagedOfOne, mostStagedOfOne) / lineBytes * lineBytes;
}
static_assert(stagedBytesOf(9) % alignof(float) == 0 && stagedBytesOf(9) < mostStaged / 9);

} // namespace

MpiGroup::MpiGroup(const MpiContext &context, SharedMemory &memory, std::vector<int> members, int self, int tag)
    : ranks(std::move(members)), index(self), tag(tag), messages(context, /*isSynchronous=*/false),
      stagedBytes(stagedBytesOf(ranks.size())), sources(ranks.size()) {
  if (ranks.size() > 1)
    staging = static_cast<char *>(memory.take(ranks.size() * stagedBytes));
}

bool MpiGroup::start(const CollectiveShape &shape, void *const *from, void *const *to) {
  if (started - done >= maxInFlight)
    return false;
  Operation &operation = operations[started++ % maxInFlight];
  operation.shape = shape;
  operation.from.assign(from, from + shape.elements.size());
  operation.to.assign(to, to + shape.elements.size());
  return true;
}

void MpiGroup::advance() {
  while (done < started && messages.areDone())
    step();
}

bool MpiGroup::isReduction() const {
  return head().shape.kind == pb::Transfer::ALL_REDUCE || head().shape.kind == pb::Transfer::REDUCE_SCATTER;
}

/// Does the next phase after all messages of the last phase are complete.
void MpiGroup::step() {
  switch (phase) {
  case Phase::Begin:
    if (buffer < head().shape.elements.size())
      return beginSlice();
    buffer = 0;
    ++done;
    return;
  case Phase::Parts:
    if (isReduction())
      reduceSlice();
    if (head().shape.kind == pb::Transfer::ALL_REDUCE)
      return shareResults();
    return endSlice();
  case Phase::Results:
    return endSlice();
  }
}

void MpiGroup::beginSlice() {
  const CollectiveShape &shape = head().shape;
  auto members = static_cast<int64_t>(ranks.size());
  int64_t elements = shape.elements[buffer];
  width = static_cast<int64_t>(elementBytes(shape.type));
  part = shape.kind == pb::Transfer::ALL_REDUCE ? reducedByEach(elements, members)
         : shape.kind == pb::Transfer::SHIFT    ? elements
                                                : elements / members;
  sliceElements = isReduction() ? static_cast<int64_t>(stagedBytes) / width : part;
  phase = Phase::Parts;
  if (shape.kind == pb::Transfer::SHIFT)
    shift();
  else
    moveParts();
}

void MpiGroup::endSlice() {
  phase = Phase::Begin;
  sliceBegin += sliceElements;
  if (sliceBegin < part)
    return;
  sliceBegin = 0;
  ++buffer;
}

/// Returns the range of `member`'s shard that the current slice moves.
MpiGroup::Range MpiGroup::slice(int64_t member) const {
  int64_t begin = member * part + sliceBegin, end = member * part + std::min(part, sliceBegin + sliceElements);
  int64_t elements = head().shape.elements[buffer];
  return {std::min(begin, elements), std::min(end, elements)};
}

char *MpiGroup::from(int64_t element) const { return static_cast<char *>(head().from[buffer]) + element * width; }
char *MpiGroup::to(int64_t element) const { return static_cast<char *>(head().to[buffer]) + element * width; }

void MpiGroup::keep(int64_t toElement, int64_t fromElement, int64_t count) {
  if (to(toElement) != from(fromElement) && count > 0)
    std::memcpy(to(toElement), from(fromElement), count * width);
}

void MpiGroup::send(int64_t member, const char *place, Range range) {
  if (range.size() > 0)
    messages.send(ranks[member], tag, place, range.size() * width);
}

void MpiGroup::receive(int64_t member, char *place, Range range) {
  if (range.size() > 0)
    messages.receive(ranks[member], tag, place, range.size() * width);
}

void MpiGroup::moveParts() {
  bool isGather = head().shape.kind == pb::Transfer::ALL_GATHER;
  Range own = slice(index);
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    if (i != index && isReduction())
      receive(i, staging + i * stagedBytes, own);
    else if (i != index)
      receive(i, to(slice(i).begin), slice(i));
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    if (i != index && isGather)
      send(i, from(sliceBegin), own);
    else if (i != index)
      send(i, from(slice(i).begin), slice(i));
  if (!isReduction())
    keep(own.begin, isGather ? sliceBegin : own.begin, own.size());
}

void MpiGroup::shift() {
  auto members = static_cast<int64_t>(ranks.size());
  int64_t by = (head().shape.shift % members + members) % members;
  Range all = {sliceBegin, std::min(part, sliceBegin + sliceElements)};
  if (by == 0)
    return keep(all.begin, all.begin, all.size());
  receive((index - by + members) % members, to(all.begin), all);
  send((index + by) % members, from(all.begin), all);
}

void MpiGroup::reduceSlice() {
  const CollectiveShape &shape = head().shape;
  Range own = slice(index);
  for (size_t i = 0; i < ranks.size(); ++i)
    sources[i] = static_cast<int>(i) == index ? from(own.begin) : staging + i * stagedBytes;
  void *place = to(shape.kind == pb::Transfer::ALL_REDUCE ? own.begin : sliceBegin);
  reduceInOrder(shape.type, shape.reduction, sources, {&place, 1}, 0, own.size());
}

void MpiGroup::shareResults() {
  phase = Phase::Results;
  Range own = slice(index);
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    if (i != index)
      receive(i, to(slice(i).begin), slice(i));
  for (int i = 0; i < static_cast<int>(ranks.size()); ++i)
    if (i != index)
      send(i, to(own.begin), own);
}

} // namespace espalier::rt
