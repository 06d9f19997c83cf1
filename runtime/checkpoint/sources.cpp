// Every piece has a checksum, and large pieces have one per block. A block is the smallest unit of reading.
#include "runtime/checkpoint/sources.h"

#include "runtime/comm/comm.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

/// The runs in the order of the stored piece, whose bytes arrive in ascending order.
class RunCutter {
public:
  RunCutter(std::span<const SharedRun> runs, int64_t elementBytes) : runs(runs), size(elementBytes) {}

  /// Passes on the bytes of runs that lie in the piece's bytes from `begin` on.
  void cut(uint64_t begin, std::span<const std::byte> bytes,
           const std::function<void(int64_t, std::span<const std::byte>)> &take) {
    auto first = static_cast<int64_t>(begin) / size, last = first + static_cast<int64_t>(bytes.size()) / size;
    for (; next < runs.size() && runs[next].from < last; ++next) {
      const SharedRun &run = runs[next];
      int64_t from = std::max(first, run.from), to = std::min(last, run.from + run.count);
      if (from < to)
        take(run.to + from - run.from, bytes.subspan((from - first) * size, (to - from) * size));
      if (run.from + run.count > last)
        return; // the next bytes contain the rest of this run
    }
  }

private:
  const std::span<const SharedRun> runs;
  const int64_t size;
  size_t next = 0;
};

} // namespace

std::vector<ByteRange> Take::bytesRead() const {
  std::vector<ByteRange> ranges;
  auto size = static_cast<uint64_t>(elementBytes(stored->piece.type));
  uint64_t part = stored->partBytes(), next = 0; // the first part that has not been read
  for (const SharedRun &run : runs) {
    next = std::max(next, run.from * size / part * part);
    for (uint64_t end = (run.from + run.count) * size; next < end; next += part)
      ranges.push_back({next, std::min(next + part, stored->piece.bytes())});
  }
  return ranges;
}

std::vector<SharedRun>::const_iterator Take::runAt(uint64_t byte) const {
  auto element = static_cast<int64_t>(byte / elementBytes(stored->piece.type));
  return std::ranges::upper_bound(runs, element, {}, [](const SharedRun &run) { return run.from + run.count; });
}

void Take::requireChecksum(const RegularFile &file, const RunningChecksum &sum, ByteRange range) const {
  if (sum.text() != stored->partChecksum(range.begin))
    throw PlanError(fmt::format("{}: damaged: {} of '{}' does not fit its checksum", file.path().string(),
                                stored->piece.kind, stored->piece.name));
}

void Take::read(const RegularFile &file, const std::function<void(int64_t, std::span<const std::byte>)> &take) const {
  for (ByteRange range : bytesRead())
    readPart(file, range, take);
}

void Take::readPart(const RegularFile &file, ByteRange range,
                    const std::function<void(int64_t, std::span<const std::byte>)> &take) const {
  RunCutter cutter({runAt(range.begin), runs.end()}, static_cast<int64_t>(elementBytes(stored->piece.type)));
  RunningChecksum sum;
  file.readParts(shard->headerBytes + stored->at + range.begin, range.end - range.begin,
                 [&](uint64_t begin, std::span<const std::byte> bytes) {
                   sum.add(bytes);
                   cutter.cut(range.begin + begin, bytes, take);
                 });
  requireChecksum(file, sum, range);
}

std::optional<int64_t> Take::placeOf(ByteRange range) const {
  auto size = static_cast<int64_t>(elementBytes(stored->piece.type));
  auto run = runAt(range.begin);
  int64_t first = static_cast<int64_t>(range.begin) / size, last = static_cast<int64_t>(range.end) / size;
  if (run == runs.end() || run->from > first || run->from + run->count < last)
    return std::nullopt;
  return run->to + first - run->from;
}

void Take::readPart(const RegularFile &file, ByteRange range, std::span<std::byte> to) const {
  constexpr size_t blockBytes = size_t{1} << 18; // is still in a core's cache when its checksum is computed
  RunningChecksum sum;
  for (size_t at = 0; at < to.size(); at += blockBytes) {
    std::span<std::byte> block = to.subspan(at, std::min(blockBytes, to.size() - at));
    file.read(shard->headerBytes + stored->at + range.begin + at, block);
    sum.add(block);
  }
  requireChecksum(file, sum, range);
}

Sources::Sources(const Manifest &manifest, std::string name) : name(std::move(name)) {
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces)
      tensors[{stored.piece.kind, stored.piece.name}].push_back({&shard, &stored});
}

const std::vector<Sources::Source> *Sources::find(const std::string &kind, const std::string &parameter) const {
  auto found = tensors.find({kind, parameter});
  return found == tensors.end() ? nullptr : &found->second;
}

const std::vector<Sources::Source> *Sources::sourcesFor(const Piece &wanted) const {
  const std::vector<Source> *own = find(wanted.kind, wanted.name);
  if (own && own->front().stored->piece.type == wanted.type)
    return own;
  if (wanted.kind == "value" || wanted.kind == "master")
    for (const char *kind : {"master", "value"})
      if (const std::vector<Source> *other = find(kind, wanted.name))
        return other;
  return own;
}

std::string Sources::fault(const std::string &kind, const std::string &parameter) const {
  Piece wanted;
  wanted.kind = kind;
  wanted.name = parameter;
  return sourcesFor(wanted) ? "" : fmt::format("it has no {} of '{}'", kind, parameter);
}

std::vector<Take> Sources::takesFor(const Piece &wanted) const {
  std::vector<Take> takes;
  int64_t found = 0;
  if (const std::vector<Source> *sources = sourcesFor(wanted))
    for (auto [shard, stored] : *sources) {
      Take take{shard, stored, {}};
      visitShared(stored->piece, wanted, [&](const SharedRun &run) {
        take.runs.push_back(run);
        found += run.count;
      });
      if (!take.runs.empty())
        takes.push_back(std::move(take));
    }
  if (int64_t all = realElements(wanted); found != all)
    throw PlanError(fmt::format("{}: damaged: {} of {} elements of {} are there", name, found, all, wanted.key()));
  return takes;
}

} // namespace espalier::rt
