// The segment is the first allocation in the memory and is freed with it.
#include "runtime/comm/world.h"

#include "runtime/comm/shared_memory_communicator.h"

namespace espalier::rt {

World::World(int ranks, std::unique_ptr<SharedMemory> ownMemory, bool isOneProcess)
    : memory(std::move(ownMemory)), segment(SharedSegment::make(ranks, *memory, isOneProcess)) {}

World::World(std::unique_ptr<SharedMemory> ownMemory, SharedSegment *segment)
    : memory(std::move(ownMemory)), segment(segment) {}

World::~World() = default;

std::unique_ptr<Communicator> World::communicator(int rank) { return openSharedMemory(*segment, *memory, rank); }

} // namespace espalier::rt
