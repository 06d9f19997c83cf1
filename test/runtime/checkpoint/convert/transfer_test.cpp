// A box of a parameter comes out of other systems' tensors as it does of the whole, and little more than it is read.
#include "runtime/checkpoint/convert/transfer.h"
#include "runtime/comm/comm.h"
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include <cstring>
#include <numeric>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// Tensors in memory; element e of tensor number t is 1000 t + e. Counts what is read.
class CountedSource : public WeightSource {
public:
  explicit CountedSource(std::span<const ForeignTensor> tensors) {
    for (const ForeignTensor &tensor : tensors) {
      if (tensor.isDerived)
        continue;
      uint64_t count = tensorBytes(tensor.shape, pb::F32) / 4;
      listed[tensor.names[0]] = {pb::F32, "", tensor.shape, count * 4};
      std::vector<float> &numbers = values[tensor.names[0]];
      numbers.resize(count);
      std::iota(numbers.begin(), numbers.end(), static_cast<float>(1000 * listed.size()));
    }
  }
  const std::map<std::string, ListedTensor> &tensors() const override { return listed; }
  std::vector<std::byte> read(const std::string &name) const override {
    std::vector<std::byte> bytes(listed.at(name).bytes);
    readPart(name, 0, bytes);
    return bytes;
  }
  bool readsParts() const override { return true; }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    std::span<const std::byte> all = std::as_bytes(std::span(values.at(name)));
    ASSERT_LE(begin + bytes.size(), all.size());
    std::memcpy(bytes.data(), all.data() + begin, bytes.size());
    bytesRead += bytes.size();
  }
  std::string placeOf(const std::string &) const override { return "memory"; }

  mutable uint64_t bytesRead = 0;
  std::map<std::string, std::vector<float>> values;

private:
  std::map<std::string, ListedTensor> listed;
};

/// A model with the tensors that one file of a system holds.
struct Held {
  explicit Held(ConvertedModel given, const std::string &system)
      : converted(std::move(given)), names(converted.names(system)),
        tensors(names.tensors({0, converted.model.layers, true, true, {}}, 0, {})), source(tensors),
        parameters(parametersOf(names, {{&source, tensors}})) {}

  std::vector<float> box(size_t parameter, const std::vector<int64_t> &offsets, const std::vector<int64_t> &sizes) {
    source.bytesRead = 0;
    std::vector<std::byte> bytes = parameters[parameter].makeBox(offsets, sizes);
    std::vector<float> numbers(bytes.size() / 4);
    std::memcpy(numbers.data(), bytes.data(), bytes.size());
    return numbers;
  }

  const ConvertedModel converted;
  const NameMap names;
  const std::vector<ForeignTensor> tensors;
  CountedSource source;
  const std::vector<NewParameter> parameters;
};

class BoxesOf : public ConvertTest {};

// Every half along every dimension of every parameter: fused, transposed and split in groups.
TEST_F(BoxesOf, AreThoseOfTheWhole) {
  for (const char *system : {"hf", "mcore"}) {
    Held held(smallConversion(), system);
    for (size_t p = 0; p < held.parameters.size(); ++p) {
      const WeightParameter &parameter = held.converted.model.parameters[p];
      std::vector<int64_t> none(parameter.sizes.size(), 0);
      std::vector<float> whole = held.box(p, none, parameter.sizes);
      std::vector<std::byte> made = held.parameters[p].make();
      ASSERT_EQ(std::memcmp(whole.data(), made.data(), made.size()), 0) << system << ' ' << parameter.name;
      for (size_t dim = 0; dim < parameter.sizes.size(); ++dim) {
        std::vector<int64_t> offsets = none, sizes = parameter.sizes;
        offsets[dim] = sizes[dim] / 2;
        sizes[dim] -= offsets[dim];
        std::vector<float> part = held.box(p, offsets, sizes);
        size_t inner = 1, at = 0;
        for (size_t i = dim + 1; i < sizes.size(); ++i)
          inner *= static_cast<size_t>(sizes[i]);
        auto all = static_cast<size_t>(parameter.sizes[dim]), first = static_cast<size_t>(offsets[dim]);
        for (size_t e = 0; e < whole.size(); ++e)
          if (e / inner % all >= first)
            ASSERT_EQ(part.at(at++), whole[e]) << system << ' ' << parameter.name << ", dimension " << dim;
        EXPECT_EQ(at, part.size());
      }
    }
  }
}

/// One matrix of 4 rows of 4096.
ConvertedModel wideConversion(const std::string &rule) {
  ConvertedModel converted;
  converted.model.name = "wide";
  converted.model.dims = {{"rows", 4}, {"columns", 4096}};
  converted.model.parameters = {{"embed.w", "w", -1, {"rows", "columns"}, {4, 4096}}};
  converted.rules["hf"] = {{"w", rule}};
  converted.place = "wide.yaml";
  return converted;
}

TEST_F(BoxesOf, ReadTheBytesThatTheyHave) {
  Held held(wideConversion("w"), "hf");
  held.box(0, {1, 0}, {2, 4096}); // rows lie side by side
  EXPECT_EQ(held.source.bytesRead, 2u * 4096 * 4);
  held.box(0, {0, 1024}, {4, 1024}); // a quarter of each row
  EXPECT_EQ(held.source.bytesRead, 4u * 1024 * 4);
  held.box(0, {0, 0}, {4, 4000}); // less than a page apart: in one go
  EXPECT_EQ(held.source.bytesRead, (3u * 4096 + 4000) * 4);
  Held transposed(wideConversion("w = columns rows"), "hf");
  EXPECT_EQ(transposed.box(0, {0, 1024}, {4, 1024})[1], 1000 + 4 * 1025);
  EXPECT_EQ(transposed.source.bytesRead, 4u * 1024 * 4);
  transposed.box(0, {0, 0}, {1, 4096}); // every fourth element
  EXPECT_EQ(transposed.source.bytesRead, (4095u * 4 + 1) * 4);
}

// What a second tensor holds again is compared where it is read.
TEST_F(BoxesOf, CompareWhatComesTwice) {
  ConvertedModel converted = wideConversion("w");
  converted.model.ties["again"] = "embed.w";
  converted.rules["hf"].push_back({"again", "tied w"});
  Held held(std::move(converted), "hf");
  held.source.values["again"] = held.source.values["w"];
  held.source.values["again"][4096] = -1;
  held.box(0, {0, 0}, {1, 4096});
  EXPECT_THAT(errorOf([&] { held.box(0, {1, 0}, {1, 4096}); }), HasSubstr("memory: tensor 'again' differs from w"));
}

} // namespace
} // namespace espalier::rt
