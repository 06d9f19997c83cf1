// Reads GGUF files: one that the package gguf wrote (test/golden/gguf_file_reference.py), and damaged ones.
#include "runtime/checkpoint/convert/gguf_file.h"

#include "runtime/kernels/element.h"
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include <cmath>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

constexpr uint32_t f32Type = 0, q4Type = 12;

/// Builds a file in memory.
struct Maker {
  std::string head = "GGUF";
  template <typename T> Maker &number(T value) {
    head.append(reinterpret_cast<const char *>(&value), sizeof value);
    return *this;
  }
  Maker &text(const std::string &value) {
    number<uint64_t>(value.size());
    head += value;
    return *this;
  }
  Maker &start(uint32_t version, uint64_t tensors, uint64_t keys) {
    return number(version).number(tensors).number(keys);
  }
  Maker &tensor(const std::string &name, const std::vector<uint64_t> &axes, uint32_t type, uint64_t offset) {
    text(name).number(static_cast<uint32_t>(axes.size()));
    for (uint64_t axis : axes)
      number(axis);
    return number(type).number(offset);
  }
  /// Returns the file with `count` bytes behind the padded head.
  std::string with(size_t count) const {
    std::string all = head;
    all.resize((all.size() + 31) / 32 * 32);
    return all + std::string(count, '\1');
  }
};

class Gguf : public ConvertTest {
protected:
  Path written(const std::string &bytes) const {
    write(folder / "x.gguf", bytes);
    return folder / "x.gguf";
  }
  std::string errorOfFile(const std::string &bytes) const {
    Path file = written(bytes);
    return errorOf([&] { GgufFile{file}; });
  }
  static Maker oneKey() {
    Maker maker;
    maker.start(3, 2, 2).text("general.architecture").number(uint32_t(8)).text("llama");
    maker.text("sizes").number(uint32_t(9)).number(uint32_t(4)).number(uint64_t(2)).number(7u).number(8u);
    return maker;
  }
  static Maker whole() { return oneKey().tensor("a", {4, 3}, f32Type, 0).tensor("b", {8}, f32Type, 64); }
};

TEST_F(Gguf, ReadsKeysAndTensors) {
  GgufFile file(written(whole().with(96)));
  EXPECT_EQ(file.text("general.architecture"), "llama");
  EXPECT_EQ(file.keys().at("sizes").numbers, (std::vector<double>{7, 8}));
  EXPECT_EQ(file.tensors().at("a").shape, (std::vector<int64_t>{3, 4}));
  EXPECT_EQ(file.tensors().at("b").begin - file.tensors().at("a").begin, 64u);
  EXPECT_EQ(systemAt(folder / "x.gguf"), WeightSystem::Gguf);
}

TEST_F(Gguf, RefusesValuesThatAnotherTypeHolds) {
  constexpr uint32_t f16Type = 1, f64Value = 12, textValue = 8;
  auto llama = [&](uint64_t tensors, uint64_t keys) {
    Maker maker;
    maker.start(3, tensors, keys).text("general.architecture").number(textValue).text("llama");
    return maker;
  };
  std::string halves = llama(1, 1).tensor("rope_freqs.weight", {32}, f16Type, 0).with(64);
  EXPECT_THAT(errorOf([&] { ropeScalingOf(GgufFile(written(halves))); }), HasSubstr("is not of the type F32"));
  for (double length : {1e300, -1.0, std::nan("")}) {
    Maker maker = llama(0, 3);
    maker.text("llama.rope.scaling.type").number(textValue).text("yarn");
    maker.text("llama.rope.scaling.original_context_length").number(f64Value).number(length);
    EXPECT_THAT(errorOf([&] { ropeScalingOf(GgufFile(written(maker.with(0)))); }),
                HasSubstr("original_context_length is"));
  }
}

TEST_F(Gguf, RefusesTokensThatCannotBeOrdered) {
  constexpr uint32_t f32Value = 6, textValue = 8, arrayValue = 9;
  auto errorOfTokens = [&](const std::string &token, float score) {
    Maker maker;
    maker.start(3, 0, 3).text("tokenizer.ggml.model").number(textValue).text("llama");
    maker.text("tokenizer.ggml.tokens").number(arrayValue).number(textValue).number(uint64_t(2)).text("a").text(token);
    maker.text("tokenizer.ggml.scores").number(arrayValue).number(f32Value).number(uint64_t(2));
    maker.number(1.0F).number(score);
    Path file = written(maker.with(0));
    return errorOf([&] { tokenizerFilesInGguf(file); });
  };
  EXPECT_EQ(errorOfTokens("b", 2), "");
  EXPECT_THAT(errorOfTokens("b", std::nanf("")), HasSubstr("token 1 has 1 bytes and the score nan"));
  EXPECT_EQ(errorOfTokens(std::string(256, 'b'), 2), "");
  EXPECT_THAT(errorOfTokens(std::string(257, 'b'), 2), HasSubstr("wanted at most 256 bytes"));
}

TEST_F(Gguf, DecodesBlocksAndShiftsNorms) {
  std::string bytes = Maker().start(3, 2, 0).tensor("w", {32}, 8, 0).tensor("x_norm.weight", {1}, f32Type, 64).with(68);
  uint16_t half = 0x3800; // 0.5
  float norm = 1.75;
  std::memcpy(bytes.data() + bytes.size() - 68, &half, sizeof half);
  bytes[bytes.size() - 68 + 2] = static_cast<char>(-128);
  std::memcpy(bytes.data() + bytes.size() - 4, &norm, sizeof norm);
  auto source = openGguf(written(bytes), /*normsFromOne=*/true);
  auto values = source->read("w"), norms = source->read("x_norm.weight");
  ASSERT_EQ(values.size(), 32 * sizeof(float));
  EXPECT_EQ(loadElement(pb::F32, values.data(), 0), -64);
  EXPECT_EQ(loadElement(pb::F32, values.data(), 31), 0.5);
  EXPECT_EQ(loadElement(pb::F32, norms.data(), 0), 0.75);
}

/// Each cut is one error: no cut is read as a smaller file.
TEST_F(Gguf, RefusesEveryCut) {
  std::string bytes = whole().with(96);
  for (size_t size = 0; size < bytes.size(); ++size)
    EXPECT_THAT(errorOfFile(bytes.substr(0, size)), HasSubstr("x.gguf: ")) << size;
}

/// Counts are compared with the bytes that are left, before memory is allocated.
TEST_F(Gguf, RefusesHugeCounts) {
  constexpr uint64_t huge = uint64_t(1) << 60;
  EXPECT_THAT(errorOfFile(Maker().start(3, huge, 0).with(0)), HasSubstr("says 1152921504606846976 tensors at byte"));
  EXPECT_THAT(errorOfFile(Maker().start(3, 0, huge).with(0)), HasSubstr("says 1152921504606846976 keys at byte"));
  EXPECT_THAT(errorOfFile(Maker().start(3, 0, 1).number(huge).with(32)), HasSubstr("characters at byte"));
  Maker list;
  list.start(3, 0, 1).text("k").number(uint32_t(9)).number(uint32_t(8)).number(huge);
  EXPECT_THAT(errorOfFile(list.with(0)), HasSubstr("items at byte"));
  Path file = written(Maker().start(3, 0, 1).number(uint64_t(1) << 40).with(0));
  std::filesystem::resize_file(file, uint64_t(1) << 41); // a hole; the file is long enough
  EXPECT_THAT(errorOf([&] { GgufFile{file}; }), HasSubstr("bytes of the head that is read are left"));
}

TEST_F(Gguf, RefusesDamagedHeads) {
  std::string other = whole().with(96);
  other[0] = 'X';
  EXPECT_THAT(errorOfFile(other), HasSubstr("is no GGUF file"));
  EXPECT_THAT(errorOfFile(Maker().start(1, 0, 0).with(0)), HasSubstr("is of version 1 of GGUF"));
  EXPECT_THAT(errorOfFile(Maker().start(3u << 24, 0, 0).with(0)), HasSubstr("big-endian"));
  EXPECT_THAT(errorOfFile(Maker().start(3, 0, 1).text("k").number(77u).with(8)), HasSubstr("a value of the type 77"));
  Maker nested, twice, parts;
  nested.start(3, 0, 1).text("k").number(9u).number(9u).number(uint64_t(0));
  EXPECT_THAT(errorOfFile(nested.with(8)), HasSubstr("an array of the type 9"));
  twice.start(3, 0, 2).text("k").number(4u).number(1u).text("k").number(4u).number(1u);
  EXPECT_THAT(errorOfFile(twice.with(0)), HasSubstr("has the key 'k' twice"));
  parts.start(3, 0, 1).text("split.count").number(2u).number(uint16_t(3));
  EXPECT_THAT(errorOfFile(parts.with(0)), HasSubstr("is one of 3 parts"));
  Maker alignment;
  alignment.start(3, 0, 1).text("general.alignment").number(4u).number(48u);
  EXPECT_THAT(errorOfFile(alignment.with(0)), HasSubstr("general.alignment is 48"));
}

TEST_F(Gguf, RefusesTensorsThatAreNotInTheFile) {
  auto errorOfTensor = [&](const std::vector<uint64_t> &axes, uint32_t type, uint64_t offset) {
    return errorOfFile(Maker().start(3, 1, 0).tensor("a", axes, type, offset).with(64));
  };
  EXPECT_EQ(errorOfTensor({16}, f32Type, 0), "");
  EXPECT_THAT(errorOfTensor({17}, f32Type, 0), HasSubstr("tensor 'a' has 68 bytes from 0, and the file has"));
  EXPECT_THAT(errorOfTensor({4}, f32Type, uint64_t(1) << 62), HasSubstr("tensor 'a' has 16 bytes from"));
  EXPECT_THAT(errorOfTensor({4}, f32Type, 4), HasSubstr("no multiple of the alignment 32"));
  EXPECT_THAT(errorOfTensor({32}, q4Type, 0), HasSubstr("tensor 'a' is of the type Q4_K, and F32, F16, BF16 and Q8_0"));
  EXPECT_THAT(errorOfTensor({16}, 8, 0), HasSubstr("its rows of 16 elements are no multiple of 32"));
  EXPECT_THAT(errorOfTensor({}, f32Type, 0), HasSubstr("has 0 axes"));
  EXPECT_THAT(errorOfTensor({1, 1, 1, 1, 1}, f32Type, 0), HasSubstr("has 5 axes"));
  EXPECT_THAT(errorOfTensor({0}, f32Type, 0), HasSubstr("has an axis of 0 elements"));
  EXPECT_THAT(errorOfTensor({uint64_t(1) << 39, uint64_t(1) << 39}, f32Type, 0), HasSubstr("has an axis of"));
  EXPECT_THAT(errorOfFile(oneKey().tensor("a", {4, 3}, f32Type, 0).tensor("b", {8}, f32Type, 32).with(96)),
              HasSubstr("tensors 'a' and 'b' overlap"));
  EXPECT_THAT(errorOfFile(oneKey().tensor("a", {4}, f32Type, 0).tensor("a", {8}, f32Type, 32).with(96)),
              HasSubstr("has the tensor 'a' twice"));
}

/// A tokenizer that is written and read back gives the ids that the package tokenizers recorded.
TEST_F(Gguf, KeepsTokenizers) {
  const std::string golden = ESPALIER_SOURCE_DIR "/test/golden/tokenizers/";
  for (auto [name, rows] : {std::pair("split", 404), {"chars", 450}}) {
    std::vector<SideFile> files = {{"tokenizer.json", readAll(golden + name + ".json")},
                                   {"tokenizer_config.json", R"({"bos_token": "<s>", "chat_template": "{{ 1 }}"})"}};
    writeGguf(folder / name, ggufTokenizer(files, rows), {}, GgufType::F32);
    writeTokenizerFolder(folder / "back", tokenizerFilesInGguf(folder / name));
    EXPECT_EQ(nlohmann::json::parse(readAll(folder / "back/tokenizer_config.json"))["chat_template"], "{{ 1 }}");
    std::optional<TokenizerOptions> options = tokenizerIn(folder / "back");
    ASSERT_TRUE(options);
    std::unique_ptr<Tokenizer> framed = openTokenizer(*options);
    options->specialTokens = false;
    std::unique_ptr<Tokenizer> plain = openTokenizer(*options);
    std::istringstream lines(readAll(golden + name + ".json.cases.jsonl"));
    int cases = 0;
    for (std::string line; std::getline(lines, line); ++cases) {
      nlohmann::json expected = nlohmann::json::parse(line);
      std::vector<int32_t> ids = expected["ids"];
      EXPECT_EQ(plain->encode(expected["text"].get<std::string>()), ids) << name << " " << line;
      EXPECT_EQ(plain->decode(ids), expected["decoded"].get<std::string>()) << line;
      if (std::string(name) == "split")
        ids.insert(ids.begin(), 1);
      EXPECT_EQ(framed->encode(expected["text"].get<std::string>()), ids) << name << " " << line;
    }
    EXPECT_GT(cases, 10);
  }
}

/// A tokenizer with scores that the package gguf wrote gives the ids of llama.cpp.
TEST_F(Gguf, ReadsScores) {
  const std::string golden = ESPALIER_SOURCE_DIR "/test/golden/gguf/";
  writeTokenizerFolder(folder / "scores", tokenizerFilesInGguf(golden + "small.gguf"));
  std::unique_ptr<Tokenizer> tokenizer = openTokenizer(*tokenizerIn(folder / "scores"));
  nlohmann::json texts = nlohmann::json::parse(readAll(golden + "small.json"))["ids"];
  for (const nlohmann::json &text : texts)
    EXPECT_EQ(tokenizer->encode(text[0].get<std::string>()), text[1].get<std::vector<int32_t>>()) << text;
  EXPECT_EQ(tokenizer->decode(std::vector<int32_t>{261, 264}), "the a");
}

/// The scaling of Llama 3.1 follows from the table; others are refused.
TEST_F(Gguf, ReadsScaledPositions) {
  std::vector<float> factors = {1, 1, 1, 1, 1, 1, 2, 8};
  auto written = [&](const GgufKeys &more) {
    GgufKeys keys = {{"general.architecture", std::string("llama")}, {"llama.rope.freq_base", 500000.0F}};
    keys.insert(keys.end(), more.begin(), more.end());
    WrittenTensor table{"rope_freqs.weight", pb::F32, {8}, [&] {
                          std::vector<std::byte> bytes(sizeof(float) * factors.size());
                          std::memcpy(bytes.data(), factors.data(), bytes.size());
                          return bytes;
                        }};
    writeGguf(folder / "x.gguf", keys, std::span(&table, factors.empty() ? 0 : 1), GgufType::F32);
    return folder / "x.gguf";
  };
  EXPECT_THAT(errorOf([&] { ropeScalingOf(GgufFile(written({}))); }), HasSubstr("otherwise than Llama 3.1 does"));
  // llama.cpp's converter writes these factors for heads of 16 columns.
  factors = {1, 1, 1, 1, 2.6945297, 8, 8, 8};
  EXPECT_EQ(nlohmann::json::parse(ropeScalingOf(GgufFile(written({}))))["factor"], 8);
  factors.clear();
  EXPECT_EQ(ropeScalingOf(GgufFile(written({}))), "");
  nlohmann::json yarn = nlohmann::json::parse(
      ropeScalingOf(GgufFile(written({{"llama.rope.scaling.type", std::string("yarn")},
                                      {"llama.rope.scaling.factor", 4.0F},
                                      {"llama.rope.scaling.original_context_length", uint32_t(4096)}}))));
  EXPECT_EQ(yarn, (nlohmann::json{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 4096}}));
  EXPECT_THAT(
      errorOf([&] { ropeScalingOf(GgufFile(written({{"llama.rope.scaling.type", std::string("longrope")}}))); }),
      HasSubstr("rope.scaling.type is longrope, and linear, yarn and Llama 3's are read"));
}

} // namespace
} // namespace espalier::rt
