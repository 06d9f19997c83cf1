// Saves that were in flight when a process was lost: completed if all ranks have written their parts and a step has
// proven the weights, and left alone otherwise.
#include "runtime/checkpoint/unfinished.h"
#include "test/runtime/checkpoint/checkpoint_fixture.h"

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;

class UnfinishedSaves : public CheckpointTest {
protected:
  /// Trains with a save after step 3 and at the end, and takes the last checkpoint apart: into the hidden folder of a
  /// save whose files and notes are written, with a draft that is not proven.
  void SetUp() override {
    model.dp = model.tp = 2;
    model.zero = true;
    train(model, 6, /*resume=*/false, /*saveEvery=*/3);
    Manifest manifest = readManifest(folder / "step-00000006");
    fs::rename(folder / "step-00000006", partial);
    fs::remove(partial / manifestName);
    std::vector<Shard> shards = std::exchange(manifest.shards, {});
    for (int rank = 0; rank < manifest.ranks(); ++rank) {
      Shard shard; // of a rank that saves nothing
      for (const Shard &each : shards)
        if (each.file == fmt::format("rank-{:05}.safetensors", rank))
          shard = each;
      write(partial / fmt::format("rank-{:05}.json", rank), shardText(shard));
    }
    file = partial / shards.back().file;
    writeDraft(partial, manifest);
  }

  SampleOptions model;
  Path partial = folder / ".step-00000006.12-ab.partial", file;
};

TEST_F(UnfinishedSaves, AreCompleted) {
  ASSERT_TRUE(proveDraft(partial));
  EXPECT_EQ(completeSave(folder), "step-00000006");
  EXPECT_EQ(latest(), "step-00000006");
  EXPECT_EQ(latestFault(folder), "");
  EXPECT_TRUE(faults(folder / "step-00000006").empty());
  EXPECT_FALSE(fs::exists(partial));
  for (const auto &entry : fs::directory_iterator(folder / "step-00000006"))
    EXPECT_TRUE(entry.path().filename() == manifestName || entry.path().extension() == ".safetensors") << entry.path();
  EXPECT_EQ(completeSave(folder), "") << "nothing is left to complete";
  RunResult rest = train(model, 8, /*resume=*/true), whole;
  fs::remove_all(folder);
  whole = train(model, 8);
  ASSERT_EQ(rest.steps.size(), 2u);
  EXPECT_EQ(rest.steps[1].loss, whole.steps[7].loss);
}

TEST_F(UnfinishedSaves, AreNotCompletedWithoutAProof) {
  EXPECT_EQ(completeSave(folder), "");
  EXPECT_EQ(checkpointNames(folder), std::vector<std::string>{"step-00000003"});
}

TEST_F(UnfinishedSaves, AreNotCompletedWithoutTheNoteOfARank) {
  ASSERT_TRUE(proveDraft(partial));
  fs::remove(partial / "rank-00003.json");
  EXPECT_EQ(completeSave(folder), "");
  EXPECT_EQ(checkpointNames(folder), std::vector<std::string>{"step-00000003"});
}

TEST_F(UnfinishedSaves, AreNotCompletedWithAShortFile) {
  ASSERT_TRUE(proveDraft(partial));
  fs::resize_file(file, fs::file_size(file) - 1);
  EXPECT_EQ(completeSave(folder), "");
  EXPECT_EQ(checkpointNames(folder), std::vector<std::string>{"step-00000003"});
  EXPECT_EQ(train(model, 4, /*resume=*/true).steps.size(), 1u);
  EXPECT_FALSE(fs::exists(partial)) << "the next run removes the hidden folder";
}

TEST_F(UnfinishedSaves, AreNotCompletedWithADamagedDraft) {
  flip(partial / "draft.json", 40);
  ASSERT_TRUE(proveDraft(partial));
  EXPECT_EQ(completeSave(folder), "");
  EXPECT_EQ(completeSave(folder / "missing"), "");
}

TEST_F(UnfinishedSaves, ADraftIsProvenOnce) {
  EXPECT_TRUE(proveDraft(partial));
  EXPECT_FALSE(proveDraft(partial));
}

} // namespace
} // namespace espalier::rt
