// The path selects the token source. All code above the source is shared.
#include "format/path_kind.h"
#include "messages/data_error.h"
#include "runtime/dataset/blend.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/gpt_dataset.h"
#include "runtime/dataset/mock_source.h"
#include "runtime/dataset/packed_dataset.h"
#include "runtime/dataset/text_check.h"
#include "runtime/dataset/text_source.h"

#include <cerrno>
#include <cmath>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

namespace espalier::rt {

namespace {

std::string withoutIndexSuffix(const std::string &path) {
  if (path.ends_with(".idx") || path.ends_with(".bin"))
    return path.substr(0, path.size() - 4);
  return path;
}

/// Throws for a .bin or .idx without the other file. A .bin may be a token file of another system.
[[noreturn]] void refuseBin(const std::string &path, const std::string &prefix) {
  if (path.ends_with(".bin") && isRegularFile(path)) {
    std::string beginning(8, 0);
    std::ifstream(path, std::ios::binary).read(beginning.data(), std::ssize(beginning));
    requireTextFormat(path, beginning);
  }
  throw DataError(prefix + ".idx", "cannot open: no such file, and a .bin needs its .idx");
}

std::shared_ptr<const TokenSource> openSource(const std::string &path, const DatasetOptions &options) {
  if (path == "mock")
    return std::make_shared<MockSource>(options.vocabSize, options.eodToken);
  std::string prefix = withoutIndexSuffix(path);
  if (isRegularFile(prefix + ".idx"))
    return std::make_shared<IndexedDataset>(IndexedDataset::open(prefix));
  if (prefix != path)
    refuseBin(path, prefix);
  if (isRegularFile(path))
    return std::make_shared<IndexedDataset>(openText(path));
  if (std::filesystem::is_directory(path))
    throw DataError(path, folderWay(path));
  const std::string none = "neither a text file nor a prefix of .bin and .idx files";
  std::error_code error;
  bool isThere = std::filesystem::exists(path, error);
  throw DataError(path, isThere ? none : fmt::format("{}: {}", none, whyNotOpened(path, ENOENT)));
}

class BlendedDataset final : public Dataset {
public:
  BlendedDataset(std::vector<std::unique_ptr<Dataset>> parts, BlendOrder order, const DatasetOptions &options)
      : Dataset(options), parts(std::move(parts)), order(std::move(order)) {}

  int64_t sampleCount() const override { return static_cast<int64_t>(order.part.size()); }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    if (i < 0 || i >= sampleCount())
      throw DataError("blend", fmt::format("sample {} asked for, there are {}", i, sampleCount()));
    parts[order.part[i]]->readTokens(order.sample[i], out);
  }
  bool readLossMask(int64_t i, std::span<int32_t> out) const override {
    return parts[order.part[i]]->readLossMask(order.sample[i], out);
  }

private:
  std::vector<std::unique_ptr<Dataset>> parts;
  BlendOrder order;
};

/// Returns the weights, which sum to 1. Parts without weights count by their samples of one epoch, as in Megatron.
std::vector<double> normalizedWeights(const std::vector<BlendPart> &parts, DatasetOptions options) {
  if (parts.empty() || parts.size() > 32767)
    throw DataError("blend", fmt::format("{} parts, want 1 to 32767", parts.size()));
  options.samples = 0;
  double sum = 0;
  std::vector<double> weights;
  for (const BlendPart &part : parts) {
    double weight =
        isWeighted(parts) ? part.weight : static_cast<double>(openDataset(part.path, options)->sampleCount());
    if (!(weight > 0) || std::isinf(weight))
      throw DataError(part.path, fmt::format("blend weight {}, want a number above 0", weight));
    weights.push_back(weight);
    sum += weight;
  }
  for (double &weight : weights)
    weight /= sum;
  return weights;
}

} // namespace

std::string findLossMask(const std::string &path) {
  std::string mask = lossMaskPrefix(withoutIndexSuffix(path));
  return path != "mock" && isRegularFile(mask + ".idx") ? mask : "";
}

std::unique_ptr<Dataset> openDataset(const std::string &path, const DatasetOptions &options) {
  std::shared_ptr<const TokenSource> mask;
  if (std::string prefix = findLossMask(path); !prefix.empty())
    mask = std::make_shared<IndexedDataset>(IndexedDataset::open(prefix));
  if (options.balancedBatch > 0)
    return std::make_unique<PackedDataset>(openSource(path, options), std::move(mask), options);
  return std::make_unique<GptDataset>(openSource(path, options), std::move(mask), options);
}

std::unique_ptr<Dataset> openBlend(const std::vector<BlendPart> &parts, const DatasetOptions &options) {
  std::vector<double> weights = normalizedWeights(parts, options);
  std::vector<std::unique_ptr<Dataset>> sets;
  std::vector<int64_t> sizes;
  for (size_t i = 0; i < parts.size(); ++i) {
    DatasetOptions one = options;
    // Requests 0.5 % more than the weight requires, because a greedy order may run ahead of it.
    double share = std::ceil(static_cast<double>(options.samples) * weights[i]);
    one.samples = static_cast<int64_t>(std::ceil(share * 1.005));
    sets.push_back(openDataset(parts[i].path, one));
    sizes.push_back(sets.back()->sampleCount());
  }
  BlendOrder order = options.samples > 0 ? blendByWeight(weights, options.samples) : blendExhaustively(sizes);
  std::vector<int64_t> drawn(parts.size());
  for (size_t k = 0; k < order.part.size(); ++k)
    drawn[order.part[k]] = order.sample[k] + 1;
  for (size_t i = 0; i < parts.size(); ++i)
    if (drawn[i] > sizes[i])
      throw DataError(parts[i].path, fmt::format("the blend draws {} samples, this part has {}", drawn[i], sizes[i]));
  return std::make_unique<BlendedDataset>(std::move(sets), std::move(order), options);
}

} // namespace espalier::rt
