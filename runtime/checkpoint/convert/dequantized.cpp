#include "runtime/checkpoint/convert/dequantized.h"

#include "runtime/kernels/dtype.h"
#include "runtime/status.h"

#include <array>
#include <cmath>
#include <cstring>
#include <fmt/format.h>
#include <limits>

namespace espalier::rt {
namespace {

constexpr std::string_view blocksSuffix = "_blocks", scalesSuffix = "_scales", inverseSuffix = "_scale_inv";
constexpr int64_t blockSide = 128; // of FP8 blocks that do not divide a matrix

/// The values of E2M1.
constexpr std::array<float, 16> fourBits = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                            -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// Returns the value of an E4M3 number without infinities: sign, 4 bits of the exponent with the bias 7, 3 of the
/// mantissa. 0x7f is NaN.
float fromE4M3(uint8_t bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float size = exponent == 15 && mantissa == 7 ? std::numeric_limits<float>::quiet_NaN()
               : exponent == 0                 ? std::ldexp(static_cast<float>(mantissa), -9)
                                               : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  return bits & 0x80 ? -size : size;
}

class DequantizedSource : public WeightSource {
public:
  explicit DequantizedSource(std::unique_ptr<WeightSource> given) : whole(std::move(given)) {
    for (const auto &[name, tensor] : whole->tensors()) {
      if (name.ends_with(blocksSuffix) && tensor.otherType == "U8")
        addFourBits(name.substr(0, name.size() - blocksSuffix.size()), tensor);
      else if (name.ends_with(inverseSuffix))
        addEightBits(name.substr(0, name.size() - inverseSuffix.size()), tensor);
    }
    for (const auto &[name, tensor] : whole->tensors())
      if (!replaced.contains(name))
        listed.emplace(name, tensor);
  }

  bool isEmpty() const { return coded.empty(); }
  std::unique_ptr<WeightSource> release() { return std::move(whole); }

  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override {
    auto code = coded.find(name);
    if (code == coded.end())
      return whole->read(name);
    return code->second == Code::FourBits ? readFourBits(name) : readEightBits(name);
  }
  bool readsParts(const std::string &name) const override { return !coded.contains(name) && whole->readsParts(name); }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    whole->readPart(name, begin, bytes);
  }
  std::string placeOf(const std::string &name) const override {
    auto code = coded.find(name);
    return whole->placeOf(code != coded.end() && code->second == Code::FourBits ? name + std::string(blocksSuffix)
                                                                                : name);
  }

private:
  enum class Code { FourBits, EightBits };

  void add(const std::string &name, Code code, std::vector<int64_t> shape, std::initializer_list<std::string> parts) {
    uint64_t bytes = tensorBytes(shape, pb::BF16);
    coded.emplace(name, code);
    listed[name] = {pb::BF16, "", std::move(shape), bytes};
    for (const std::string &part : parts)
      replaced.insert({part, name});
  }

  void addFourBits(const std::string &name, const ListedTensor &blocks) {
    std::string scalesName = name + std::string(scalesSuffix), blocksName = name + std::string(blocksSuffix);
    auto scales = whole->tensors().find(scalesName);
    const std::vector<int64_t> &shape = blocks.shape;
    if (scales == whole->tensors().end() || scales->second.otherType != "U8" || shape.size() != 4 || shape[3] != 16 ||
        scales->second.shape != std::vector(shape.begin(), shape.end() - 1))
      throw PlanError(fmt::format("{}: tensor '{}' is {}; MXFP4 weights are U8 [n, rows, groups, 16], with scales U8 "
                                  "[n, rows, groups] in '{}'",
                                  whole->placeOf(blocksName), blocksName, shape, scalesName));
    add(name, Code::FourBits, {shape[0], 32 * shape[2], shape[1]}, {blocksName, scalesName});
  }

  void addEightBits(const std::string &name, const ListedTensor &scales) {
    auto weight = whole->tensors().find(name);
    std::string scalesName = name + std::string(inverseSuffix);
    auto fits = [&](const ListedTensor &values) {
      if (values.otherType != "F8_E4M3" || values.shape.size() != 2 || scales.shape.size() != 2)
        return false;
      for (size_t side = 0; side < 2; ++side) {
        int64_t size = values.shape[side], blocks = scales.shape[side];
        if (blocks < 1 || (size % blocks != 0 && blocks != (size + blockSide - 1) / blockSide))
          return false;
      }
      return scales.type == pb::F32 && scales.otherType.empty();
    };
    if (weight == whole->tensors().end() || !fits(weight->second))
      throw PlanError(fmt::format("{}: tensor '{}' is {}; factors of FP8 weights are F32, one for each block of the "
                                  "matrix '{}' of type F8_E4M3",
                                  whole->placeOf(scalesName), scalesName, scales.shape, name));
    add(name, Code::EightBits, weight->second.shape, {scalesName, name});
  }

  std::vector<std::byte> readFourBits(const std::string &name) const {
    const std::vector<int64_t> &shape = listed.at(name).shape;
    std::vector<std::byte> blocks = whole->read(name + std::string(blocksSuffix)),
                           scales = whole->read(name + std::string(scalesSuffix));
    std::vector<uint16_t> values(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    int64_t columns = shape[1], rows = shape[2];
    for (int64_t n = 0; n < shape[0]; ++n)
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t column = 0; column < columns; ++column) {
          auto at = static_cast<size_t>((n * rows + row) * columns + column);
          auto byte = static_cast<uint8_t>(blocks[at / 2]);
          float half = std::ldexp(1.0f, static_cast<int>(scales[at / 32]) - 128); // the scale itself may be 2^128
          float value = fourBits[at % 2 ? byte >> 4 : byte & 15] * half * 2;
          values[static_cast<size_t>((n * columns + column) * rows + row)] = floatToBf16(value);
        }
    return bytesOf(values);
  }

  std::vector<std::byte> readEightBits(const std::string &name) const {
    std::array<float, 256> decoded;
    for (int bits = 0; bits < 256; ++bits)
      decoded[static_cast<size_t>(bits)] = fromE4M3(static_cast<uint8_t>(bits));
    std::string scalesName = name + std::string(inverseSuffix);
    const std::vector<int64_t> &shape = listed.at(name).shape, &blocks = whole->tensors().at(scalesName).shape;
    std::vector<std::byte> given = whole->read(name), scaleBytes = whole->read(scalesName);
    std::vector<float> scales(scaleBytes.size() / sizeof(float));
    std::memcpy(scales.data(), scaleBytes.data(), scaleBytes.size());
    auto sideOf = [&](size_t side) { return shape[side] % blocks[side] == 0 ? shape[side] / blocks[side] : blockSide; };
    int64_t height = sideOf(0), width = sideOf(1);
    std::vector<uint16_t> values(given.size());
    for (int64_t row = 0; row < shape[0]; ++row)
      for (int64_t column = 0; column < shape[1]; ++column) {
        auto at = static_cast<size_t>(row * shape[1] + column);
        float scale = scales[static_cast<size_t>(row / height * blocks[1] + column / width)];
        values[at] = floatToBf16(decoded[static_cast<size_t>(given[at])] * scale);
      }
    return bytesOf(values);
  }

  static std::vector<std::byte> bytesOf(const std::vector<uint16_t> &values) {
    std::vector<std::byte> bytes(values.size() * sizeof(uint16_t));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  std::unique_ptr<WeightSource> whole;
  std::map<std::string, Code> coded;
  std::map<std::string, std::string> replaced; ///< tensors of the file, and the weight that each is a part of
  std::map<std::string, ListedTensor> listed;
};

} // namespace

std::unique_ptr<WeightSource> dequantized(std::unique_ptr<WeightSource> whole) {
  auto decoding = std::make_unique<DequantizedSource>(std::move(whole));
  return decoding->isEmpty() ? decoding->release() : std::move(decoding);
}

} // namespace espalier::rt
