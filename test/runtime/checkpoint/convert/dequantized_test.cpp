// Weights of 4 and 8 bits are decoded as transformers does (test/golden/quantized_reference.py).
#include "runtime/checkpoint/convert/dequantized.h"

#include "runtime/status.h"

#include <cstring>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

const std::filesystem::path folder = ESPALIER_SOURCE_DIR "/test/golden/quantized";

/// Tensors in memory.
class Given : public WeightSource {
public:
  explicit Given(std::map<std::string, ListedTensor> tensors) : listed(std::move(tensors)) {}
  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override {
    return std::vector<std::byte>(listed.at(name).bytes);
  }
  bool readsParts(const std::string &) const override { return false; }
  void readPart(const std::string &, uint64_t, std::span<std::byte>) const override {}
  std::string placeOf(const std::string &) const override { return "w"; }

private:
  std::map<std::string, ListedTensor> listed;
};

bool isNaN(uint16_t bits) { return (bits & 0x7fff) > 0x7f80; }

TEST(Dequantized, HasTheBitsOfTransformers) {
  std::unique_ptr<WeightSource> source = dequantized(openSafetensors(folder / "weights.safetensors")),
                                golden = openSafetensors(folder / "decoded.safetensors");
  ASSERT_EQ(source->tensors().size(), golden->tensors().size());
  for (const auto &[name, tensor] : golden->tensors()) {
    const ListedTensor &made = source->tensors().at(name);
    EXPECT_EQ(made.shape, tensor.shape) << name;
    EXPECT_EQ(made.type, pb::BF16) << name;
    std::vector<std::byte> bytes = source->read(name), expected = golden->read(name);
    ASSERT_EQ(bytes.size(), expected.size()) << name;
    size_t different = 0;
    for (size_t i = 0; i < bytes.size(); i += 2) {
      uint16_t a = 0, b = 0;
      std::memcpy(&a, &bytes[i], 2);
      std::memcpy(&b, &expected[i], 2);
      different += a != b && !(isNaN(a) && isNaN(b)); // the sign of a NaN has no meaning
    }
    EXPECT_EQ(different, 0u) << name;
  }
}

TEST(Dequantized, ChecksShapes) {
  auto errorOf = [](std::map<std::string, ListedTensor> tensors) -> std::string {
    try {
      dequantized(std::make_unique<Given>(std::move(tensors)));
      return "";
    } catch (const PlanError &error) {
      return error.what();
    }
  };
  ListedTensor blocks = {pb::F32, "U8", {2, 8, 2, 16}, 512}, scales = {pb::F32, "U8", {2, 8, 2}, 32};
  EXPECT_EQ(errorOf({{"x_blocks", blocks}, {"x_scales", scales}}), "");
  EXPECT_THAT(errorOf({{"x_blocks", blocks}}), HasSubstr("with scales U8 [n, rows, groups] in 'x_scales'"));
  scales.shape = {2, 8, 3};
  EXPECT_THAT(errorOf({{"x_blocks", blocks}, {"x_scales", scales}}), HasSubstr("tensor 'x_blocks' is [2, 8, 2, 16]"));
  ListedTensor weight = {pb::F32, "F8_E4M3", {576, 130}, 576 * 130}, factors = {pb::F32, "", {5, 2}, 40};
  EXPECT_EQ(errorOf({{"a.weight", weight}, {"a.weight_scale_inv", factors}}), "");
  factors.shape = {7, 2};
  EXPECT_THAT(errorOf({{"a.weight", weight}, {"a.weight_scale_inv", factors}}), HasSubstr("the matrix 'a.weight'"));
  EXPECT_THAT(errorOf({{"a.weight_scale_inv", factors}}), HasSubstr("the matrix 'a.weight'"));
}

} // namespace
} // namespace espalier::rt
