// Tests the data set interface that training uses: every kind of source, masks, samplers and blends.
#include "runtime/dataset/dataset.h"

#include "format/blend_list.h"
#include "format/splits.h"
#include "messages/data_error.h"
#include "runtime/dataset/blend.h"
#include "runtime/dataset/indexed_writer.h"
#include "runtime/dataset/sampler.h"
#include "runtime/dataset/text_source.h"
#include "test/runtime/tokenizer/golden.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <set>

namespace espalier::rt {
namespace {

using namespace test;
using testing::Each;
using testing::ElementsAre;

/// Returns a text of 200 numbered paragraphs.
std::string paragraphs() {
  std::string text;
  for (int i = 0; i < 200; ++i)
    text += "paragraph " + std::to_string(i) + " of the text\n\n";
  return text;
}

TEST(Dataset, TextBytesAreTokensAndLabelsFollow) {
  Scratch scratch;
  spit(scratch.path("a.txt"), paragraphs());
  DatasetOptions options;
  options.seqLength = 16;
  options.vocabSize = byteVocabSize;
  auto set = openDataset(scratch.path("a.txt"), options);
  ASSERT_GT(set->sampleCount(), 200);
  for (int64_t i = 0; i < set->sampleCount(); ++i) {
    Sample sample = set->sample(i);
    for (int k = 0; k + 1 < 16; ++k)
      EXPECT_EQ(sample.labels[k], sample.tokens[k + 1]);
    EXPECT_THAT(sample.lossWeights, Each(1.0F));
    EXPECT_EQ(sample.positions[15], 15);
  }
}

TEST(Dataset, TextDocumentsAreTheFile) {
  Scratch scratch;
  for (std::string text : {paragraphs(), std::string("one line without an end"), std::string("\n\n\n"),
                           std::string(5000, 'x'), std::string("a\nb\nc\n")}) {
    spit(scratch.path("a.txt"), text);
    IndexedDataset set = openText(scratch.path("a.txt"));
    EXPECT_EQ(set.tokenCount(), static_cast<int64_t>(text.size()));
    EXPECT_EQ(set.byteOffset(0), 0);
  }
  spit(scratch.path("empty.txt"), "");
  EXPECT_THROW(openText(scratch.path("empty.txt")), DataError);
}

TEST(Dataset, SplitsOfATextDoNotOverlap) {
  Scratch scratch;
  spit(scratch.path("a.txt"), paragraphs());
  DatasetOptions options;
  options.seqLength = 8;
  options.splitWeights = "8,1,1";
  std::set<std::string> seen;
  for (Split split : {Split::train, Split::valid, Split::test}) {
    options.split = split;
    auto set = openDataset(scratch.path("a.txt"), options);
    EXPECT_GT(set->sampleCount(), 40);
  }
  EXPECT_EQ(splitRange("8,1,1", Split::valid, 200), (std::pair<int64_t, int64_t>{160, 180}));
}

TEST(Splits, RoundsHalvesToEvenAndRefusesNonsense) {
  EXPECT_EQ(splitRange("1,1,0", Split::train, 5).second, 2); // 2.5 goes to 2
  EXPECT_EQ(splitRange("1,1,0", Split::train, 7).second, 4); // 3.5 goes to 4
  EXPECT_EQ(splitRange("969, 30, 1", Split::test, 1000).first, 999);
  EXPECT_EQ(splitRange("1", Split::valid, 10).first, splitRange("1", Split::valid, 10).second);
  for (const char *bad : {"", "a", "1,-1,0", "0,0,0", "1,2,3,4", "nan", "inf", "1;2"})
    EXPECT_THROW(splitRange(bad, Split::train, 10), DataError) << bad;
}

TEST(Dataset, MasksFollowTheEndOfDocument) {
  Scratch scratch;
  IndexedWriter writer(scratch.path("set"), TokenType::u16);
  for (int i = 0; i < 4; ++i) {
    std::vector<int32_t> tokens = {5, 6, 9};
    writer.addTokens(tokens);
    writer.endDocument();
  }
  writer.commit();
  DatasetOptions options;
  options.seqLength = 7;
  options.split = Split::all;
  options.eodToken = 9;
  options.eodMaskLoss = options.resetPositionIds = options.resetAttentionMask = true;
  Sample sample = openDataset(scratch.path("set.idx"), options)->sample(0);
  EXPECT_THAT(sample.tokens, ElementsAre(5, 6, 9, 5, 6, 9, 5));
  EXPECT_THAT(sample.labels, ElementsAre(6, 9, 5, 6, 9, 5, 6));
  EXPECT_THAT(sample.lossWeights, ElementsAre(1, 1, 0, 1, 1, 0, 1));
  EXPECT_THAT(sample.positions, ElementsAre(0, 1, 2, 0, 1, 2, 0));
  EXPECT_THAT(sample.visibleFrom, ElementsAre(0, 0, 0, 3, 3, 3, 6));
  options.vocabSize = 9;
  EXPECT_THROW(openDataset(scratch.path("set"), options)->sample(0), DataError);
}

TEST(Dataset, PartialValidationSampleIsPaddedWithoutLoss) {
  Scratch scratch;
  IndexedWriter writer(scratch.path("set"), TokenType::u16);
  std::vector<int32_t> tokens = {1, 2, 3, 4, 5, 6};
  writer.addTokens(tokens);
  writer.endDocument();
  writer.commit();
  DatasetOptions options;
  options.seqLength = 4;
  options.splitWeights = "0,1,0";
  options.split = Split::valid;
  options.keepLastPartial = true;
  auto set = openDataset(scratch.path("set"), options);
  ASSERT_EQ(set->sampleCount(), 2);
  bool sawPartial = false;
  for (int64_t i = 0; i < 2; ++i) {
    Sample sample = set->sample(i);
    if (sample.tokens[0] != 5)
      continue;
    sawPartial = true;
    EXPECT_THAT(sample.tokens, ElementsAre(5, 6, 0, 0));
    EXPECT_THAT(sample.labels, ElementsAre(6, 0, 0, 0));
    EXPECT_THAT(sample.lossWeights, ElementsAre(1, 0, 0, 0));
  }
  EXPECT_TRUE(sawPartial);
}

TEST(Dataset, MockStaysInsideItsVocabulary) {
  DatasetOptions options;
  options.seqLength = 64;
  options.vocabSize = 100;
  options.samples = 1000;
  auto set = openDataset("mock", options);
  ASSERT_GE(set->sampleCount(), 1000);
  for (int64_t i = 0; i < 1000; ++i)
    EXPECT_THAT(set->sample(i).tokens, Each(testing::Lt(100)));
  options.vocabSize = 0;
  EXPECT_THROW(openDataset("mock", options), DataError);
}

TEST(Dataset, ReportsMissingPaths) {
  EXPECT_THROW(openDataset("/nonexistent", {}), DataError);
  EXPECT_THROW(openDataset("/nonexistent.bin", {}), DataError);
}

class Orders : public testing::TestWithParam<SampleOrder> {};

TEST_P(Orders, AnySplitOfABatchReadsTheSamePlacesWhereverItResumes) {
  const int64_t count = 250, globalBatch = 48;
  Sampler whole(GetParam(), count, globalBatch);
  for (int64_t consumed : {0, 48, 240, 12000}) {
    std::vector<int64_t> want;
    for (int64_t k = 0; k < globalBatch; ++k)
      want.push_back(whole.at(consumed + k));
    for (int64_t ranks : {1, 2, 3, 4, 6, 8, 12})
      for (int64_t micro : {1, 2}) {
        std::vector<int64_t> dealt;
        std::vector<Sampler> resumed(ranks, Sampler(GetParam(), count, globalBatch)); // each rank has its own sampler
        for (int64_t step = 0; step * ranks * micro < globalBatch; ++step)
          for (int64_t rank = 0; rank < ranks; ++rank)
            for (int64_t i = 0; i < micro; ++i)
              dealt.push_back(resumed[rank].at(BatchShare{micro, rank, ranks}.firstPlace(consumed, step) + i));
        EXPECT_EQ(dealt, want) << ranks << " ranks, micro batch " << micro << ", consumed " << consumed;
      }
  }
}

INSTANTIATE_TEST_SUITE_P(Sampler, Orders, testing::Values(SampleOrder::single, SampleOrder::cyclic));

std::vector<int64_t> places(SampleOrder order, int64_t samples, int64_t globalBatch, int64_t from, int64_t count) {
  Sampler sampler(order, samples, globalBatch);
  std::vector<int64_t> read;
  for (int64_t k = from; k < from + count; ++k)
    read.push_back(sampler.at(k));
  return read;
}

TEST(Sampler, SingleStartsOverInTheSameOrder) {
  EXPECT_THAT(places(SampleOrder::single, 10, 4, 8, 4), ElementsAre(8, 9, 0, 1));
}

TEST(Sampler, CyclicIsTorchRandpermSeededByTheEpoch) {
  EXPECT_THAT(places(SampleOrder::cyclic, 10, 5, 0, 10), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_NE(places(SampleOrder::cyclic, 10, 5, 10, 10), places(SampleOrder::cyclic, 10, 5, 0, 10));
  // The last incomplete batch is never read: 12 samples in batches of 5 give 10 samples per epoch.
  EXPECT_EQ(places(SampleOrder::cyclic, 12, 5, 10, 10), places(SampleOrder::cyclic, 10, 5, 10, 10));
  EXPECT_THAT(places(SampleOrder::cyclic, 12, 5, 20, 10), testing::UnorderedElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THROW(Sampler(SampleOrder::cyclic, 4, 5), DataError);
}

TEST(Blend, EqualsTheRecordedOrders) {
  ESPALIER_NEEDS_FIXTURES();
  auto golden = nlohmann::json::parse(slurp(sharedData() + "golden/blending.json"));
  for (const auto &one : golden["weighted"]) {
    BlendOrder order = blendByWeight(one["weights"].get<std::vector<double>>(), one["size"]);
    EXPECT_EQ(order.part, one["dataset_index"].get<std::vector<int16_t>>());
    EXPECT_EQ(order.sample, one["dataset_sample_index"].get<std::vector<int64_t>>());
  }
  for (const auto &one : golden["exhaustive"]) {
    BlendOrder order = blendExhaustively(one["sizes"].get<std::vector<int64_t>>());
    EXPECT_EQ(order.part, one["dataset_index"].get<std::vector<int16_t>>());
    EXPECT_EQ(order.sample, one["dataset_sample_index"].get<std::vector<int64_t>>());
  }
}

TEST(Blend, DrawsFromFilesInProportion) {
  Scratch scratch;
  spit(scratch.path("a.txt"), std::string(4000, 'a'));
  spit(scratch.path("b.txt"), std::string(4000, 'b'));
  DatasetOptions options;
  options.seqLength = 8;
  options.split = Split::all;
  options.samples = 400;
  auto set = openBlend(parseBlend({"3", scratch.path("a.txt"), "1", scratch.path("b.txt")}), options);
  ASSERT_EQ(set->sampleCount(), 400);
  int fromA = 0;
  for (int64_t i = 0; i < 400; ++i)
    fromA += set->sample(i).tokens[0] == 'a';
  EXPECT_EQ(fromA, 300);
  for (const std::vector<std::string> &bad : std::vector<std::vector<std::string>>{{},
                                                                                   {""},
                                                                                   {"", "b"},
                                                                                   {"1", ""},
                                                                                   {"0", "b"},
                                                                                   {"-1", "b"},
                                                                                   {"inf", "b"},
                                                                                   {"1", "a", "b", "c"},
                                                                                   {"1", "a", "2"}})
    EXPECT_THROW(parseBlend(bad), DataError) << testing::PrintToString(bad);
  EXPECT_THROW(openBlend({{-1.0, scratch.path("a.txt")}}, options), DataError);
}

// Megatron takes a list of paths without weights, whose samples count equally.
TEST(Blend, DrawsFromFilesWithoutWeightsBySize) {
  Scratch scratch;
  for (auto [name, size] : {std::pair("a", 4000), {"b", 2000}, {"c", 2000}})
    spit(scratch.path(name), std::string(size, name[0]));
  DatasetOptions options;
  options.seqLength = 8;
  options.split = Split::all;
  for (int64_t samples : {400, 0, 3000}) { // a part of an epoch, an epoch, several epochs
    options.samples = samples;
    auto set = openBlend(parseBlend({scratch.path("a"), scratch.path("b"), scratch.path("c")}), options);
    ASSERT_GE(set->sampleCount(), samples);
    int64_t fromA = 0, first = 0;
    for (int64_t i = 0; i < set->sampleCount(); ++i) {
      fromA += set->sample(i).tokens[0] == 'a';
      first += i < 8 && set->sample(i).tokens[0] == 'a';
    }
    // 4000 bytes are 499 samples of 8 and one more token, 2000 bytes are 249.
    EXPECT_NEAR(static_cast<double>(fromA), static_cast<double>(set->sampleCount()) * 499 / 997, 1) << samples;
    EXPECT_EQ(first, 4);
  }
  EXPECT_FALSE(isWeighted(parseBlend({"a", "b"})));
  EXPECT_TRUE(isWeighted(parseBlend({"2", "b"})));
  EXPECT_EQ(parseBlend({"a", "1", "2"}).size(), 3U);
}

} // namespace
} // namespace espalier::rt
