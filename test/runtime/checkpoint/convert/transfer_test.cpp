// Reads boxes of parameters from tensors of other systems. The values equal those of the whole parameter, and few other
// bytes are read.
#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/convert/transfer.h"
#include "runtime/comm/comm.h"
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include <cstring>
#include <numeric>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// A source that counts the bytes that are read.
class CountedSource : public WeightSource {
public:
  explicit CountedSource(std::unique_ptr<WeightSource> given) : source(std::move(given)) {}

  const std::map<std::string, ListedTensor> &tensors() const override { return source->tensors(); }
  std::vector<std::byte> read(const std::string &name) const override {
    bytesRead += tensors().at(name).bytes;
    return source->read(name);
  }
  bool readsParts(const std::string &name) const override { return source->readsParts(name); }
  void readPart(const std::string &name, uint64_t begin, std::span<std::byte> bytes) const override {
    bytesRead += bytes.size();
    source->readPart(name, begin, bytes);
  }
  std::string placeOf(const std::string &name) const override { return source->placeOf(name); }

  mutable uint64_t bytesRead = 0;

private:
  const std::unique_ptr<WeightSource> source;
};

/// Returns the bytes of consecutive floats that start at `first`.
std::vector<std::byte> countedUp(const std::vector<int64_t> &shape, float first) {
  std::vector<float> numbers(tensorBytes(shape, pb::F32) / 4);
  std::iota(numbers.begin(), numbers.end(), first);
  auto bytes = std::as_bytes(std::span(numbers));
  return {bytes.begin(), bytes.end()};
}

/// Writes a file of `form` with a system's tensors. Element e is 1000 + e in the first tensor and 2000 + e in the next.
std::unique_ptr<WeightSource> fileOf(const std::string &form, const std::filesystem::path &path,
                                     std::span<const ForeignTensor> tensors) {
  std::vector<WrittenTensor> written;
  for (const ForeignTensor &tensor : tensors)
    if (!tensor.isDerived)
      written.push_back({tensor.names[0], pb::F32, tensor.shape, [shape = tensor.shape, n = written.size() + 1] {
                           return countedUp(shape, static_cast<float>(1000 * n));
                         }});
  if (form == "bin")
    writeTorchFile(path, written);
  else
    writeSafetensorsInTurn(path, written, {});
  return form == "bin" ? openTorchFile(path) : openSafetensors(path);
}

std::vector<float> boxOf(const NewParameter &parameter, const std::vector<int64_t> &offsets,
                         const std::vector<int64_t> &sizes) {
  std::vector<std::byte> bytes = parameter.makeBox(offsets, sizes);
  std::vector<float> numbers(bytes.size() / 4);
  std::memcpy(numbers.data(), bytes.data(), bytes.size());
  return numbers;
}

/// A model and a file with its tensors under the names of a system.
struct Held {
  Held(ConvertedModel given, const std::string &system, const std::string &form, const std::filesystem::path &path)
      : converted(std::move(given)), names(converted.names(system)),
        tensors(names.tensors({0, converted.model.layers, true, true, {}}, 0, {})), source(fileOf(form, path, tensors)),
        parameters(parametersOf(names, {{&source, tensors}})) {}

  std::vector<float> box(size_t parameter, const std::vector<int64_t> &offsets, const std::vector<int64_t> &sizes) {
    source.bytesRead = 0;
    return boxOf(parameters[parameter], offsets, sizes);
  }

  const ConvertedModel converted;
  const NameMap names;
  const std::vector<ForeignTensor> tensors;
  CountedSource source;
  const std::vector<NewParameter> parameters;
};

class BoxesOf : public ConvertTest, public testing::WithParamInterface<const char *> {
protected:
  Held held(ConvertedModel converted, const std::string &system = "hf") const {
    return Held(std::move(converted), system, GetParam(), folder / "weights");
  }
};

// Reads each half along every dimension of every parameter. The parameters are fused, transposed or split in groups.
TEST_P(BoxesOf, EqualTheSlicesOfTheWhole) {
  for (const char *system : {"hf", "mcore"}) {
    Held held = this->held(smallConversion(), system);
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

/// Returns a model with one [4, 4096] matrix.
ConvertedModel wideConversion(const std::string &rule) {
  ConvertedModel converted;
  converted.model.name = "wide";
  converted.model.dims = {{"rows", 4}, {"columns", 4096}};
  converted.model.parameters = {{"embed.w", "w", -1, {"rows", "columns"}, {4, 4096}}};
  converted.rules["hf"] = {{"w", rule}};
  converted.place = "wide.yaml";
  return converted;
}

TEST_P(BoxesOf, ReadOnlyTheirBytes) {
  Held held = this->held(wideConversion("w"));
  held.box(0, {1, 0}, {2, 4096}); // the rows are adjacent
  EXPECT_EQ(held.source.bytesRead, 2u * 4096 * 4);
  held.box(0, {0, 1024}, {4, 1024}); // a quarter of each row
  EXPECT_EQ(held.source.bytesRead, 4u * 1024 * 4);
  held.box(0, {0, 0}, {4, 4000}); // the gaps are smaller than a page, so one read covers all rows
  EXPECT_EQ(held.source.bytesRead, (3u * 4096 + 4000) * 4);
  Held transposed = this->held(wideConversion("w = columns rows"));
  EXPECT_EQ(transposed.box(0, {0, 1024}, {4, 1024})[1], 1000 + 4 * 1025);
  EXPECT_EQ(transposed.source.bytesRead, 4u * 1024 * 4);
  transposed.box(0, {0, 0}, {1, 4096}); // every fourth element
  EXPECT_EQ(transposed.source.bytesRead, (4095u * 4 + 1) * 4);
}

// If two tensors hold the same parameter, reading a part compares the two.
TEST_P(BoxesOf, CompareRepeatedTensors) {
  ConvertedModel converted = wideConversion("w");
  converted.model.ties["again"] = "embed.w";
  converted.rules["hf"].push_back({"again", "tied w"});
  Held held = this->held(std::move(converted)); // elements are 1000 + e in one tensor and 2000 + e in the other
  EXPECT_THAT(errorOf([&] { held.box(0, {1, 0}, {1, 4096}); }), HasSubstr("weights: tensor 'again' differs from w"));
}

INSTANTIATE_TEST_SUITE_P(Forms, BoxesOf, testing::Values("safetensors", "bin"),
                         [](const auto &info) { return std::string(info.param); });

/// A checksum is compared only if the whole storage is read.
TEST_F(ConvertTest, ReadsPartsOfADamagedTorchFile) {
  Held held(wideConversion("w"), "hf", "bin", folder / "weights");
  std::string text = readAll(folder / "weights");
  float last = 1000 + 4 * 4096 - 1;
  size_t at = text.find(std::string(reinterpret_cast<const char *>(&last), sizeof(last)));
  ASSERT_NE(at, std::string::npos);
  text[at] ^= 1;
  write(folder / "weights", text);
  EXPECT_EQ(held.box(0, {1, 0}, {1, 4096})[0], 1000 + 4096);
  EXPECT_THAT(errorOf([&] { held.box(0, {0, 0}, {4, 4096}); }), HasSubstr("damaged: storage '0' does not fit"));
}

/// Each tensor parallel rank reads only the files that it needs, whatever the tp of the Megatron folder is.
TEST_F(ConvertTest, ReadsOnlyTheNeededMegatronFiles) {
  ConvertedModel converted = wideConversion("w");
  converted.rules["mcore"] = {{"w", "w = rows* columns"}};
  converted.model.layers = 0;
  std::vector<NewParameter> values(1);
  values[0].make = [] { return countedUp({4, 4096}, 0); };
  Path ours = writeNative(converted.model, folder / "ours", values);
  convertToMegatron(converted, ours, folder / "megatron", "mcore", {2, 1, 1});
  MegatronFolder files = openMegatron(folder / "megatron");
  std::vector<CountedSource *> counted;
  for (MegatronChunk &chunk : files.chunks) {
    auto source = std::make_unique<CountedSource>(std::move(chunk.weights));
    counted.push_back(source.get());
    chunk.weights = std::move(source);
  }
  NameMap names = converted.names("mcore");
  std::vector<NewParameter> parameters = parametersOf(names, heldTensors(files, names));
  EXPECT_EQ(boxOf(parameters[0], {1, 1024}, {1, 1024})[0], 4096 + 1024); // needs only the file of the first rank
  EXPECT_EQ(counted[0]->bytesRead, 1024u * 4);
  EXPECT_EQ(counted[1]->bytesRead, 0u);
  EXPECT_EQ(boxOf(parameters[0], {1, 0}, {2, 4096}).size(), 2u * 4096); // one row from each file
  EXPECT_EQ(counted[0]->bytesRead, (1024u + 4096) * 4);
  EXPECT_EQ(counted[1]->bytesRead, 4096u * 4);
}

} // namespace
} // namespace espalier::rt
