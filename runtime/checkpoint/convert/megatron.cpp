// Rank folders are found by name. All other properties of a file are checked against the model.
#include "runtime/checkpoint/convert/megatron.h"

#include "runtime/checkpoint/convert/convert.h"
#include "runtime/checkpoint/convert/new_folder.h"
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/regular_file.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <numeric>
#include <regex>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

constexpr const char *trackerName = "latest_checkpointed_iteration.txt", *rankFile = "model_optim_rng.pt";
constexpr int64_t mostRanks = 100000, vocabularyUnit = 128;

[[noreturn]] void refuse(const Path &path, const std::string &reason) {
  throw PlanError(fmt::format("{}: {}", path.string(), reason));
}

std::string iterationFolder(int64_t iteration) { return fmt::format("iter_{:07}", iteration); }

std::string rankFolder(int64_t tp, int64_t stage, bool hasStages) {
  return hasStages ? fmt::format("mp_rank_{:02}_{:03}", tp, stage) : fmt::format("mp_rank_{:02}", tp);
}

/// Returns the iteration folder, which holds the rank folders, for a path.
Path iterationAt(const Path &path) {
  if (!std::filesystem::exists(path / trackerName))
    return path;
  std::string text = readText(path / trackerName, 64);
  text.erase(text.find_last_not_of(" \n\r\t") + 1);
  if (text == "release")
    return path / text;
  if (text.empty() || text.size() > 12 || text.find_first_not_of("0123456789") != std::string::npos)
    refuse(path / trackerName, fmt::format("'{}' is not an iteration", text));
  return path / iterationFolder(std::stoll(text));
}

struct RankFolder {
  Path path;
  int64_t tp = 0, stage = 0;
};

/// Returns all rank folders, ordered by stage and tp rank.
std::vector<RankFolder> rankFolders(const Path &iteration) {
  refuseDistributed(iteration);
  static const std::regex form("mp_rank_([0-9]{2,5})(?:_([0-9]{3,5}))?(_[0-9]+)?");
  std::vector<RankFolder> ranks;
  std::error_code error;
  for (const auto &entry : std::filesystem::directory_iterator(iteration, error)) {
    std::smatch match;
    std::string name = entry.path().filename().string();
    if (!std::regex_match(name, match, form))
      continue;
    if (match[3].matched)
      refuse(entry.path(), "is of a run with expert parallelism, whose checkpoints are not read");
    ranks.push_back({entry.path(), std::stoll(match[1]), match[2].matched ? std::stoll(match[2]) : 0});
  }
  if (ranks.empty())
    refuse(iteration, "has no folder mp_rank_00 or mp_rank_00_000");
  std::ranges::sort(ranks, {}, [](const RankFolder &rank) { return std::pair(rank.stage, rank.tp); });
  int64_t tp = std::ranges::max(ranks, {}, &RankFolder::tp).tp + 1;
  for (size_t i = 0; i < ranks.size(); ++i) {
    auto number = static_cast<int64_t>(i);
    if (ranks[i].tp != number % tp || ranks[i].stage != number / tp)
      refuse(iteration, fmt::format("has no {}", rankFolder(number % tp, number / tp, ranks.back().stage > 0)));
  }
  if (static_cast<int64_t>(ranks.size()) % tp != 0)
    refuse(iteration, fmt::format("has {} ranks, not a multiple of tp {}", ranks.size(), tp));
  return ranks;
}

/// Checks the version: since version 2, the rows of q, k and v are ordered as the layouts state.
void requireVersion(const TorchFile &file) {
  PickleRef version = file.root().find("checkpoint_version");
  double number = !version                                      ? 0
                  : version->kind == PickleValue::Kind::Integer ? static_cast<double>(version->integer)
                                                                : version->number;
  if (!(number >= 2))
    refuse(file.path(), fmt::format("is of checkpoint version {}, whose queries, keys and values are in another order; "
                                    "versions 2 and 3 are read",
                                    number));
}

/// Returns the number of layers that a chunk's names count: one more than the largest number after `layers.`. Layers of
/// modules that predict further tokens (`mtp.layers.`) are no layers of the model.
int64_t layersOf(const WeightSource &source) {
  int64_t layers = 0;
  for (const auto &[name, tensor] : source.tensors()) {
    size_t at = name.find("layers.");
    if (at == std::string::npos || name.starts_with("mtp."))
      continue;
    at += std::string_view("layers.").size();
    size_t end = std::min(name.find('.', at), name.size());
    if (end > at && end - at < 7 && std::all_of(name.begin() + at, name.begin() + end, ::isdigit))
      layers = std::max<int64_t>(layers, std::stoll(name.substr(at, end - at)) + 1);
  }
  return layers;
}

/// Opens the chunks of a rank: `model`, or model0, model1, ...
std::vector<std::unique_ptr<WeightSource>> chunksOf(const Path &rank) {
  auto file = std::make_shared<const TorchFile>(rank / rankFile);
  requireVersion(*file);
  std::vector<std::unique_ptr<WeightSource>> chunks;
  if (!file->root().find("model0"))
    chunks.push_back(openTorchEntry(file, "model"));
  for (int number = 0; file->root().find(fmt::format("model{}", number)); ++number)
    chunks.push_back(openTorchEntry(file, fmt::format("model{}", number)));
  return chunks;
}

/// Describes layers [first, first + count) of the model, with the parameters before or after the layers if at an end.
ForeignShare shareOf(int64_t first, int64_t count, int64_t place, int64_t places, LayoutSplit split) {
  return {first, count, place == 0, place + 1 == places, split};
}

} // namespace

MegatronFolder openMegatron(const Path &path) {
  Path iteration = iterationAt(path);
  std::vector<RankFolder> ranks = rankFolders(iteration);
  MegatronFolder folder;
  folder.tp = std::ranges::max(ranks, {}, &RankFolder::tp).tp + 1;
  int64_t stages = ranks.back().stage + 1;
  size_t each = 0; // chunks per rank
  std::map<std::pair<size_t, int64_t>, std::unique_ptr<WeightSource>> found;
  for (const RankFolder &rank : ranks) {
    std::vector<std::unique_ptr<WeightSource>> chunks = chunksOf(rank.path);
    if (each != 0 && chunks.size() != each)
      refuse(rank.path, fmt::format("has {} chunks of the model, others have {}", chunks.size(), each));
    each = chunks.size();
    // Chunk v of all stages comes before chunk v + 1 of any stage.
    for (size_t chunk = 0; chunk < each; ++chunk)
      found[{chunk * static_cast<size_t>(stages) + static_cast<size_t>(rank.stage), rank.tp}] =
          std::move(chunks[chunk]);
  }
  folder.places = stages * static_cast<int64_t>(each);
  int64_t first = 0;
  for (auto &[place, weights] : found) {
    int64_t layers = layersOf(*weights);
    folder.isLegacy |= std::ranges::any_of(weights->tensors(),
                                           [](auto &tensor) { return tensor.first.starts_with("language_model/"); });
    folder.chunks.push_back({place.second, std::move(weights), first, layers});
    first += place.second + 1 == folder.tp ? layers : 0;
  }
  return folder;
}

std::vector<HeldTensors> heldTensors(const MegatronFolder &folder, const NameMap &names) {
  std::vector<HeldTensors> held;
  int64_t layers = folder.chunks.back().firstLayer + folder.chunks.back().layers;
  if (layers != names.model().layers)
    throw PlanError(fmt::format("{}: has {} layers, the model has {}",
                                folder.chunks[0].weights->tensors().empty() ? std::string("the checkpoint")
                                                                            : folder.chunks[0].weights->placeOf(""),
                                layers, names.model().layers));
  for (size_t i = 0; i < folder.chunks.size(); ++i) {
    const MegatronChunk &chunk = folder.chunks[i];
    auto shapeOf = [&](const std::string &name) -> std::optional<std::vector<int64_t>> {
      auto tensor = chunk.weights->tensors().find(name);
      return tensor == chunk.weights->tensors().end() ? std::nullopt : std::optional(tensor->second.shape);
    };
    ForeignShare share = shareOf(chunk.firstLayer, chunk.layers, static_cast<int64_t>(i) / folder.tp, folder.places,
                                 {folder.tp, chunk.tp});
    held.push_back({chunk.weights.get(), names.tensors(share, 0, shapeOf)});
  }
  return held;
}

void writeMegatron(const Path &folder, const NameMap &names, const NativeSource &source,
                   const MegatronExport &options) {
  const WeightModel &model = names.model();
  if (model.layers % options.pp != 0)
    refuse(folder, fmt::format("{} layers do not divide by pp {}", model.layers, options.pp));
  if (options.tp * options.pp > mostRanks)
    refuse(folder, fmt::format("tp {} times pp {} is more than {} ranks", options.tp, options.pp, mostRanks));
  int64_t unit = vocabularyUnit * options.tp, rows = model.dims.contains("vocab") ? model.dims.at("vocab") : 0;
  int64_t padded = (rows + unit - 1) / unit * unit, each = model.layers / options.pp;
  Path iteration = folder / iterationFolder(options.iteration);
  if (std::filesystem::exists(iteration))
    refuse(iteration, "already exists; give another folder");
  // The tensors of all ranks are determined before the first file is written.
  std::vector<std::vector<ForeignTensor>> ranks;
  for (int64_t rank = 0; rank < options.tp * options.pp; ++rank) {
    int64_t stage = rank / options.tp;
    ranks.push_back(
        names.tensors(shareOf(stage * each, each, stage, options.pp, {options.tp, rank % options.tp}), padded, {}));
  }
  NewFolder written(iteration);
  for (int64_t rank = 0; rank < options.tp * options.pp; ++rank) {
    int64_t stage = rank / options.tp;
    Path place = written.path() / rankFolder(rank % options.tp, stage, options.pp > 1);
    std::filesystem::create_directories(place);
    // The first stage has the token table, so it does not need a tied copy.
    std::vector<WrittenTensor> tensors = tensorsOf(names, source, ranks[rank], /*writesTied=*/stage > 0);
    writeTorchModel(place / rankFile,
                    std::vector<TorchNumber>{{"checkpoint_version", 3, /*isWhole=*/false},
                                             {"iteration", static_cast<double>(options.iteration)}},
                    tensors);
  }
  written.commit();
  writeWhole(folder / trackerName, std::to_string(options.iteration));
}

} // namespace espalier::rt
