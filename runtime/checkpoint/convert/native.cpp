// A stored piece is a range of a box. Boxes lie in the padded parameter; padding is skipped.
#include "runtime/checkpoint/convert/native.h"

#include "format/checksum.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <set>

namespace espalier::rt {
namespace {

constexpr const char *shardName = "weights.safetensors";

/// Copies elements [first, first + part) of a piece's box to their positions in the whole tensor, one run of the last
/// dimension at a time.
void placeElements(const Piece &piece, int64_t first, std::span<const std::byte> part, std::span<std::byte> whole) {
  auto size = static_cast<int64_t>(elementBytes(piece.type));
  int64_t count = static_cast<int64_t>(part.size()) / size;
  int64_t row = piece.sizes.empty() ? 1 : piece.sizes.back();
  for (int64_t done = 0; done < count;) {
    int64_t element = first + done, column = element % row, run = std::min(row - column, count - done);
    int64_t rest = element / row, place = 0, stride = piece.shape.empty() ? 1 : piece.shape.back();
    bool isPadding = false;
    for (size_t i = piece.sizes.size(); i-- > 1;) { // the dimensions except the last, innermost first
      int64_t index = piece.offsets[i - 1] + rest % piece.sizes[i - 1];
      rest /= piece.sizes[i - 1];
      isPadding |= index >= piece.shape[i - 1];
      place += index * stride;
      stride *= piece.shape[i - 1];
    }
    int64_t from = piece.shape.empty() ? 0 : piece.offsets.back() + column;
    int64_t real = piece.shape.empty() ? run : std::clamp<int64_t>(piece.shape.back() - from, 0, run);
    if (!isPadding && real > 0)
      std::memcpy(whole.data() + (place + from) * size, part.data() + done * size, real * size);
    done += run;
  }
}

} // namespace

NativeSource::NativeSource(const WeightModel &model, const std::filesystem::path &given, const WeightModel *others)
    : model(model), path(checkpointAt(given)), manifest(readManifest(path)), places(model.parameters.size()),
      types(model.parameters.size(), pb::F32) {
  auto differs = [&](const std::string &how) {
    throw PlanError(fmt::format("{}: not a checkpoint of the model given ({}): {}", path.string(), model.name, how));
  };
  if (std::vector<std::string> faults = shardFaults(path, manifest, Depth::Headers); !faults.empty())
    throw PlanError(faults.front());
  std::map<std::string, size_t> indices;
  for (size_t i = 0; i < model.parameters.size(); ++i)
    indices[model.parameters[i].name] = i;
  std::set<std::string> passedOver;
  for (const WeightParameter &parameter : others ? others->parameters : std::vector<WeightParameter>())
    passedOver.insert(parameter.name);
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces) {
      const Piece &piece = stored.piece;
      if (piece.kind != "value" || passedOver.contains(piece.name))
        continue;
      auto found = indices.find(piece.name);
      if (found == indices.end())
        differs(fmt::format("the model has no parameter '{}'", piece.name));
      const WeightParameter &parameter = model.parameters[found->second];
      if (piece.shape != parameter.sizes)
        differs(fmt::format("'{}' is {} there, {} in the model", piece.name, piece.shape, parameter.sizes));
      std::vector<Place> &own = places[found->second];
      if (!own.empty() && types[found->second] != piece.type)
        differs(fmt::format("'{}' has pieces of two types", piece.name));
      types[found->second] = piece.type;
      own.push_back({&shard, &stored});
    }
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i].empty())
      differs(fmt::format("it has no parameter '{}'", model.parameters[i].name));
}

void NativeSource::readPlace(const WeightParameter &parameter, const Place &place, std::span<std::byte> whole) const {
  const Piece &piece = place.stored->piece;
  auto size = static_cast<int64_t>(elementBytes(piece.type));
  RegularFile file(path / place.shard->file, Links::Refused);
  readPiece(file, *place.shard, *place.stored, [&](uint64_t begin, std::span<const std::byte> part) {
    placeElements(piece, piece.begin + static_cast<int64_t>(begin) / size, part, whole);
  });
}

std::shared_ptr<const std::vector<std::byte>> NativeSource::read(size_t parameter) const {
  if (last && lastParameter == parameter)
    return last;
  last.reset(); // freed before the next parameter is allocated
  const WeightParameter &wanted = model.parameters[parameter];
  auto whole = std::make_shared<std::vector<std::byte>>(wanted.elements() * elementBytes(types[parameter]));
  for (const Place &place : places[parameter])
    readPlace(wanted, place, *whole);
  last = whole;
  lastParameter = parameter;
  return whole;
}

std::filesystem::path writeNative(const WeightModel &model, const std::filesystem::path &path,
                                  std::span<const NewParameter> parameters, const std::vector<SideFile> &kept) {
  Shard shard;
  shard.file = shardName;
  std::vector<TensorEntry> entries;
  uint64_t end = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const WeightParameter &parameter = model.parameters[i];
    Piece piece{"value", parameter.name, parameters[i].type, parameter.sizes, {}, parameter.sizes, 0, 0};
    piece.offsets.resize(piece.sizes.size());
    piece.end = piece.boxElements();
    entries.push_back({piece.kind + "/" + piece.name, piece.type, piece.shape, end, piece.bytes()});
    shard.pieces.push_back({.piece = piece, .at = end, .checksum = "", .blocks = ""});
    end += piece.bytes();
  }
  std::string header = safetensorsHeader(entries, {});
  shard.headerBytes = header.size();
  shard.bytes = header.size() + end;
  shard.headerChecksum = checksumText(std::as_bytes(std::span(header)));
  CheckpointFolder folder(path);
  folder.begin(0);
  try {
    AtomicFile file((folder.partial(0) / shard.file).string());
    file.write(header.data(), header.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      std::vector<std::byte> bytes = parameters[i].make();
      shard.pieces[i].checksum = checksumText(bytes);
      file.write(bytes.data(), bytes.size());
    }
    file.commit();
    writeKept(folder.partial(0), kept);
    Manifest manifest;
    manifest.kept = keptEntries(kept);
    manifest.model = model.name;
    manifest.parameters = model.parameterCount();
    manifest.hasOptimizer = false;
    manifest.shards.push_back(shard);
    return path / folder.commit(0, manifestText(manifest));
  } catch (...) {
    folder.discard(0);
    throw;
  }
}

} // namespace espalier::rt
