// Tests loss masks beside a dataset: they are cut like the tokens, and a mask of other sequences is refused.
#include "messages/data_error.h"
#include "runtime/dataset/dataset.h"
#include "runtime/dataset/indexed_writer.h"
#include "test/runtime/tokenizer/golden.h"

#include <filesystem>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using namespace test;
using testing::Each;
using testing::HasSubstr;

/// Writes documents, one sequence each.
void write(const std::string &prefix, const std::vector<std::vector<int32_t>> &documents, TokenType type) {
  IndexedWriter writer(prefix, type);
  for (const std::vector<int32_t> &document : documents) {
    writer.addTokens(document);
    writer.endDocument();
  }
  writer.commit();
}

/// Returns 40 documents of 3 to 9 tokens. No token occurs twice.
std::vector<std::vector<int32_t>> documents() {
  std::vector<std::vector<int32_t>> made;
  int32_t next = 0;
  for (int i = 0; i < 40; ++i) {
    made.emplace_back();
    for (int k = 0; k < 3 + i % 7; ++k)
      made.back().push_back(next++);
  }
  return made;
}

/// Whether the prediction of a token counts, in these tests.
bool counts(int32_t token) { return token % 3 == 0 || token % 7 == 1; }

std::vector<std::vector<int32_t>> maskOf(std::vector<std::vector<int32_t>> documents) {
  for (std::vector<int32_t> &document : documents)
    for (int32_t &token : document)
      token = counts(token);
  return documents;
}

DatasetOptions wholeOptions() {
  DatasetOptions options;
  options.seqLength = 8;
  options.split = Split::all;
  return options;
}

TEST(LossMask, WeightsAreThoseOfTheLabels) {
  Scratch scratch;
  write(scratch.path("set"), documents(), TokenType::u16);
  write(lossMaskPrefix(scratch.path("set")), maskOf(documents()), TokenType::u8);
  EXPECT_EQ(findLossMask(scratch.path("set.idx")), scratch.path("set_loss_mask"));
  auto set = openDataset(scratch.path("set"), wholeOptions());
  auto blend = openBlend({{1, scratch.path("set")}, {1, scratch.path("set")}}, wholeOptions());
  ASSERT_GT(set->sampleCount(), 20);
  for (const Dataset *one : {set.get(), blend.get()})
    for (int64_t i = 0; i < one->sampleCount(); ++i) {
      Sample sample = one->sample(i);
      for (size_t k = 0; k < 8; ++k)
        EXPECT_EQ(sample.lossWeights[k], counts(sample.labels[k]) ? 1 : 0);
    }
  // The end of a document has no loss either, if the run asks for that.
  DatasetOptions options = wholeOptions();
  options.eodToken = 7;
  options.eodMaskLoss = true;
  auto masked = openDataset(scratch.path("set"), options);
  for (int64_t i = 0; i < masked->sampleCount(); ++i) {
    Sample sample = masked->sample(i);
    for (size_t k = 0; k < 8; ++k)
      EXPECT_EQ(sample.lossWeights[k], counts(sample.labels[k]) && sample.tokens[k] != 7 ? 1 : 0);
  }
}

TEST(LossMask, TokensWithoutAMaskAllCount) {
  Scratch scratch;
  write(scratch.path("set"), documents(), TokenType::u16);
  EXPECT_EQ(findLossMask(scratch.path("set")), "");
  EXPECT_THAT(openDataset(scratch.path("set"), wholeOptions())->sample(0).lossWeights, Each(1.0F));
}

TEST(LossMask, OtherSequencesAndOtherValuesAreRefused) {
  Scratch scratch;
  write(scratch.path("set"), documents(), TokenType::u16);
  auto refusal = [&](const std::vector<std::vector<int32_t>> &mask) -> std::string {
    write(lossMaskPrefix(scratch.path("set")), mask, TokenType::u8);
    try {
      auto set = openDataset(scratch.path("set"), wholeOptions());
      for (int64_t i = 0; i < set->sampleCount(); ++i)
        set->sample(i);
    } catch (const DataError &error) {
      return error.what();
    }
    return "no error";
  };
  std::vector<std::vector<int32_t>> mask = maskOf(documents());
  mask[3].push_back(1);
  EXPECT_THAT(refusal(mask),
              testing::AllOf(HasSubstr("set_loss_mask: error: sequence 3 of the loss mask has 7 entries"),
                             HasSubstr("6 tokens; `espalier data tokenize` writes both")));
  mask.pop_back();
  EXPECT_THAT(refusal(mask), HasSubstr("the loss mask has 39 sequences"));
  mask = maskOf(documents());
  mask[5][1] = 2;
  EXPECT_THAT(refusal(mask), HasSubstr("holds 2 in sequence "));
}

} // namespace
} // namespace espalier::rt
