// The manifest is JSON, so that people and other programs can read it.
#include "runtime/checkpoint/manifest.h"

#include "format/checksum.h"
#include "messages/json_reason.h"
#include "runtime/checkpoint/json_text.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/status.h"

#include <fmt/format.h>
#include <set>

namespace espalier::rt {
namespace {

using Ordered = nlohmann::ordered_json;
using Json = nlohmann::json;

constexpr uint64_t maxManifestBytes = uint64_t(1) << 30;
constexpr int manifestFormat = 2;
constexpr uint64_t mostSequence = uint64_t(1) << 48;
constexpr size_t maxDimensions = 16;
constexpr size_t checksumDigits = 16;
/// The sequence number begins within this many bytes, after the first two lines.
constexpr uint64_t sequenceWithin = 256;
constexpr const char *parametersOnly = "parameters";

Ordered pieceJson(const StoredPiece &stored) {
  const Piece &piece = stored.piece;
  Ordered json = {{"name", piece.name},   {"kind", piece.kind},       {"type", safetensorsType(piece.type)},
                  {"shape", piece.shape}, {"offsets", piece.offsets}, {"sizes", piece.sizes}};
  if (piece.begin != 0 || piece.end != piece.boxElements())
    json["range"] = {piece.begin, piece.end};
  json["at"] = stored.at;
  json["bytes"] = piece.bytes();
  json["xxh3"] = stored.checksum;
  if (stored.blockBytes)
    json["blocks"] = {{"bytes", stored.blockBytes}, {"xxh3", stored.blocks}};
  return json;
}

Ordered shardJson(const Shard &shard) {
  Ordered pieces = Ordered::array();
  for (const StoredPiece &piece : shard.pieces)
    pieces.push_back(pieceJson(piece));
  return {{"file", shard.file},
          {"bytes", shard.bytes},
          {"header_bytes", shard.headerBytes},
          {"header_xxh3", shard.headerChecksum},
          {"pieces", pieces}};
}

[[noreturn]] void refuse(const std::string &reason) { throw PlanError(reason); }

StoredPiece pieceOf(const Json &json) {
  StoredPiece stored;
  Piece &piece = stored.piece;
  piece.name = json.at("name");
  piece.kind = json.at("kind");
  piece.type = typeOfName(json.at("type").get<std::string>());
  piece.shape = wholeNumbers(json.at("shape"));
  piece.offsets = wholeNumbers(json.at("offsets"));
  piece.sizes = wholeNumbers(json.at("sizes"));
  if (piece.offsets.size() != piece.shape.size() || piece.sizes.size() != piece.shape.size() ||
      piece.shape.size() > maxDimensions)
    refuse(fmt::format("a piece of '{}' has another number of dimensions than its shape", piece.name));
  tensorBytes(piece.shape, piece.type); // throws if a size is out of bounds
  auto elements = static_cast<int64_t>(tensorBytes(piece.sizes, pb::F32) / 4);
  piece.end = elements;
  if (auto range = json.find("range"); range != json.end()) {
    piece.begin = wholeNumber(range->at(0));
    piece.end = wholeNumber(range->at(1));
  }
  if (piece.begin > piece.end || piece.end > elements)
    refuse(fmt::format("a piece of '{}' has elements {} to {} of {}", piece.name, piece.begin, piece.end, elements));
  stored.at = wholeNumber(json.at("at"));
  if (static_cast<uint64_t>(wholeNumber(json.at("bytes"))) != piece.bytes())
    refuse(fmt::format("a piece of '{}' has another number of bytes than elements", piece.name));
  stored.checksum = json.at("xxh3");
  if (auto blocks = json.find("blocks"); blocks != json.end()) {
    stored.blockBytes = wholeNumber(blocks->at("bytes"));
    stored.blocks = blocks->at("xxh3");
    if (stored.blockBytes == 0 || stored.blockBytes % elementBytes(piece.type) != 0 ||
        stored.blocks.size() != (piece.bytes() + stored.blockBytes - 1) / stored.blockBytes * checksumDigits)
      refuse(fmt::format("a piece of '{}' of {} bytes has {} digits of checksums of {} bytes each", piece.name,
                         piece.bytes(), stored.blocks.size(), stored.blockBytes));
  }
  return stored;
}

Shard shardOf(const Json &json) {
  Shard shard;
  shard.file = json.at("file");
  if (std::filesystem::path(shard.file).filename() != shard.file || shard.file == "..")
    refuse(fmt::format("shard '{}' is no file of this folder", shard.file));
  shard.bytes = wholeNumber(json.at("bytes"));
  shard.headerBytes = wholeNumber(json.at("header_bytes"));
  shard.headerChecksum = json.at("header_xxh3");
  uint64_t end = 0;
  for (const Json &piece : json.at("pieces")) {
    shard.pieces.push_back(pieceOf(piece));
    if (shard.pieces.back().at != end)
      refuse(fmt::format("{}: a piece begins at byte {}, the one before it ends at {}", shard.file,
                         shard.pieces.back().at, end));
    end += shard.pieces.back().piece.bytes();
  }
  if (shard.headerBytes > shard.bytes || end != shard.bytes - shard.headerBytes)
    refuse(fmt::format("{}: pieces of {} bytes and a header of {} do not make {}", shard.file, end, shard.headerBytes,
                       shard.bytes));
  return shard;
}

KeptFile keptOf(const Json &json) {
  KeptFile kept{json.at("file"), static_cast<uint64_t>(wholeNumber(json.at("bytes"))), json.at("xxh3")};
  std::filesystem::path path = kept.file;
  if (path.empty() || path.is_absolute() || path.lexically_normal() != path || *path.begin() == "..")
    refuse(fmt::format("'{}' is no file of this folder", kept.file));
  return kept;
}

/// Returns the elements of a piece's box without padding.
int64_t realElementsOfBox(const Piece &piece) {
  int64_t elements = 1;
  for (size_t i = 0; i < piece.shape.size(); ++i)
    elements *= std::clamp<int64_t>(piece.shape[i] - piece.offsets[i], 0, piece.sizes[i]);
  return elements;
}

struct Cover {
  std::vector<int64_t> shape;
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, std::set<std::pair<int64_t, int64_t>>> boxes;
};

/// Checks that every element of every tensor is stored once: the ranges of each box are contiguous, and the boxes add
/// up to the shape. (Only a forged manifest has overlapping boxes and a gap of equal size.)
void requireWhole(const Manifest &manifest) {
  std::map<std::pair<std::string, std::string>, Cover> tensors;
  std::map<std::pair<std::string, std::string>, int64_t> elements;
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces) {
      const Piece &piece = stored.piece;
      Cover &cover = tensors.try_emplace({piece.name, piece.kind}, Cover{piece.shape, {}}).first->second;
      auto &ranges = cover.boxes[{piece.offsets, piece.sizes}];
      if (cover.shape != piece.shape || !ranges.insert({piece.begin, piece.end}).second)
        refuse(fmt::format("{} of '{}' contradicts another piece", piece.kind, piece.name));
      if (ranges.size() == 1)
        elements[{piece.name, piece.kind}] += realElementsOfBox(piece);
    }
  for (const auto &[key, cover] : tensors) {
    bool isWhole = static_cast<uint64_t>(elements[key]) == tensorBytes(cover.shape, pb::F32) / 4;
    for (const auto &[box, ranges] : cover.boxes) {
      int64_t end = 0;
      for (auto [from, to] : ranges)
        end = from == end ? to : -1;
      isWhole &= end == static_cast<int64_t>(tensorBytes(box.second, pb::F32) / 4);
    }
    if (!isWhole)
      refuse(fmt::format("the pieces of {} of '{}' are not the whole tensor", key.second, key.first));
  }
}

Manifest manifestOf(const Json &json) {
  Manifest manifest;
  if (json.at("format") != manifestFormat)
    refuse(fmt::format("format {}, this Espalier reads {}", json.at("format").dump(), manifestFormat));
  if (auto sequence = json.find("sequence"); sequence != json.end())
    manifest.sequence = wholeNumber(*sequence);
  manifest.model = json.at("model");
  manifest.parameters = wholeNumber(json.at("parameters"));
  for (const Json &axis : json.at("mesh"))
    manifest.mesh.emplace_back(axis.at(0).get<std::string>(), wholeNumber(axis.at(1)));
  ScalarState &state = manifest.state;
  state.step = wholeNumber(json.at("step"));
  state.updates = wholeNumber(json.at("updates"));
  state.consumed = wholeNumber(json.at("samples"));
  state.lossScale = json.at("loss_scale").get<double>();
  state.cleanSteps = wholeNumber(json.at("clean_steps"));
  if (auto norms = json.find("norms"); norms != json.end())
    state.norms = norms->get<std::vector<double>>();
  manifest.runSteps = wholeNumber(json.at("run_steps"));
  manifest.fingerprint.model = json.at("fingerprint").at("model");
  manifest.fingerprint.terms = json.at("fingerprint").at("terms").get<std::map<std::string, std::string>>();
  if (auto holds = json.find("holds"); holds != json.end()) {
    if (*holds != parametersOnly)
      refuse(fmt::format("it holds {}, known is {}", holds->dump(), parametersOnly));
    manifest.hasOptimizer = false;
  }
  for (const Json &shard : json.at("shards"))
    manifest.shards.push_back(shardOf(shard));
  if (auto kept = json.find("kept"); kept != json.end())
    for (const Json &file : *kept)
      manifest.kept.push_back(keptOf(file));
  requireWhole(manifest);
  return manifest;
}

/// Calls `reader` and adds the file name to its errors.
template <typename Reader> auto named(const std::string &name, const Reader &reader) {
  try {
    return reader();
  } catch (const Json::exception &problem) {
    throw PlanError(fmt::format("{}: damaged: {}", name, jsonReason(problem)));
  } catch (const PlanError &problem) {
    throw PlanError(fmt::format("{}: damaged: {}", name, problem.what()));
  }
}

std::string linesOf(const Ordered &list) {
  std::string lines;
  for (const Ordered &value : list)
    lines += fmt::format("{}\n  {}", lines.empty() ? "[" : ",", value.dump());
  return lines.empty() ? "[]" : lines + "]";
}

std::string firstLine(std::string_view rest) {
  return fmt::format("{{\"checksum\": \"{}\",\n", checksumText(std::as_bytes(std::span(rest))));
}

} // namespace

std::string StoredPiece::partChecksum(uint64_t begin) const {
  return blockBytes ? blocks.substr(begin / blockBytes * checksumDigits, checksumDigits) : checksum;
}

int64_t Manifest::ranks() const {
  int64_t ranks = 1;
  for (const auto &[axis, size] : mesh)
    ranks *= size;
  return ranks;
}

uint64_t Manifest::bytes() const {
  uint64_t bytes = 0;
  for (const Shard &shard : shards)
    bytes += shard.bytes;
  return bytes;
}

std::string manifestText(const Manifest &manifest) {
  Ordered mesh = Ordered::array(), shards = Ordered::array();
  for (const auto &[axis, size] : manifest.mesh)
    mesh.push_back({axis, size});
  for (const Shard &shard : manifest.shards)
    shards.push_back(shardJson(shard));
  Ordered json = {{"format", manifestFormat},
                  {"sequence", manifest.sequence},
                  {"model", manifest.model},
                  {"parameters", manifest.parameters},
                  {"mesh", mesh},
                  {"step", manifest.state.step},
                  {"updates", manifest.state.updates},
                  {"samples", manifest.state.consumed},
                  {"loss_scale", manifest.state.lossScale},
                  {"clean_steps", manifest.state.cleanSteps},
                  {"run_steps", manifest.runSteps},
                  {"fingerprint", {{"model", manifest.fingerprint.model}, {"terms", manifest.fingerprint.terms}}},
                  {"shards", shards}};
  for (const KeptFile &kept : manifest.kept)
    json["kept"].push_back({{"file", kept.file}, {"bytes", kept.bytes}, {"xxh3", kept.checksum}});
  if (!manifest.hasOptimizer)
    json["holds"] = parametersOnly;
  if (!manifest.state.norms.empty())
    json["norms"] = manifest.state.norms;
  std::string rest; // the text after the first line: one line per key and per shard
  for (const auto &[key, value] : json.items()) {
    rest += fmt::format("{} {}: ", rest.empty() ? "" : ",\n", Ordered(key).dump());
    rest += key == "shards" ? linesOf(value) : value.dump();
  }
  rest += "}\n";
  return firstLine(rest) + rest;
}

Manifest parseManifest(const std::string &text, const std::string &name) {
  return named(name, [&] {
    size_t line = text.find('\n');
    if (line == std::string::npos || firstLine(std::string_view(text).substr(line + 1)) != text.substr(0, line + 1))
      refuse("its bytes do not fit its checksum");
    return manifestOf(parseShallow(text));
  });
}

Manifest readManifest(const std::filesystem::path &checkpoint) {
  std::filesystem::path file = checkpoint / manifestName;
  return parseManifest(readText(file, maxManifestBytes, Links::Refused), file.string());
}

uint64_t readSequence(const std::filesystem::path &checkpoint) {
  std::string text;
  try {
    RegularFile file(checkpoint / manifestName, Links::Refused);
    text.resize(std::min(file.size(), sequenceWithin));
    file.read(0, std::as_writable_bytes(std::span(text)));
  } catch (const PlanError &) {
    return 0; // an unreadable manifest is not loaded later either
  }
  constexpr std::string_view key = "\n \"sequence\": ";
  uint64_t sequence = 0;
  if (size_t at = text.find(key); at != std::string::npos)
    for (at += key.size(); at < text.size() && text[at] >= '0' && text[at] <= '9'; ++at) {
      if (sequence > mostSequence)
        return 0;
      sequence = sequence * 10 + (text[at] - '0');
    }
  return sequence;
}

std::string shardText(const Shard &shard) { return shardJson(shard).dump(); }

Shard parseShard(const std::string &text, const std::string &name) {
  return named(name, [&] { return shardOf(parseShallow(text)); });
}

} // namespace espalier::rt
