// Compares the three index arrays with Megatron's. Tests their cache and the limits of the arithmetic.
#include "runtime/dataset/gpt_index.h"

#include "messages/data_error.h"
#include "runtime/dataset/gpt_dataset.h"
#include "runtime/dataset/index_cache.h"
#include "runtime/dataset/indexed_dataset.h"
#include "runtime/dataset/indexed_writer.h"
#include "test/runtime/tokenizer/golden.h"

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using namespace test;

IndexedDataset documentsOf(std::vector<int32_t> lengths) {
  IndexArrays arrays{std::move(lengths), {}};
  arrays.sequencesPerDocument.assign(arrays.lengths.size(), 1);
  int64_t total = 0;
  for (int32_t length : arrays.lengths)
    total += length;
  return IndexedDataset::fromMemory("memory", encodeIndex(TokenType::u8, arrays), std::vector<uint8_t>(total, 1));
}

GptIndexRequest wholeOf(const TokenSource &source, int64_t seqLength, int64_t samples) {
  GptIndexRequest request;
  request.endSequence = source.sequenceCount();
  request.seqLength = seqLength;
  request.samples = samples;
  return request;
}

TEST(GptIndex, EqualsMegatronOnEveryRecordedCase) {
  ESPALIER_NEEDS_FIXTURES();
  auto cases = nlohmann::json::parse(slurp(sharedData() + "golden/gptdataset_indices.json"));
  auto source =
      std::make_shared<IndexedDataset>(IndexedDataset::open(sharedData() + "golden/tinyshakespeare_text_document"));
  for (const auto &one : cases) {
    DatasetOptions options;
    options.seqLength = one["seq_length"];
    options.seed = one["seed"];
    options.splitWeights = one["split_range"][1] == 1.0 ? "1,0,0" : "949,50,1";
    if (!one["num_samples_requested"].is_null())
      options.samples = one["num_samples_requested"];
    GptDataset set(source, /*mask=*/nullptr, options);
    const GptIndex &index = set.indexArrays();
    EXPECT_EQ(index.epochs, one["num_epochs"]);
    EXPECT_EQ(index.separateFinalEpoch, one["separate_final_epoch"]);
    EXPECT_EQ(digestOf(index.document), one["document_index_sha256_le_i32"].get<std::string>());
    EXPECT_EQ(digestOf(index.sample), one["sample_index_sha256_le_i32"].get<std::string>());
    EXPECT_EQ(digestOf(index.shuffle), one["shuffle_index_sha256_le_u32"].get<std::string>());
    for (const auto &[name, tokens] : one["samples"].items()) {
      std::vector<int32_t> got(options.seqLength + 1);
      set.readTokens(name == "last" ? set.sampleCount() - 1 : std::stoll(name), got);
      EXPECT_EQ(got, tokens.get<std::vector<int32_t>>()) << "sample " << name;
    }
  }
}

TEST(GptIndex, WorkedExampleOfTheHeader) {
  IndexedDataset source = documentsOf({3, 5, 4});
  auto index = buildGptIndex(source, wholeOf(source, 4, 0));
  EXPECT_EQ(index->sampleCount(), 2);
  EXPECT_EQ(index->document.size(), 3U);
  EXPECT_EQ(index->sample[0].position, 0);
}

TEST(GptIndex, EmptySequencesTakeNoSpace) {
  IndexedDataset source = documentsOf({0, 0, 5, 0});
  auto index = buildGptIndex(source, wholeOf(source, 4, 0));
  EXPECT_EQ(index->sampleCount(), 1);
}

TEST(GptIndex, KeepsThePartialSampleOnlyWhenAsked) {
  IndexedDataset source = documentsOf({4, 3});
  GptIndexRequest request = wholeOf(source, 4, 0);
  EXPECT_EQ(buildGptIndex(source, request)->sampleCount(), 1);
  request.keepLastPartial = true;
  EXPECT_EQ(buildGptIndex(source, request)->sampleCount(), 2);
}

TEST(GptIndex, RejectsDataWithoutASample) {
  IndexedDataset source = documentsOf({3});
  EXPECT_THROW(buildGptIndex(source, wholeOf(source, 4, 0)), DataError);
  EXPECT_THROW(buildGptIndex(source, wholeOf(source, 0, 0)), DataError);
  IndexedDataset nothing = documentsOf({0});
  EXPECT_THROW(buildGptIndex(nothing, wholeOf(nothing, 4, 10)), DataError);
  // The samples would repeat the file more than 2^31 times.
  EXPECT_THROW(planEpochs("tiny", wholeOf(source, 1000000, 4000000000), 3), DataError);
}

TEST(GptIndex, CacheGivesTheSameArraysAndSurvivesDamage) {
  Scratch scratch;
  IndexedDataset source = documentsOf({30, 50, 40, 7});
  GptIndexRequest request = wholeOf(source, 8, 100);
  auto built = buildGptIndex(source, request);
  std::string folder = scratch.path("cache");
  for (int damage = 0; damage < 4; ++damage) {
    auto cached = loadOrBuildGptIndex(source, request, folder);
    EXPECT_EQ(digestOf(cached->document), digestOf(built->document));
    EXPECT_EQ(digestOf(cached->sample), digestOf(built->sample));
    EXPECT_EQ(digestOf(cached->shuffle), digestOf(built->shuffle));
    // Damages one array after the other: first a value out of range, then a truncated file.
    for (const auto &entry : std::filesystem::directory_iterator(folder)) {
      std::string name = entry.path().string(), text = slurp(name);
      if (damage == 0 && name.ends_with("document_index.npy"))
        spit(name, text.replace(text.size() - 4, 4, "\xff\xff\xff\x7f"));
      if (damage == 1 && name.ends_with("shuffle_index.npy"))
        spit(name, text.replace(text.size() - 4, 4, text.substr(text.size() - 8, 4)));
      if (damage == 2 && name.ends_with("sample_index.npy"))
        spit(name, text.substr(0, text.size() - 3));
    }
  }
  EXPECT_EQ(loadOrBuildGptIndex(source, request, folder)->mapped.size(), 3U);
}

} // namespace
} // namespace espalier::rt
