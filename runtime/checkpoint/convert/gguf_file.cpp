#include "runtime/checkpoint/convert/gguf_file.h"

#include "format/q8_block.h"
#include "runtime/kernels/element.h"
#include "runtime/status.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

constexpr uint64_t mostHeadBytes = uint64_t(1) << 28, mostAlignment = 1 << 16, windowBytes = 1 << 16;
constexpr uint64_t mostItems = 1 << 22; // of a list: those of the largest tokenizers, several times
constexpr uint32_t mostAxes = 4;
enum ValueType : uint32_t { U8, I8, U16, I16, U32, I32, F32, Bool, Text, Array, U64, I64, F64 };

/// The types of matrices that are refused by name.
constexpr std::pair<uint32_t, const char *> otherTypes[] = {
    {2, "Q4_0"},   {3, "Q4_1"},    {6, "Q5_0"},   {7, "Q5_1"},   {9, "Q8_1"},     {10, "Q2_K"},   {11, "Q3_K"},
    {12, "Q4_K"},  {13, "Q5_K"},   {14, "Q6_K"},  {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"},
    {19, "IQ1_S"}, {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"}, {23, "IQ4_XS"},  {24, "I8"},     {25, "I16"},
    {26, "I32"},   {27, "I64"},    {28, "F64"},   {29, "IQ1_M"}, {34, "TQ1_0"},   {35, "TQ2_0"},  {39, "MXFP4"}};

uint64_t bytesOfNumber(uint32_t type) {
  switch (type) {
  case U8:
  case I8:
  case Bool:
    return 1;
  case U16:
  case I16:
    return 2;
  case U64:
  case I64:
  case F64:
    return 8;
  default:
    return 4;
  }
}

/// Reads the head of a file in order.
class Head {
public:
  explicit Head(const RegularFile &file) : file(file) {}

  [[noreturn]] void refuse(const std::string &why) const {
    throw PlanError(fmt::format("{}: {}", file.path().string(), why));
  }
  template <typename T> T number() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string string() {
    std::span<const std::byte> bytes = take(counted(number<uint64_t>(), 1, "characters"));
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
  }
  /// Returns a count of items that have at least `least` bytes each. Throws PlanError if the file is too short.
  uint64_t counted(uint64_t count, uint64_t least, const char *what) const {
    if (uint64_t left = std::min(file.size(), mostHeadBytes) - at; count > left / least)
      refuse(fmt::format("says {} {} at byte {}, and {} bytes of {} are left", count, what, at, left,
                         file.size() > mostHeadBytes ? "the head that is read" : "the file"));
    return count;
  }
  GgufRead value() {
    GgufRead held;
    auto type = number<uint32_t>();
    if (type == Text) {
      held.text = string();
    } else if (type == Array) {
      held.isList = true;
      auto inner = number<uint32_t>();
      if (inner == Array || inner > F64)
        refuse(fmt::format("has an array of the type {} at byte {}", inner, at));
      uint64_t count = counted(number<uint64_t>(), inner == Text ? 8 : bytesOfNumber(inner), "items");
      if (count > mostItems)
        refuse(fmt::format("has an array of {} items, and at most {} are read", count, mostItems));
      for (uint64_t i = 0; i < count; ++i)
        if (inner == Text)
          held.texts.push_back(string());
        else
          held.numbers.push_back(numberOf(inner));
    } else {
      held.number = numberOf(type);
    }
    return held;
  }
  uint64_t position() const { return at; }

private:
  double numberOf(uint32_t type) {
    switch (type) {
    case U8:
    case Bool:
      return number<uint8_t>();
    case I8:
      return number<int8_t>();
    case U16:
      return number<uint16_t>();
    case I16:
      return number<int16_t>();
    case U32:
      return number<uint32_t>();
    case I32:
      return number<int32_t>();
    case F32:
      return number<float>();
    case U64:
      return static_cast<double>(number<uint64_t>());
    case I64:
      return static_cast<double>(number<int64_t>());
    case F64:
      return number<double>();
    default:
      refuse(fmt::format("has a value of the type {} at byte {}", type, at));
    }
  }
  /// Returns the next bytes, which are valid until the next call.
  std::span<const std::byte> take(uint64_t count) {
    counted(count, 1, "bytes");
    if (at < begin || at + count > begin + window.size()) {
      begin = at;
      window.resize(std::min(std::max(count, windowBytes), file.size() - at));
      file.read(begin, window);
    }
    at += count;
    return std::span(window).subspan(at - count - begin, count);
  }

  const RegularFile &file;
  std::vector<std::byte> window; ///< the bytes of the file from `begin` on
  uint64_t begin = 0, at = 0;
};

uint64_t bytesIn(GgufType type, uint64_t elements) {
  return type == GgufType::Q8_0  ? elements / Q8Block::weights * sizeof(Q8Block)
         : type == GgufType::F32 ? 4 * elements
                                 : 2 * elements;
}

pb::DataType typeOf(GgufType type) {
  return type == GgufType::F16 ? pb::F16 : type == GgufType::BF16 ? pb::BF16 : pb::F32;
}

GgufType typeNumbered(const Head &head, const std::string &name, uint32_t number) {
  for (GgufType type : {GgufType::F32, GgufType::F16, GgufType::Q8_0, GgufType::BF16})
    if (number == static_cast<uint32_t>(type))
      return type;
  auto known = std::ranges::find(otherTypes, number, [](const auto &type) { return type.first; });
  head.refuse(fmt::format("tensor '{}' is of the type {}, and F32, F16, BF16 and Q8_0 are read; llama.cpp's "
                          "`llama-quantize --allow-requantize IN OUT f16` writes such a file",
                          name, known == std::end(otherTypes) ? std::to_string(number) : known->second));
}

/// Reads the description of a tensor. `begin` counts from the end of the head.
GgufFile::Tensor readTensor(Head &head, const std::string &name) {
  GgufFile::Tensor tensor;
  auto axes = head.number<uint32_t>();
  if (axes == 0 || axes > mostAxes)
    head.refuse(fmt::format("tensor '{}' has {} axes, wanted 1 to {}", name, axes, mostAxes));
  uint64_t elements = 1, fastest = 0;
  for (uint32_t i = 0; i < axes; ++i) {
    auto size = head.number<uint64_t>();
    if (size == 0 || size >> 40 != 0 || __builtin_mul_overflow(elements, size, &elements) || elements >> 58 != 0)
      head.refuse(fmt::format("tensor '{}' has an axis of {} elements", name, size));
    fastest = i == 0 ? size : fastest;
    tensor.shape.insert(tensor.shape.begin(), static_cast<int64_t>(size));
  }
  tensor.type = typeNumbered(head, name, head.number<uint32_t>());
  tensor.begin = head.number<uint64_t>();
  if (tensor.type == GgufType::Q8_0 && fastest % Q8Block::weights != 0)
    head.refuse(fmt::format("tensor '{}' is of the type Q8_0, and its rows of {} elements are no multiple of {}", name,
                            fastest, Q8Block::weights));
  tensor.bytes = bytesIn(tensor.type, elements);
  return tensor;
}

/// Requires that tensors lie in the file, at multiples of the alignment, and share no byte.
void placeTensors(const Head &head, uint64_t fileBytes, uint64_t alignment,
                  std::map<std::string, GgufFile::Tensor> &tensors) {
  uint64_t start = (head.position() + alignment - 1) / alignment * alignment;
  std::vector<std::pair<uint64_t, std::string>> order;
  for (auto &[name, tensor] : tensors) {
    if (tensor.begin % alignment != 0)
      head.refuse(
          fmt::format("tensor '{}' begins at {}, no multiple of the alignment {}", name, tensor.begin, alignment));
    if (start > fileBytes || tensor.begin > fileBytes - start || tensor.bytes > fileBytes - start - tensor.begin)
      head.refuse(fmt::format("tensor '{}' has {} bytes from {}, and the file has {} bytes", name, tensor.bytes,
                              tensor.begin, fileBytes));
    tensor.begin += start;
    order.emplace_back(tensor.begin, name);
  }
  std::ranges::sort(order);
  for (size_t i = 1; i < order.size(); ++i)
    if (const GgufFile::Tensor &before = tensors.at(order[i - 1].second); before.begin + before.bytes > order[i].first)
      head.refuse(fmt::format("tensors '{}' and '{}' overlap", order[i - 1].second, order[i].second));
}

constexpr const char *ropeTable = "rope_freqs.weight";

class GgufSource : public WeightSource {
public:
  GgufSource(const std::filesystem::path &path, bool normsFromOne) : file(path), normsFromOne(normsFromOne) {
    for (const auto &[name, tensor] : file.tensors())
      if (name != ropeTable) {
        pb::DataType type = isShifted(name) ? pb::F32 : typeOf(tensor.type);
        listed[name] = {type, "", tensor.shape, tensorBytes(tensor.shape, type)};
      }
  }
  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override {
    std::vector<std::byte> given = file.read(name);
    if (!isShifted(name))
      return given;
    pb::DataType type = typeOf(file.tensors().at(name).type);
    std::vector<std::byte> values(listed.at(name).bytes);
    for (int64_t i = 0; i < static_cast<int64_t>(values.size() / sizeof(float)); ++i)
      storeElement(pb::F32, values.data(), i, loadElement(type, given.data(), i) - 1);
    return values;
  }
  bool readsParts(const std::string &name) const override {
    return !isShifted(name) && file.tensors().at(name).type != GgufType::Q8_0;
  }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    file.file().read(file.tensors().at(name).begin + begin, bytes);
  }
  std::string placeOf(const std::string &) const override { return file.file().path().string(); }

private:
  bool isShifted(const std::string &name) const { return normsFromOne && name.ends_with("norm.weight"); }

  GgufFile file;
  const bool normsFromOne;
  std::map<std::string, ListedTensor> listed;
};

} // namespace

GgufFile::GgufFile(const std::filesystem::path &path) : opened(path) {
  constexpr uint64_t leastKey = 8 + 4 + 1, leastTensor = 8 + 4 + 8 + 4 + 8;
  Head head(opened);
  constexpr uint32_t magic = 0x46554747, oldest = 2, newest = 3;
  if (head.number<uint32_t>() != magic)
    head.refuse("is no GGUF file");
  if (auto version = head.number<uint32_t>(); version < oldest || version > newest)
    head.refuse((version & 0xffff) == 0 ? "is a big-endian GGUF file, which is not read"
                                        : fmt::format("is of version {} of GGUF, and 2 and 3 are read", version));
  uint64_t tensors = head.counted(head.number<uint64_t>(), leastTensor, "tensors");
  uint64_t keys = head.counted(head.number<uint64_t>(), leastKey, "keys");
  for (uint64_t i = 0; i < keys; ++i) {
    std::string key = head.string();
    if (!theKeys.emplace(key, head.value()).second)
      head.refuse(fmt::format("has the key '{}' twice", key));
  }
  double parts = number("split.count").value_or(0), alignment = number("general.alignment").value_or(32);
  if (parts > 1)
    head.refuse(fmt::format("is one of {} parts; llama.cpp's `llama-gguf-split --merge` joins them", parts));
  if (!(alignment >= 1 && alignment <= mostAlignment && std::has_single_bit(static_cast<uint64_t>(alignment))))
    head.refuse(fmt::format("general.alignment is {}", alignment));
  for (uint64_t i = 0; i < tensors; ++i) {
    std::string name = head.string();
    if (!theTensors.emplace(name, readTensor(head, name)).second)
      head.refuse(fmt::format("has the tensor '{}' twice", name));
  }
  placeTensors(head, opened.size(), static_cast<uint64_t>(alignment), theTensors);
}

std::string GgufFile::text(const std::string &key) const {
  auto found = theKeys.find(key);
  return found == theKeys.end() ? "" : found->second.text;
}

std::optional<double> GgufFile::number(const std::string &key) const {
  auto found = theKeys.find(key);
  return found == theKeys.end() ? std::nullopt : found->second.number;
}

std::vector<std::byte> GgufFile::read(const std::string &name) const {
  const Tensor &tensor = theTensors.at(name);
  std::vector<std::byte> held(tensor.bytes);
  opened.read(tensor.begin, held);
  if (tensor.type != GgufType::Q8_0)
    return held;
  std::vector<std::byte> values(tensorBytes(tensor.shape, pb::F32));
  for (uint64_t block = 0; block < held.size() / sizeof(Q8Block); ++block) {
    const std::byte *from = held.data() + block * sizeof(Q8Block);
    float scale = loadElement(pb::F16, from, 0);
    for (int64_t i = 0; i < Q8Block::weights; ++i)
      storeElement(pb::F32, values.data(), static_cast<int64_t>(block) * Q8Block::weights + i,
                   scale * static_cast<float>(static_cast<int8_t>(from[sizeof(uint16_t) + static_cast<size_t>(i)])));
  }
  return values;
}

std::unique_ptr<WeightSource> openGguf(const std::filesystem::path &path, bool normsFromOne) {
  return std::make_unique<GgufSource>(path, normsFromOne);
}

} // namespace espalier::rt
