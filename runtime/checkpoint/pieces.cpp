// A parameter's box follows from its sharding. The shard of optimizer state within the box follows from the bucket's
// shard.
#include "runtime/checkpoint/pieces.h"

#include "format/optimizers.h"
#include "runtime/parameter_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace espalier::rt {
namespace {

/// Returns the elements of a rank's parameter block that lie in one of the bucket's buffers.
HeldPiece pieceOf(const PlacedParameter &placed, const char *kind, pb::DataType type, const pb::Buffer &buffer,
                  const HeldElements &held, bool isSpoken) {
  HeldPiece piece{{kind, placed.name, type, placed.block.shape(), placed.block.offsets(), placed.block.sizes()},
                  placed.call,
                  &buffer,
                  held.at * elementBytes(type),
                  isSpoken};
  piece.piece.begin = held.range.begin;
  piece.piece.end = held.range.end;
  return piece;
}

void addPieces(const PlacedParameter &placed, std::vector<HeldPiece> &pieces) {
  const pb::Bucket &bucket = *placed.bucket;
  pieces.push_back(
      pieceOf(placed, "value", bucket.type(), bucket.stored(), placed.heldStored(), placed.isStoredSpokenFor()));
  std::vector<const char *> kinds = stateKinds(bucket);
  for (int i = 0; i < bucket.state_size(); ++i)
    pieces.push_back(pieceOf(placed, kinds[i], pb::F32, bucket.state(i), placed.own, placed.isOwnSpokenFor));
}

} // namespace

int64_t Piece::boxElements() const {
  int64_t elements = 1;
  for (int64_t size : sizes)
    elements *= size;
  return elements;
}

uint64_t Piece::bytes() const { return static_cast<uint64_t>(end - begin) * elementBytes(type); }

std::string Piece::key() const {
  std::vector<std::string> box;
  for (size_t i = 0; i < sizes.size(); ++i)
    box.push_back(fmt::format("{}+{}", offsets[i], sizes[i]));
  return fmt::format("{} {} [{}] {}:{}", kind, name, fmt::join(box, ", "), begin, end);
}

std::vector<HeldPiece> heldPieces(const Program &program, int rank) {
  std::vector<HeldPiece> pieces;
  for (const PlacedParameter &placed : placedParameters(program.plan(), program.mesh(), rank))
    addPieces(placed, pieces);
  std::erase_if(pieces, [](const HeldPiece &held) { return held.piece.begin >= held.piece.end; });
  return pieces;
}

std::vector<const char *> stateKinds(const pb::Bucket &bucket) {
  std::vector<const char *> kinds;
  if (bucket.state_size() == 0)
    return kinds;
  if (hasMaster(bucket))
    kinds.push_back(masterKind);
  auto states = optimizerRow(bucket.optimizer()).states;
  kinds.insert(kinds.end(), states.begin(), states.end());
  return kinds;
}

std::vector<uint64_t> savedBytes(const Program &program) {
  std::vector<uint64_t> bytes(program.mesh().ranks());
  for (int rank = 0; rank < program.mesh().ranks(); ++rank)
    for (const HeldPiece &held : heldPieces(program, rank))
      bytes[rank] += held.isSpoken ? held.piece.bytes() : 0;
  return bytes;
}

uint64_t checkpointBytes(const Program &program) {
  std::vector<uint64_t> bytes = savedBytes(program);
  return std::accumulate(bytes.begin(), bytes.end(), uint64_t(0));
}

DeviceRange placeOf(const Executor &executor, const HeldPiece &held) {
  return {executor.address(held.call, *held.buffer) + held.offset, held.piece.bytes()};
}

void copyFromRank(const Executor &executor, const HeldPiece &held, uint64_t begin, std::span<std::byte> to) {
  executor.device().copyOut(to.data(), placeOf(executor, held).offset + begin, to.size());
}

void copyToRank(Executor &executor, const HeldPiece &held, uint64_t begin, std::span<const std::byte> from) {
  executor.device().copyIn(placeOf(executor, held).offset + begin, from.data(), from.size());
}

} // namespace espalier::rt
