#include "tools/checkpoint/inspect_checkpoint.h"

#include "messages/error_line.h"
#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/checkpoint/safetensors.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace espalier {
namespace {

using nlohmann::ordered_json;

ordered_json describe(const rt::Manifest &manifest, bool isComplete) {
  ordered_json pieces = ordered_json::array(), mesh = ordered_json::object();
  for (const auto &[axis, size] : manifest.mesh)
    mesh[axis] = size;
  for (const rt::Shard &shard : manifest.shards)
    for (const rt::StoredPiece &stored : shard.pieces) {
      const rt::Piece &piece = stored.piece;
      pieces.push_back({{"name", piece.name},
                        {"shape", piece.shape},
                        {"type", rt::safetensorsType(piece.type)},
                        {"kind", piece.kind},
                        {"offsets", piece.offsets},
                        {"sizes", piece.sizes},
                        {"range", {piece.begin, piece.end}},
                        {"file", shard.file}});
    }
  return {{"schema", 1},
          {"step", manifest.state.step},
          {"ranks", manifest.ranks()},
          {"model", manifest.model},
          {"parameters", manifest.parameters},
          {"bytes", manifest.bytes()},
          {"samples", manifest.state.consumed},
          {"complete", isComplete},
          {"mesh", mesh},
          {"updates", manifest.state.updates},
          {"loss_scale", manifest.state.lossScale},
          {"trained", manifest.fingerprint.terms},
          {"pieces", pieces}};
}

void printForPeople(const std::filesystem::path &path, const rt::Manifest &manifest) {
  std::vector<std::string> split, older;
  for (const auto &[axis, size] : manifest.mesh)
    split.push_back(fmt::format("{} {}", axis, size));
  for (const std::string &name : rt::checkpointNames(path.parent_path()))
    if (name != path.filename())
      older.push_back(name);
  std::ranges::sort(older);
  const rt::ScalarState &state = manifest.state;
  fmt::print("{}: {} after {} steps ({} applied), {} samples read, loss scale {}\n", path.string(), manifest.model,
             state.step, state.updates, state.consumed, state.lossScale);
  fmt::print("written by  {}\n",
             manifest.hasOptimizer ? fmt::format("{}", fmt::join(split, " x ")) : "a conversion: parameters only");
  fmt::print("files       {} of ranks, {:.1f} MiB\n", manifest.shards.size(), manifest.bytes() / 1048576.0);
  for (const auto &[term, words] : manifest.fingerprint.terms)
    if (!words.empty())
      fmt::print("{:<11} {}\n", term, words);
  fmt::print("others      {}\n", older.empty() ? "none" : fmt::format("{}", fmt::join(older, ", ")));
}

} // namespace

bool inspectCheckpoint(const std::string &path, bool isJson) {
  std::filesystem::path checkpoint = rt::checkpointAt(path);
  rt::Manifest manifest = rt::readManifest(checkpoint);
  std::vector<std::string> faults = rt::shardFaults(checkpoint, manifest, rt::Depth::Headers);
  if (isJson)
    fmt::print("{}\n", describe(manifest, faults.empty()).dump(2));
  else if (faults.empty())
    printForPeople(checkpoint, manifest);
  for (const std::string &fault : faults)
    printError("espalier", fault);
  return faults.empty();
}

} // namespace espalier
