#include "test/emulator/nccl_transfer.h"

#include <algorithm>
#include <cstring>

#include "test/emulator/device.h"
#include "test/emulator/numbers.h"

namespace espalier::emulator {
namespace {

constexpr const char *kindNames[] = {"all_reduce", "all_gather", "reduce_scatter", "send", "receive"};

[[noreturn]] void fault(const std::string &what) { throw Fault(Fault::Check::other, "", 0, "nccl: " + what); }

template <class T> T valueAt(const std::byte *place, uint64_t index) {
  T value;
  std::memcpy(&value, place + index * sizeof(T), sizeof(T));
  return value;
}

int32_t add(int32_t a, int32_t b) { return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b)); }
template <class T> T add(T a, T b) { return narrow<T>(widen(a) + widen(b)); }

int32_t greater(int32_t a, int32_t b) { return std::max(a, b); }
template <class T> T greater(T a, T b) { return widen(b) > widen(a) || std::isnan(widen(b)) ? b : a; }

/// `last(i)` is the member whose term is added last in element i; the member after it begins.
template <class T, class Last>
void reduce(const std::vector<const std::byte *> &sources, std::byte *to, uint64_t count, bool isMax, Last last) {
  for (uint64_t i = 0; i < count; ++i) {
    size_t first = last(i) + 1;
    auto result = valueAt<T>(sources[first % sources.size()], i);
    for (size_t s = 1; s < sources.size(); ++s) {
      auto next = valueAt<T>(sources[(first + s) % sources.size()], i);
      result = isMax ? greater(result, next) : add(result, next);
    }
    std::memcpy(to + i * sizeof(T), &result, sizeof(T));
  }
}

template <class Last>
void reduce(ncclDataType_t type, const std::vector<const std::byte *> &sources, std::byte *to, uint64_t count,
            bool isMax, Last last) {
  if (type == ncclInt32)
    return reduce<int32_t>(sources, to, count, isMax, last);
  if (type == ncclFloat16)
    return reduce<F16>(sources, to, count, isMax, last);
  if (type == ncclBfloat16)
    return reduce<BF16>(sources, to, count, isMax, last);
  reduce<float>(sources, to, count, isMax, last);
}

/// Sorted ranges without overlap.
Ranges joined(Ranges ranges) {
  std::erase_if(ranges, [](const Range &range) { return range.begin == range.end; });
  std::sort(ranges.begin(), ranges.end(), [](const Range &a, const Range &b) { return a.begin < b.begin; });
  Ranges result;
  for (const Range &range : ranges)
    if (!result.empty() && range.begin <= result.back().end)
      result.back().end = std::max(result.back().end, range.end);
    else
      result.push_back(range);
  return result;
}

} // namespace

uint64_t bytesOf(ncclDataType_t type) {
  switch (type) {
  case ncclInt8:
    return 1;
  case ncclFloat16:
  case ncclBfloat16:
    return 2;
  case ncclInt32:
  case ncclFloat32:
    return 4;
  }
  return 0;
}

Transfer::Transfer(std::shared_ptr<Member> member, std::vector<Part> given)
    : member(std::move(member)), parts(std::move(given)) {
  for (Part &part : parts)
    part.number = part.kind == Part::Receive ? ++this->member->received[part.peer]
                                             : ++this->member->sent[part.kind == Part::Send ? part.peer : maxMembers];
  ++this->member->unfinished;
}

std::string Transfer::name() const {
  const Part &first = parts.front();
  std::string more = parts.size() > 1 ? " and " + std::to_string(parts.size() - 1) + " more" : "";
  uint64_t bytes = std::max(bytesRead(first), bytesWritten(first));
  return std::string("nccl ") + kindNames[first.kind] + " of " + std::to_string(bytes) + " bytes" + more;
}

uint64_t Transfer::bytesRead(const Part &part) const {
  uint64_t bytes = part.count * bytesOf(part.type);
  return part.kind == Part::Receive ? 0 : part.kind == Part::ReduceScatter ? bytes * members() : bytes;
}

uint64_t Transfer::bytesWritten(const Part &part) const {
  uint64_t bytes = part.count * bytesOf(part.type);
  return part.kind == Part::Send ? 0 : part.kind == Part::AllGather ? bytes * members() : bytes;
}

Line &Transfer::line(int from, int to) const { return member->world->group(member->group).lines[from][to]; }

const std::byte *Transfer::read(const Part &part) const {
  const std::byte *source = hostMemory(part.from, bytesRead(part));
  if (!source && bytesRead(part) > 0)
    throw Fault(Fault::Check::bounds, "", 0, name() + ": what it reads is no memory of the device");
  return source;
}

/// Checks that no other part of the group accesses written memory, except in-place results that NCCL allows.
void Transfer::checkOverlaps() const {
  for (size_t i = 0; i < parts.size(); ++i) {
    const Part &part = parts[i];
    Range written = {part.to, part.to + bytesWritten(part)};
    uint64_t part0 = part.count * bytesOf(part.type) * member->rank;
    bool isInPlace = part.kind == Part::AllReduce       ? part.from == part.to
                     : part.kind == Part::AllGather     ? part.from == part.to + part0
                     : part.kind == Part::ReduceScatter ? part.to == part.from + part0
                                                        : false;
    for (size_t j = 0; j < parts.size(); ++j) {
      auto meets = [&](Range other) { return written.begin < other.end && other.begin < written.end; };
      bool isRead = meets({parts[j].from, parts[j].from + bytesRead(parts[j])}) && !(i == j && isInPlace);
      bool isWritten = i != j && meets({parts[j].to, parts[j].to + bytesWritten(parts[j])});
      if (isRead || isWritten)
        fault(name() + ": what it writes overlaps what it " + (isRead ? "reads" : "writes") + " elsewhere");
    }
  }
}

bool Transfer::poll() {
  if (member->isAborted)
    return true;
  if (!isChecked)
    checkOverlaps();
  isChecked = true;
  bool isDone = true;
  for (Part &part : parts)
    if (part.kind != Part::Receive)
      isDone &= part.isPosted || post(part);
  for (Part &part : parts)
    isDone &= part.isTaken || take(part);
  return isDone;
}

bool Transfer::post(Part &part) {
  int to = part.kind == Part::Send ? part.peer : maxMembers;
  uint32_t readers = part.kind == Part::Send ? 1 : members(); // its own rank also reads the data that it posted
  Post &place = line(member->rank, to).posts[(part.number - 1) % postsInFlight];
  if (part.number > postsInFlight && place.taken < readers)
    return false;
  uint64_t bytes = bytesRead(part);
  const std::byte *source = read(part);
  uint64_t room = member->world->take(bytes, place, part.number, readers);
  if (!room)
    return false;
  if (bytes)
    std::memcpy(member->world->at(room), source, bytes);
  place.kind = part.kind;
  place.type = part.type;
  place.reduction = part.reduction;
  place.count = part.count;
  place.bytes = bytes;
  place.place = room;
  place.taken = 0;
  place.posted = part.number;
  return part.isPosted = true;
}

bool Transfer::take(Part &part) {
  if (part.kind == Part::Receive)
    return takeFromPeer(part);
  if (part.kind != Part::Send)
    return takeFromAll(part);
  // A send ends when it was received.
  const Post &own = line(member->rank, part.peer).posts[(part.number - 1) % postsInFlight];
  return part.isTaken = part.isPosted && (own.posted > part.number || own.taken > 0);
}

bool Transfer::takeFromPeer(Part &part) {
  Post &post = line(part.peer, member->rank).posts[(part.number - 1) % postsInFlight];
  if (post.posted < part.number)
    return false;
  if (post.type != part.type || post.count != part.count)
    fault("rank " + std::to_string(member->rank) + " receives " + std::to_string(part.count) + " elements of type " +
          std::to_string(part.type) + ", rank " + std::to_string(part.peer) + " sends " + std::to_string(post.count) +
          " of type " + std::to_string(post.type));
  const std::byte *sent = member->world->at(post.place);
  part.result.assign(sent, sent + post.bytes);
  ++post.taken;
  return part.isTaken = true;
}

bool Transfer::takeFromAll(Part &part) {
  if (!part.isPosted)
    return false;
  std::vector<Post *> posts;
  for (int rank = 0; rank < members(); ++rank) {
    posts.push_back(&line(rank, maxMembers).posts[(part.number - 1) % postsInFlight]);
    if (posts.back()->posted < part.number)
      return false;
  }
  for (int rank = 0; rank < members(); ++rank)
    if (posts[rank]->kind != part.kind || posts[rank]->type != part.type || posts[rank]->reduction != part.reduction ||
        posts[rank]->count != part.count)
      fault("rank " + std::to_string(member->rank) + " calls " + kindNames[part.kind] + " of " +
            std::to_string(part.count) + " elements, rank " + std::to_string(rank) + " " +
            kindNames[posts[rank]->kind] + " of " + std::to_string(posts[rank]->count));
  part.result.resize(bytesWritten(part));
  std::vector<const std::byte *> sources;
  uint64_t partBytes = part.count * bytesOf(part.type);
  for (const Post *post : posts)
    sources.push_back(member->world->at(post->place) +
                      (part.kind == Part::ReduceScatter ? partBytes * member->rank : 0));
  if (part.kind == Part::AllGather)
    for (int rank = 0; rank < members(); ++rank)
      std::memcpy(part.result.data() + rank * partBytes, sources[rank], partBytes);
  else
    reduce(part.type, sources, part.result.data(), part.count, part.reduction == ncclMax, [&](uint64_t i) {
      return part.kind == Part::ReduceScatter ? static_cast<uint64_t>(member->rank) : i * members() / part.count;
    });
  for (Post *post : posts)
    ++post->taken;
  return part.isTaken = true;
}

Accesses Transfer::run() {
  --member->unfinished;
  if (member->isAborted)
    return {};
  Accesses touched;
  for (const Part &part : parts) {
    if (bytesRead(part))
      touched.reads.push_back({part.from, part.from + bytesRead(part)});
    uint64_t bytes = bytesWritten(part);
    if (!bytes)
      continue;
    std::byte *place = hostMemory(part.to, bytes);
    if (!place)
      throw Fault(Fault::Check::bounds, "", 0, name() + ": what it writes is no memory of the device");
    std::memcpy(place, part.result.data(), bytes);
    touched.writes.push_back({part.to, part.to + bytes});
  }
  return {joined(touched.reads), joined(touched.writes)};
}

} // namespace espalier::emulator
