// Short words are scanned for the best pair in each round. Long words use a heap with lazy deletion, because a
// quadratic scan of a megabyte without spaces would take too long.
#include "runtime/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

namespace espalier::rt {

namespace {
constexpr uint64_t emptyPair = ~uint64_t{0};
constexpr size_t shortWord = 48;

uint64_t pairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}
} // namespace

BpeMerges::BpeMerges(size_t count) : slots(std::bit_ceil(2 * count + 16), Slot{emptyPair, {noRank, -1}}) {}

size_t BpeMerges::slotOf(uint64_t pair) const {
  size_t mask = slots.size() - 1;
  uint64_t mixed = pair * 0x9e3779b97f4a7c15U;
  size_t at = (mixed ^ mixed >> 32) & mask;
  while (slots[at].pair != pair && slots[at].pair != emptyPair)
    at = (at + 1) & mask;
  return at;
}

void BpeMerges::grow() {
  std::vector<Slot> old(2 * slots.size(), Slot{emptyPair, {noRank, -1}});
  old.swap(slots);
  for (const Slot &slot : old)
    if (slot.pair != emptyPair)
      slots[slotOf(slot.pair)] = slot;
}

void BpeMerges::add(int32_t left, int32_t right, int32_t rank, int32_t merged) {
  if (2 * (used + 1) > slots.size())
    grow();
  Slot &slot = slots[slotOf(pairKey(left, right))];
  used += slot.pair == emptyPair;
  slot = {pairKey(left, right), {rank, merged}};
}

BpeMerges::Merge BpeMerges::find(int32_t left, int32_t right) const {
  return slots[slotOf(pairKey(left, right))].merge;
}

void BpeMerges::apply(std::vector<int32_t> &ids) const {
  if (ids.size() < 2)
    return;
  if (ids.size() <= shortWord)
    applyShort(ids);
  else
    applyLong(ids);
}

void BpeMerges::applyShort(std::vector<int32_t> &ids) const {
  Merge pairs[shortWord];
  size_t count = ids.size();
  for (size_t i = 0; i + 1 < count; ++i)
    pairs[i] = find(ids[i], ids[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i)
      if (pairs[i].rank < pairs[best].rank)
        best = i;
    if (pairs[best].rank == noRank)
      break;
    ids[best] = pairs[best].merged;
    std::copy(ids.begin() + best + 2, ids.begin() + count, ids.begin() + best + 1);
    std::copy(pairs + best + 1, pairs + count - 1, pairs + best);
    --count;
    if (best > 0)
      pairs[best - 1] = find(ids[best - 1], ids[best]);
    if (best + 1 < count)
      pairs[best] = find(ids[best], ids[best + 1]);
  }
  ids.resize(count);
}

void BpeMerges::applyLong(std::vector<int32_t> &ids) const {
  struct Candidate {
    int32_t rank, merged;
    size_t at;
    bool operator<(const Candidate &other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  struct Links {
    size_t before, after;
  };
  const size_t count = ids.size();
  std::vector<Links> links(count);
  std::vector<Candidate> first;
  auto candidate = [&](size_t left, size_t right) {
    Merge merge = find(ids[left], ids[right]);
    return Candidate{merge.rank, merge.merged, left};
  };
  for (size_t i = 0; i < count; ++i) {
    links[i] = {i - 1, i + 1}; // the first `before` wraps around and is never followed
    if (i + 1 < count)
      if (Candidate found = candidate(i, i + 1); found.rank != noRank)
        first.push_back(found);
  }
  std::priority_queue<Candidate> heap(std::less<Candidate>(), std::move(first));
  while (!heap.empty()) {
    Candidate top = heap.top();
    heap.pop();
    size_t left = top.at, right = links[left].after;
    // The candidate is stale if either side has changed since it was found.
    if (ids[left] < 0 || right >= count || find(ids[left], ids[right]).merged != top.merged)
      continue;
    ids[left] = top.merged;
    ids[right] = -1;
    links[left].after = links[right].after;
    if (links[left].after < count) {
      links[links[left].after].before = left;
      if (Candidate found = candidate(left, links[left].after); found.rank != noRank)
        heap.push(found);
    }
    if (left > 0)
      if (Candidate found = candidate(links[left].before, left); found.rank != noRank)
        heap.push(found);
  }
  std::erase(ids, -1);
}

} // namespace espalier::rt
