// Weights that do not change, packed once for the products that read them. The packed copy replaces the stored weights
// if nothing else reads them.
#pragma once

#include "format/plan.pb.h"
#include "runtime/device/cpu/arena.h"
#include "runtime/kernels/kernels.h"
#include "runtime/thread_pool.h"

#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace espalier::rt {

class CpuBackend;

/// The weights of one stage that are worth packing, and the bytes of the arena that are not read once they are packed.
/// Only plans for generation have any, because their parameters do not change after loading.
class WeightUses {
public:
  /// A weight at an offset in the arena, and a call that packs it.
  struct Weight {
    uint64_t offset;
    const LibraryKernel *kernel;
    PackedLayout layout;
  };

  WeightUses(const CpuBackend &backend, const pb::Stage &stage);

  const std::vector<Weight> &weights() const { return packed; }
  /// Returns ranges [begin, end) of whole pages in the arena that only products with packed weights read.
  const std::vector<std::pair<uint64_t, uint64_t>> &unread() const { return freed; }
  /// Returns the bytes by which packing raises the peak of memory: those of the copies, less the pages that are freed.
  uint64_t addedBytes() const;

private:
  struct Collector;
  void choose(Collector &found);

  std::vector<Weight> packed;
  std::vector<std::pair<uint64_t, uint64_t>> freed;
};

/// The packed weights of one rank.
class PackedWeights {
public:
  /// Packs the weights of `uses`, which lie in `arena`, and returns the memory of those that are no longer read.
  void pack(const WeightUses &uses, std::byte *arena, ThreadPool &pool);
  /// Returns the packed weights of a call, or null if its weights are not packed.
  const void *find(const LibraryKernel &kernel, const void *weights) const;
  /// Returns the bytes of the copies less the returned memory.
  int64_t bytes() const { return addedBytes; }

private:
  std::multimap<const void *, std::pair<PackedLayout, std::unique_ptr<Arena>>> copies;
  int64_t addedBytes = 0;
};

} // namespace espalier::rt
