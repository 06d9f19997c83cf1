// Attention within the documents of a sample: a packed sample trains like its documents alone.
#include "test/equivalence/splits.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

using Samples = std::vector<std::vector<int32_t>>;

/// Samples that are given as tokens. Short samples are padded; padding has no loss.
class GivenSamples final : public rt::Dataset {
public:
  GivenSamples(const rt::DatasetOptions &options, Samples samples) : Dataset(options), samples(std::move(samples)) {}

  int64_t sampleCount() const override { return static_cast<int64_t>(samples.size()); }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    std::ranges::fill(out, -1);
    std::ranges::copy(samples[static_cast<size_t>(i)], out.begin());
  }

private:
  Samples samples;
};

constexpr int32_t end = 32;

/// Returns four samples of two documents each, and four empty samples.
Samples packedSamples() {
  Samples samples(8);
  for (int32_t i = 0; i < 4; ++i)
    samples[i] = {40 + i, 90 - i, end, 50 + 7 * i, 60 + i, 70 - 3 * i, 80 + i, end, end};
  return samples;
}

/// Returns the eight documents of packedSamples().
Samples documentsAlone() {
  Samples samples;
  for (const std::vector<int32_t> &packed : packedSamples())
    if (!packed.empty()) {
      samples.emplace_back(packed.begin(), packed.begin() + 3);
      samples.emplace_back(packed.begin() + 3, packed.begin() + 8);
    }
  return samples;
}

/// Trains one step.
TrainingRecord train(const std::vector<std::string> &sets, const SplitCase &split, Samples samples) {
  RunConfig run = equivalenceRun("llama", sets);
  const auto options = equivalenceData(run)->options();
  return trainCompiled(run, planOf(run, split), 1, 1, "cpu",
                       std::make_shared<GivenSamples>(options, std::move(samples)));
}

/// Returns settings without a limit of attention and positions.
std::vector<std::string> unlimited() { return {"train_dataset.data_loader.config={eod: 32, eod_mask_loss: True}"}; }

TEST(Documents, PackedTrainLikeDocumentsAlone) {
  TrainingRecord alone = train(unlimited(), {}, documentsAlone());
  for (const SplitCase &split :
       {SplitCase{}, SplitCase{.name = "", .dp = 2, .tp = 2, .cp = 2, .microBatches = 2, .sequenceParallel = true},
        SplitCase{.name = "", .cp = 4, .microBatches = 2, .zigzag = true}}) {
    TrainingRecord packed = train(documentSets(), split, packedSamples());
    ASSERT_EQ(packed.losses.size(), 1u);
    EXPECT_NEAR(packed.losses[0], alone.losses[0], 1e-5 * alone.losses[0]);
    EXPECT_EQ(compareGradients(alone.gradients[0], packed.gradients[0]), "");
  }
}

/// Without the limits, documents of a sample change each other's loss.
TEST(Documents, PackedWithoutLimitsDiffer) {
  double alone = train(unlimited(), {}, documentsAlone()).losses.at(0);
  EXPECT_GT(std::abs(train(unlimited(), {}, packedSamples()).losses.at(0) - alone), 1e-4 * alone);
  std::vector<std::string> onlyPositions = unlimited();
  onlyPositions.push_back("train_dataset.data_loader.config.reset_position_ids=True");
  EXPECT_GT(std::abs(train(onlyPositions, {}, packedSamples()).losses.at(0) - alone), 1e-4 * alone);
}

TEST(Documents, CompiledAndInterpretedAgree) {
  for (const char *model : {"gpt2", "llama"}) {
    RunConfig run = equivalenceRun(model, documentSets());
    TrainingRecord compiled = trainCompiled(run, planOf(run, {}), 3),
                   interpreted = trainInterpreted(run, planOf(run, {}), 3);
    ASSERT_EQ(compiled.losses.size(), 3u);
    for (size_t step = 0; step < 3; ++step) {
      EXPECT_NEAR(compiled.losses[step], interpreted.losses[step], 1e-5 * interpreted.losses[step]) << model;
      EXPECT_EQ(compareGradients(interpreted.gradients[step], compiled.gradients[step]), "") << model;
    }
  }
}

/// The bound is that of precision_test.cpp.
TEST(Documents, InBf16FollowSinglePrecision) {
  std::vector<std::string> sets = documentSets(),
                           storage = {"model.model_config.param_init_type=bfloat16",
                                      "model.model_config.compute_dtype=bfloat16", "optimizer.master_weights=True"};
  RunConfig single = equivalenceRun("llama", sets);
  sets.insert(sets.end(), storage.begin(), storage.end());
  RunConfig run = equivalenceRun("llama", sets);
  TrainingRecord expected = trainCompiled(single, planOf(single, {}), 3),
                 actual = trainCompiled(run, planOf(run, {}), 3);
  ASSERT_EQ(actual.losses.size(), 3u);
  for (size_t step = 0; step < 3; ++step)
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 8 * 0x1p-8 * expected.losses[step]) << "step " << step;
}

} // namespace
} // namespace espalier
