#include "runtime/generate/weights.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/parameter_block.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {

namespace {

std::vector<int64_t> shapeIn(const Manifest &manifest, const std::string &name) {
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces)
      if (stored.piece.kind == "value" && stored.piece.name == name)
        return stored.piece.shape;
  return {};
}

} // namespace

Weights::Weights(const Program &program, const std::filesystem::path &given)
    : program(program), path(checkpointAt(given)), manifest(readManifest(path)), sources(manifest, path.string()) {
  if (std::vector<std::string> faults = shardFaults(path, manifest, Depth::Headers); !faults.empty())
    throw PlanError(faults.front());
  for (const NamedParameter &named : parametersOf(program.plan())) {
    if (std::string fault = sources.fault("value", named.name); !fault.empty())
      throw PlanError(fmt::format("{}: a checkpoint of another model: {}", path.string(), fault));
    std::vector<int64_t> shape(named.parameter->shape().begin(), named.parameter->shape().end());
    if (std::vector<int64_t> there = shapeIn(manifest, named.name); !there.empty() && there != shape)
      throw PlanError(fmt::format("{}: a checkpoint of another model: parameter '{}' is {} there, {} in the plan",
                                  path.string(), named.name, there, shape));
  }
}

void Weights::load(Executor &executor) const {
  for (const HeldPiece &held : heldPieces(program, executor.rankProgram().rank)) {
    const Piece &wanted = held.piece;
    std::vector<std::byte> values(wanted.bytes()); // padding stays zero
    for (const Take &take : sources.takesFor(wanted)) {
      RegularFile file(path / take.shard->file, Links::Refused);
      pb::DataType type = take.stored->piece.type;
      take.read(file, [&](int64_t to, std::span<const std::byte> from) {
        auto count = static_cast<int64_t>(from.size() / elementBytes(type));
        for (int64_t i = 0; i < count; ++i)
          storeElement(wanted.type, values.data(), to + i, loadElement(type, from.data(), i));
      });
    }
    copyToRank(executor, held, 0, values);
  }
}

} // namespace espalier::rt
