// Tests the reader on valid and on damaged files. Compares the writer's output with what the reader returns.
#include "runtime/dataset/indexed_dataset.h"

#include "messages/data_error.h"
#include "runtime/dataset/indexed_writer.h"
#include "test/runtime/tokenizer/golden.h"

#include <cstring>
#include <gmock/gmock.h>

namespace espalier::rt {
namespace {

using namespace test;

/// Returns the index of three sequences of 2, 0 and 3 u16 tokens in two documents.
std::vector<uint8_t> smallIndex() {
  return encodeIndex(TokenType::u16, {.lengths = {2, 0, 3}, .sequencesPerDocument = {1, 2}});
}
std::vector<uint8_t> smallTokens() { return {1, 0, 2, 0, 3, 0, 4, 0, 5, 0}; }

template <typename T> std::vector<uint8_t> patched(size_t at, T value) {
  std::vector<uint8_t> bytes = smallIndex();
  std::memcpy(bytes.data() + at, &value, sizeof value);
  return bytes;
}

std::string refusal(std::vector<uint8_t> index, std::vector<uint8_t> tokens) {
  try {
    IndexedDataset::fromMemory("set", std::move(index), std::move(tokens));
  } catch (const DataError &error) {
    return error.what();
  }
  return "accepted";
}

TEST(IndexedDataset, ReadsWhatWasEncoded) {
  IndexedDataset set = IndexedDataset::fromMemory("set", smallIndex(), smallTokens());
  EXPECT_EQ(set.sequenceCount(), 3);
  EXPECT_EQ(set.documentCount(), 2);
  EXPECT_EQ(set.tokenCount(), 5);
  std::vector<int32_t> out(2);
  set.read(2, 1, out);
  EXPECT_THAT(out, testing::ElementsAre(4, 5));
}

TEST(IndexedDataset, RefusesEachFaultWithItsReason) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal(std::vector<uint8_t>(33), {}), HasSubstr("at least 34"));
  EXPECT_THAT(refusal(patched<char>(0, 'X'), smallTokens()), HasSubstr("not a Megatron index"));
  EXPECT_THAT(refusal(patched<uint64_t>(9, 2), smallTokens()), HasSubstr("version 2"));
  EXPECT_THAT(refusal(patched<uint8_t>(17, 0), smallTokens()), HasSubstr("token type 0"));
  EXPECT_THAT(refusal(patched<uint8_t>(17, 9), smallTokens()), HasSubstr("token type 9"));
  EXPECT_THAT(refusal(patched<uint8_t>(17, 7), smallTokens()), HasSubstr("f32"));
  EXPECT_THAT(refusal(patched<uint64_t>(18, ~0ULL), smallTokens()), HasSubstr("do not fit"));
  EXPECT_THAT(refusal(patched<uint64_t>(26, 1ULL << 61), smallTokens()), HasSubstr("do not fit"));
  EXPECT_THAT(refusal(patched<uint64_t>(18, 2), smallTokens()), HasSubstr("but 2 sequences"));
  EXPECT_THAT(refusal(patched<int32_t>(34, -1), smallTokens()), HasSubstr("length -1"));
  EXPECT_THAT(refusal(patched<int64_t>(46, -2), smallTokens()), HasSubstr("offset -2"));
  EXPECT_THAT(refusal(patched<int64_t>(46, 8), smallTokens()), HasSubstr("10 bytes"));
  EXPECT_THAT(refusal(patched<int64_t>(70, 1), smallTokens()), HasSubstr("document entry 0 is 1"));
  EXPECT_THAT(refusal(patched<int64_t>(78, 9), smallTokens()), HasSubstr("document entry 1 is 9"));
  EXPECT_THAT(refusal(patched<int64_t>(86, 2), smallTokens()), HasSubstr("last document entry"));
  std::vector<uint8_t> shortTokens = smallTokens();
  shortTokens.pop_back();
  EXPECT_THAT(refusal(smallIndex(), shortTokens), HasSubstr("9 bytes"));
}

TEST(IndexedDataset, EveryTruncationIsRefused) {
  std::vector<uint8_t> whole = smallIndex();
  for (size_t size = 0; size < whole.size(); ++size)
    EXPECT_NE(refusal({whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size)}, smallTokens()), "accepted")
        << size;
}

TEST(IndexedDataset, ReportsANegativeToken) {
  auto index = encodeIndex(TokenType::i32, {.lengths = {1}, .sequencesPerDocument = {1}});
  IndexedDataset set = IndexedDataset::fromMemory("set", index, {0xff, 0xff, 0xff, 0xff});
  std::vector<int32_t> out(1);
  EXPECT_THROW(set.read(0, 0, out), DataError);
}

TEST(IndexedDataset, ReportsMissingFiles) {
  try {
    IndexedDataset::open("/nonexistent/set");
    FAIL();
  } catch (const DataError &error) {
    EXPECT_EQ(error.file(), "/nonexistent/set.idx");
  }
}

TEST(IndexedWriter, RoundTripAndNothingWithoutCommit) {
  Scratch scratch;
  std::string prefix = scratch.path("set");
  {
    IndexedWriter writer(prefix, TokenType::u16);
    std::vector<int32_t> tokens = {7, 8, 9};
    writer.addTokens(tokens);
    writer.endDocument();
  }
  EXPECT_TRUE(std::filesystem::is_empty(std::filesystem::path(prefix).parent_path()));
  IndexedWriter writer(prefix, TokenType::u16);
  std::vector<int32_t> tokens = {7, 8, 65535};
  writer.addTokens(tokens);
  writer.endDocument();
  writer.endDocument(); // an empty document repeats the previous entry
  writer.commit();
  IndexedDataset set = IndexedDataset::open(prefix);
  EXPECT_EQ(set.sequenceCount(), 1);
  EXPECT_EQ(set.documentCount(), 2);
  std::vector<int32_t> out(3);
  set.read(0, 0, out);
  EXPECT_EQ(out, tokens);
}

TEST(IndexedWriter, RefusesTokensOutsideItsType) {
  Scratch scratch;
  IndexedWriter writer(scratch.path("set"), TokenType::u16);
  std::vector<int32_t> large = {65536}, negative = {-1};
  EXPECT_THROW(writer.addTokens(large), DataError);
  EXPECT_THROW(writer.addTokens(negative), DataError);
}

TEST(IndexedWriter, CopyingAFixtureGivesItsBytes) {
  ESPALIER_NEEDS_FIXTURES();
  Scratch scratch;
  for (std::string name : {"tinyshakespeare_text_document", "multikey_content_document"}) {
    std::string from = sharedData() + "golden/" + name, to = scratch.path(name);
    IndexedDataset source = IndexedDataset::open(from);
    IndexedWriter writer(to, source.tokenType());
    writer.addDataset(source);
    writer.commit();
    EXPECT_TRUE(slurp(from + ".idx") == slurp(to + ".idx")) << name;
    EXPECT_TRUE(slurp(from + ".bin") == slurp(to + ".bin")) << name;
  }
}

} // namespace
} // namespace espalier::rt
