// The communicator of one rank on a shared-memory segment.
#pragma once

#include "runtime/comm/shared_segment.h"

#include <memory>

namespace espalier::rt {

/// Makes the communicator of `rank`. The segment and its memory must outlive it.
std::unique_ptr<Communicator> openSharedMemory(SharedSegment &segment, SharedMemory &memory, int rank);

} // namespace espalier::rt
