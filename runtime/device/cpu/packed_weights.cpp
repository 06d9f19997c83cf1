#include "runtime/device/cpu/packed_weights.h"

#include "runtime/device/cpu/backend.h"
#include "runtime/program.h"

#include <algorithm>
#include <sys/mman.h>

namespace espalier::rt {
namespace {

constexpr uint64_t pageBytes = 4096;

uint64_t upToPage(uint64_t offset) { return (offset + pageBytes - 1) / pageBytes * pageBytes; }
uint64_t downToPage(uint64_t offset) { return offset / pageBytes * pageBytes; }

/// Returns whether the parameters in this region have the same elements in every run of an entry.
bool isConstant(const pb::Plan &plan, uint32_t region) {
  auto isThere = [&](const pb::Buffer &buffer) { return buffer.region() == region; };
  return plan.settings().prompt_tokens() > 0 &&
         std::ranges::none_of(plan.entries(),
                              [&](const pb::Entry &entry) { return std::ranges::count(entry.writes(), region) > 0; }) &&
         std::ranges::none_of(plan.transfers(), [&](const pb::Transfer &transfer) {
           return std::ranges::any_of(transfer.from(), isThere) || std::ranges::any_of(transfer.to(), isThere);
         });
}

struct PackJob {
  const LibraryKernel *kernel;
  const std::byte *weights;
  std::byte *packed;
};

void runPackPart(void *context, int64_t part, int) {
  const PackJob &job = *static_cast<const PackJob *>(context);
  job.kernel->pack(job.weights, job.packed, part);
}

/// Returns the memory of whole pages to the system. Memory that processes share needs the first call, other memory the
/// second.
void release(std::byte *begin, uint64_t bytes) {
  if (bytes > 0 && madvise(begin, bytes, MADV_REMOVE) != 0)
    madvise(begin, bytes, MADV_DONTNEED);
}

} // namespace

/// The reads of the parameters of a stage.
struct WeightUses::Collector {
  struct Product {
    Weight weight;
    uint64_t end; ///< of the stored weights
    bool wantsPacked;
  };
  std::vector<Product> products;
  std::vector<std::pair<uint64_t, uint64_t>> reads; ///< of everything but these products

  const pb::Stage &stage;
  uint32_t region;

  /// Adds the uses of the parameters by an instruction of a call. `kernel` is its library kernel or null.
  void add(const pb::Call &call, const pb::Instruction &instruction, const LibraryKernel *kernel) {
    auto binding = std::ranges::find(call.bindings(), region, &pb::Binding::region);
    const auto &buffers = instruction.has_call() ? instruction.call().buffers() : instruction.launch().buffers();
    for (int i = 0; i < buffers.size() && binding != call.bindings().end(); ++i) {
      const pb::Buffer &buffer = buffers[i];
      if (buffer.region() != region)
        continue;
      uint64_t begin = stage.places(static_cast<int>(binding->place())).offsets(0) + binding->offset();
      uint64_t first = begin + buffer.offset();
      std::optional<PackedLayout> layout = kernel ? kernel->packedLayout() : std::nullopt;
      if (buffer.part() != 0 || buffer.has_reads_at())
        reads.emplace_back(begin, stage.arena_bytes(pb::DEVICE));
      else if (i == 1 && layout && instruction.call().function() == pb::LibraryCall::MATMUL)
        products.push_back({{first, kernel, *layout}, first + buffer.bytes(), kernel->wantsPacked()});
      else
        reads.emplace_back(first, first + buffer.bytes());
    }
  }
};

WeightUses::WeightUses(const CpuBackend &backend, const pb::Stage &stage) {
  const pb::Plan &plan = backend.plan();
  std::optional<uint32_t> region = findRegion(plan, "parameters");
  if (!region || !isConstant(plan, *region))
    return;
  Collector found = {.products = {}, .reads = {}, .stage = stage, .region = *region};
  for (const pb::Call &call : stage.calls())
    for (uint32_t number : call.programs()) {
      const pb::Subprogram *program = number > 0 ? &plan.subprograms(static_cast<int>(number) - 1) : nullptr;
      for (int i = 0; program && i < program->instructions_size(); ++i)
        found.add(call, program->instructions(i),
                  backend.instruction(number - 1, static_cast<uint32_t>(i)).kernel.get());
    }
  choose(found);
  uint64_t limit = plan.memory_limit_bytes();
  if (limit > 0 && !backend.quantizes() && stage.arena_bytes(pb::DEVICE) + addedBytes() > limit) {
    packed.clear();
    freed.clear();
  }
}

/// Chooses the weights that a product of few rows reads, and the pages that are then unread.
void WeightUses::choose(Collector &found) {
  std::vector<std::pair<uint64_t, uint64_t>> stored;
  std::ranges::sort(found.products, {}, [](const Collector::Product &one) { return one.weight.offset; });
  for (const Collector::Product &one : found.products) {
    auto isSame = [&](const Collector::Product &other) {
      return other.weight.offset == one.weight.offset && other.weight.layout == one.weight.layout;
    };
    if (!std::ranges::any_of(found.products,
                             [&](const Collector::Product &other) { return other.wantsPacked && isSame(other); })) {
      found.reads.emplace_back(one.weight.offset, one.end);
      continue;
    }
    stored.emplace_back(one.weight.offset, one.end);
    auto isKnown = [&](const Weight &known) {
      return known.offset == one.weight.offset && known.layout == one.weight.layout;
    };
    if (std::ranges::none_of(packed, isKnown))
      packed.push_back(one.weight);
  }
  std::ranges::sort(found.reads);
  uint64_t done = 0;
  auto free = [&](uint64_t begin, uint64_t end) {
    if (upToPage(begin) < downToPage(end))
      freed.emplace_back(upToPage(begin), downToPage(end));
  };
  // Merges stored weights that adjoin, so that a page of two weights counts as unread.
  for (size_t i = 0; i < stored.size();) {
    uint64_t begin = std::max(done, stored[i].first), end = begin;
    for (; i < stored.size() && stored[i].first <= std::max(end, begin); ++i)
      end = std::max(end, stored[i].second);
    done = end;
    for (auto [firstRead, endRead] : found.reads) {
      if (endRead <= begin)
        continue;
      if (firstRead >= end || begin >= end)
        break;
      free(begin, firstRead);
      begin = std::max(begin, endRead);
    }
    free(begin, end);
  }
}

uint64_t WeightUses::addedBytes() const {
  uint64_t copies = 0, largest = 0, removed = 0;
  for (const Weight &weight : packed) {
    uint64_t bytes = upToPage(weight.kernel->packedBytes());
    copies += bytes;
    largest = std::max(largest, bytes);
  }
  for (const auto &[begin, end] : freed)
    removed += end - begin;
  return copies + largest - std::min(copies + largest, removed);
}

void PackedWeights::pack(const WeightUses &uses, std::byte *arena, ThreadPool &pool) {
  const std::vector<WeightUses::Weight> &weights = uses.weights();
  bool isAligned = reinterpret_cast<uintptr_t>(arena) % pageBytes == 0;
  uint64_t done = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const LibraryKernel &kernel = *weights[i].kernel;
    auto copy = std::make_unique<Arena>(kernel.packedBytes());
    PackJob job = {&kernel, arena + weights[i].offset, copy->at(0)};
    pool.run(kernel.packParts(), runPackPart, &job);
    addedBytes += static_cast<int64_t>(copy->bytes());
    copies.emplace(arena + weights[i].offset, std::pair(weights[i].layout, std::move(copy)));
    uint64_t next = i + 1 < weights.size() ? downToPage(weights[i + 1].offset) : ~uint64_t{0};
    for (auto [begin, end] : uses.unread()) {
      begin = std::max(begin, done);
      end = std::min(end, next);
      if (!isAligned || begin >= end)
        continue;
      release(arena + begin, end - begin);
      addedBytes -= static_cast<int64_t>(end - begin);
    }
    done = next;
  }
}

const void *PackedWeights::find(const LibraryKernel &kernel, const void *weights) const {
  auto [first, last] = copies.equal_range(weights);
  if (first == last)
    return nullptr;
  std::optional<PackedLayout> layout = kernel.packedLayout();
  for (; first != last; ++first)
    if (layout == first->second.first)
      return first->second.second->at(0);
  return nullptr;
}

} // namespace espalier::rt
