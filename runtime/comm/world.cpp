// The board is the first allocation in the memory and is freed with it.
#include "runtime/comm/world.h"

#include "runtime/comm/board_communicator.h"

namespace espalier::rt {

World::World(int ranks, std::unique_ptr<SharedMemory> ownMemory, bool isOneProcess)
    : memory(std::move(ownMemory)), board(Board::make(ranks, *memory, isOneProcess)) {}

World::World(std::unique_ptr<SharedMemory> ownMemory, Board *board) : memory(std::move(ownMemory)), board(board) {}

World::~World() = default;

std::unique_ptr<Communicator> World::communicator(int rank) { return openBoard(*board, *memory, rank); }

} // namespace espalier::rt
