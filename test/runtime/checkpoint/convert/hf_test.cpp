// Tests conversions between transformers folders and checkpoints, in both directions, and their errors.
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include "runtime/checkpoint/convert/foreign_weights.h"
#include "runtime/checkpoint/convert/hf.h"

#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using testing::HasSubstr;

class Hf : public ConvertTest {
protected:
  /// Exports a checkpoint of the small model to a transformers folder.
  Path exported(const HfExport &options, const std::string &name = "hf") {
    convertToHf(converted, writeSmall(converted.model, name + "-ours"), folder / name, options,
                [](const std::string &type) { return "{\"torch_dtype\": \"" + type + "\"}\n"; });
    return folder / name;
  }
  std::string importError(const Path &from) const {
    return errorOf([&] { convertToNative(converted, WeightSystem::Hf, from, folder / "imported"); });
  }

  ConvertedModel converted = smallConversion();
};

TEST_F(Hf, RoundTripsInEachFormat) {
  for (WeightFormat format : {WeightFormat::Safetensors, WeightFormat::Bin})
    for (int64_t shards : {1, 3}) {
      std::string name = fmt::format("{}-{}", static_cast<int>(format), shards);
      Path there = exported({format, shards, {}, {}}, name);
      Path back = convertToNative(converted, systemAt(there), there, folder / (name + "-back"));
      expectSmall(converted.model, back);
      EXPECT_EQ(readAll(back / "weights.safetensors"),
                readAll(folder / (name + "-ours/step-00000000/weights.safetensors")));
      EXPECT_FALSE(readManifest(back).hasOptimizer);
      Path again = folder / (name + "-again");
      convertToHf(converted, back, again, {format, shards, {}, {}},
                  [](const std::string &type) { return "{\"torch_dtype\": \"" + type + "\"}\n"; });
      for (const auto &entry : std::filesystem::directory_iterator(there))
        EXPECT_EQ(readAll(entry.path()), readAll(again / entry.path().filename())) << entry.path();
    }
}

// The exported file has the order that transformers uses: larger elements first, then by name, without gaps.
TEST_F(Hf, OrderOfASafetensorsFile) {
  SafetensorsFile file(exported({}) / "model.safetensors");
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}}));
  std::vector<std::string> names;
  for (const TensorEntry &entry : file.tensors())
    names.push_back(entry.name);
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(names.front(), "head.weight");
  EXPECT_EQ(names.back(), "model.h.1.up.weight");
}

TEST_F(Hf, IndexNamesEachTensorAndTheBytes) {
  Path there = exported({WeightFormat::Bin, 2, {}, {}});
  nlohmann::json index = nlohmann::json::parse(readAll(there / "pytorch_model.bin.index.json"));
  EXPECT_EQ(index["metadata"]["total_size"], converted.model.parameterCount() * 4);
  EXPECT_EQ(index["weight_map"]["model.embed.weight"], "pytorch_model-00001-of-00002.bin");
  EXPECT_EQ(index["weight_map"]["head.weight"], "pytorch_model-00002-of-00002.bin");
  EXPECT_EQ(index["weight_map"].size(), 12u);
}

TEST_F(Hf, CopiesTheFilesBesideTheWeights) {
  write(folder / "reference/tokenizer.json", "{}");
  write(folder / "reference/special_tokens_map.json", "{\"a\": 1}");
  write(folder / "reference/README.md", "read me");
  write(folder / "reference/secret.txt", "not this");
  Path there = exported({WeightFormat::Safetensors, 0, folder / "reference", {}});
  EXPECT_EQ(readAll(there / "special_tokens_map.json"), "{\"a\": 1}");
  EXPECT_EQ(readAll(there / "README.md"), "read me");
  EXPECT_TRUE(std::filesystem::exists(there / "tokenizer.json"));
  EXPECT_FALSE(std::filesystem::exists(there / "secret.txt"));
  EXPECT_EQ(readAll(there / "config.json"), "{\"torch_dtype\": \"float32\"}\n");
}

TEST_F(Hf, TiedHeadIsComparedAndNotWritten) {
  converted = smallConversion(/*isTied=*/true);
  converted.rules["hf"].back().second = "tied wte";
  Path there = exported({});
  SafetensorsFile file(there / "model.safetensors");
  EXPECT_EQ(std::ranges::count(file.tensors(), "head.weight", &TensorEntry::name), 0);
  std::vector<std::byte> own = values(converted.model, 0), other = own;
  other[5] ^= std::byte(1);
  for (const auto *head : {&own, &other}) {
    std::vector<TensorBytes> tensors;
    std::vector<std::vector<std::byte>> kept;
    for (const TensorEntry &entry : file.tensors())
      kept.push_back(file.tensor(entry.name, entry.bytes));
    for (size_t i = 0; i < kept.size(); ++i)
      tensors.push_back({file.tensors()[i].name, pb::F32, file.tensors()[i].shape, kept[i]});
    tensors.push_back({"head.weight", pb::F32, {5, 6}, *head});
    std::filesystem::create_directories(folder / "with");
    writeSafetensors(folder / "with/model.safetensors", tensors, {});
    std::string message = importError(folder / "with");
    if (head == &own)
      EXPECT_EQ(message, "");
    else
      EXPECT_THAT(message, HasSubstr("tensor 'head.weight' differs from model.embed.weight, and the model has one "
                                     "parameter for both: 'embed.wte'"));
  }
}

/// An exported file in which one tensor is replaced.
class HfChanged : public Hf {
protected:
  std::string errorWithTensor(const std::string &name, const std::string &newName, pb::DataType type,
                              const std::vector<int64_t> &shape) {
    Path there = exported({}, newName + safetensorsType(type));
    SafetensorsFile file(there / "model.safetensors");
    std::vector<std::vector<std::byte>> kept;
    std::vector<TensorBytes> tensors;
    for (const TensorEntry &entry : file.tensors()) {
      bool isIt = entry.name == name;
      if (isIt && newName.empty())
        continue;
      kept.push_back(isIt ? std::vector<std::byte>(tensorBytes(shape, type)) : file.tensor(entry.name, entry.bytes));
      tensors.push_back({isIt ? newName : entry.name, isIt ? type : pb::F32, isIt ? shape : entry.shape, {}});
    }
    for (size_t i = 0; i < kept.size(); ++i)
      tensors[i].bytes = kept[i];
    writeSafetensors(there / "model.safetensors", tensors, {});
    return importError(there);
  }
};

TEST_F(HfChanged, EachTensorIsMappedOrRefused) {
  const std::string name = "model.h.1.q.weight";
  EXPECT_EQ(errorWithTensor("none", "none", pb::F32, {}), "");
  EXPECT_THAT(errorWithTensor(name, "", pb::F32, {12, 6}),
              HasSubstr("no tensor holds parameter 'block.1.q_weight' of small"));
  EXPECT_THAT(errorWithTensor(name, "model.h.1.p.weight", pb::F32, {12, 6}),
              HasSubstr("tensor 'model.h.1.p.weight' is not one of small"));
  EXPECT_THAT(errorWithTensor(name, name, pb::F32, {6, 12}),
              HasSubstr("tensor 'model.h.1.q.weight' is [6, 12], the model requires [12, 6]"));
  EXPECT_THAT(errorWithTensor(name, name, pb::I32, {12, 6}), HasSubstr("is of type I32; weights are F32, BF16 or F16"));
  // Parameters may have different types. The parts of one parameter must have the same type.
  EXPECT_EQ(errorWithTensor(name, name, pb::BF16, {12, 6}), "");
  EXPECT_THAT(errorOf([&] {
                converted.rules["hf"][2].second = "q_weight k_weight v_weight = (kv_heads | group head_dim) hidden";
                converted.rules["hf"].erase(converted.rules["hf"].begin() + 3);
                convertToHf(converted, folder / "imported", folder / "mixed", {}, [](auto &) { return ""; });
              }),
              HasSubstr("are of two types and cannot be one tensor 'model.h.1.q.weight'"));
}

TEST_F(Hf, BothSpellingsMustAgree) {
  Path there = exported({WeightFormat::Safetensors, 1, {}, {}});
  SafetensorsFile file(there / "model.safetensors");
  std::vector<std::byte> half(2 * 6 * 5);
  std::vector<TensorBytes> second = {{"embed.weight", pb::BF16, {5, 6}, half}};
  std::filesystem::rename(there / "model.safetensors", there / "a");
  writeSafetensors(there / "b", second, {});
  write(there / "model.safetensors.index.json", R"({"weight_map": {"head.weight": "a", "embed.weight": "b"}})");
  EXPECT_THAT(importError(there), HasSubstr("is of type BF16, other parts of 'embed.wte' of F32"));
}

// A folder whose model also reads images has the text model under a prefix. The other parts are named and left out.
TEST_F(Hf, ReadsTheTextModelOfAMultimodalFolder) {
  converted.rules["hf"].back().first = "lm_head.weight";
  for (std::string prefix : {"language_model.", "model.language_model."}) {
    Path there = exported({}, "of-" + prefix), whole = folder / ("whole-" + prefix);
    std::unique_ptr<WeightSource> text = openHfFolder(there);
    std::vector<WrittenTensor> tensors;
    for (const auto &[name, tensor] : text->tensors()) {
      bool isShort = prefix.starts_with("model.") && name.starts_with("model.");
      bool isHead = prefix.starts_with("model.") && name == "lm_head.weight"; // it has no prefix
      std::string own = isHead ? name : prefix + (isShort ? name.substr(6) : name);
      tensors.push_back({own, tensor.type, tensor.shape, [&text, name = name] { return text->read(name); }});
    }
    for (const char *name : {"vision_tower.layers.0.weight", "model.multi_modal_projector.bias", "vision_tower.norm"})
      tensors.push_back({name, pb::F32, {2}, [] { return std::vector<std::byte>(8); }});
    writeHfFolder(whole, std::move(tensors), {});
    ForeignWeights weights(converted, WeightSystem::Hf, whole);
    EXPECT_EQ(weights.note(), "the text model is read; 3 tensors of multi_modal_projector, vision_tower left out");
    expectSmall(converted.model, convertToNative(converted, WeightSystem::Hf, whole, folder / ("read-" + prefix)));
    EXPECT_EQ(ForeignWeights(converted, WeightSystem::Hf, there).note(), "");
  }
}

TEST_F(Hf, RefusesFoldersAndIndices) {
  std::filesystem::create_directories(folder / "empty");
  EXPECT_THAT(importError(folder / "empty"), HasSubstr("empty: has no weights: none of model.safetensors"));
  Path there = exported({WeightFormat::Safetensors, 2, {}, {}}), index = there / "model.safetensors.index.json";
  auto withIndex = [&](const std::string &text) {
    write(index, text);
    return importError(there);
  };
  EXPECT_THAT(withIndex("{"), HasSubstr("index.json: damaged"));
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": 1}})"), HasSubstr("index.json: damaged"));
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": "../x"}})"), HasSubstr("'../x' is no file of this folder"));
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": ".."}})"), HasSubstr("'..' is no file of this folder"));
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": "model-00001-of-00002.safetensors"}})"),
              HasSubstr("tensor 'a' is not in model-00001-of-00002.safetensors"));
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": "gone"}})"), HasSubstr("gone: No such file"));
  std::filesystem::copy_file(there / "model-00001-of-00002.safetensors", there / "twice");
  EXPECT_THAT(withIndex(R"({"weight_map": {"model.embed.weight": "model-00001-of-00002.safetensors",
                                           "model.h.0.q.weight": "twice"}})"),
              HasSubstr("is also in"));
  // Links to files within the folder are followed. Links out of the folder are refused.
  std::filesystem::create_symlink("/etc/passwd", there / "out");
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": "out"}})"), HasSubstr("out: is a link out of its folder"));
  std::filesystem::create_symlink("twice", there / "in");
  EXPECT_THAT(withIndex(R"({"weight_map": {"a": "in"}})"), HasSubstr("tensor 'a' is not in in"));
  EXPECT_THAT(errorOf([&] { exported({}); }), HasSubstr("hf: is not empty; give a new folder"));
  EXPECT_THAT(errorOf([&] { exported({WeightFormat::Bin, 13, {}, {}}, "many"); }),
              HasSubstr("13 shards of 12 tensors; each shard needs one"));
  write(folder / "file", "");
  EXPECT_THAT(errorOf([&] { writeHfFolder(folder / "file", {}, {}); }), HasSubstr("file: cannot be made a folder"));
}

// A snapshot in the hub's cache is a folder of links to blobs.
TEST_F(Hf, ReadsTheHubsCache) {
  Path there = exported({});
  Path snapshot = folder / "hub/snapshots/abc";
  std::filesystem::create_directories(snapshot);
  std::filesystem::create_directories(folder / "hub/blobs");
  std::filesystem::rename(there / "model.safetensors", folder / "hub/blobs/123");
  std::filesystem::create_symlink("../../blobs/123", snapshot / "model.safetensors");
  EXPECT_EQ(importError(snapshot), "");
}

TEST_F(Hf, RecognizesTheSystemOfAPath) {
  EXPECT_EQ(systemAt(exported({})), WeightSystem::Hf);
  EXPECT_EQ(systemAt(folder / "hf-ours"), WeightSystem::Espalier);
  EXPECT_EQ(systemAt(folder / "hf-ours/step-00000000"), WeightSystem::Espalier);
  write(folder / "mindformers/rank_0/x", "");
  write(folder / "mindformers/m.ckpt", "");
  EXPECT_THAT(errorOf([&] { systemAt(folder / "mindformers"); }), HasSubstr("MindSpore's .ckpt files are not read"));
  EXPECT_THAT(errorOf([&] { systemAt(folder / "mindformers/m.ckpt"); }), HasSubstr(".ckpt files are not read"));
  write(folder / "dist/__0_0.distcp", "");
  EXPECT_THAT(errorOf([&] { systemAt(folder / "dist"); }), HasSubstr("--ckpt-convert-format torch_dist"));
  write(folder / "dist/.metadata", "");
  EXPECT_EQ(systemAt(folder / "dist"), WeightSystem::Dcp);
  EXPECT_THAT(errorOf([&] { systemAt(folder / "nowhere"); }), HasSubstr("nowhere: is no folder"));
  write(folder / "megatron/latest_checkpointed_iteration.txt", "10");
  write(folder / "megatron/iter_0000010/.metadata", "");
  EXPECT_EQ(systemAt(folder / "megatron"), WeightSystem::Dcp);
  write(folder / "megatron/iter_0000020/mp_rank_00/model_optim_rng.pt", "");
  EXPECT_EQ(systemAt(folder / "megatron"), WeightSystem::Dcp); // the tracker file names the iteration to read
  write(folder / "lora/adapter_config.json", "{}");
  EXPECT_EQ(systemAt(folder / "lora"), WeightSystem::Peft);
  write(folder / "weights/adapter_model.bin", "");
  EXPECT_EQ(systemAt(folder / "weights"), WeightSystem::Peft);
  std::filesystem::create_directories(folder / "nothing");
  EXPECT_THAT(errorOf([&] { systemAt(folder / "nothing"); }), HasSubstr("holds no weights that are known"));
}

// Checkpoints of another model are refused. A failed conversion of a damaged checkpoint leaves no files.
TEST_F(Hf, RejectsAnotherModelAndDamage) {
  Path ours = writeSmall(converted.model);
  WeightModel other = smallModel();
  other.parameters.pop_back();
  EXPECT_THAT(errorOf([&] { NativeSource(other, ours); }),
              HasSubstr("the model has no parameter 'head.lm_head_weight'"));
  other = smallModel();
  other.parameters[0].sizes = {4, 6};
  EXPECT_THAT(errorOf([&] { NativeSource(other, ours); }),
              HasSubstr("'embed.wte' is [5, 6] there, [4, 6] in the model"));
  other = smallModel();
  other.parameters.push_back(other.parameters[0]);
  other.parameters.back().name = "more";
  EXPECT_THAT(errorOf([&] { NativeSource(other, ours); }), HasSubstr("it has no parameter 'more'"));
  std::string text = readAll(ours / "weights.safetensors");
  text.back() = static_cast<char>(text.back() ^ 1);
  write(ours / "weights.safetensors", text);
  EXPECT_THAT(errorOf([&] { exported({}); }), testing::Eq(""));
  EXPECT_THAT(errorOf([&] { convertToHf(converted, ours, folder / "bad", {}, [](auto &) { return ""; }); }),
              HasSubstr("value of 'head.lm_head_weight' does not fit its checksum"));
  EXPECT_FALSE(std::filesystem::exists(folder / "bad")); // and no partial folder, as the loop checks
  for (const auto &entry : std::filesystem::directory_iterator(folder))
    EXPECT_THAT(entry.path().filename().string(), testing::Not(HasSubstr("partial")));
}

} // namespace
} // namespace espalier::rt
