// The communicator of one rank on a shared-memory board.
#pragma once

#include "runtime/comm/board.h"

#include <memory>

namespace espalier::rt {

/// Makes the communicator of `rank`. The board and its memory must outlive it.
std::unique_ptr<Communicator> openBoard(Board &board, SharedMemory &memory, int rank);

} // namespace espalier::rt
