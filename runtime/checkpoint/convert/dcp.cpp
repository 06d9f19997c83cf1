// A chunk is a file of torch.save within another file. Chunks are placed by the offsets that the metadata state.
#include "runtime/checkpoint/convert/dcp.h"

#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/comm/comm.h"
#include "runtime/status.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace espalier::rt {
namespace {

using Path = std::filesystem::path;
using Kind = PickleValue::Kind;

constexpr const char *metadataName = ".metadata", *trackerName = "latest_checkpointed_iteration.txt";
constexpr uint64_t mostMetadataBytes = uint64_t(1) << 30, mostElements = uint64_t(1) << 48;
constexpr size_t mostDimensions = 16, mostChunks = 1 << 16;

constexpr std::pair<const char *, pb::DataType> types[] = {
    {"torch.float32", pb::F32}, {"torch.float16", pb::F16}, {"torch.bfloat16", pb::BF16}};

/// A box of a tensor, and the range of a file that holds its elements.
struct Chunk {
  std::vector<int64_t> offsets, sizes;
  std::string file;
  uint64_t at = 0, bytes = 0;
};

struct Stored {
  ListedTensor listed;
  std::vector<Chunk> chunks;
};

uint64_t elementsOf(std::span<const int64_t> sizes) {
  uint64_t elements = 1;
  for (int64_t size : sizes)
    elements *= static_cast<uint64_t>(size);
  return elements;
}

/// Reads the values of the metadata. Faults name no file.
class MetadataReader {
public:
  explicit MetadataReader(std::span<const std::byte> bytes) : pickle(bytes) {}

  std::map<std::string, Stored> read() {
    const PickleValue &root = object(&pickle.root(), "Metadata");
    for (auto [name, value] : field(root, "state_dict_metadata", Kind::Dict).pairs)
      if (name->kind == Kind::Text && isOf(*value, "TensorStorageMetadata"))
        stored.emplace(name->text, tensorOf(*value));
    for (auto [index, info] : field(root, "storage_data", Kind::Dict).pairs)
      place(object(index, "MetadataIndex"), object(info, "_StorageInfo"));
    return std::move(stored);
  }

private:
  [[noreturn]] static void refuse(const std::string &reason) { throw PlanError("damaged metadata: " + reason); }

  static bool isOf(const PickleValue &value, std::string_view type) {
    return value.kind == Kind::Inert && value.text.ends_with(fmt::format(".{}", type));
  }
  /// Returns the state of an object of a class of torch.
  static const PickleValue &object(PickleRef value, const char *type) {
    if (!isOf(*value, type) || !value->state || value->state->kind != Kind::Dict)
      refuse(fmt::format("no object of {}", type));
    return *value->state;
  }
  static const PickleValue &field(const PickleValue &object, const char *name, Kind kind) {
    PickleRef value = object.find(name);
    if (!value || value->kind != kind)
      refuse(fmt::format("no {}", name));
    return *value;
  }
  static uint64_t count(const PickleValue &object, const char *name) {
    int64_t value = field(object, name, Kind::Integer).integer;
    if (value < 0)
      refuse(fmt::format("{} is {}", name, value));
    return static_cast<uint64_t>(value);
  }
  /// Returns the numbers of a torch.Size.
  static std::vector<int64_t> sizes(PickleRef value) {
    PickleRef list = value && isOf(*value, "Size") && value->arguments && value->arguments->items.size() == 1
                         ? value->arguments->items[0]
                         : value;
    if (!list || list->kind != Kind::Sequence || list->items.size() > mostDimensions)
      refuse("a size that is no short list");
    std::vector<int64_t> numbers;
    uint64_t elements = 1;
    for (PickleRef item : list->items) {
      if (item->kind != Kind::Integer || item->integer < 0)
        refuse("a size that is no list of numbers");
      numbers.push_back(item->integer);
      if (__builtin_mul_overflow(elements, static_cast<uint64_t>(item->integer), &elements) || elements > mostElements)
        refuse("a size of too many elements");
    }
    return numbers;
  }

  Stored tensorOf(const PickleValue &value) {
    const PickleValue &state = object(&value, "TensorStorageMetadata");
    PickleRef properties = state.find("properties");
    if (!properties || !isOf(*properties, "TensorProperties") || !properties->state || properties->state->items.empty())
      refuse("a tensor without properties");
    const std::string &name = properties->state->items[0]->text;
    auto type = std::ranges::find(types, name, [](const auto &one) { return one.first; });
    Stored tensor;
    bool isOurs = type != std::end(types);
    tensor.listed.type = isOurs ? type->second : pb::F32;
    tensor.listed.otherType = isOurs ? "" : name;
    tensor.listed.shape = sizes(state.find("size"));
    tensor.listed.bytes = tensorBytes(tensor.listed.shape, tensor.listed.type);
    const std::vector<PickleRef> &chunks = field(state, "chunks", Kind::Sequence).items;
    if (chunks.size() > mostChunks)
      refuse(fmt::format("a tensor of {} chunks, at most {} are read", chunks.size(), mostChunks));
    for (PickleRef chunk : chunks) {
      const PickleValue &box = object(chunk, "ChunkStorageMetadata");
      tensor.chunks.push_back({sizes(box.find("offsets")), sizes(box.find("sizes")), "", 0, 0});
      const Chunk &added = tensor.chunks.back();
      bool isInside = added.offsets.size() == tensor.listed.shape.size() && added.sizes.size() == added.offsets.size();
      for (size_t i = 0; isInside && i < added.sizes.size(); ++i)
        isInside = added.offsets[i] <= tensor.listed.shape[i] - added.sizes[i];
      if (!isInside)
        refuse(fmt::format("a chunk {} at {} of a tensor {}", added.sizes, added.offsets, tensor.listed.shape));
    }
    return tensor;
  }

  /// Reads where a chunk lies.
  void place(const PickleValue &index, const PickleValue &info) {
    auto tensor = stored.find(field(index, "fqn", Kind::Text).text);
    if (tensor == stored.end())
      return; // an object that is no tensor
    PickleRef given = index.find("offset");
    std::vector<int64_t> offsets =
        given && given->kind != Kind::None ? sizes(given) : std::vector<int64_t>(tensor->second.listed.shape.size());
    auto chunk = std::ranges::find(tensor->second.chunks, offsets, &Chunk::offsets);
    if (chunk == tensor->second.chunks.end())
      refuse(fmt::format("'{}' has no chunk at {}", tensor->first, offsets));
    if (PickleRef changed = info.find("transform_descriptors"); changed && changed->kind != Kind::None)
      refuse(fmt::format("'{}' is compressed, which is not read", tensor->first));
    chunk->file = field(info, "relative_path", Kind::Text).text;
    if (Path(chunk->file).filename() != chunk->file || chunk->file == "." || chunk->file == "..")
      refuse(fmt::format("'{}' is no file of this folder", chunk->file));
    chunk->at = count(info, "offset");
    chunk->bytes = count(info, "length");
  }

  Pickle pickle;
  std::map<std::string, Stored> stored;
};

/// Copies a box into a row-major tensor.
void placeBox(const Chunk &chunk, std::span<const int64_t> shape, size_t size, std::span<const std::byte> box,
              std::span<std::byte> whole) {
  if (box.empty())
    return;
  if (shape.empty()) {
    std::memcpy(whole.data(), box.data(), size);
    return;
  }
  size_t row = static_cast<size_t>(chunk.sizes.back()) * size;
  std::vector<int64_t> at(shape.size());
  for (size_t from = 0; from < box.size(); from += row) {
    uint64_t place = 0;
    for (size_t i = 0; i < shape.size(); ++i)
      place = place * static_cast<uint64_t>(shape[i]) + static_cast<uint64_t>(chunk.offsets[i] + at[i]);
    std::memcpy(whole.data() + place * size, box.data() + from, row);
    for (size_t i = shape.size() - 1; i-- > 0;) {
      if (++at[i] < chunk.sizes[i])
        break;
      at[i] = 0;
    }
  }
}

bool overlap(const Chunk &a, const Chunk &b) {
  for (size_t i = 0; i < a.sizes.size(); ++i)
    if (a.offsets[i] + a.sizes[i] <= b.offsets[i] || b.offsets[i] + b.sizes[i] <= a.offsets[i])
      return false;
  return true;
}

class DcpSource : public WeightSource {
public:
  explicit DcpSource(const Path &folder) : folder(folder) {
    RegularFile file(folder / metadataName);
    if (file.size() > mostMetadataBytes)
      throw PlanError(
          fmt::format("{}: {} bytes, at most {} are read", file.path().string(), file.size(), mostMetadataBytes));
    std::vector<std::byte> bytes(file.size());
    file.read(0, bytes);
    try {
      stored = MetadataReader(bytes).read();
    } catch (const PlanError &error) {
      throw PlanError(fmt::format("{}: {}", file.path().string(), error.what()));
    }
    for (const auto &[name, tensor] : stored)
      listed.emplace(name, tensor.listed);
  }

  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  bool readsParts(const std::string &) const override { return false; }
  void readPart(const std::string &, uint64_t, std::span<std::byte>) const override {}
  std::string placeOf(const std::string &name) const override {
    auto tensor = stored.find(name);
    bool hasFile = tensor != stored.end() && !tensor->second.chunks.empty();
    return (hasFile ? folder / tensor->second.chunks.front().file : folder).string();
  }

  std::vector<std::byte> read(const std::string &name) const override {
    const Stored &tensor = stored.at(name);
    requireCovered(name, tensor);
    size_t size = elementBytes(tensor.listed.type);
    std::vector<std::byte> whole(tensor.listed.bytes);
    for (const Chunk &chunk : tensor.chunks) {
      TorchFile file(folder / chunk.file, FileRange{chunk.at, chunk.bytes});
      const PickleTensor &held = file.root().tensor;
      std::string place = fmt::format("{}: '{}' at {}", file.path().string(), name, chunk.at);
      if (file.root().kind != Kind::Tensor || held.shape != chunk.sizes)
        throw PlanError(fmt::format("{} is no tensor of {}", place, chunk.sizes));
      std::vector<std::byte> box = file.read(held);
      if (box.size() != elementsOf(chunk.sizes) * size)
        throw PlanError(fmt::format("{} has elements of another type", place));
      placeBox(chunk, tensor.listed.shape, size, box, whole);
    }
    return whole;
  }

private:
  /// Checks that the chunks have every element once.
  void requireCovered(const std::string &name, const Stored &tensor) const {
    uint64_t held = 0;
    bool isOnce = true;
    for (size_t i = 0; i < tensor.chunks.size(); ++i) {
      held += elementsOf(tensor.chunks[i].sizes);
      isOnce &= !tensor.chunks[i].file.empty();
      for (size_t j = 0; isOnce && j < i; ++j)
        isOnce = !overlap(tensor.chunks[i], tensor.chunks[j]);
    }
    if (!isOnce || held != elementsOf(tensor.listed.shape))
      throw PlanError(
          fmt::format("{}: the chunks of '{}' do not have each of its elements once", folder.string(), name));
  }

  Path folder;
  std::map<std::string, Stored> stored;
  std::map<std::string, ListedTensor> listed;
};

/// Tensors of another source under other names: whole, or one index of their first dimension.
class RenamedSource : public WeightSource {
public:
  explicit RenamedSource(std::shared_ptr<const WeightSource> source) : source(std::move(source)) {}

  void add(const std::string &name, const std::string &of, int64_t index = -1) {
    ListedTensor tensor = source->tensors().at(of);
    if (index >= 0) {
      tensor.bytes /= static_cast<uint64_t>(tensor.shape.front());
      tensor.shape.erase(tensor.shape.begin());
    }
    listed.emplace(name, std::move(tensor));
    places.emplace(name, Place{of, index});
  }

  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  bool readsParts(const std::string &) const override { return false; }
  void readPart(const std::string &, uint64_t, std::span<std::byte>) const override {}
  std::string placeOf(const std::string &name) const override {
    auto place = places.find(name);
    return source->placeOf(place == places.end() ? name : place->second.of);
  }
  std::vector<std::byte> read(const std::string &name) const override {
    const Place &place = places.at(name);
    if (place.index < 0)
      return source->read(place.of);
    if (lastName != place.of) { // the layers of a tensor are read one after another
      last = source->read(place.of);
      lastName = place.of;
    }
    size_t bytes = listed.at(name).bytes;
    auto begin = last.begin() + static_cast<std::ptrdiff_t>(bytes * static_cast<size_t>(place.index));
    return {begin, begin + static_cast<std::ptrdiff_t>(bytes)};
  }

private:
  struct Place {
    std::string of;
    int64_t index;
  };
  std::shared_ptr<const WeightSource> source;
  std::map<std::string, ListedTensor> listed;
  std::map<std::string, Place> places;
  mutable std::string lastName;
  mutable std::vector<std::byte> last;
};

} // namespace

std::optional<Path> dcpFolderAt(const Path &path) {
  if (std::filesystem::exists(path / metadataName))
    return path;
  if (!std::filesystem::exists(path / trackerName))
    return std::nullopt;
  std::string text = readText(path / trackerName, 64);
  text.erase(text.find_last_not_of(" \n\r\t") + 1);
  bool isNumber = !text.empty() && text.size() <= 12 && text.find_first_not_of("0123456789") == std::string::npos;
  Path folder = path / (isNumber ? fmt::format("iter_{:07}", std::stoll(text)) : text == "release" ? text : ".");
  return std::filesystem::exists(folder / metadataName) ? std::optional(folder) : std::nullopt;
}

std::unique_ptr<WeightSource> openDcp(const Path &folder) { return std::make_unique<DcpSource>(folder); }

std::unique_ptr<WeightSource> withoutPrefix(std::shared_ptr<const WeightSource> source, const std::string &prefix,
                                            const std::function<bool(const std::string &)> &isTaken) {
  auto renamed = std::make_unique<RenamedSource>(source);
  for (const auto &[name, tensor] : source->tensors())
    if (name.starts_with(prefix) && isTaken(name.substr(prefix.size())))
      renamed->add(name.substr(prefix.size()), name);
  return renamed;
}

std::unique_ptr<WeightSource> withoutStackedLayers(std::unique_ptr<WeightSource> given, int64_t layers) {
  std::shared_ptr<const WeightSource> source = std::move(given);
  auto renamed = std::make_unique<RenamedSource>(source);
  constexpr std::string_view word = "layers.";
  for (const auto &[name, tensor] : source->tensors()) {
    size_t at = name.find(word) == std::string::npos ? name.size() : name.find(word) + word.size();
    bool isStacked = at < name.size() && !std::isdigit(static_cast<unsigned char>(name[at])) && !tensor.shape.empty() &&
                     tensor.shape.front() == layers;
    if (!isStacked)
      renamed->add(name, name);
    for (int64_t layer = 0; isStacked && layer < layers; ++layer)
      renamed->add(fmt::format("{}{}.{}", name.substr(0, at), layer, name.substr(at)), name, layer);
  }
  return renamed;
}

} // namespace espalier::rt
