// Hands out places of a stage's arenas and sums those of the device by memory class.
#pragma once

#include "dialects/exec/dialect.h"

#include "runtime/plan.pb.h"

namespace espalier {

class PlaceBuilder {
public:
  /// `guard` bytes are free behind each place.
  PlaceBuilder(rt::pb::Stage &stage, uint64_t guard);

  /// The number of a place in every slot of the lifetime.
  uint32_t take(uint64_t bytes, uint32_t lifetime, const char *memoryClass);

  /// In host memory: two copies, in turns.
  uint32_t exchanged(uint64_t bytes, uint32_t lifetime);

  static void bind(rt::pb::Call &call, exec::Region region, uint32_t place, uint64_t offset = 0);

private:
  rt::pb::Place &add(uint64_t bytes, uint32_t lifetime, rt::pb::Memory memory, uint64_t stride, uint64_t taken);
  void addToClass(const char *memoryClass, uint64_t bytes);

  rt::pb::Stage &stage;
  uint64_t guard;
};

} // namespace espalier
