// One file of chunks, each a whole tensor, and the metadata that torch.distributed.checkpoint pickles.
#include "runtime/checkpoint/convert/dcp.h"

#include "runtime/checkpoint/convert/new_folder.h"
#include "runtime/checkpoint/convert/pickle_writer.h"
#include "runtime/checkpoint/convert/zip.h"
#include "runtime/files/atomic_file.h"

namespace espalier::rt {
namespace {

constexpr const char *chunksName = "__0_0.distcp", *metadataModule = "torch.distributed.checkpoint.metadata",
                     *storageModule = "torch.distributed.checkpoint.filesystem";

/// Writes a torch.Size.
void writeSize(PickleWriter &pickle, const std::vector<int64_t> &sizes) {
  pickle.global("torch", "Size");
  pickle.beginTuple();
  pickle.beginTuple();
  for (int64_t size : sizes)
    pickle.whole(size);
  pickle.endTuple();
  pickle.endTuple();
  pickle.call();
}

void writeProperties(PickleWriter &pickle, pb::DataType type) {
  pickle.object(metadataModule, "TensorProperties");
  pickle.beginTuple();
  pickle.global("torch", type == pb::BF16 ? "bfloat16" : type == pb::F16 ? "float16" : "float32");
  pickle.global("torch.serialization", "_get_layout");
  pickle.beginTuple();
  pickle.name("torch.strided");
  pickle.endTuple();
  pickle.call();
  pickle.no(); // requires_grad
  pickle.global(metadataModule, "_MEM_FORMAT_ENCODING");
  pickle.beginTuple();
  pickle.whole(0); // contiguous
  pickle.endTuple();
  pickle.call();
  pickle.no(); // pin_memory
  pickle.endTuple();
  pickle.setState();
}

/// Writes the shape, type and only chunk of a tensor.
void writeTensor(PickleWriter &pickle, const WrittenTensor &tensor) {
  pickle.object(metadataModule, "TensorStorageMetadata");
  pickle.beginDict();
  pickle.name("properties");
  writeProperties(pickle, tensor.type);
  pickle.name("size");
  writeSize(pickle, tensor.shape);
  pickle.name("chunks");
  pickle.beginList();
  pickle.object(metadataModule, "ChunkStorageMetadata");
  pickle.beginDict();
  pickle.name("offsets");
  writeSize(pickle, std::vector<int64_t>(tensor.shape.size()));
  pickle.name("sizes");
  writeSize(pickle, tensor.shape);
  pickle.endDict();
  pickle.setState();
  pickle.endList();
  pickle.endDict();
  pickle.setState();
}

/// Writes where the chunk of a tensor lies.
void writePlace(PickleWriter &pickle, const WrittenTensor &tensor, const FileRange &range) {
  pickle.object(metadataModule, "MetadataIndex");
  pickle.beginDict();
  pickle.name("fqn");
  pickle.name(tensor.name);
  pickle.name("offset");
  writeSize(pickle, std::vector<int64_t>(tensor.shape.size()));
  pickle.name("index");
  pickle.whole(0);
  pickle.endDict();
  pickle.setState();
  pickle.object(storageModule, "_StorageInfo");
  pickle.beginDict();
  pickle.name("relative_path");
  pickle.name(chunksName);
  pickle.name("offset");
  pickle.whole(static_cast<int64_t>(range.begin));
  pickle.name("length");
  pickle.whole(static_cast<int64_t>(range.bytes));
  pickle.endDict();
  pickle.setState();
}

std::string metadataOf(std::span<const WrittenTensor> tensors, std::span<const FileRange> ranges) {
  PickleWriter pickle;
  pickle.object(metadataModule, "Metadata");
  pickle.beginDict();
  pickle.name("state_dict_metadata");
  pickle.beginDict();
  for (const WrittenTensor &tensor : tensors) {
    pickle.name(tensor.name);
    writeTensor(pickle, tensor);
  }
  pickle.endDict();
  pickle.name("planner_data");
  pickle.beginDict(); // the way of each tensor through nested dicts
  for (const WrittenTensor &tensor : tensors) {
    pickle.name(tensor.name);
    pickle.beginTuple();
    pickle.name(tensor.name);
    pickle.endTuple();
  }
  pickle.endDict();
  pickle.name("storage_data");
  pickle.beginDict();
  for (size_t i = 0; i < tensors.size(); ++i)
    writePlace(pickle, tensors[i], ranges[i]);
  pickle.endDict();
  pickle.name("storage_meta");
  pickle.none();
  pickle.name("version");
  pickle.none();
  pickle.endDict();
  pickle.setState();
  return pickle.finish();
}

/// Appends a tensor as torch.save writes it. Returns the number of bytes.
uint64_t writeChunk(AtomicFile &file, const WrittenTensor &tensor) {
  PickleWriter pickle;
  pickle.tensor(tensor, 0);
  auto bytesOf = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  const std::string root = pickle.finish();
  ZipWriter zip(file);
  zip.add("archive/data.pkl", bytesOf(root));
  zip.add("archive/byteorder", bytesOf("little"));
  zip.add("archive/data/0", tensor.make());
  zip.add("archive/version", bytesOf("3\n"));
  return zip.finish();
}

} // namespace

void writeDcpFolder(const std::filesystem::path &folder, std::span<const WrittenTensor> tensors) {
  NewFolder written(folder);
  AtomicFile file((written.path() / chunksName).string());
  std::vector<FileRange> ranges;
  for (const WrittenTensor &tensor : tensors) {
    uint64_t begin = ranges.empty() ? 0 : ranges.back().begin + ranges.back().bytes;
    ranges.push_back({begin, writeChunk(file, tensor)});
  }
  file.commit();
  writeWhole(written.path() / ".metadata", metadataOf(tensors, ranges));
  written.commit();
}

} // namespace espalier::rt
