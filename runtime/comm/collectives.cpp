// Every member reads the other members' sources directly.
#include "runtime/comm/collectives.h"

#include "runtime/comm/reduce.h"

#include <algorithm>
#include <cstring>

namespace espalier::rt {
namespace {

const char *at(const void *base, int64_t bytes) { return static_cast<const char *>(base) + bytes; }
char *at(void *base, int64_t bytes) { return static_cast<char *>(base) + bytes; }

/// Copies unless source and destination are the same.
void copyTo(void *to, const void *from, int64_t bytes) {
  if (to != from && bytes > 0)
    std::memcpy(to, from, bytes);
}

} // namespace

int64_t reducedByEach(int64_t elements, int64_t members) {
  constexpr int64_t grain = 1024;
  int64_t each = (elements + members - 1) / members;
  return (each + grain - 1) / grain * grain;
}

bool agree(const Post &one, const Post &other) {
  auto isSame = [](const BufferPair &a, const BufferPair &b) { return a.elements == b.elements; };
  return one.kind == other.kind && one.reduction == other.reduction && one.type == other.type &&
         one.shift == other.shift && std::ranges::equal(one.used(), other.used(), isSame);
}

void Collectives::reserve(size_t members) {
  sources.resize(std::max(sources.size(), members));
  places.resize(sources.size());
}

void Collectives::doPart(std::span<const Post> posts, int index) {
  const Post &mine = posts[index];
  auto members = static_cast<int64_t>(posts.size());
  auto width = static_cast<int64_t>(elementBytes(mine.type));
  for (size_t buffer = 0; buffer < mine.buffers; ++buffer) {
    const BufferPair &own = mine.pairs[buffer];
    int64_t bytes = own.elements * width, part = bytes / members;
    switch (mine.kind) {
    case pb::Transfer::ALL_REDUCE:
      reduceForAll(posts, index, buffer);
      break;
    case pb::Transfer::REDUCE_SCATTER:
      reduceOwn(posts, index, buffer);
      break;
    case pb::Transfer::ALL_GATHER:
      for (int64_t i = 0; i < members; ++i)
        copyTo(at(own.to, i * part), posts[i].pairs[buffer].from, part);
      break;
    case pb::Transfer::ALL_TO_ALL:
      for (int64_t i = 0; i < members; ++i)
        copyTo(at(own.to, i * part), at(posts[i].pairs[buffer].from, index * part), part);
      break;
    default: { // SHIFT
      int64_t source = ((index - mine.shift) % members + members) % members;
      copyTo(own.to, posts[source].pairs[buffer].from, bytes);
    }
    }
  }
}

void Collectives::reduceForAll(std::span<const Post> posts, int index, size_t buffer) {
  const Post &mine = posts[index];
  auto members = static_cast<int64_t>(posts.size());
  int64_t elements = mine.pairs[buffer].elements;
  int64_t part = reducedByEach(elements, members);
  int64_t begin = std::min(elements, part * index), end = std::min(elements, begin + part);
  if (begin == end)
    return;
  for (int64_t i = 0; i < members; ++i) {
    sources[i] = posts[i].pairs[buffer].from;
    places[i] = posts[i].pairs[buffer].to;
  }
  reduceInOrder(mine.type, mine.reduction, {sources.data(), posts.size()}, {places.data(), posts.size()}, begin, end);
}

void Collectives::reduceOwn(std::span<const Post> posts, int index, size_t buffer) {
  const Post &mine = posts[index];
  const BufferPair &own = mine.pairs[buffer];
  int64_t part = own.elements / static_cast<int64_t>(posts.size());
  auto skipped = static_cast<int64_t>(index * part * elementBytes(mine.type));
  for (size_t i = 0; i < posts.size(); ++i)
    sources[i] = at(posts[i].pairs[buffer].from, skipped);
  reduceInOrder(mine.type, mine.reduction, {sources.data(), posts.size()}, {&own.to, 1}, 0, part);
}

} // namespace espalier::rt
