#include "compiler/link/place_builder.h"

#include "compiler/codegen/guards.h"

namespace espalier {

using namespace rt::pb;

PlaceBuilder::PlaceBuilder(Stage &stage, uint64_t guard) : stage(stage), guard(guard) {
  stage.mutable_arena_bytes()->Resize(Memory_ARRAYSIZE, 0);
}

uint32_t PlaceBuilder::take(uint64_t bytes, uint32_t lifetime, const char *memoryClass) {
  uint64_t stride = alignUp(bytes, guard), slots = stage.lifetimes(static_cast<int>(lifetime)).slots();
  addToClass(memoryClass, stride * slots);
  add(bytes, lifetime, DEVICE, stride, stride * slots).set_memory_class(memoryClass);
  return static_cast<uint32_t>(stage.places_size() - 1);
}

uint32_t PlaceBuilder::exchanged(uint64_t bytes, uint32_t lifetime) {
  uint64_t stride = alignUp(bytes, 0), slots = stage.lifetimes(static_cast<int>(lifetime)).slots();
  add(bytes, lifetime, HOST, stride, 2 * stride * slots).set_exchanged(true);
  return static_cast<uint32_t>(stage.places_size() - 1);
}

void PlaceBuilder::bind(Call &call, exec::Region region, uint32_t place, uint64_t offset) {
  Binding &binding = *call.add_bindings();
  binding.set_region(static_cast<uint32_t>(region));
  binding.set_place(place);
  binding.set_offset(offset);
}

Place &PlaceBuilder::add(uint64_t bytes, uint32_t lifetime, Memory memory, uint64_t stride, uint64_t taken) {
  Place &place = *stage.add_places();
  place.set_lifetime(lifetime);
  place.set_memory(memory);
  place.set_bytes(bytes);
  place.add_offsets(stage.arena_bytes(memory));
  place.set_stride(stride);
  stage.set_arena_bytes(memory, stage.arena_bytes(memory) + taken);
  return place;
}

void PlaceBuilder::addToClass(const char *memoryClass, uint64_t bytes) {
  for (MemoryClass &entry : *stage.mutable_memory())
    if (entry.name() == memoryClass) {
      entry.set_bytes(entry.bytes() + bytes);
      return;
    }
  MemoryClass *entry = stage.add_memory();
  entry->set_name(memoryClass);
  entry->set_bytes(bytes);
}

} // namespace espalier
