#include "runtime/comm/local.h"

#include "runtime/comm/process_memory.h"

namespace espalier::rt {

LocalWorld::LocalWorld(int ranks) : World(ranks, std::make_unique<ProcessMemory>(), /*isOneProcess=*/true) {}

} // namespace espalier::rt
