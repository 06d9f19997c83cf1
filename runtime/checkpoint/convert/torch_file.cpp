// The pickle reader checked that tensors lie within their storages. This file checks that storages lie within the file.
#include "runtime/checkpoint/convert/torch_file.h"

#include "runtime/checkpoint/convert/zip.h"
#include "runtime/comm/comm.h"
#include "runtime/status.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

using Kind = PickleValue::Kind;

constexpr uint64_t mostPickleBytes = uint64_t(64) << 20;
constexpr int mostLevels = 8;
constexpr size_t mostNames = 1 << 20;

constexpr std::pair<const char *, pb::DataType> types[] = {
    {"FloatStorage", pb::F32}, {"HalfStorage", pb::F16}, {"BFloat16Storage", pb::BF16}};

bool isRowMajor(const PickleTensor &tensor) {
  int64_t stride = 1;
  for (size_t i = tensor.shape.size(); i-- > 0; stride *= tensor.shape[i])
    if (tensor.shape[i] != 1 && tensor.strides[i] != stride)
      return false;
  return true;
}

/// Gathers elements by their strides. `from` begins at the tensor's first element.
std::vector<std::byte> gathered(const PickleTensor &tensor, std::span<const std::byte> from) {
  size_t size = tensor.storage.element.bytes;
  std::vector<std::byte> to(tensor.elements() * size);
  std::vector<int64_t> index(tensor.shape.size());
  uint64_t place = 0;
  for (size_t at = 0; at < to.size(); at += size) {
    std::memcpy(to.data() + at, from.data() + place * size, size);
    for (size_t i = index.size(); i-- > 0;) {
      place += static_cast<uint64_t>(tensor.strides[i]);
      if (++index[i] < tensor.shape[i])
        break;
      place -= static_cast<uint64_t>(tensor.strides[i] * tensor.shape[i]);
      index[i] = 0;
    }
  }
  return to;
}

/// The tensors of a file by their joined names.
class TorchSource : public WeightSource {
public:
  TorchSource(std::shared_ptr<const TorchFile> given, PickleRef root) : file(std::move(given)) { add("", root, 0); }

  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override { return file->read(values.at(name)->tensor); }
  bool readsParts(const std::string &name) const override { return isRowMajor(values.at(name)->tensor); }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    file->readPart(values.at(name)->tensor, begin, bytes);
  }
  std::string placeOf(const std::string &) const override { return file->path().string(); }

private:
  void add(const std::string &name, PickleRef value, int level) {
    if (level > mostLevels || ++names > mostNames)
      throw PlanError(fmt::format("{}: dicts are nested deeper than those of weights", file->path().string()));
    if (value->kind == Kind::Tensor) {
      const PickleTensor &tensor = value->tensor;
      auto type = std::ranges::find(types, tensor.storage.element.name, [](auto &known) { return known.first; });
      bool isOurs = type != std::end(types);
      bool isNew = listed
                       .try_emplace(name, ListedTensor{isOurs ? type->second : pb::F32,
                                                       isOurs ? "" : tensor.storage.element.name, tensor.shape,
                                                       tensor.elements() * tensor.storage.element.bytes})
                       .second;
      if (!isNew)
        throw PlanError(fmt::format("{}: tensor '{}' comes twice", file->path().string(), name));
      values[name] = value;
    } else if (value->kind == Kind::Dict) {
      for (auto [key, each] : value->pairs)
        if (key->kind == Kind::Text)
          add(name.empty() ? key->text : name + "/" + key->text, each, level + 1);
    } else if (value->kind == Kind::Inert && (name.ends_with("weight") || name.ends_with("bias"))) {
      throw PlanError(fmt::format("{}: '{}' is made by {}, which is never called; only tensors are read",
                                  file->path().string(), name, value->text));
    }
  }

  std::shared_ptr<const TorchFile> file;
  std::map<std::string, ListedTensor> listed;
  std::map<std::string, PickleRef> values;
  size_t names = 0;
};

} // namespace

TorchFile::TorchFile(const std::filesystem::path &path, const std::optional<FileRange> &range)
    : file(path), content(file, range.value_or(FileRange{0, file.size()})) {
  try {
    isZip(content) ? openZip() : openOld();
  } catch (const PlanError &error) {
    std::string what = error.what(), name = path.string();
    throw PlanError(what.starts_with(name) ? what : fmt::format("{}: {}", name, what));
  }
}

void TorchFile::place(const PickleStorage &storage, const Place &place) {
  if (place.bytes / storage.element.bytes < storage.count) // the product might overflow
    throw PlanError(fmt::format("storage '{}' of {} elements of {} bytes has {} bytes", storage.key, storage.count,
                                storage.element.bytes, place.bytes));
  places[storage.key] = {place.at, storage.count * storage.element.bytes,
                         place.bytes == storage.count * storage.element.bytes ? place.crc : std::nullopt};
}

void TorchFile::openZip() {
  std::map<std::string, ZipEntry> entries = readZip(content);
  auto isRoot = [](const auto &entry) { return entry.first.ends_with("/data.pkl"); };
  auto root = std::ranges::find_if(entries, isRoot);
  if (root == entries.end() || std::ranges::count_if(entries, isRoot) != 1)
    throw PlanError("a zip without one data.pkl is not a file of torch.save");
  const std::string folder = root->first.substr(0, root->first.size() - std::strlen("data.pkl"));
  auto bytesOf = [&](const ZipEntry &entry) {
    if (entry.bytes > mostPickleBytes)
      throw PlanError(fmt::format("a pickle of {} bytes, at most {} are read", entry.bytes, mostPickleBytes));
    std::vector<std::byte> bytes(entry.bytes);
    content.read(entry.at, bytes);
    if (zipChecksum(0, bytes) != entry.crc)
      throw PlanError("its names do not fit their checksum");
    return bytes;
  };
  if (auto order = entries.find(folder + "byteorder"); order != entries.end())
    if (std::vector<std::byte> bytes = bytesOf(order->second); bytes.empty() || bytes[0] != std::byte('l'))
      throw PlanError("its numbers are big-endian");
  pickle.emplace(bytesOf(root->second));
  for (const auto &[key, storage] : pickle->storages()) {
    auto entry = entries.find(folder + "data/" + key);
    if (entry == entries.end())
      throw PlanError(fmt::format("storage '{}' is missing", key));
    place(storage, {entry->second.at, entry->second.bytes, entry->second.crc});
  }
}

/// Reads the old format: pickles of a magic number, a version, the writer's sizes, the object and the keys of its
/// storages. Then follow, for each key, the number of elements and the elements.
void TorchFile::openOld() {
  std::vector<std::byte> bytes(std::min(content.size(), mostPickleBytes));
  content.read(0, bytes);
  constexpr unsigned char magic[] = {0x80, 2,    0x8a, 10,  0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a,
                                     0xa8, 0x50, 0x19, '.', 0x80, 2,    'M',  0xe9, 3,    '.'};
  if (bytes.size() < sizeof(magic) || std::memcmp(bytes.data(), magic, sizeof(magic)) != 0)
    throw PlanError("is not a file of torch.save");
  std::span<const std::byte> rest = std::span<const std::byte>(bytes).subspan(sizeof(magic));
  Pickle writer(rest);
  PickleRef order = writer.root().find("little_endian");
  if (!order || order->integer != 1)
    throw PlanError("its numbers are big-endian");
  rest = rest.subspan(writer.size());
  pickle.emplace(rest);
  rest = rest.subspan(pickle->size());
  Pickle keys(rest);
  uint64_t at = content.size() > 0 ? bytes.size() - rest.size() + keys.size() : 0;
  for (PickleRef key : keys.root().items) {
    auto storage = pickle->storages().find(key->text);
    if (storage == pickle->storages().end())
      throw PlanError(fmt::format("no bytes for storage '{}'", key->text));
    uint64_t elements = 0, size = storage->second.element.bytes;
    content.read(at, std::as_writable_bytes(std::span(&elements, 1)));
    at += sizeof(elements);
    if (elements > (content.size() - at) / size)
      throw PlanError(fmt::format("storage '{}' of {} elements reaches past the end", key->text, elements));
    place(storage->second, {at, elements * size, std::nullopt});
    at += elements * size;
  }
  for (const auto &[key, storage] : pickle->storages())
    if (!places.contains(key))
      throw PlanError(fmt::format("storage '{}' is missing", key));
}

std::vector<std::byte> TorchFile::read(const PickleTensor &tensor) const {
  const Place &place = places.at(tensor.storage.key);
  uint64_t size = tensor.storage.element.bytes, elements = tensor.elements();
  if (elements == 0)
    return {};
  uint64_t reach = 1; // elements from the first to the last
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    reach += static_cast<uint64_t>((tensor.shape[i] - 1) * tensor.strides[i]);
  std::vector<std::byte> bytes(reach * size);
  content.read(place.at + tensor.offset * size, bytes);
  if (place.crc) {
    uint32_t crc = 0;
    if (bytes.size() == place.bytes)
      crc = zipChecksum(0, bytes);
    else
      content.readParts(place.at, place.bytes,
                        [&](uint64_t, std::span<const std::byte> part) { crc = zipChecksum(crc, part); });
    requireChecksum(tensor.storage, crc);
  }
  if (!isRowMajor(tensor))
    return gathered(tensor, bytes);
  return bytes;
}

void TorchFile::readPart(const PickleTensor &tensor, uint64_t begin, std::span<std::byte> bytes) const {
  const Place &place = places.at(tensor.storage.key);
  uint64_t size = tensor.storage.element.bytes;
  assert(isRowMajor(tensor) && begin + bytes.size() <= tensor.elements() * size);
  content.read(place.at + tensor.offset * size + begin, bytes);
  if (place.crc && bytes.size() == place.bytes)
    requireChecksum(tensor.storage, zipChecksum(0, bytes));
}

void TorchFile::requireChecksum(const PickleStorage &storage, uint32_t found) const {
  if (found != *places.at(storage.key).crc)
    throw PlanError(
        fmt::format("{}: damaged: storage '{}' does not fit its checksum", content.path().string(), storage.key));
}

std::unique_ptr<WeightSource> openTorchFile(const std::filesystem::path &path) {
  auto file = std::make_shared<const TorchFile>(path);
  if (file->root().kind != Kind::Dict)
    throw PlanError(fmt::format("{}: holds no dict of tensors", path.string()));
  return std::make_unique<TorchSource>(file, &file->root());
}

std::unique_ptr<WeightSource> openTorchEntry(std::shared_ptr<const TorchFile> file, const std::string &entry) {
  PickleRef value = file->root().kind == Kind::Dict ? file->root().find(entry) : nullptr;
  if (!value || value->kind != Kind::Dict)
    throw PlanError(fmt::format("{}: has no '{}' with weights", file->path().string(), entry));
  return std::make_unique<TorchSource>(file, value);
}

} // namespace espalier::rt
