// Supervised fine-tuning: a loss mask beside the tokens says which predictions count. Every kind of plan trains like
// the unsplit model, although samples, slices of a sequence and micro-batches have unequal numbers of tokens that
// count, or none.
#include "test/equivalence/splits.h"

#include "runtime/dataset/indexed_dataset.h"
#include "runtime/dataset/indexed_writer.h"

#include <filesystem>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <numeric>
#include <unistd.h>

namespace espalier {
namespace {

constexpr int64_t steps = 4, batch = 8;

/// Writes conversations: a prompt, then an answer whose tokens count. Every fourth one has no answer, and answers have
/// 1 to 13 tokens.
void writeConversations(const std::string &prefix) {
  rt::IndexedWriter tokens(prefix, rt::TokenType::u16), mask(rt::lossMaskPrefix(prefix), rt::TokenType::u8);
  for (int32_t i = 0; i < 60; ++i) {
    int32_t prompt = 5 + i * 7 % 11, answer = i % 4 == 3 ? 0 : 1 + i * 5 % 13;
    std::vector<int32_t> text, counts;
    for (int32_t k = 0; k < prompt + answer; ++k) {
      text.push_back((i * 31 + k * k * 7 + k) % 250);
      counts.push_back(k >= prompt);
    }
    tokens.addTokens(text);
    tokens.endDocument();
    mask.addTokens(counts);
    mask.endDocument();
  }
  tokens.commit();
  mask.commit();
}

std::shared_ptr<const rt::Dataset> conversations(const RunConfig &run) {
  const std::string prefix = std::filesystem::path(testing::TempDir()) /
                             fmt::format("conversations_{}_{}", run.model.dims.at("seq"), getpid());
  static std::map<std::string, std::shared_ptr<const rt::Dataset>> opened;
  std::shared_ptr<const rt::Dataset> &dataset = opened[prefix];
  if (!dataset) {
    writeConversations(prefix);
    dataset = rt::openDataset(prefix, equivalenceData(run)->options());
    for (const std::string &each : {prefix, rt::lossMaskPrefix(prefix)})
      for (const char *suffix : {".idx", ".bin"})
        std::filesystem::remove(each + suffix);
  }
  return dataset;
}

int64_t countedTokens(const rt::Dataset &data, int64_t sample) {
  std::vector<float> weights = data.sample(sample).lossWeights;
  return std::lround(std::accumulate(weights.begin(), weights.end(), 0.0F));
}

/// Returns the record of the unsplit model, trained once for all cases.
const TrainingRecord &unsplit(const Model &model) {
  static std::map<std::string, TrainingRecord> records;
  auto [entry, isNew] = records.try_emplace(model.name);
  if (isNew) {
    RunConfig run = equivalenceRun(model.file, model.sets);
    entry->second = trainInterpreted(run, planOf(run, {}), steps, conversations(run));
  }
  return entry->second;
}

void expectEqual(const TrainingRecord &actual, const TrainingRecord &expected) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (size_t step = 0; step < expected.losses.size(); ++step) {
    EXPECT_NEAR(actual.losses[step], expected.losses[step], 1e-5 * expected.losses[step]) << "step " << step;
    EXPECT_NEAR(actual.norms[step], expected.norms[step], 1e-4 * expected.norms[step]) << "step " << step;
    EXPECT_EQ(compareGradients(expected.gradients[step], actual.gradients[step]), "") << "step " << step;
  }
}

class Answers : public testing::TestWithParam<std::tuple<Model, SplitCase>> {};

TEST_P(Answers, CompiledTrainLikeTheUnsplitModel) {
  const auto &[model, split] = GetParam();
  RunConfig run = equivalenceRun(model.file, model.sets);
  expectEqual(trainCompiled(run, planOf(run, split), steps, 1, "cpu", conversations(run)), unsplit(model));
}

TEST_P(Answers, InterpretedTrainLikeTheUnsplitModel) {
  const auto &[model, split] = GetParam();
  RunConfig run = equivalenceRun(model.file, model.sets);
  expectEqual(trainInterpreted(run, planOf(run, split), steps, conversations(run)), unsplit(model));
}

std::string nameOf(const testing::TestParamInfo<Answers::ParamType> &info) {
  return std::get<0>(info.param).name + "_" + std::get<1>(info.param).name;
}

const Model llama = {"llama", "llama", {}};
const Model adapters = {"llama_adapters",
                        "llama",
                        {"model.model_config.pet_config={pet_type: lora, lora_rank: 4, lora_alpha: 8, lora_dropout: 0, "
                         "target_modules: '.*wq|.*wv'}"}};

INSTANTIATE_TEST_SUITE_P(
    Plans, Answers,
    testing::Combine(testing::Values(llama, adapters),
                     testing::Values(SplitCase{.name = "accumulate8", .microBatches = 8},
                                     SplitCase{.name = "dp4_accumulate2", .dp = 4, .microBatches = 2},
                                     SplitCase{.name = "dp2_zero1", .dp = 2, .microBatches = 2, .zero = 1},
                                     SplitCase{.name = "dp2_zero2", .dp = 2, .microBatches = 4, .zero = 2},
                                     SplitCase{.name = "dp4_zero3_full",
                                               .dp = 4,
                                               .microBatches = 2,
                                               .zero = 3,
                                               .recompute = planner::Recompute::Full},
                                     SplitCase{.name = "cp2", .cp = 2},
                                     SplitCase{.name = "cp4_accumulate8", .cp = 4, .microBatches = 8},
                                     SplitCase{.name = "dp2_cp2_zero2", .dp = 2, .cp = 2, .microBatches = 2, .zero = 2},
                                     SplitCase{.name = "tp2_sp", .tp = 2, .sequenceParallel = true},
                                     SplitCase{.name = "pp3", .pp = 3, .microBatches = 8},
                                     SplitCase{.name = "dp2_tp2_pp2_zero3_sp",
                                               .dp = 2,
                                               .tp = 2,
                                               .pp = 2,
                                               .microBatches = 4,
                                               .zero = 3,
                                               .sequenceParallel = true})),
    nameOf);

/// The load-balancing loss counts the same tokens.
INSTANTIATE_TEST_SUITE_P(
    ExpertPlans, Answers,
    testing::Combine(testing::Values(Model{"mixtral", "mixtral", {}}),
                     testing::Values(SplitCase{.name = "dp2_ep2", .dp = 2, .ep = 2},
                                     SplitCase{.name = "ep2_zero3", .ep = 2, .microBatches = 4, .zero = 3},
                                     SplitCase{.name = "pp2", .pp = 2, .microBatches = 8})),
    nameOf);

/// A part of the samples has no token that counts, and the others have unequally many.
TEST(Answers, CountUnequally) {
  std::shared_ptr<const rt::Dataset> data = conversations(equivalenceRun("llama"));
  std::set<int64_t> counts;
  for (int64_t i = 0; i < steps * batch; ++i)
    counts.insert(countedTokens(*data, i));
  EXPECT_THAT(counts, testing::Contains(0));
  EXPECT_GE(counts.size(), 4U);
}

/// One sample of each batch counts, the others do not.
class OneSample final : public rt::Dataset {
public:
  OneSample(std::shared_ptr<const rt::Dataset> of, int64_t index)
      : Dataset(of->options()), all(std::move(of)), index(index) {}
  int64_t sampleCount() const override { return all->sampleCount(); }
  void readTokens(int64_t i, std::span<int32_t> out) const override { all->readTokens(i, out); }
  bool readLossMask(int64_t i, std::span<int32_t> out) const override {
    bool isMasked = all->readLossMask(i, out);
    if (i % batch != index)
      std::ranges::fill(out, 0);
    return isMasked;
  }

private:
  std::shared_ptr<const rt::Dataset> all;
  int64_t index;
};

/// The loss of a step is the mean over all tokens of answers, and not over samples or micro-batches.
TEST(Answers, TheLossIsTheMeanOverTheirTokens) {
  RunConfig run = equivalenceRun("llama");
  std::shared_ptr<const rt::Dataset> data = conversations(run);
  double sum = 0, tokens = 0;
  for (int64_t i = 0; i < batch; ++i)
    if (int64_t counted = countedTokens(*data, i)) {
      TrainingRecord alone = trainCompiled(run, planOf(run, {}), 1, 1, "cpu", std::make_shared<OneSample>(data, i));
      sum += alone.losses.at(0) * counted;
      tokens += counted;
    }
  EXPECT_NEAR(unsplit(llama).losses.at(0), sum / tokens, 1e-5 * sum / tokens);
  TrainingRecord split = trainCompiled(run, planOf(run, {.dp = 4, .microBatches = 2, .zero = 2}), 1, 1, "cpu", data);
  EXPECT_NEAR(split.losses.at(0), sum / tokens, 1e-5 * sum / tokens);
}

} // namespace
} // namespace espalier
