// GPU plans on the emulated device against the unsplit model on the CPU: losses and every gradient. Ranks are threads
// of this process, which therefore sees all gradients. ESPALIER_EMULATED_ALL runs the whole suite instead of a
// selection.
#include "test/equivalence/emulated_rows.h"

#include <cstdlib>
#include <gtest/gtest.h>
#include <map>

namespace espalier {
namespace {

constexpr int64_t steps = 3;

// Each rank has its own device.
[[maybe_unused]] const int devices = setenv("ESPALIER_EMULATOR_DEVICES", "16", /*overwrite=*/1);

/// Returns the record of the unsplit model on the CPU, trained once for all rows.
const TrainingRecord &unsplit(const EmulatedRow &row) {
  static std::map<std::pair<std::string, std::vector<std::string>>, TrainingRecord> records;
  auto [entry, isNew] = records.try_emplace({row.file, row.sets});
  if (isNew) {
    RunConfig run = runOf(row);
    entry->second = trainCompiled(run, planOf(run, {}), steps);
  }
  return entry->second;
}

class Emulated : public testing::TestWithParam<EmulatedRow> {};

TEST_P(Emulated, TrainsLikeTheCpu) {
  RunConfig run = runOf(GetParam());
  const TrainingRecord &expected = unsplit(GetParam());
  TrainingRecord actual = trainCompiled(run, planOf(run, GetParam().split), steps, 1, "cuda");
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-4 * expected.norms[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
  }
}

std::string nameOf(const testing::TestParamInfo<EmulatedRow> &info) { return info.param.name; }

INSTANTIATE_TEST_SUITE_P(Plans, Emulated, testing::ValuesIn(planRows()), nameOf);
INSTANTIATE_TEST_SUITE_P(Splits, Emulated, testing::ValuesIn(splitRows()), nameOf);

std::vector<EmulatedRow> rowsWanted() {
  return std::getenv("ESPALIER_EMULATED_ALL") ? allRows() : std::vector<EmulatedRow>();
}

INSTANTIATE_TEST_SUITE_P(All, Emulated, testing::ValuesIn(rowsWanted()), nameOf);

class EmulatedStorage : public testing::TestWithParam<std::string> {};

/// The bounds in roundings of the storage type are those of precision_test.cpp and experts_test.cpp.
TEST_P(EmulatedStorage, FollowsSinglePrecision) {
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  for (auto [file, roundings] : {std::pair("gpt2", 8), {"llama", 8}, {"mixtral", 16}}) {
    RunConfig run = runOf({"", file, storageSets(GetParam()), {}});
    const TrainingRecord &expected = unsplit({"", file, {}, {}});
    TrainingRecord actual = trainCompiled(run, planOf(run, {.microBatches = 2}), steps, 1, "cuda");
    ASSERT_EQ(actual.losses.size(), expected.losses.size());
    for (size_t step = 0; step < expected.losses.size(); ++step)
      EXPECT_NEAR(actual.losses[step], expected.losses[step], roundings * unit * expected.losses[step])
          << file << ", step " << step;
  }
}

/// Ranks add in the storage type, with one rounding per rank.
TEST_P(EmulatedStorage, FollowsSinglePrecisionOnSeveralRanks) {
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  RunConfig run = runOf({"", "llama", storageSets(GetParam()), {}});
  const TrainingRecord &expected = unsplit({"", "llama", {}, {}});
  SplitCase split = {.dp = 2, .tp = 2, .microBatches = 2, .zero = 1, .sequenceParallel = true};
  TrainingRecord actual = trainCompiled(run, planOf(run, split), steps, 1, "cuda");
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step)
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 8 * unit * expected.losses[step]) << "step " << step;
  TrainingRecord again = trainCompiled(run, planOf(run, split), steps, 1, "cuda");
  EXPECT_EQ(again.losses, actual.losses);
  EXPECT_EQ(again.gradients, actual.gradients);
}

/// Gradients are accumulated and summed in the storage type, too: the GPU rounds where the CPU does, and the losses
/// have the same bounds.
TEST_P(EmulatedStorage, AccumulatesGradientsInTheType) {
  double unit = GetParam() == "bfloat16" ? 0x1p-8 : 0x1p-11;
  std::vector<std::string> sets = storageSets(GetParam());
  sets.push_back("parallel.gradient_fp32_sync=False");
  for (const auto &[file, roundings, split] :
       {std::tuple("gpt2", 8, SplitCase{.microBatches = 2}), std::tuple("mixtral", 16, SplitCase{.microBatches = 2}),
        std::tuple("llama", 8, SplitCase{.dp = 2, .tp = 2, .microBatches = 2, .zero = 2, .sequenceParallel = true})}) {
    RunConfig run = runOf({"", file, sets, {}});
    const TrainingRecord &expected = unsplit({"", file, {}, {}});
    TrainingRecord actual = trainCompiled(run, planOf(run, split), steps, 1, "cuda");
    ASSERT_EQ(actual.losses.size(), expected.losses.size());
    EXPECT_NEAR(actual.norms[0], expected.norms[0], roundings * unit * expected.norms[0]) << file;
    for (size_t step = 0; step < expected.losses.size(); ++step)
      EXPECT_NEAR(actual.losses[step], expected.losses[step], roundings * unit * expected.losses[step])
          << file << ", step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(Types, EmulatedStorage, testing::Values("bfloat16", "float16"),
                         [](const auto &info) { return info.param; });

} // namespace
} // namespace espalier
