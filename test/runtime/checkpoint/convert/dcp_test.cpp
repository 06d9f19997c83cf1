// Reads checkpoints of torch.distributed.checkpoint that test/golden/dcp_reference.py wrote, and damaged ones.
#include "runtime/checkpoint/convert/dcp.h"

#include "test/runtime/checkpoint/convert/convert_fixture.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;

const std::filesystem::path golden = ESPALIER_SOURCE_DIR "/test/golden/dcp";

class Dcp : public ConvertTest {
protected:
  std::string importError(const Path &from) const {
    return errorOf([&] { convertToNative(converted, WeightSystem::Dcp, from, folder / "imported"); });
  }
  /// Copies a folder, and returns the bytes of its metadata.
  std::string copy(const std::string &name) const {
    std::filesystem::remove_all(folder / "copy");
    std::filesystem::copy(golden / name, folder / "copy");
    return readAll(folder / "copy" / ".metadata");
  }

  ConvertedModel converted = smallConversion();
};

TEST_F(Dcp, ReadsTheNamesOfTransformersAndOfMegatronCore) {
  for (const char *name : {"hf", "mcore"}) {
    EXPECT_EQ(systemAt(golden / name), WeightSystem::Dcp);
    expectSmall(converted.model, convertToNative(converted, WeightSystem::Dcp, golden / name, folder / name));
  }
}

TEST_F(Dcp, IsFoundAsTheNewestIterationOfMegatron) {
  write(folder / "there/latest_checkpointed_iteration.txt", "12\n");
  std::filesystem::copy(golden / "mcore", folder / "there/iter_0000012");
  EXPECT_EQ(systemAt(folder / "there"), WeightSystem::Dcp);
  expectSmall(converted.model, convertToNative(converted, WeightSystem::Dcp, folder / "there", folder / "ours"));
}

TEST_F(Dcp, JoinsTheChunksOfTensors) {
  auto source = openDcp(golden / "hf");
  EXPECT_TRUE(source->tensors().contains("optimizer.state.exp_avg.embed.weight"));
  EXPECT_FALSE(source->tensors().contains("step"));
  EXPECT_EQ(source->tensors().at("model.embed.weight").shape, (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(source->read("model.embed.weight"), values(converted.model, 0));
}

TEST_F(Dcp, RoundTrips) {
  for (bool isTied : {false, true}) {
    converted = smallConversion(isTied);
    std::string name = isTied ? "tied" : "untied";
    convertToDcp(converted, writeSmall(converted.model, name + "-ours"), folder / name);
    EXPECT_EQ(systemAt(folder / name), WeightSystem::Dcp);
    expectSmall(converted.model,
                convertToNative(converted, WeightSystem::Dcp, folder / name, folder / (name + "-back")));
  }
}

TEST_F(Dcp, RefusesDamage) {
  std::string bytes = copy("hf");
  for (size_t size = 0; size < bytes.size(); size += 97) {
    write(folder / "copy/.metadata", bytes.substr(0, size));
    EXPECT_THAT(importError(folder / "copy"), HasSubstr(".metadata: damaged")) << size;
  }
  auto replaced = [&](const std::string &from, const std::string &to) {
    std::string text = bytes;
    text.replace(text.find(from), from.size(), to);
    write(folder / "copy/.metadata", text);
    return importError(folder / "copy");
  };
  EXPECT_THAT(replaced("__1_0.distcp", "../_0.distcp"), HasSubstr("'../_0.distcp' is no file of this folder"));
  EXPECT_THAT(replaced("__1_0.distcp", "__2_0.distcp"), HasSubstr("__2_0.distcp"));
  EXPECT_THAT(replaced("model.embed.weight", "model.embex.weight"), HasSubstr("'embex.weight' is not one of small"));
  copy("hf");
  std::filesystem::resize_file(folder / "copy/__1_0.distcp", 2000);
  EXPECT_THAT(importError(folder / "copy"), HasSubstr("__1_0.distcp: has 2000 bytes, wanted"));
}

TEST_F(Dcp, RefusesUnknownNames) {
  for (const char *system : {"hf", "mcore"})
    for (NameRule &rule : converted.rules[system])
      rule.first = "other." + rule.first;
  EXPECT_THAT(importError(golden / "hf"), HasSubstr("hf: the names of its 24 tensors are neither those of transformers "
                                                    "nor of Megatron core; the first is 'model.embed.weight'"));
}

} // namespace
} // namespace espalier::rt
