// Tensors are written in safetensors' order: larger element types first, then by name.
#include "runtime/checkpoint/convert/hf.h"

#include "messages/json_reason.h"
#include "runtime/checkpoint/convert/new_folder.h"
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/json_text.h"
#include "runtime/comm/comm.h"
#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;

constexpr uint64_t mostIndexBytes = uint64_t(64) << 20, mostSideBytes = uint64_t(1) << 30;
constexpr uint64_t shardBytes = 5000000000;

struct FormatNames {
  const char *stem, *extension;
  std::string single() const { return fmt::format("{}.{}", stem, extension); }
  std::string index() const { return single() + ".index.json"; }
  std::string shard(int64_t number, int64_t count) const {
    return fmt::format("{}-{:05}-of-{:05}.{}", stem, number, count, extension);
  }
};

constexpr FormatNames safetensorsNames{"model", "safetensors"}, binNames{"pytorch_model", "bin"};

std::unique_ptr<WeightSource> openFile(const Path &file, const FormatNames &names) {
  requireInside(file);
  return &names == &safetensorsNames ? openSafetensors(file) : openTorchFile(file);
}

/// Returns the files that an index names, each with its tensors.
std::map<std::string, std::set<std::string>> readIndex(const Path &file) {
  std::map<std::string, std::set<std::string>> files;
  try {
    nlohmann::json index = parseShallow(readText(file, mostIndexBytes));
    for (const auto &[tensor, name] : index.at("weight_map").items())
      files[name.get<std::string>()].insert(tensor);
  } catch (const nlohmann::json::exception &problem) {
    throw PlanError(fmt::format("{}: damaged: {}", file.string(), jsonReason(problem)));
  }
  for (const auto &[name, tensors] : files)
    if (Path(name).filename() != name || name == "." || name == "..")
      throw PlanError(fmt::format("{}: '{}' is no file of this folder", file.string(), name));
  return files;
}

std::unique_ptr<WeightSource> openIndexed(const Path &folder, const FormatNames &names) {
  Path index = folder / names.index();
  std::vector<std::unique_ptr<WeightSource>> sources;
  for (const auto &[name, tensors] : readIndex(index)) {
    sources.push_back(openFile(folder / name, names));
    for (const std::string &tensor : tensors)
      if (!sources.back()->tensors().contains(tensor))
        throw PlanError(fmt::format("{}: tensor '{}' is not in {}", index.string(), tensor, name));
  }
  return joinSources(std::move(sources));
}

bool comesFirst(const WrittenTensor &a, const WrittenTensor &b) {
  size_t sizeOfA = elementBytes(a.type), sizeOfB = elementBytes(b.type);
  return sizeOfA != sizeOfB ? sizeOfA > sizeOfB : a.name < b.name;
}

/// Splits the tensors, in order, into `count` non-empty shards of similar size.
std::vector<std::vector<WrittenTensor>> shardsOf(std::vector<WrittenTensor> tensors, uint64_t total, size_t count) {
  std::vector<std::vector<WrittenTensor>> shards(count);
  uint64_t done = 0;
  size_t shard = 0, left = tensors.size();
  for (WrittenTensor &tensor : tensors) {
    // Next shard if this one is full, or if each remaining tensor is needed for one of the remaining shards.
    if (!shards[shard].empty() && shard + 1 < count && (done >= total / count * (shard + 1) || left < count - shard))
      ++shard;
    done += tensor.bytes();
    --left;
    shards[shard].push_back(std::move(tensor));
  }
  return shards;
}

/// Returns the files that are written besides weights and config: those of the reference folder, then others.
std::vector<SideFile> sideFilesOf(const HfExport &options) {
  std::vector<SideFile> files;
  if (!options.reference.empty()) {
    std::vector<const char *> names(tokenizerFileNames().begin(), tokenizerFileNames().end());
    names.insert(names.end(), {"README.md", "LICENSE"});
    for (const char *name : names)
      if (Path from = options.reference / name; std::filesystem::exists(from)) {
        requireInside(from);
        files.push_back({name, readText(from, mostSideBytes)});
      }
  }
  for (const SideFile &file : options.files)
    if (std::ranges::find(files, file.name, &SideFile::name) == files.end())
      files.push_back(file);
  return files;
}

} // namespace

void requireInside(const Path &file) {
  if (!std::filesystem::is_symlink(file))
    return;
  Path folder = std::filesystem::canonical(file.parent_path()), target = std::filesystem::weakly_canonical(file);
  auto isIn = [&](const Path &root) {
    Path way = target.lexically_relative(root);
    return !way.empty() && *way.begin() != "..";
  };
  bool isCache = folder.parent_path().filename() == "snapshots";
  if (!isIn(folder) && !(isCache && isIn(folder.parent_path().parent_path() / "blobs")))
    throw PlanError(fmt::format("{}: is a link out of its folder; put the file itself there", file.string()));
}

std::unique_ptr<WeightSource> openHfFolder(const Path &folder) {
  for (const FormatNames *names : {&safetensorsNames, &binNames}) {
    if (std::filesystem::exists(folder / names->index()))
      return openIndexed(folder, *names);
    if (std::filesystem::exists(folder / names->single()))
      return openFile(folder / names->single(), *names);
  }
  throw PlanError(fmt::format("{}: has no weights: none of {}, {}, {}, {}", folder.string(), safetensorsNames.single(),
                              safetensorsNames.index(), binNames.single(), binNames.index()));
}

std::unique_ptr<WeightSource> openHfWeights(const Path &folder, const std::string &stem) {
  for (const FormatNames *names : {&safetensorsNames, &binNames})
    if (Path file = folder / fmt::format("{}.{}", stem, names->extension); std::filesystem::exists(file))
      return openFile(file, *names);
  throw PlanError(fmt::format("{}: has no weights: neither {}.{} nor {}.{}", folder.string(), stem,
                              safetensorsNames.extension, stem, binNames.extension));
}

void writeHfFolder(const Path &target, std::vector<WrittenTensor> tensors, const HfExport &options) {
  NewFolder written(target);
  const Path &folder = written.path();
  const FormatNames &names = options.format == WeightFormat::Safetensors ? safetensorsNames : binNames;
  uint64_t total = 0;
  for (const WrittenTensor &tensor : tensors)
    total += tensor.bytes();
  auto count = static_cast<size_t>(options.shards > 0 ? options.shards : (total + shardBytes - 1) / shardBytes);
  if (count > tensors.size())
    throw PlanError(fmt::format("{} shards of {} tensors; each shard needs one", count, tensors.size()));
  nlohmann::json map = nlohmann::json::object();
  std::vector<std::vector<WrittenTensor>> shards = shardsOf(std::move(tensors), total, count);
  for (size_t i = 0; i < shards.size(); ++i) {
    std::string file = count == 1 ? names.single() : names.shard(static_cast<int64_t>(i + 1), shards.size());
    if (options.format == WeightFormat::Safetensors) {
      std::ranges::sort(shards[i], comesFirst);
      writeSafetensorsInTurn(folder / file, shards[i], {{"format", "pt"}});
    } else {
      writeTorchFile(folder / file, shards[i]);
    }
    for (const WrittenTensor &tensor : shards[i])
      map[tensor.name] = file;
  }
  if (count > 1)
    writeWhole(folder / names.index(),
               nlohmann::json({{"metadata", {{"total_size", total}}}, {"weight_map", map}}).dump(2) + "\n");
  writeWhole(folder / "config.json", options.config);
  for (const SideFile &file : sideFilesOf(options))
    writeWhole(folder / file.name, file.bytes);
  written.commit();
}

} // namespace espalier::rt
