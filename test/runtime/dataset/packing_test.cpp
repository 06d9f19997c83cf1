// Tests balanced packing: the balance of attention work, the completeness of an epoch, and the order of samples.
#include "runtime/dataset/packing.h"

#include "format/zigzag.h"
#include "messages/data_error.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/indexed_writer.h"
#include "runtime/dataset/sampler.h"
#include "test/runtime/tokenizer/golden.h"

#include <cmath>
#include <gmock/gmock.h>
#include <map>
#include <random>

namespace espalier::rt {
namespace {

using namespace test;
using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr int32_t endOfDocument = 50000;

/// Returns lengths with a heavy tail: the logarithm is normal.
std::vector<int32_t> heavyTailed(int count, double mean, double deviation) {
  std::mt19937 random(7);
  std::vector<int32_t> lengths;
  for (int i = 0; i < count; ++i) {
    // Box and Muller, because std::lognormal_distribution differs between libraries
    double u = (random() + 1.0) / 4294967297.0, v = random() / 4294967296.0;
    double normal = std::sqrt(-2 * std::log(u)) * std::cos(2 * M_PI * v);
    lengths.push_back(std::max(2, static_cast<int32_t>(std::exp(mean + deviation * normal))));
  }
  return lengths;
}

/// Writes documents whose tokens are numbers that count through the file, and an end of document each.
void writeDocuments(const std::string &prefix, std::span<const int32_t> lengths, TokenType type = TokenType::i32) {
  IndexedWriter writer(prefix, type);
  int32_t token = endOfDocument + 1;
  for (int32_t length : lengths) {
    std::vector<int32_t> tokens(length, endOfDocument);
    for (int32_t k = 0; k + 1 < length; ++k)
      tokens[k] = token++;
    writer.addTokens(tokens);
    writer.endDocument();
  }
  writer.commit();
}

DatasetOptions packedOptions(int64_t seqLength, int64_t batch) {
  DatasetOptions options;
  options.seqLength = seqLength;
  options.split = Split::all;
  options.eodToken = endOfDocument;
  options.resetPositionIds = options.resetAttentionMask = true;
  options.balancedBatch = batch;
  return options;
}

/// The attention work of all steps by rank: works[step][replica][context rank], counted from the first visible tokens
/// of the samples that the rank reads.
using Works = std::vector<std::vector<std::vector<double>>>;

Works worksOf(const Dataset &set, int64_t batch, const StepSplit &split) {
  Sampler sampler(SampleOrder::single, set.sampleCount(), batch);
  Works works;
  const int64_t chunk = set.seqLength() / (2 * split.contextRanks);
  for (int64_t step = 0; step < set.sampleCount() / batch; ++step) {
    works.emplace_back(split.replicas, std::vector<double>(split.contextRanks));
    for (int64_t replica = 0; replica < split.replicas; ++replica)
      for (int64_t micro = 0; micro < batch / split.replicas / split.microBatch; ++micro)
        for (int64_t i = 0; i < split.microBatch; ++i) {
          BatchShare share{split.microBatch, replica, split.replicas};
          Sample sample = set.sample(sampler.at(share.firstPlace(step * batch, micro) + i));
          for (int64_t k = 0; k < set.seqLength(); ++k) {
            int64_t rank = split.isZigzag ? zigzagPart(k / chunk, split.contextRanks) : k / (2 * chunk);
            works[step][replica][rank] += k - sample.visibleFrom[k] + 1;
          }
        }
  }
  return works;
}

double imbalanceOf(const std::vector<double> &works) {
  auto [least, most] = std::ranges::minmax(works);
  return (most - least) / most;
}

/// Returns the mean over the steps of the differences between replicas, and between the context ranks of a replica.
std::pair<double, double> meanImbalance(const Works &works) {
  double replicas = 0, contexts = 0, count = 0;
  for (const auto &step : works) {
    std::vector<double> sums;
    double context = 0;
    for (const std::vector<double> &replica : step) {
      sums.push_back(0);
      for (double work : replica)
        sums.back() += work;
      context += imbalanceOf(replica) / static_cast<double>(step.size());
    }
    replicas += imbalanceOf(sums);
    contexts += context;
    ++count;
  }
  return {replicas / count, contexts / count};
}

/// A corpus with a heavy tail, for seqLength 1024 and a global batch of 16.
class HeavyTail : public testing::Test {
protected:
  void SetUp() override { writeDocuments(scratch.path("set"), heavyTailed(10000, 5.3, 1.0)); }
  std::unique_ptr<Dataset> open(int64_t batch = 16) {
    return openDataset(scratch.path("set"), packedOptions(1024, batch));
  }
  Scratch scratch;
};

TEST_F(HeavyTail, WorkOfReplicasAndContextRanksIsBalanced) {
  auto packed = open();
  auto concatenated = open(0);
  std::map<std::pair<int64_t, int64_t>, std::pair<double, double>> with, without;
  for (int64_t replicas : {1, 2, 4})
    for (int64_t ranks : {1, 2}) {
      StepSplit split{2, replicas, ranks, ranks > 1};
      with[{replicas, ranks}] = meanImbalance(worksOf(*packed, 16, split));
      without[{replicas, ranks}] = meanImbalance(worksOf(*concatenated, 16, split));
      std::printf("dp %ld cp %ld: replicas %.4f (without %.4f), context ranks %.4f (without %.4f)\n", long(replicas),
                  long(ranks), with[{replicas, ranks}].first, without[{replicas, ranks}].first,
                  with[{replicas, ranks}].second, without[{replicas, ranks}].second);
    }
  for (auto &[split, imbalance] : with) {
    EXPECT_LE(imbalance.first, 0.05);
    if (split.first < 4) // the samples of a replica even out, and a sample alone is split at fixed places
      EXPECT_LE(imbalance.second, 0.05);
    EXPECT_LE(imbalance.second, without.at(split).second / 2);
  }
  EXPECT_GE((without[{4, 1}].first), 0.20);
  EXPECT_GE((without[{4, 2}].second), 0.20);
}

TEST_F(HeavyTail, EveryLabelIsReadOnceInAnEpoch) {
  auto set = open();
  std::map<int32_t, int> labels;
  int64_t ends = 0, positions = 0;
  for (int64_t i = 0; i < set->sampleCount(); ++i) {
    Sample sample = set->sample(i);
    for (size_t k = 0; k < sample.labels.size(); ++k) {
      ++positions;
      if (sample.lossWeights[k] == 0)
        continue;
      sample.labels[k] == endOfDocument ? void(++ends) : void(++labels[sample.labels[k]]);
      EXPECT_EQ(sample.positions[k], static_cast<int32_t>(k) - sample.visibleFrom[k]);
      if (sample.labels[k] != endOfDocument)
        ASSERT_EQ(sample.labels[k], sample.tokens[k] + 1); // inside one document
    }
  }
  int64_t tokens = 0, documents = 0;
  for (int32_t length : heavyTailed(10000, 5.3, 1.0)) {
    tokens += length - 2; // neither the first token nor the end of document
    ++documents;
  }
  EXPECT_EQ(ends, documents);
  EXPECT_EQ(std::ssize(labels), tokens);
  for (auto &[label, count] : labels)
    ASSERT_EQ(count, 1) << label;
  EXPECT_GT(static_cast<double>(tokens) / static_cast<double>(positions), 0.9);
  EXPECT_EQ(set->sampleCount() % 16, 0);
}

TEST_F(HeavyTail, OrderDoesNotDependOnTheSplitAndResumes) {
  auto set = open(), again = open();
  ASSERT_EQ(set->sampleCount(), again->sampleCount());
  for (int64_t i = set->sampleCount() - 1; i >= 0; i -= 7) { // the second one begins in the middle
    Sample first = set->sample(i), second = again->sample(i);
    ASSERT_EQ(first.tokens, second.tokens);
    ASSERT_EQ(first.visibleFrom, second.visibleFrom);
  }
  for (int64_t replicas : {1, 2, 4}) {
    std::vector<int64_t> places;
    for (int64_t micro = 0; micro < 16 / replicas; ++micro)
      for (int64_t replica = 0; replica < replicas; ++replica)
        places.push_back(BatchShare{1, replica, replicas}.firstPlace(32, micro));
    std::ranges::sort(places);
    EXPECT_EQ(places.front(), 32);
    EXPECT_EQ(places.back(), 47);
  }
  DatasetOptions other = packedOptions(1024, 16);
  other.seed = 5;
  EXPECT_NE(openDataset(scratch.path("set"), other)->sample(0).tokens, set->sample(0).tokens);
}

TEST_F(HeavyTail, DescriptionOfAStepEqualsTheSamples) {
  auto set = open();
  ASSERT_TRUE(set->packedRows());
  for (StepSplit split : {StepSplit{1, 2, 2, true}, StepSplit{2, 4, 2, true}, StepSplit{2, 2, 4, false}}) {
    Works works = worksOf(*set, 16, split);
    for (int64_t step : {0, 3}) {
      PackedStep told = describeStep(*set->packedRows(), step * 16, 16, split);
      auto [replicas, contexts] = meanImbalance({works[step]});
      EXPECT_NEAR(told.replicaImbalance, replicas, 1e-12);
      EXPECT_GE(told.contextImbalance, contexts); // the largest instead of the mean
      EXPECT_GT(told.tokens, 14 * 1024);
      EXPECT_LE(told.longest, 1025);
    }
  }
  PackedStep last = describeStep(*set->packedRows(), set->sampleCount(), 16, {});
  EXPECT_EQ(last.tokens, describeStep(*set->packedRows(), 0, 16, {}).tokens); // repeats
}

TEST(PackedDataset, PutsDocumentsBesideEachOther) {
  Scratch scratch;
  writeDocuments(scratch.path("set"), std::vector<int32_t>{3, 3, 2, 1});
  DatasetOptions options = packedOptions(11, 1);
  Sample sample = openDataset(scratch.path("set"), options)->sample(0);
  EXPECT_EQ(std::ranges::count(sample.lossWeights, 1.0F), 5); // 2 of three tokens, and 1 of two
  EXPECT_EQ(std::ranges::count(sample.tokens, endOfDocument), 3);
  EXPECT_EQ(std::ranges::count(sample.tokens, 0), 3); // padding, which attends to itself
  for (size_t k = 0; k < sample.tokens.size(); ++k)
    if (sample.tokens[k] == 0) {
      EXPECT_EQ(sample.visibleFrom[k], static_cast<int32_t>(k));
      EXPECT_EQ(sample.lossWeights[k], 0);
    }
}

TEST(PackedDataset, CutsLongDocumentsAndReadsTheLossMask) {
  Scratch scratch;
  std::vector<int32_t> lengths = {9};
  writeDocuments(scratch.path("set"), lengths);
  IndexedWriter mask(scratch.path("set_loss_mask"), TokenType::u8);
  mask.addTokens(std::vector<int32_t>{0, 0, 1, 1, 0, 1, 1, 0, 1});
  mask.endDocument();
  mask.commit();
  auto set = openDataset(scratch.path("set"), packedOptions(4, 1));
  ASSERT_EQ(set->sampleCount(), 2 + (set->sampleCount() > 2)); // one more than needed leaves room
  std::vector<int32_t> counted;
  for (int64_t i = 0; i < set->sampleCount(); ++i) {
    Sample sample = set->sample(i);
    for (size_t k = 0; k < 4; ++k)
      if (sample.lossWeights[k] == 1)
        counted.push_back(sample.labels[k]);
  }
  std::ranges::sort(counted);
  EXPECT_THAT(counted, ElementsAre(50000, 50003, 50004, 50006, 50007));
}

TEST(PackedDataset, RefusesTooFewDocumentsAndForeignTokens) {
  Scratch scratch;
  writeDocuments(scratch.path("set"), std::vector<int32_t>{3, 3, 1});
  auto faultOf = [&](const DatasetOptions &options) {
    try {
      auto set = openDataset(scratch.path("set"), options);
      for (int64_t i = 0; i < set->sampleCount(); ++i)
        set->sample(i);
      return std::string();
    } catch (const DataError &fault) {
      return std::string(fault.what());
    }
  };
  EXPECT_THAT(faultOf(packedOptions(8, 4)), HasSubstr("2 documents of two tokens and more"));
  EXPECT_EQ(faultOf(packedOptions(8, 2)), "");
  EXPECT_THAT(faultOf(packedOptions(0, 2)), HasSubstr("a sequence length of 0"));
  DatasetOptions options = packedOptions(8, 2);
  options.vocabSize = 50003;
  EXPECT_THAT(faultOf(options), HasSubstr("outside the vocabulary of 50003"));
}

} // namespace
} // namespace espalier::rt
