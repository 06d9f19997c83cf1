// A parameter's box follows from its sharding, the share of optimizer state within it from ZeRO.
#include "runtime/checkpoint/pieces.h"

#include "runtime/parameter_block.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

/// The whole box of a parameter on a rank.
Piece boxOf(const pb::Parameter &parameter, const Mesh &mesh, int rank) {
  Piece piece;
  piece.name = parameter.name();
  piece.shape.assign(parameter.shape().begin(), parameter.shape().end());
  for (int i = 0; i < parameter.shape_size(); ++i) {
    std::vector<std::string> axes;
    if (i < parameter.dims_size())
      axes.assign(parameter.dims(i).axes().begin(), parameter.dims(i).axes().end());
    piece.sizes.push_back(static_cast<int64_t>(parameter.padded_shape(i)) / mesh.product(axes));
    piece.offsets.push_back(piece.sizes.back() * mesh.index(rank, axes));
  }
  piece.end = piece.boxElements();
  return piece;
}

void addPieces(const ParameterPlace &place, const Mesh &mesh, int rank, std::vector<HeldPiece> &pieces) {
  Piece box = boxOf(*place.parameter, mesh, rank);
  box.kind = "value";
  box.type = place.parameter->type();
  pieces.push_back({box, place.values, ParameterBlock::isSpeaker(*place.parameter, mesh, rank, /*isShared=*/false)});
  uint64_t held = place.slot->state_elements();
  StateRange share = stateRange(*place.slot, mesh, rank);
  Piece state = box;
  state.type = pb::F32;
  state.begin = share.begin;
  state.end = share.end;
  bool isShared = held < place.slot->local_elements();
  bool isSpoken = ParameterBlock::isSpeaker(*place.parameter, mesh, rank, isShared);
  uint64_t address = place.state;
  for (const char *kind : {"master", "moment1", "moment2"}) {
    if (kind == std::string("master") && !place.slot->master())
      continue;
    state.kind = kind;
    if (state.begin < state.end)
      pieces.push_back({state, address, isSpoken});
    address += held * elementBytes(pb::F32);
  }
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
  const Mesh &mesh = program.mesh();
  for (const ParameterPlace &place : parameterPlaces(program.plan(), mesh.stage(rank)))
    addPieces(place, mesh, rank, pieces);
  return pieces;
}

uint64_t checkpointBytes(const Program &program) {
  uint64_t bytes = 0;
  for (int rank = 0; rank < program.mesh().ranks(); ++rank)
    for (const HeldPiece &held : heldPieces(program, rank))
      bytes += held.isSpoken ? held.piece.bytes() : 0;
  return bytes;
}

void copyFromRank(const Executor &executor, uint64_t address, std::span<std::byte> to) {
  executor.device().copyOut(to.data(), address, to.size());
}

void copyToRank(Executor &executor, uint64_t address, std::span<const std::byte> from) {
  executor.device().copyIn(address, from.data(), from.size());
}

} // namespace espalier::rt
