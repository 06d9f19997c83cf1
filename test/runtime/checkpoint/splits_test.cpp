// A run may resume under a plan with another split. Each rank reads only the parts of the stored boxes that it needs.
#include "runtime/checkpoint/sources.h"
#include "test/runtime/checkpoint/checkpoint_fixture.h"

namespace espalier::rt {
namespace {

using testing::HasSubstr;

/// Returns options with eight samples of 300 features per batch for any split. ZeRO shards of multiples of 128 elements
/// cut through parameters.
SampleOptions splitOf(int dp, int tp, int pp, bool zero) {
  SampleOptions model{.dp = dp, .tp = tp, .pp = pp};
  model.features = 300;
  model.zero = zero;
  model.samples = 1;
  model.microBatches = 8 / dp;
  return model;
}

const SampleOptions splits[] = {splitOf(1, 1, 1, false), splitOf(2, 1, 1, true),  splitOf(4, 1, 1, true),
                                splitOf(1, 3, 1, false), splitOf(1, 1, 3, false), splitOf(2, 2, 2, true),
                                splitOf(2, 2, 2, false)};

std::string nameOf(const SampleOptions &split) {
  return fmt::format("dp{}tp{}pp{}{}", split.dp, split.tp, split.pp, split.zero ? "zero" : "");
}

class AnySplit : public CheckpointTest {
protected:
  RunOptions options(int64_t steps, bool resume) const {
    RunOptions run = CheckpointTest::options(steps, resume);
    run.dataset = sampleData(300, 40);
    return run;
  }
};

// The next steps equal those of an uninterrupted run, up to the order of additions.
TEST_F(AnySplit, ResumesUnderAnyOtherSplit) {
  for (const SampleOptions &written : splits) {
    RunOptions whole = options(6, /*resume=*/false);
    whole.checkpoint.clear();
    RunResult straight = runPlan(Program(samplePlan(written)), whole);
    for (const SampleOptions &read : splits) {
      std::filesystem::remove_all(folder);
      runPlan(Program(samplePlan(written)), options(3, /*resume=*/false));
      Resumed resumed = resume(samplePlan(read), options(6, /*resume=*/true));
      ASSERT_EQ(resumed.error, "") << nameOf(written) << " as " << nameOf(read);
      ASSERT_EQ(resumed.result.steps.size(), 3u);
      for (int i = 0; i < 3; ++i) {
        double expected = straight.steps[3 + i].loss;
        EXPECT_NEAR(resumed.result.steps[i].loss, expected, 1e-5 * expected)
            << nameOf(written) << " as " << nameOf(read) << ", step " << i;
        for (const auto &[name, values] : straight.parameters[3 + i])
          for (size_t k = 0; k < values.size(); ++k)
            ASSERT_NEAR(resumed.result.parameters[i].at(name)[k], values[k], 1e-4 * (1 + std::abs(values[k])))
                << nameOf(written) << " as " << nameOf(read) << ", step " << i << ", " << name << '[' << k << ']';
      }
    }
  }
}

// With a learning rate that is zero in float, a step changes no weight. Each split therefore saves the bits that it
// loaded.
TEST_F(AnySplit, PreservesBitsAcrossSplits) {
  runPlan(Program(samplePlan(splits[0])), options(3, /*resume=*/false));
  Tensors before = runPlan(Program(samplePlan(splits[0])), options(4, /*resume=*/true)).parameters[0];
  int64_t steps = 4;
  for (const SampleOptions &split : splits) {
    SampleOptions still = split;
    still.peakRate = 1e-60;
    RunOptions run = options(++steps, /*resume=*/true);
    run.acceptChanges = true;
    Resumed resumed = resume(samplePlan(still), run);
    ASSERT_EQ(resumed.error, "") << nameOf(split);
    EXPECT_EQ(resumed.result.parameters.at(0), before) << nameOf(split);
  }
}

/// Returns the bytes that a rank of `program` reads from a checkpoint, and the bytes that it needs.
std::pair<uint64_t, uint64_t> bytesOf(const Sources &sources, const Program &program, int rank) {
  uint64_t read = 0, needed = 0;
  for (const HeldPiece &held : heldPieces(program, rank)) {
    needed += held.piece.bytes();
    for (const Take &take : sources.takesFor(held.piece))
      for (ByteRange range : take.bytesRead())
        read += range.end - range.begin;
  }
  return {read, needed};
}

// If pieces are merged or stages change, ranks read exactly the bytes that they hold.
TEST_F(AnySplit, ReadsOnlyTheBytesOfTheRank) {
  runPlan(Program(samplePlan(splitOf(4, 1, 1, true))), options(1, /*resume=*/false));
  Manifest manifest = readManifest(folder / "step-00000001");
  Sources sources(manifest, "c");
  for (const SampleOptions &split : {splitOf(1, 1, 1, false), splitOf(4, 1, 1, true), splitOf(1, 1, 3, false)}) {
    Program program(samplePlan(split));
    for (int rank = 0; rank < program.mesh().ranks(); ++rank) {
      auto [read, needed] = bytesOf(sources, program, rank);
      EXPECT_EQ(read, needed) << nameOf(split) << ", rank " << rank;
    }
  }
}

// A piece without block checksums is read as a whole. Ranks read no tensors of other stages.
TEST_F(AnySplit, ReadsNoPieceOfOtherStages) {
  runPlan(Program(samplePlan(splits[0])), options(1, /*resume=*/false));
  Manifest manifest = readManifest(folder / "step-00000001");
  Sources sources(manifest, "c");
  Program program(samplePlan(splitOf(1, 2, 3, false)));
  for (int rank = 0; rank < program.mesh().ranks(); ++rank)
    EXPECT_LT(bytesOf(sources, program, rank).first, manifest.bytes() * 3 / 4) << rank;
}

TEST_F(AnySplit, ReportsAMissingTensor) {
  runPlan(Program(samplePlan(splits[0])), options(1, /*resume=*/false));
  Path checkpoint = folder / "step-00000001";
  Manifest manifest = readManifest(checkpoint);
  for (StoredPiece &stored : manifest.shards[0].pieces)
    if (stored.piece.kind == "moment1" && stored.piece.name == "embed.weight")
      stored.piece.kind = "momentum";
  write(checkpoint / "manifest.json", manifestText(manifest));
  write(folder / "latest", "step-00000001\n");
  EXPECT_THAT(resume(samplePlan(splits[1]), options(2, /*resume=*/true)).error,
              HasSubstr("cannot be continued: it has no moment1 of 'embed.weight'"));
}

} // namespace
} // namespace espalier::rt
