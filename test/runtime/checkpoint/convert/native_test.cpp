// Tests how conversions read checkpoints of runs, which store boxes and ranges of the padded parameter.
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include "format/checksum.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// A checkpoint of one parameter `wte` [5, 6] in the given pieces. Element [row, column] is 10 row + column.
class Pieces : public ConvertTest {
protected:
  struct Box {
    std::vector<int64_t> offsets, sizes;
    int64_t begin, end;
    pb::DataType type = pb::F32;
  };
  static std::vector<float> numbersOf(const Box &box) {
    std::vector<float> numbers;
    for (int64_t e = box.begin; e < box.end; ++e) {
      int64_t row = box.offsets[0] + e / box.sizes[1], column = box.offsets[1] + e % box.sizes[1];
      numbers.push_back(row < 5 && column < 6 ? static_cast<float>(10 * row + column) : -1);
    }
    return numbers;
  }
  Path write(const std::vector<Box> &boxes) const {
    std::vector<std::vector<float>> numbers;
    std::vector<TensorBytes> tensors;
    Shard shard;
    shard.file = "s";
    uint64_t at = 0;
    for (const Box &box : boxes) {
      numbers.push_back(numbersOf(box));
      shard.pieces.push_back(
          {{"value", "embed.wte", box.type, {5, 6}, box.offsets, box.sizes, box.begin, box.end}, at, "", 0, ""});
      at += shard.pieces.back().piece.bytes();
    }
    for (size_t i = 0; i < boxes.size(); ++i) {
      auto bytes = std::as_bytes(std::span(numbers[i])).first(shard.pieces[i].piece.bytes());
      shard.pieces[i].checksum = checksumText(bytes);
      tensors.push_back({fmt::format("p{}", i), boxes[i].type, {boxes[i].end - boxes[i].begin}, bytes});
    }
    Path path = folder / "step-00000003";
    std::filesystem::create_directories(path);
    writeSafetensors(path / shard.file, tensors, {});
    SafetensorsFile file(path / shard.file);
    std::vector<std::byte> header(file.headerBytes());
    file.file().read(0, header);
    shard.headerBytes = header.size();
    shard.bytes = file.file().size();
    shard.headerChecksum = checksumText(header);
    Manifest manifest;
    manifest.shards = {shard};
    ConvertTest::write(path / manifestName, manifestText(manifest));
    return path;
  }
  static WeightModel one() {
    WeightModel model = smallModel();
    model.parameters.resize(1);
    return model;
  }
};

// Four ranks each hold three rows and four columns of a table that is padded to [6, 8]. One box is stored as two
// ranges.
TEST_F(Pieces, BoxesAndRangesOfThePaddedTable) {
  WeightModel model = one();
  NativeSource source(model, write({{{0, 0}, {3, 4}, 0, 12},
                                    {{0, 4}, {3, 4}, 0, 5},
                                    {{0, 4}, {3, 4}, 5, 12},
                                    {{3, 0}, {3, 4}, 0, 12},
                                    {{3, 4}, {3, 4}, 0, 12}}));
  auto bytes = source.read(0);
  auto *numbers = reinterpret_cast<const float *>(bytes->data());
  for (int row = 0; row < 5; ++row)
    for (int column = 0; column < 6; ++column)
      EXPECT_EQ(numbers[6 * row + column], 10 * row + column);
}

TEST_F(Pieces, RejectsTwoTypes) {
  WeightModel model = one();
  Path path = write({{{0, 0}, {3, 6}, 0, 18}, {{3, 0}, {2, 6}, 0, 12, pb::BF16}});
  EXPECT_THAT(errorOf([&] { NativeSource(model, path); }), HasSubstr("'embed.wte' has pieces of two types"));
}

// A manifest with an unknown value of "holds" is refused.
TEST_F(Pieces, ParametersWithoutOptimizerState) {
  Path path = writeSmall(smallModel());
  std::string text = readAll(path / manifestName);
  EXPECT_THAT(text, HasSubstr("\"holds\": \"parameters\""));
  EXPECT_FALSE(parseManifest(text, "m").hasOptimizer);
  EXPECT_TRUE(readManifest(write({{{0, 0}, {5, 6}, 0, 30}})).hasOptimizer);
  text.replace(text.find("\"parameters\"}"), 12, "\"everything\"");
  std::string rest = text.substr(text.find('\n') + 1);
  text = fmt::format("{{\"checksum\": \"{}\",\n", checksumText(std::as_bytes(std::span(rest)))) + rest;
  EXPECT_THAT(errorOf([&] { parseManifest(text, "m"); }),
              HasSubstr("m: damaged: it holds \"everything\", known is parameters"));
}

} // namespace
} // namespace espalier::rt
