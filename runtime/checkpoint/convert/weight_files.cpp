// Safetensors files as a source of weights.
#include "runtime/checkpoint/convert/weight_files.h"

#include "runtime/files/atomic_file.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

class SafetensorsSource : public WeightSource {
public:
  explicit SafetensorsSource(const std::filesystem::path &path) : file(path) {
    for (const TensorEntry &entry : file.tensors()) {
      listed[entry.name] = {entry.type, entry.otherType, entry.shape, entry.bytes};
      places[entry.name] = entry.begin;
    }
  }
  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override {
    std::vector<std::byte> bytes(listed.at(name).bytes);
    readPart(name, 0, bytes);
    return bytes;
  }
  bool readsParts(const std::string &) const override { return true; }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    file.file().read(file.headerBytes() + places.at(name) + begin, bytes);
  }
  std::string placeOf(const std::string &) const override { return file.file().path().string(); }

private:
  SafetensorsFile file;
  std::map<std::string, ListedTensor> listed;
  std::map<std::string, uint64_t> places;
};

class JoinedSource : public WeightSource {
public:
  explicit JoinedSource(std::vector<std::unique_ptr<WeightSource>> given) : sources(std::move(given)) {
    for (const auto &source : sources)
      for (const auto &[name, tensor] : source->tensors()) {
        auto [owner, isNew] = owners.try_emplace(name, source.get());
        if (!isNew)
          throw PlanError(
              fmt::format("{}: tensor '{}' is also in {}", source->placeOf(name), name, owner->second->placeOf(name)));
        listed.emplace(name, tensor);
      }
  }
  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override { return owners.at(name)->read(name); }
  bool readsParts(const std::string &name) const override { return owners.at(name)->readsParts(name); }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    owners.at(name)->readPart(name, begin, bytes);
  }
  std::string placeOf(const std::string &name) const override { return owners.at(name)->placeOf(name); }

private:
  std::vector<std::unique_ptr<WeightSource>> sources;
  std::map<std::string, WeightSource *> owners;
  std::map<std::string, ListedTensor> listed;
};

} // namespace

std::unique_ptr<WeightSource> openSafetensors(const std::filesystem::path &file) {
  return std::make_unique<SafetensorsSource>(file);
}

std::unique_ptr<WeightSource> joinSources(std::vector<std::unique_ptr<WeightSource>> sources) {
  return std::make_unique<JoinedSource>(std::move(sources));
}

void writeSafetensorsInTurn(const std::filesystem::path &file, std::span<const WrittenTensor> tensors,
                            const std::map<std::string, std::string> &metadata) {
  std::vector<TensorEntry> entries;
  uint64_t begin = 0;
  for (const WrittenTensor &tensor : tensors) {
    entries.push_back({tensor.name, tensor.type, tensor.shape, begin, tensor.bytes()});
    begin += tensor.bytes();
  }
  std::string header = safetensorsHeader(entries, metadata);
  AtomicFile written(file.string());
  written.write(header.data(), header.size());
  for (const WrittenTensor &tensor : tensors) {
    std::vector<std::byte> bytes = tensor.make();
    written.write(bytes.data(), bytes.size());
  }
  written.commit();
}

} // namespace espalier::rt
