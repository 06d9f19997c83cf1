// Allocates memory in a stage's arenas and sums device memory by memory class.
#pragma once

#include "dialects/exec/dialect.h"

#include "format/plan.pb.h"

namespace espalier {

/// Bump allocator over the device and host arenas of one stage.
class PlaceBuilder {
public:
  /// Leaves `guard` free bytes after each device allocation.
  PlaceBuilder(rt::pb::Stage &stage, uint64_t guard);

  /// Allocates `bytes` device bytes in every slot of the live range and returns the allocation's index.
  uint32_t take(uint64_t bytes, uint32_t lifetime, const char *memoryClass);

  /// Allocates a double-buffered host staging buffer and returns the allocation's index.
  uint32_t exchanged(uint64_t bytes, uint32_t lifetime);

  /// Binds a region of a call to an allocation, starting at `offset` bytes.
  static void bind(rt::pb::Call &call, exec::Region region, uint32_t place, uint64_t offset = 0);

private:
  rt::pb::Place &add(uint64_t bytes, uint32_t lifetime, rt::pb::Memory memory, uint64_t stride, uint64_t taken);
  void addToClass(const char *memoryClass, uint64_t bytes);

  rt::pb::Stage &stage;
  uint64_t guard;
};

} // namespace espalier
