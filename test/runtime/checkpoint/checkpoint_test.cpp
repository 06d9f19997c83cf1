// A resumed run continues bit for bit. A checkpoint of another training is refused, and damage is never loaded.
#include "format/checksum.h"
#include "runtime/checkpoint/safetensors.h"
#include "runtime/kernels/element.h"
#include "runtime/parameter_block.h"
#include "test/runtime/checkpoint/checkpoint_fixture.h"

#include <functional>

namespace espalier::rt {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class Checkpoint : public CheckpointTest {};

TEST_F(Checkpoint, ResumesBitForBit) {
  for (bool zero : {false, true}) {
    SampleOptions model;
    model.dp = model.tp = model.pp = 2;
    model.zero = zero;
    model.dynamicScale = true; // the checkpoint must hold the state of the loss scale too
    RunResult straight = train(model, 9);
    fs::remove_all(folder);
    train(model, 4);
    RunResult resumed = train(model, 9, /*resume=*/true);
    ASSERT_EQ(resumed.steps.size(), 5u);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(resumed.steps[i].step, 5 + i);
      EXPECT_EQ(resumed.steps[i].loss, straight.steps[4 + i].loss) << i;
      EXPECT_EQ(resumed.steps[i].gradNorm, straight.steps[4 + i].gradNorm) << i;
      EXPECT_EQ(resumed.steps[i].lossScale, straight.steps[4 + i].lossScale) << i;
      EXPECT_EQ(resumed.parameters[i], straight.parameters[4 + i]) << i;
    }
    fs::remove_all(folder);
  }
}

TEST_F(Checkpoint, KeepsEarlierCheckpointsAndPointsToTheNewest) {
  train({}, 5, /*resume=*/false, /*saveEvery=*/2);
  EXPECT_TRUE(fs::exists(folder / "step-00000002" / "manifest.json"));
  EXPECT_TRUE(fs::exists(folder / "step-00000004" / "manifest.json"));
  EXPECT_EQ(latest(), "step-00000005");
}

TEST_F(Checkpoint, ASecondSaveOfAStepKeepsTheFirst) {
  train({}, 2);
  train({}, 2);
  EXPECT_TRUE(fs::exists(folder / "step-00000002"));
  EXPECT_EQ(latest(), "step-00000002-2");
}

// The checkpoint holds every element once, even with data and tensor parallel replicas, ZeRO shards and a parameter
// that is tied across two stages.
TEST_F(Checkpoint, HoldsEveryElementOnce) {
  SampleOptions model;
  model.dp = model.tp = model.pp = 2;
  model.zero = true;
  train(model, 1);
  Manifest manifest = readManifest(folder / "step-00000001");
  EXPECT_EQ(manifest.ranks(), 8);
  EXPECT_EQ(manifest.state.consumed, 16);
  uint64_t parameters = model.features + model.layers * (model.features + 1), bytes = 0;
  for (const Shard &shard : manifest.shards)
    for (const StoredPiece &stored : shard.pieces) {
      bytes += stored.piece.bytes();
      EXPECT_TRUE(stored.piece.shape == std::vector<int64_t>{12} || stored.piece.shape == std::vector<int64_t>{1});
    }
  EXPECT_EQ(bytes, parameters * 4 * 3); // the value and two moments
  EXPECT_EQ(manifest.parameters, parameters);
}

TEST_F(Checkpoint, RefusesToResumeFromNothing) {
  EXPECT_THAT(resume(1).error, HasSubstr("holds no checkpoint, and is not there; --resume continues from"));
  EXPECT_FALSE(fs::exists(folder)); // a misspelled path creates no folder
  fs::create_directories(folder);
  write(folder / "latest", "step-00000001\n");
  EXPECT_THAT(resume(1).error, HasSubstr("holds no checkpoint"));
}

TEST_F(Checkpoint, RejectsOneCheckpointAsTheFolder) {
  train({}, 1);
  Path step = folder / "step-00000001";
  for (bool resumes : {false, true}) {
    RunOptions run = options(2, resumes);
    run.checkpoint = step;
    EXPECT_THAT(
        resume(samplePlan({}), run).error,
        HasSubstr(fmt::format("is one checkpoint, and --checkpoint names the folder of all; give --checkpoint {}/ "
                              "--resume to go on with the newest, or --load {}",
                              folder.string(), step.string())));
    EXPECT_FALSE(fs::exists(step / ".lock"));
  }
}

// Without --load, a run would ignore these weights, start from initial values and write its checkpoints beside them.
TEST_F(Checkpoint, RejectsFoldersOfOtherPrograms) {
  for (auto [file, program] : {std::pair("model.safetensors", "transformers"),
                               {"model-00001-of-00002.safetensors", "transformers"},
                               {"pytorch_model.bin", "transformers"},
                               {"adapter_model.safetensors", "transformers"},
                               {"latest_checkpointed_iteration.txt", "Megatron"},
                               {"__0_0.distcp", "Megatron"}}) {
    fs::remove_all(folder);
    fs::create_directories(folder);
    write(folder / file, "");
    EXPECT_THAT(
        resume(samplePlan({}), options(1)).error,
        HasSubstr(fmt::format("holds weights of {}, among which a run writes no checkpoints; give --load", program)))
        << file;
    EXPECT_EQ(std::distance(fs::directory_iterator(folder), fs::directory_iterator()), 1) << file;
  }
  fs::remove_all(folder);
  fs::create_directories(folder);
  write(folder / "gradients.safetensors", ""); // the file that --dump-gradients writes
  EXPECT_EQ(resume(samplePlan({}), options(1)).error, "");
}

struct Change {
  const char *name;
  std::function<void(pb::Plan &)> make;
  std::string message; ///< the start of the message that asks for --accept-changes
};

class ChangedTraining : public CheckpointTest, public testing::WithParamInterface<Change> {};

// A change to the mathematics of the training needs --accept-changes. The run then continues with the new settings.
TEST_P(ChangedTraining, NeedsAcceptChanges) {
  train({}, 2);
  pb::Plan plan = samplePlan({});
  GetParam().make(plan);
  RunOptions run = options(3, /*resume=*/true);
  Resumed refused = resume(plan, run);
  EXPECT_THAT(refused.error, HasSubstr(GetParam().message));
  EXPECT_THAT(refused.error, HasSubstr("--accept-changes"));
  EXPECT_TRUE(refused.result.steps.empty());
  run.acceptChanges = true;
  Resumed accepted = resume(plan, run);
  EXPECT_EQ(accepted.error, "");
  EXPECT_THAT(accepted.aloud, HasSubstr("accepted: " + GetParam().message));
  ASSERT_EQ(accepted.result.steps.size(), 1u);
  EXPECT_EQ(accepted.result.steps[0].step, 3);
}

const Change changes[] = {
    {"batch", [](pb::Plan &plan) { plan = samplePlan({.microBatches = 2}); },
     "batch: 8 samples of 12 tokens there, 4 samples of 12 tokens now"},
    {"seed", [](pb::Plan &plan) { plan.mutable_settings()->set_seed(8); }, "seed: 7 there, 8 now"},
    {"learningRate", [](pb::Plan &plan) { plan.mutable_settings()->mutable_learning_rate()->set_peak(0.02); },
     "learning rate: constant 0.01 there, constant 0.02 now"},
    {"schedule", [](pb::Plan &plan) { plan.mutable_settings()->mutable_learning_rate()->set_kind("linear"); },
     "learning rate: constant 0.01 there, linear from 0.01"},
    {"types", [](pb::Plan &plan) { plan.mutable_identity()->set_types("parameters f16"); },
     "types: not known there, parameters f16 now"},
    {"dropout", [](pb::Plan &plan) { plan.mutable_identity()->set_dropout("x 0.1"); }, "dropout: not known there"},
    {"optimizer", [](pb::Plan &plan) { plan.mutable_settings()->set_beta2(0.95); }, "optimizer: beta1 0.9, beta2 0.99"},
    {"lossScale", [](pb::Plan &plan) { plan = samplePlan({.dynamicScale = true}); }, "loss scale: 1 there, from"},
};

INSTANTIATE_TEST_SUITE_P(Terms, ChangedTraining, testing::ValuesIn(changes),
                         [](const auto &info) { return info.param.name; });

TEST_F(Checkpoint, AnotherDataSetNeedsAcceptChanges) {
  train({}, 1);
  RunOptions run = options(2, /*resume=*/true);
  run.dataset = sampleData(12, 41);
  EXPECT_THAT(resume(samplePlan({}), run).error, HasSubstr("data: 40 samples in memory there, 41 samples"));
}

TEST_F(Checkpoint, AnotherModelIsAlwaysRejected) {
  train({}, 1);
  RunOptions run = options(2, /*resume=*/true);
  run.acceptChanges = true;
  pb::Plan activation = samplePlan({});
  activation.mutable_identity()->set_model("another digest");
  EXPECT_THAT(resume(activation, run).error,
              HasSubstr("another model: its parameters are the same, but its computation differs"));
  EXPECT_THAT(resume(samplePlan({.layers = 4}), run).error, HasSubstr("it has no parameter 'block.3.weight'"));
  EXPECT_THAT(resume(samplePlan({.layers = 2}), run).error, HasSubstr("the plan has no parameter 'block.2."));
  run.dataset = sampleData(8, 40);
  EXPECT_THAT(resume(samplePlan({.features = 8}), run).error,
              HasSubstr("parameter 'embed.weight' is [12] there, [8] here"));
}

// Changing the layout (micro-batches, recomputation, schedule, threads) needs no --accept-changes.
TEST_F(Checkpoint, LayoutChangesNeedNoAcceptChanges) {
  train({}, 1);
  pb::Plan plan = samplePlan({.samples = 4, .microBatches = 2});
  plan.mutable_settings()->set_recompute("full");
  plan.mutable_settings()->set_schedule("gpipe");
  RunOptions run = options(2, /*resume=*/true);
  run.threads = 2;
  EXPECT_EQ(resume(plan, run).error, "");
}

TEST_F(Checkpoint, NotesAnotherLengthOfTheRateSchedule) {
  pb::Plan plan = samplePlan({});
  plan.mutable_settings()->mutable_learning_rate()->set_kind("linear");
  runPlan(Program(plan), options(2));
  EXPECT_THAT(resume(plan, options(4, /*resume=*/true)).aloud, HasSubstr("covered 2 steps and covers 4 now"));
  EXPECT_THAT(resume(plan, options(4, /*resume=*/true)).aloud, testing::Not(HasSubstr("covered")));
}

// With --accept-changes, a run with f32 weights loads bf16 weights.
TEST_F(Checkpoint, AcceptedTypesAreConverted) {
  train({}, 2);
  std::map<std::string, std::vector<float>> before = train({}, 3, /*resume=*/true).parameters[0];
  write(folder / "latest", "step-00000002\n");
  Path shard = folder / "step-00000002" / "rank-00000.safetensors";
  // Rewrites the checkpoint with bf16 values by hand, because the toy model's kernels support only f32.
  Manifest manifest = readManifest(shard.parent_path());
  ASSERT_EQ(manifest.shards.size(), 1u);
  SafetensorsFile old(shard);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<TensorEntry> entries;
  uint64_t end = 0;
  for (StoredPiece &stored : manifest.shards[0].pieces) {
    Piece &piece = stored.piece;
    std::vector<std::byte> values = old.tensor(piece.kind + "/" + piece.name, piece.bytes());
    if (piece.kind == "value") {
      std::vector<std::byte> narrow(values.size() / 2);
      for (int64_t i = 0; i < piece.end; ++i)
        storeElement(pb::BF16, narrow.data(), i, loadElement(pb::F32, values.data(), i));
      values = narrow;
      piece.type = pb::BF16;
    }
    stored.at = end;
    stored.checksum = checksumText(values);
    entries.push_back({piece.kind + "/" + piece.name, piece.type, piece.sizes, end, values.size()});
    end += values.size();
    bytes.push_back(values);
  }
  std::string text = safetensorsHeader(entries, {});
  manifest.shards[0].headerBytes = text.size();
  manifest.shards[0].headerChecksum = checksumText(std::as_bytes(std::span(text)));
  manifest.shards[0].bytes = text.size() + end;
  for (const std::vector<std::byte> &values : bytes)
    text.append(reinterpret_cast<const char *>(values.data()), values.size());
  write(shard, text);
  write(shard.parent_path() / "manifest.json", manifestText(manifest));
  Resumed resumed = resume(3);
  ASSERT_EQ(resumed.error, "");
  for (const auto &[name, values] : resumed.result.parameters[0])
    for (size_t i = 0; i < values.size(); ++i)
      EXPECT_NEAR(values[i], before.at(name)[i], 0.01 * std::abs(before.at(name)[i]) + 1e-3) << name << i;
}

/// Returns the files of a checkpoint and the pointer to the checkpoint.
std::vector<fs::path> filesOf(const fs::path &checkpoint) {
  std::vector<fs::path> files = {checkpoint.parent_path() / "latest"};
  for (const auto &entry : fs::directory_iterator(checkpoint))
    files.push_back(entry.path());
  return files;
}

TEST_F(Checkpoint, DetectsEveryFlippedByte) {
  train({.layers = 1, .features = 4}, 1);
  fs::path checkpoint = folder / "step-00000001";
  ASSERT_TRUE(faults(checkpoint).empty());
  for (const fs::path &file : filesOf(checkpoint)) {
    for (size_t byte = 0; byte < fs::file_size(file); ++byte) {
      flip(file, byte);
      EXPECT_FALSE(faults(checkpoint).empty() && latestFault(folder).empty()) << file << ' ' << byte;
      flip(file, byte);
    }
    EXPECT_TRUE(faults(checkpoint).empty() && latestFault(folder).empty()) << file;
  }
}

// If any part of the newest checkpoint is damaged, the run reports the damage and resumes from the previous checkpoint.
// The run ends with the same result as an uninterrupted run.
TEST_F(Checkpoint, ReportsDamageAndFallsBack) {
  RunResult straight = train({}, 5, /*resume=*/false, /*saveEvery=*/2);
  fs::remove_all(folder / "step-00000005");
  write(folder / "latest", "step-00000004\n");
  fs::path checkpoint = folder / "step-00000004", shard = checkpoint / "rank-00000.safetensors";
  std::string good = read(shard), manifest = read(checkpoint / "manifest.json");
  std::vector<std::pair<const char *, std::function<void()>>> damages = {
      {"a flipped byte of a tensor", [&] { flip(shard, good.size() - 3); }},
      {"a flipped byte of the header", [&] { flip(shard, 20); }},
      {"a block of zeros", [&] { write(shard, good.substr(0, good.size() - 64) + std::string(64, '\0')); }},
      {"a cut shard", [&] { fs::resize_file(shard, good.size() - 8); }},
      {"no shard", [&] { fs::remove(shard); }},
      {"a shard of another step",
       [&] {
         fs::copy_file(folder / "step-00000002" / shard.filename(), shard, fs::copy_options::overwrite_existing);
       }},
      {"a link in place of a shard",
       [&] {
         fs::rename(shard, folder / "elsewhere");
         fs::create_symlink(folder / "elsewhere", shard);
       }},
      {"a flipped byte of the manifest", [&] { flip(checkpoint / "manifest.json", 100); }},
      {"an empty manifest", [&] { write(checkpoint / "manifest.json", ""); }},
      {"no manifest", [&] { fs::remove(checkpoint / "manifest.json"); }},
  };
  for (const auto &[name, damage] : damages) {
    damage();
    Resumed resumed = resume(4);
    EXPECT_EQ(resumed.error, "") << name;
    EXPECT_THAT(resumed.aloud, testing::ContainsRegex("(going back to|continuing with) step-00000002")) << name;
    ASSERT_EQ(resumed.result.steps.size(), 2u) << name;
    EXPECT_EQ(resumed.result.steps[1].loss, straight.steps[3].loss) << name;
    EXPECT_EQ(latest(), "step-00000004-2") << name;
    // Restores the checkpoint for the next case.
    fs::remove_all(folder / "step-00000004-2");
    fs::remove(shard);
    write(shard, good);
    write(checkpoint / "manifest.json", manifest);
    write(folder / "latest", "step-00000004\n");
    EXPECT_TRUE(faults(checkpoint).empty()) << name;
  }
}

TEST_F(Checkpoint, ReportsADamagedPointerAndUsesTheNewest) {
  train({}, 4, /*resume=*/false, /*saveEvery=*/2);
  std::string name = read(folder / "latest");
  name[name.find('4')] = '2'; // names another checkpoint, whose manifest has another checksum
  write(folder / "latest", name);
  Resumed resumed = resume(5);
  EXPECT_THAT(resumed.aloud, HasSubstr("its checksum is not that of step-00000002; continuing with step-00000004"));
  EXPECT_EQ(resumed.result.steps.size(), 1u);
  write(folder / "latest", "../step-00000002\n");
  EXPECT_THAT(resume(6).aloud, HasSubstr("names no checkpoint; continuing with step-00000005"));
  fs::remove(folder / "latest");
  EXPECT_THAT(resume(7).aloud, HasSubstr("continuing with step-00000006"));
}

TEST_F(Checkpoint, RejectsTheRunWithoutAValidCheckpoint) {
  train({.dp = 2, .microBatches = 2}, 4, /*resume=*/false, /*saveEvery=*/2);
  for (int step : {2, 4}) {
    fs::path shard = folder / fmt::format("step-{:08}", step) / "rank-00000.safetensors";
    flip(shard, read(shard).size() - 1); // the rank that reads the byte finds the damage
  }
  Resumed resumed = resume(samplePlan({.dp = 2, .microBatches = 2}), options(5, /*resume=*/true));
  EXPECT_THAT(resumed.error, HasSubstr("holds no complete checkpoint: step-00000002, step-00000004"));
  EXPECT_THAT(resumed.aloud, HasSubstr("does not fit its checksum; going back to step-00000002"));
  EXPECT_THAT(resumed.aloud, HasSubstr("there is none before it"));
}

} // namespace
} // namespace espalier::rt
