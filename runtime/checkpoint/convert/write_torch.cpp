// Writes protocol 2 with the opcodes that torch.save uses, so that any release can read it, also with weights_only.
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/convert/zip.h"
#include "runtime/comm/comm.h"
#include "runtime/files/atomic_file.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace espalier::rt {
namespace {

/// Appends opcodes.
class PickleWriter {
public:
  PickleWriter() { text = "\x80\x02"; }

  void name(const std::string &name) {
    text.push_back('X');
    put(name.size(), 4);
    text += name;
  }
  void whole(int64_t value) {
    bool isShort = value >= 0 && value <= std::numeric_limits<int32_t>::max();
    text += isShort ? "J" : "\x8a\x08";
    put(static_cast<uint64_t>(value), isShort ? 4 : 8);
  }
  void real(double value) {
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    text.push_back('G');
    for (int byte = 8; byte-- > 0;) // big-endian
      text.push_back(static_cast<char>(bits >> (8 * byte)));
  }
  void beginDict() { text += "}("; }
  void endDict() { text += "u"; }
  void tensor(const WrittenTensor &tensor, size_t number) {
    uint64_t elements = tensor.bytes() / elementBytes(tensor.type);
    text += "ctorch._utils\n_rebuild_tensor_v2\n((";
    name("storage");
    text += fmt::format("ctorch\n{}\n", storageName(tensor.type));
    name(std::to_string(number));
    name("cpu");
    whole(static_cast<int64_t>(elements));
    text += "tQ"; // the five items that identify the storage
    whole(0);
    std::vector<int64_t> strides(tensor.shape.size(), 1);
    for (size_t i = strides.size(); i-- > 1;)
      strides[i - 1] = strides[i] * std::max<int64_t>(1, tensor.shape[i]);
    sizes(tensor.shape);
    sizes(strides);
    text += "\x89"                          // requires_grad is False
            "ccollections\nOrderedDict\n)R" // no backward hooks
            "tR";
  }
  std::string finish() { return text + "."; }

private:
  void put(uint64_t value, int width) {
    for (int byte = 0; byte < width; ++byte)
      text.push_back(static_cast<char>(value >> (8 * byte)));
  }
  void sizes(const std::vector<int64_t> &values) {
    text += "(";
    for (int64_t value : values)
      whole(value);
    text += "t";
  }
  static const char *storageName(pb::DataType type) {
    return type == pb::BF16 ? "BFloat16Storage" : type == pb::F16 ? "HalfStorage" : "FloatStorage";
  }

  std::string text;
};

/// Writes tensors [begin, end), which share the first `depth` characters of their names, as a dict. Neighbours that
/// share the next name component, up to `/`, become a nested dict. The order does not change.
void writeDict(PickleWriter &pickle, std::span<const WrittenTensor> tensors, size_t begin, size_t end, size_t depth) {
  pickle.beginDict();
  for (size_t i = begin; i < end;) {
    const std::string &name = tensors[i].name;
    size_t slash = name.find('/', depth);
    if (slash == std::string::npos) {
      pickle.name(name.substr(depth));
      pickle.tensor(tensors[i], i);
      ++i;
      continue;
    }
    size_t same = i;
    while (same < end && tensors[same].name.compare(0, slash + 1, name, 0, slash + 1) == 0)
      ++same;
    pickle.name(name.substr(depth, slash - depth));
    writeDict(pickle, tensors, i, same, slash + 1);
    i = same;
  }
  pickle.endDict();
}

void writeZip(const std::filesystem::path &path, const std::string &pickle, std::span<const WrittenTensor> tensors) {
  AtomicFile file(path.string());
  ZipWriter zip(file);
  const std::string folder = path.stem().string() + "/";
  auto bytesOf = [](std::string_view text) { return std::as_bytes(std::span(text)); };
  zip.add(folder + "data.pkl", bytesOf(pickle));
  zip.add(folder + "byteorder", bytesOf("little"));
  for (size_t i = 0; i < tensors.size(); ++i)
    zip.add(fmt::format("{}data/{}", folder, i), tensors[i].make());
  zip.add(folder + "version", bytesOf("3\n"));
  zip.finish();
  file.commit();
}

} // namespace

void writeTorchFile(const std::filesystem::path &path, std::span<const WrittenTensor> tensors) {
  PickleWriter pickle;
  pickle.beginDict();
  for (size_t i = 0; i < tensors.size(); ++i) {
    pickle.name(tensors[i].name);
    pickle.tensor(tensors[i], i);
  }
  pickle.endDict();
  writeZip(path, pickle.finish(), tensors);
}

void writeTorchModel(const std::filesystem::path &path, std::span<const TorchNumber> numbers,
                     std::span<const WrittenTensor> tensors) {
  PickleWriter pickle;
  pickle.beginDict();
  for (const TorchNumber &number : numbers) {
    pickle.name(number.name);
    number.isWhole ? pickle.whole(static_cast<int64_t>(number.value)) : pickle.real(number.value);
  }
  pickle.name("model");
  writeDict(pickle, tensors, 0, tensors.size(), 0);
  pickle.endDict();
  writeZip(path, pickle.finish(), tensors);
}

} // namespace espalier::rt
