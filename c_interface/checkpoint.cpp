// The tensors of a checkpoint and where their bytes are.
#include "c_interface/guard.h"

#include "runtime/checkpoint/commit.h"
#include "runtime/checkpoint/inspect.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/checkpoint/stored_checkpoint.h"
#include "runtime/status.h"
#include "runtime/thread_pool.h"

#include <map>
#include <string>
#include <vector>

namespace rt = espalier::rt;

struct espalier_checkpoint {
  explicit espalier_checkpoint(const std::filesystem::path &path)
      : stored(rt::checkpointAt(path)), folder(stored.path().string()) {
    std::map<std::pair<std::string, std::string>, Tensor> found;
    for (const rt::Shard &shard : stored.manifest().shards)
      for (const rt::StoredPiece &piece : shard.pieces)
        found[{piece.piece.kind, piece.piece.name}].add(stored.path(), shard, piece);
    tensors.reserve(found.size()); // views point into the tensors
    for (auto &[key, tensor] : found)
      tensors.push_back(std::move(tensor));
    for (Tensor &tensor : tensors)
      tensor.describe();
  }

  /// A tensor, whose first piece has been found in a shard.
  struct Tensor {
    void add(const std::filesystem::path &folder, const rt::Shard &shard, const rt::StoredPiece &found) {
      const rt::Piece &piece = found.piece;
      if (whole.name.empty())
        whole = piece;
      bool isWhole = piece.sizes == piece.shape && piece.begin == 0 && piece.end == piece.boxElements();
      if (!isWhole || !file.empty())
        return;
      file = (folder / shard.file).string();
      offset = shard.headerBytes + found.at;
    }

    void describe() {
      whole.offsets.assign(whole.shape.size(), 0);
      whole.sizes = whole.shape;
      whole.begin = 0;
      whole.end = whole.boxElements();
      type = rt::safetensorsType(whole.type);
      view = {whole.kind.c_str(),
              whole.name.c_str(),
              type.c_str(),
              whole.shape.data(),
              whole.shape.size(),
              whole.bytes(),
              file.empty() ? nullptr : file.c_str(),
              offset};
    }

    rt::Piece whole; ///< unsharded
    std::string type, file;
    uint64_t offset = 0;
    espalier_tensor view = {};
  };

  const rt::StoredCheckpoint stored;
  const std::string folder;
  std::vector<Tensor> tensors;
};

using espalier::c_interface::guarded;

espalier_status espalier_checkpoint_open(const char *folder, espalier_checkpoint **opened) {
  *opened = nullptr;
  return guarded([&] { *opened = new espalier_checkpoint(folder); });
}

void espalier_checkpoint_close(espalier_checkpoint *checkpoint) { delete checkpoint; }

const char *espalier_checkpoint_folder(const espalier_checkpoint *checkpoint) { return checkpoint->folder.c_str(); }

int64_t espalier_checkpoint_step(const espalier_checkpoint *checkpoint) {
  return checkpoint->stored.manifest().state.step;
}

const char *espalier_checkpoint_model(const espalier_checkpoint *checkpoint) {
  return checkpoint->stored.manifest().model.c_str();
}

size_t espalier_checkpoint_tensors(const espalier_checkpoint *checkpoint) { return checkpoint->tensors.size(); }

const espalier_tensor *espalier_checkpoint_tensor(const espalier_checkpoint *checkpoint, size_t index) {
  return index < checkpoint->tensors.size() ? &checkpoint->tensors[index].view : nullptr;
}

espalier_status espalier_checkpoint_read(const espalier_checkpoint *checkpoint, size_t index, void *target) {
  return guarded([&] {
    rt::Piece whole = checkpoint->tensors.at(index).whole;
    std::span<std::byte> bytes(static_cast<std::byte *>(target), whole.bytes());
    rt::ThreadPool pool(/*threads=*/1, /*spins=*/0);
    rt::StoredCheckpoint::Target wanted{std::move(whole), bytes};
    checkpoint->stored.read({&wanted, 1}, pool, rt::NonFinite::Accepted);
  });
}

espalier_status espalier_checkpoint_verify(const espalier_checkpoint *checkpoint, espalier_line on_fault,
                                           void *context) {
  return guarded([&] {
    for (const std::string &fault :
         rt::shardFaults(checkpoint->stored.path(), checkpoint->stored.manifest(), rt::Depth::EveryByte))
      if (on_fault && on_fault(context, fault.c_str()) != 0)
        return;
  });
}
