// espalier._native.Checkpoint: the tensors of a checkpoint and their byte offsets.
#include "python/native/bindings.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/stored_checkpoint.h"
#include "runtime/status.h"
#include "runtime/thread_pool.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <tuple>

namespace nb = nanobind;

namespace espalier::python {
namespace {

using Key = std::pair<std::string, std::string>; ///< kind and name

/// One checkpoint. Tensors are found by kind (value, master, moment1, moment2) and by the parameter's name.
class Checkpoint {
public:
  explicit Checkpoint(const std::filesystem::path &path) : stored(rt::checkpointAt(path)) {
    for (const rt::Shard &shard : stored.manifest().shards)
      for (const rt::StoredPiece &piece : shard.pieces)
        pieces[{piece.piece.kind, piece.piece.name}].push_back({&shard, &piece});
  }

  std::string path() const { return stored.path().string(); }
  int64_t step() const { return stored.manifest().state.step; }
  std::string model() const { return stored.manifest().model; }

  std::vector<std::string> names(const std::string &kind) const {
    std::vector<std::string> names;
    for (const auto &[key, places] : pieces)
      if (key.first == kind)
        names.push_back(key.second);
    return names;
  }

  /// Returns the type, with safetensors' name, and the shape, or nothing if there is no such tensor.
  std::optional<std::pair<std::string, std::vector<int64_t>>> describe(const std::string &kind,
                                                                       const std::string &name) const {
    auto found = pieces.find({kind, name});
    if (found == pieces.end())
      return std::nullopt;
    const rt::Piece &piece = found->second.front().stored->piece;
    return std::pair(std::string(rt::safetensorsType(piece.type)), piece.shape);
  }

  /// Returns the file and byte offset of the whole row-major tensor, or nothing if ranks stored shards.
  std::optional<std::pair<std::string, uint64_t>> whereWhole(const std::string &kind, const std::string &name) const {
    for (const Place &place : pieces.at({kind, name})) {
      const rt::Piece &piece = place.stored->piece;
      bool isWhole = piece.sizes == piece.shape && piece.begin == 0 && piece.end == piece.boxElements();
      if (isWhole)
        return std::pair((stored.path() / place.shard->file).string(), place.shard->headerBytes + place.stored->at);
    }
    return std::nullopt;
  }

  /// Returns the bytes of a tensor. Joins its shards and compares them with their checksums.
  nb::bytearray assemble(const std::string &kind, const std::string &name) const {
    rt::Piece whole = pieces.at({kind, name}).front().stored->piece;
    whole.offsets.assign(whole.shape.size(), 0);
    whole.sizes = whole.shape;
    whole.begin = 0;
    whole.end = whole.boxElements();
    nb::bytearray bytes(nullptr, 0);
    bytes.resize(whole.bytes());
    std::span<std::byte> target(static_cast<std::byte *>(bytes.data()), whole.bytes());
    nb::gil_scoped_release unlocked;
    rt::ThreadPool pool(/*threads=*/1, /*spins=*/0);
    rt::StoredCheckpoint::Target wanted{std::move(whole), target};
    stored.read({&wanted, 1}, pool, rt::NonFinite::Accepted);
    return bytes;
  }

  /// Compares every byte with the manifest's checksums. Returns one message per error.
  std::vector<std::string> verify() const {
    nb::gil_scoped_release unlocked;
    return rt::shardFaults(stored.path(), stored.manifest(), rt::Depth::EveryByte);
  }

private:
  struct Place {
    const rt::Shard *shard;
    const rt::StoredPiece *stored;
  };

  const rt::StoredCheckpoint stored;
  std::map<Key, std::vector<Place>> pieces;
};

} // namespace

void addCheckpoint(nb::module_ &module) {
  nb::class_<Checkpoint>(module, "Checkpoint")
      .def(nb::init<const std::filesystem::path &>(), nb::arg("folder"))
      .def_prop_ro("path", &Checkpoint::path)
      .def_prop_ro("step", &Checkpoint::step)
      .def_prop_ro("model", &Checkpoint::model)
      .def("names", &Checkpoint::names, nb::arg("kind"))
      .def("describe", &Checkpoint::describe, nb::arg("kind"), nb::arg("name"))
      .def("where_whole", &Checkpoint::whereWhole, nb::arg("kind"), nb::arg("name"))
      .def("assemble", &Checkpoint::assemble, nb::arg("kind"), nb::arg("name"))
      .def("verify", &Checkpoint::verify);
}

} // namespace espalier::python
