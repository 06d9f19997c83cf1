// A manifest with invalid contents is refused, even if its checksum is correct.
#include "runtime/checkpoint/manifest.h"

#include "format/checksum.h"
#include "test/runtime/checkpoint/checkpoint_fixture.h"

#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

using nlohmann::json;
using testing::HasSubstr;

/// A [4, 3] tensor in two boxes of two rows each. The second box is stored as two ranges on two shards.
Manifest sample() {
  auto piece = [](std::vector<int64_t> offsets, int64_t begin, int64_t end, uint64_t at) {
    return StoredPiece{{"value", "w", pb::F32, {4, 3}, std::move(offsets), {2, 3}, begin, end}, at, "00", 0, ""};
  };
  Manifest manifest;
  manifest.model = "toy";
  manifest.parameters = 12;
  manifest.mesh = {{"pp", 1}, {"dp", 2}};
  manifest.state = {.step = 3, .updates = 2, .consumed = 24, .lossScale = 0x1p-3, .cleanSteps = 1, .norms = {0.1, 2.5}};
  manifest.runSteps = 9;
  manifest.fingerprint = {"digest", {{"batch", "8 samples"}, {"seed", "7"}}};
  manifest.shards = {
      {"rank-00000.safetensors", 100 + 24 + 8, 100, "00", {piece({0, 0}, 0, 6, 0), piece({2, 0}, 0, 2, 24)}},
      {"rank-00001.safetensors", 50 + 16, 50, "00", {piece({2, 0}, 2, 6, 0)}}};
  manifest.sequence = 4;
  StoredPiece &inBlocks = manifest.shards[0].pieces[0];
  inBlocks.blockBytes = 16;
  inBlocks.blocks = std::string(16, 'a') + std::string(16, 'b');
  return manifest;
}

/// Returns a changed manifest with a correct checksum.
std::string changed(const std::function<void(json &)> &change) {
  json document = json::parse(manifestText(sample()));
  document.erase("checksum");
  change(document);
  std::string rest = document.dump().substr(1);
  return fmt::format("{{\"checksum\": \"{}\",\n", checksumText(std::as_bytes(std::span(rest)))) + rest;
}

std::string errorOf(const std::string &text) {
  try {
    parseManifest(text, "m");
    return "";
  } catch (const PlanError &error) {
    return error.what();
  }
}

TEST(ManifestFile, RoundTrip) {
  std::string text = manifestText(sample());
  Manifest back = parseManifest(text, "m");
  EXPECT_EQ(manifestText(back), text);
  EXPECT_EQ(back.state, sample().state);
  EXPECT_EQ(back.fingerprint, sample().fingerprint);
  EXPECT_EQ(back.ranks(), 2);
  EXPECT_EQ(back.bytes(), 132u + 66u);
  EXPECT_EQ(back.shards[1].pieces[0].piece.key(), "value w [2+2, 0+3] 2:6");
  EXPECT_TRUE(json::parse(text).contains("checksum")); // the file is one JSON document
}

// Manifests of older programs have no sequence numbers and no block checksums.
TEST(ManifestFile, ReadsOlderManifests) {
  std::string text = changed([](json &document) {
    document.erase("sequence");
    document["shards"][0]["pieces"][0].erase("blocks");
  });
  ASSERT_EQ(errorOf(text), "");
  Manifest older = parseManifest(text, "m");
  EXPECT_EQ(older.sequence, 0u);
  EXPECT_EQ(older.shards[0].pieces[0].partBytes(), 24u);
  EXPECT_EQ(older.shards[0].pieces[0].partChecksum(0), "00");
}

TEST(ManifestFile, BlocksHaveSeparateChecksums) {
  StoredPiece piece = parseManifest(manifestText(sample()), "m").shards[0].pieces[0];
  EXPECT_EQ(piece.partBytes(), 16u);
  EXPECT_EQ(piece.partChecksum(0), std::string(16, 'a'));
  EXPECT_EQ(piece.partChecksum(16), std::string(16, 'b'));
}

TEST(ManifestFile, AnyChangedByteIsDamage) {
  std::string text = manifestText(sample());
  for (size_t i = 0; i < text.size(); ++i) {
    std::string bad = text;
    bad[i] = static_cast<char>(bad[i] ^ 1);
    EXPECT_THAT(errorOf(bad), HasSubstr("m: damaged: its bytes do not fit its checksum")) << i;
  }
  EXPECT_THAT(errorOf(text.substr(0, text.size() / 2)), HasSubstr("damaged"));
  EXPECT_THAT(errorOf(""), HasSubstr("damaged"));
}

TEST(ManifestFile, RejectsInvalidContents) {
  auto first = [](json &document) -> json & { return document["shards"][0]; };
  std::vector<std::pair<std::function<void(json &)>, const char *>> cases = {
      {[](json &d) { d["format"] = 3; }, "format 3, this Espalier reads 2"},
      {[](json &d) { d.erase("step"); }, "step"},
      {[](json &d) { d["sequence"] = -4; }, "a whole number is expected, got -4"},
      {[&](json &d) { first(d)["pieces"][0]["blocks"] = {{"bytes", 0}, {"xxh3", ""}}; }, "checksums of 0 bytes each"},
      {[&](json &d) { first(d)["pieces"][0]["blocks"] = {{"bytes", 6}, {"xxh3", std::string(64, '0')}}; },
       "64 digits of checksums of 6 bytes each"},
      {[&](json &d) { first(d)["pieces"][0]["blocks"] = {{"bytes", 8}, {"xxh3", std::string(32, '0')}}; },
       "a piece of 'w' of 24 bytes has 32 digits of checksums of 8 bytes each"},
      {[](json &d) { d["step"] = -1; }, "a whole number is expected, got -1"},
      {[](json &d) { d["samples"] = 1e300; }, "a whole number is expected"},
      {[&](json &d) { first(d)["file"] = "../rank-00000.safetensors"; }, "is no file of this folder"},
      {[&](json &d) { first(d)["file"] = ".."; }, "is no file of this folder"},
      {[&](json &d) { first(d)["bytes"] = 133; }, "do not make 133"},
      {[&](json &d) { first(d)["header_bytes"] = 1000; }, "do not make 132"},
      {[&](json &d) { first(d)["pieces"][1]["at"] = 20; }, "a piece begins at byte 20, the one before it ends at 24"},
      {[&](json &d) { first(d)["pieces"][0]["sizes"] = {2}; }, "another number of dimensions"},
      {[&](json &d) { first(d)["pieces"][0]["range"] = {3, 9}; }, "elements 3 to 9 of 6"},
      {[&](json &d) { first(d)["pieces"][0]["bytes"] = 8; }, "another number of bytes than elements"},
      {[&](json &d) { first(d)["pieces"][0]["type"] = "F64"; }, "type 'F64' is not read"},
      {[&](json &d) { first(d)["pieces"][0]["sizes"] = {int64_t(1) << 40, int64_t(1) << 40}; },
       "passes what can be held"},
      {[&](json &d) { first(d)["pieces"][0]["shape"] = {5, 3}; }, "contradicts another piece"},
      {[&](json &d) { first(d)["pieces"][0]["offsets"] = {2, 0}; }, "are not the whole tensor"},
      {[](json &d) { d["shards"].erase(1); }, "the pieces of value of 'w' are not the whole tensor"},
      {[](json &d) { d["shards"] = std::string(10, 'x'); }, "damaged"},
      {[](json &d) { d["more"] = json::parse(std::string(20, '[') + std::string(20, ']')); }, "nested too deep"},
  };
  for (const auto &[change, reason] : cases)
    EXPECT_THAT(errorOf(changed(change)), HasSubstr(reason));
  EXPECT_EQ(errorOf(changed([](json &) {})), "");
}

} // namespace
} // namespace espalier::rt
