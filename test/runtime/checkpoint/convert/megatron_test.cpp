// Tests conversions of Megatron folders with several splits, and their errors.
#include "test/runtime/checkpoint/convert/convert_fixture.h"

#include "runtime/checkpoint/convert/torch_file.h"
#include "runtime/checkpoint/convert/zip.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;
using std::string_literals::operator""s;

class Megatron : public ConvertTest {
protected:
  Path exported(const std::string &names, const MegatronExport &options, const std::string &name) {
    convertToMegatron(converted, writeSmall(converted.model, name + "-ours"), folder / name, names, options);
    return folder / name;
  }
  std::string importError(const Path &from) const {
    return errorOf([&] { convertToNative(converted, WeightSystem::Megatron, from, folder / "imported"); });
  }
  /// Writes one rank's file with these tensors and numbers.
  static void writeRank(const Path &rank, std::vector<TorchNumber> numbers,
                        const std::vector<std::pair<std::string, std::vector<int64_t>>> &tensors) {
    std::vector<WrittenTensor> written;
    for (const auto &[name, shape] : tensors)
      written.push_back(
          {name, pb::F32, shape, [shape = shape] { return std::vector<std::byte>(tensorBytes(shape, pb::F32)); }});
    std::filesystem::create_directories(rank);
    writeTorchModel(rank / "model_optim_rng.pt", numbers, written);
  }

  ConvertedModel converted = smallConversion();
};

TEST_F(Megatron, RoundTripsForEachSplit) {
  for (bool isTied : {false, true})
    for (const char *names : {"mcore", "legacy"})
      for (int64_t tp : {1, 2})
        for (int64_t pp : {1, 2}) {
          converted = smallConversion(isTied);
          std::string name = fmt::format("{}-{}-{}-{}", names, tp, pp, isTied);
          Path there = exported(names, {tp, pp, 7}, name);
          EXPECT_EQ(readAll(there / "latest_checkpointed_iteration.txt"), "7");
          EXPECT_EQ(systemAt(there), WeightSystem::Megatron);
          EXPECT_EQ(systemAt(there / "iter_0000007"), WeightSystem::Megatron);
          Path back = convertToNative(converted, WeightSystem::Megatron, there, folder / (name + "-back"));
          expectSmall(converted.model, back);
        }
}

// A rank holds its shard of each part. The vocabulary is padded to a multiple of 128 tp by repeating its last row.
TEST_F(Megatron, RanksHoldTheirShards) {
  Path there = exported("mcore", {2, 2, 1}, "m");
  auto file = std::make_shared<const TorchFile>(there / "iter_0000001/mp_rank_01_000/model_optim_rng.pt");
  auto source = openTorchEntry(file, "model");
  EXPECT_EQ(file->root().find("checkpoint_version")->number, 3.0);
  EXPECT_EQ(source->tensors().at("embedding.weight").shape, (std::vector<int64_t>{128, 6}));
  EXPECT_EQ(source->tensors().at("layers.0.qkv.weight").shape, (std::vector<int64_t>{10, 6}));
  EXPECT_EQ(source->tensors().at("layers.0.fc1.weight").shape, (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(source->tensors().count("layers.1.qkv.weight"), 0u);
  EXPECT_EQ(source->tensors().count("output.weight"), 0u);
  std::vector<std::byte> rows = source->read("embedding.weight"), wte = values(converted.model, 0);
  for (size_t row : {0, 127}) // all rows of rank 1 are padding
    EXPECT_TRUE(std::equal(wte.end() - 24, wte.end(), rows.begin() + static_cast<ptrdiff_t>(24 * row)));
}

/// Moves the entries of the dict "model" in a rank's file up one level, beside the version.
void liftModels(const std::filesystem::path &path) {
  std::vector<std::pair<std::string, std::string>> entries;
  {
    RegularFile file(path);
    for (const auto &[name, entry] : readZip(file)) {
      std::string text(entry.bytes, '\0');
      file.read(entry.at, std::as_writable_bytes(std::span(text)));
      if (name.ends_with("data.pkl")) {
        const std::string head = "X\5\0\0\0model}("s;
        text.erase(text.find(head), head.size());
        text.erase(text.size() - 2, 1); // the end of the dict
      }
      entries.emplace_back(name, text);
    }
  }
  AtomicFile written(path.string());
  ZipWriter zip(written);
  for (const auto &[name, text] : entries)
    zip.add(name, std::as_bytes(std::span(text)));
  zip.finish();
  written.commit();
}

// Merges two stages of one chunk each into one stage of two chunks: model0 and model1 in one file.
TEST_F(Megatron, ChunksOfAStage) {
  Path there = exported("mcore", {1, 2, 1}, "m");
  std::vector<WrittenTensor> tensors;
  std::vector<std::unique_ptr<WeightSource>> sources;
  for (int stage : {0, 1}) {
    Path file = there / fmt::format("iter_0000001/mp_rank_00_00{}/model_optim_rng.pt", stage);
    sources.push_back(openTorchEntry(std::make_shared<const TorchFile>(file), "model"));
    for (const auto &[name, listed] : sources.back()->tensors())
      tensors.push_back({fmt::format("model{}/{}", stage, name), listed.type, listed.shape,
                         [source = sources.back().get(), name = name] { return source->read(name); }});
  }
  Path file = folder / "one/mp_rank_00_000/model_optim_rng.pt";
  std::filesystem::create_directories(file.parent_path());
  writeTorchModel(file, std::vector<TorchNumber>{{"checkpoint_version", 3, false}}, tensors);
  liftModels(file);
  expectSmall(converted.model, convertToNative(converted, WeightSystem::Megatron, folder / "one", folder / "back"));
  std::filesystem::create_directories(folder / "one/mp_rank_01_000");
  std::filesystem::copy_file(there / "iter_0000001/mp_rank_00_001/model_optim_rng.pt",
                             folder / "one/mp_rank_01_000/model_optim_rng.pt");
  EXPECT_THAT(importError(folder / "one"), HasSubstr("mp_rank_01_000: has 1 chunks of the model, others have 2"));
}

// A tensor of the last stage is damaged. The failed export also removes the files of the first stage.
TEST_F(Megatron, AFailedExportLeavesNoFolder) {
  Path there = folder / "m", ours = writeSmall(converted.model);
  std::fstream stream(ours / "weights.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  stream.seekp(-1, std::ios::end);
  stream.put('\x55');
  stream.close();
  EXPECT_THROW(convertToMegatron(converted, ours, there, "mcore", {1, 2, 1}), PlanError);
  EXPECT_FALSE(std::filesystem::exists(there / "iter_0000001"));
}

TEST_F(Megatron, RejectsIncompleteFolders) {
  Path there = exported("mcore", {2, 2, 1}, "m"), iteration = there / "iter_0000001";
  EXPECT_EQ(importError(there), "");
  EXPECT_EQ(importError(iteration), "");
  auto tracked = [&](const std::string &text) {
    write(there / "latest_checkpointed_iteration.txt", text);
    return importError(there);
  };
  EXPECT_EQ(tracked("1\n"), "");
  EXPECT_THAT(tracked("../../etc"), HasSubstr("'../../etc' is not an iteration"));
  EXPECT_THAT(tracked(""), HasSubstr("'' is not an iteration"));
  EXPECT_THAT(tracked("2"), HasSubstr("iter_0000002: has no folder mp_rank_00"));
  EXPECT_THAT(tracked("release"), HasSubstr("release: has no folder mp_rank_00"));
  std::filesystem::rename(iteration / "mp_rank_01_000", iteration / "gone");
  EXPECT_THAT(importError(iteration), HasSubstr("has no mp_rank_01_000"));
  std::filesystem::rename(iteration / "gone", iteration / "mp_rank_01_000");
  std::filesystem::rename(iteration / "mp_rank_01_001", iteration / "gone");
  EXPECT_THAT(importError(iteration), HasSubstr("has 3 ranks, not a multiple of tp 2"));
  std::filesystem::create_directories(iteration / "mp_rank_00_000_001");
  EXPECT_THAT(importError(iteration), HasSubstr("is of a run with expert parallelism"));
}

TEST_F(Megatron, RejectsAnotherModel) {
  auto errorWith = [&](std::vector<TorchNumber> numbers,
                       const std::vector<std::pair<std::string, std::vector<int64_t>>> &tensors) {
    std::filesystem::remove_all(folder / "r");
    writeRank(folder / "r/mp_rank_00", std::move(numbers), tensors);
    return importError(folder / "r");
  };
  TorchNumber version{"checkpoint_version", 3, false};
  EXPECT_THAT(errorWith({}, {{"a", {1}}}),
              HasSubstr("is of checkpoint version 0, whose queries, keys and values are in"));
  EXPECT_THAT(errorWith({{"checkpoint_version", 1, true}}, {{"a", {1}}}),
              HasSubstr("is of checkpoint version 1, whose"));
  EXPECT_THAT(errorWith({version}, {{"a", {1}}}), HasSubstr("has 0 layers, the model has 2"));
  EXPECT_THAT(errorWith({version}, {}), HasSubstr("the checkpoint: has 0 layers"));
  EXPECT_THAT(errorWith({version}, {{"layers.1.norm.weight", {6}}}),
              HasSubstr("no tensor holds parameter 'embed.wte'"));
  EXPECT_THAT(errorWith({version}, {{"layers.1.norm.weight", {6}}, {"lm_head", {5, 6}}}),
              HasSubstr("tensor 'lm_head' is not one of small"));
  EXPECT_THAT(errorWith({version, {"model1", 1, true}}, {{"a", {1}}}), HasSubstr("has 0 layers"));
  EXPECT_THAT(errorWith({version, {"model0", 1, true}}, {{"a", {1}}}), HasSubstr("has no 'model0' with weights"));
}

// Every tensor parallel rank has a copy of the norms. All copies must be equal.
TEST_F(Megatron, RejectsRanksThatDisagree) {
  Path there = exported("mcore", {2, 1, 1}, "m");
  Path file = there / "iter_0000001/mp_rank_01/model_optim_rng.pt";
  auto source = openTorchEntry(std::make_shared<const TorchFile>(file), "model");
  std::vector<WrittenTensor> tensors;
  for (const auto &[name, listed] : source->tensors()) {
    std::vector<std::byte> bytes = source->read(name);
    if (name == "layers.1.norm.weight")
      bytes[3] ^= std::byte(1);
    tensors.push_back({name, listed.type, listed.shape, [bytes] { return bytes; }});
  }
  writeTorchModel(file, std::vector<TorchNumber>{{"checkpoint_version", 3, false}}, tensors);
  EXPECT_THAT(importError(there), HasSubstr("mp_rank_01/model_optim_rng.pt: tensor 'layers.1.norm.weight' differs"));
}

TEST_F(Megatron, RefusesSplitsThatDoNotFit) {
  auto errorWith = [&](int64_t tp, int64_t pp) {
    return errorOf([&] { exported("mcore", {tp, pp, 1}, fmt::format("{}-{}", tp, pp)); });
  };
  EXPECT_THAT(errorWith(1, 3), HasSubstr("2 layers do not divide by pp 3"));
  EXPECT_THAT(errorWith(4, 1), HasSubstr("kv_heads 2 does not divide by tp 4"));
  EXPECT_THAT(errorWith(100000, 2), HasSubstr("is more than 100000 ranks"));
  EXPECT_FALSE(std::filesystem::exists(folder / "4-1/iter_0000001"));
  exported("mcore", {1, 1, 1}, "again");
  EXPECT_THAT(errorOf([&] { exported("mcore", {1, 1, 1}, "again"); }),
              HasSubstr("already exists; give another folder"));
}

} // namespace
} // namespace espalier::rt
