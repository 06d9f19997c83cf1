// Everything before the tensors is made in memory, so that a tensor is made only when it is written.
#include "runtime/checkpoint/convert/gguf.h"

#include "runtime/comm/comm.h"
#include "runtime/files/atomic_file.h"
#include "runtime/kernels/element.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace espalier::rt {
namespace {

constexpr uint64_t alignment = 32;
constexpr int64_t blockSize = 32; // of q8_0: one scale in f16 for 32 bytes
constexpr uint32_t stringType = 8, arrayType = 9;

/// Appends the little-endian values of the format.
class Bytes {
public:
  template <typename T> void number(T value) { text.append(reinterpret_cast<const char *>(&value), sizeof value); }
  void string(const std::string &value) {
    number<uint64_t>(value.size());
    text += value;
  }
  void value(const GgufValue &held) {
    std::visit([this](const auto &one) { typed(one); }, held);
  }
  void pad() { text.resize((text.size() + alignment - 1) / alignment * alignment); }
  std::string text;

private:
  template <typename T> static constexpr uint32_t typeOf() {
    return std::is_same_v<T, uint32_t> ? 4 : std::is_same_v<T, int32_t> ? 5 : std::is_same_v<T, float> ? 6 : stringType;
  }
  void plain(const std::string &one) { string(one); }
  template <typename T> void plain(T one) { number(one); }
  void typed(bool one) {
    number<uint32_t>(7);
    number<uint8_t>(one);
  }
  template <typename T> void typed(const T &one) {
    number(typeOf<T>());
    plain(one);
  }
  template <typename T> void typed(const std::vector<T> &list) {
    number(arrayType);
    number(typeOf<T>());
    number<uint64_t>(list.size());
    for (const T &one : list)
      plain(one);
  }
};

GgufType typeOf(const WrittenTensor &tensor, GgufType wanted) {
  bool isPlain = tensor.shape.size() < 2 || tensor.name.find("ffn_gate_inp") != std::string::npos;
  if (isPlain)
    return GgufType::F32;
  return wanted == GgufType::Q8_0 && tensor.shape.back() % blockSize != 0 ? GgufType::F16 : wanted;
}

uint64_t bytesOf(const WrittenTensor &tensor, GgufType type) {
  uint64_t elements = tensor.bytes() / elementBytes(tensor.type);
  return type == GgufType::Q8_0  ? elements / blockSize * (blockSize + 2)
         : type == GgufType::F32 ? 4 * elements
                                 : 2 * elements;
}

/// Writes 32 values as a scale and 32 bytes, rounded away from zero as llama.cpp's converter does.
void quantize(const float *values, std::byte *out) {
  float largest = 0;
  for (int64_t i = 0; i < blockSize; ++i)
    largest = std::max(largest, std::abs(values[i]));
  float scale = largest / 127, inverse = scale == 0 ? 0 : 1 / scale;
  storeElement(pb::F16, out, 0, scale);
  for (int64_t i = 0; i < blockSize; ++i)
    out[2 + i] = static_cast<std::byte>(static_cast<int8_t>(std::round(values[i] * inverse)));
}

/// Returns the elements of a tensor in another type.
std::vector<std::byte> convertedTo(GgufType type, const WrittenTensor &tensor) {
  std::vector<std::byte> given = tensor.make(), out(bytesOf(tensor, type));
  auto count = static_cast<int64_t>(given.size() / elementBytes(tensor.type));
  if (type != GgufType::Q8_0) {
    pb::DataType wanted = type == GgufType::F32 ? pb::F32 : type == GgufType::F16 ? pb::F16 : pb::BF16;
    if (wanted == tensor.type)
      return given;
    for (int64_t i = 0; i < count; ++i)
      storeElement(wanted, out.data(), i, loadElement(tensor.type, given.data(), i));
    return out;
  }
  float block[blockSize];
  for (int64_t first = 0; first < count; first += blockSize) {
    for (int64_t i = 0; i < blockSize; ++i)
      block[i] = loadElement(tensor.type, given.data(), first + i);
    quantize(block, out.data() + first / blockSize * (blockSize + 2));
  }
  return out;
}

} // namespace

void writeGguf(const std::filesystem::path &file, GgufKeys keys, std::span<const WrittenTensor> tensors,
               GgufType type) {
  constexpr uint32_t version = 3, quantization = 2;
  bool isQuantized = type == GgufType::Q8_0;
  keys.emplace_back("general.file_type", isQuantized              ? uint32_t(7)
                                         : type == GgufType::BF16 ? uint32_t(32)
                                                                  : static_cast<uint32_t>(type));
  keys.emplace_back("general.quantization_version", quantization);
  Bytes head;
  head.text = "GGUF";
  head.number(version);
  head.number<uint64_t>(tensors.size());
  head.number<uint64_t>(keys.size());
  for (const auto &[key, value] : keys) {
    head.string(key);
    head.value(value);
  }
  uint64_t offset = 0;
  for (const WrittenTensor &tensor : tensors) {
    head.string(tensor.name);
    head.number(static_cast<uint32_t>(tensor.shape.size()));
    for (auto size = tensor.shape.rbegin(); size != tensor.shape.rend(); ++size)
      head.number(static_cast<uint64_t>(*size));
    GgufType own = typeOf(tensor, type);
    head.number(static_cast<uint32_t>(own));
    head.number(offset);
    offset += (bytesOf(tensor, own) + alignment - 1) / alignment * alignment;
  }
  head.pad();
  AtomicFile written(file.string());
  written.write(head.text.data(), head.text.size());
  for (const WrittenTensor &tensor : tensors) {
    std::vector<std::byte> bytes = convertedTo(typeOf(tensor, type), tensor);
    bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
    written.write(bytes.data(), bytes.size());
  }
  written.commit();
}

} // namespace espalier::rt
