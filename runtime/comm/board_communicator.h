// One rank's end at the board.
#pragma once

#include "runtime/comm/board.h"

#include <memory>

namespace espalier::rt {

/// The end of `rank`. The board and its memory outlive it.
std::unique_ptr<Communicator> openBoard(Board &board, SharedMemory &memory, int rank);

} // namespace espalier::rt
