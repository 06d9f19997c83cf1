// Assembles the pieces of one split from the stored pieces of another. Each element is read once, and only the
// necessary bytes are read.
#include "runtime/checkpoint/sources.h"

#include "format/checksum.h"
#include "test/runtime/checkpoint/checkpoint_fixture.h"

#include <random>

namespace espalier::rt {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Piece pieceOf(std::vector<int64_t> shape, std::vector<int64_t> offsets, std::vector<int64_t> sizes) {
  Piece piece{"value", "w", pb::F32, std::move(shape), std::move(offsets), std::move(sizes)};
  piece.end = piece.boxElements();
  return piece;
}

std::vector<SharedRun> shared(const Piece &one, const Piece &other) {
  std::vector<SharedRun> runs;
  visitShared(one, other, [&](const SharedRun &run) { runs.push_back(run); });
  return runs;
}

TEST(Overlap, RowsAndColumnsShareARunPerRow) {
  Piece rows = pieceOf({4, 6}, {0, 0}, {2, 6}), columns = pieceOf({4, 6}, {0, 2}, {4, 2});
  EXPECT_THAT(shared(rows, columns), ElementsAre(SharedRun{2, 0, 2}, SharedRun{8, 2, 2}));
}

TEST(Overlap, WholeRowsAreOneRun) {
  Piece whole = pieceOf({4, 6}, {0, 0}, {4, 6}), last = pieceOf({4, 6}, {2, 0}, {2, 6});
  EXPECT_THAT(shared(whole, last), ElementsAre(SharedRun{12, 0, 12}));
  EXPECT_THAT(shared(pieceOf({}, {}, {}), pieceOf({}, {}, {})), ElementsAre(SharedRun{0, 0, 1}));
  EXPECT_TRUE(shared(pieceOf({4, 6}, {0, 0}, {2, 6}), last).empty());
}

TEST(Overlap, RangesAndPaddingCutRuns) {
  Piece whole = pieceOf({3, 5}, {0, 0}, {3, 5}), padded = pieceOf({3, 5}, {2, 0}, {2, 8});
  whole.begin = 11; // row 2 without its first element
  EXPECT_THAT(shared(whole, padded), ElementsAre(SharedRun{0, 1, 4}));
  padded.begin = 2;
  padded.end = 4;
  EXPECT_THAT(shared(whole, padded), ElementsAre(SharedRun{1, 0, 2}));
  EXPECT_EQ(realElements(padded), 2);
  EXPECT_EQ(realElements(pieceOf({3, 5}, {2, 0}, {2, 8})), 5);
}

/// Returns the size of each of `parts` equal pieces that cover `extent`, with padding.
int64_t partSize(int64_t extent, int64_t parts) { return (extent + parts - 1) / parts; }

/// Cuts a tensor into `rows` x `columns` boxes, each stored as `ranges` flat ranges.
std::vector<Piece> cut(const std::vector<int64_t> &shape, int64_t rows, int64_t columns, int64_t ranges) {
  std::vector<Piece> pieces;
  int64_t height = partSize(shape[0], rows), width = partSize(shape[1], columns);
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t column = 0; column < columns; ++column) {
      Piece box = pieceOf(shape, {row * height, column * width}, {height, width});
      int64_t part = partSize(box.end, ranges), all = box.end;
      for (int64_t begin = 0; begin < all; begin += part) {
        box.begin = begin;
        box.end = std::min(begin + part, all);
        pieces.push_back(box);
      }
    }
  return pieces;
}

class SourcesTest : public CheckpointTest {
protected:
  /// Writes a tensor in pieces with one checksum per block. The value of each element is its index.
  Manifest store(const std::vector<Piece> &pieces, uint64_t blockBytes) {
    std::filesystem::create_directories(folder);
    Manifest manifest;
    Shard shard;
    shard.file = "shard";
    shard.headerBytes = 7;
    std::string bytes(7, 'h');
    for (const Piece &piece : pieces) {
      std::vector<float> values(piece.end - piece.begin, -1.0f);
      Piece whole = pieceOf(piece.shape, std::vector<int64_t>(piece.shape.size(), 0), piece.shape);
      visitShared(whole, piece, [&](const SharedRun &run) {
        for (int64_t i = 0; i < run.count; ++i)
          values[run.to + i] = static_cast<float>(run.from + i);
      });
      StoredPiece stored{piece, bytes.size() - 7, checksumText(std::as_bytes(std::span(values))), blockBytes, ""};
      for (uint64_t at = 0; blockBytes && at < piece.bytes(); at += blockBytes)
        stored.blocks +=
            checksumText(std::as_bytes(std::span(values)).subspan(at, std::min(blockBytes, piece.bytes() - at)));
      bytes.append(reinterpret_cast<const char *>(values.data()), piece.bytes());
      shard.pieces.push_back(std::move(stored));
    }
    shard.bytes = bytes.size();
    write(folder / shard.file, bytes);
    manifest.shards.push_back(std::move(shard));
    return manifest;
  }

  std::vector<float> load(const Sources &sources, const Piece &wanted) const {
    std::vector<float> values(wanted.end - wanted.begin, 0.0f);
    for (const Take &take : sources.takesFor(wanted))
      take.read(RegularFile(folder / take.shard->file), [&](int64_t to, std::span<const std::byte> from) {
        std::memcpy(values.data() + to, from.data(), from.size());
      });
    return values;
  }
};

TEST_F(SourcesTest, AssemblesAnySplitFromAnyOther) {
  std::mt19937 random(3);
  auto upTo = [&](int64_t most) { return static_cast<int64_t>(random() % most) + 1; };
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> shape = {upTo(13), upTo(11)};
    uint64_t blockBytes = 4 * (upTo(9) - 1); // 0: pieces without blocks, as older programs wrote them
    Manifest manifest = store(cut(shape, upTo(4), upTo(4), upTo(3)), blockBytes);
    Sources sources(manifest, "c");
    for (const Piece &wanted : cut(shape, upTo(5), upTo(5), upTo(4))) {
      std::vector<float> expected(wanted.end - wanted.begin, 0.0f); // padding keeps its value
      Piece whole = pieceOf(shape, {0, 0}, shape);
      visitShared(whole, wanted, [&](const SharedRun &run) {
        for (int64_t i = 0; i < run.count; ++i)
          expected[run.to + i] = static_cast<float>(run.from + i);
      });
      ASSERT_EQ(load(sources, wanted), expected) << round << ' ' << wanted.key();
    }
  }
}

/// 64 rows of 16 elements have 4,096 bytes. Each block of 256 bytes holds four rows.
TEST_F(SourcesTest, OnlyBlocksThatAreNeededAreRead) {
  Manifest manifest = store(cut({64, 16}, 1, 1, 1), /*blockBytes=*/256);
  Sources sources(manifest, "c");
  Piece rows = pieceOf({64, 16}, {6, 0}, {4, 16}); // rows 6 to 9 are in blocks 1 and 2
  std::vector<Take> takes = sources.takesFor(rows);
  ASSERT_EQ(takes.size(), 1u);
  EXPECT_THAT(takes[0].bytesRead(), ElementsAre(ByteRange{256, 512}, ByteRange{512, 768}));
  // Damage in other blocks is not detected because they are not read. Damage in block 1 is detected.
  flip(folder / "shard", 7 + 1000);
  EXPECT_EQ(load(sources, rows).front(), 6 * 16);
  flip(folder / "shard", 7 + 300);
  try {
    load(sources, rows);
    ADD_FAILURE();
  } catch (const PlanError &error) {
    EXPECT_THAT(error.what(), HasSubstr("damaged: value of 'w' does not fit its checksum"));
  }
}

/// All ranks of a new split together read each stored byte once.
TEST_F(SourcesTest, RanksTogetherReadEveryByteOnce) {
  Manifest manifest = store(cut({64, 16}, 4, 1, 1), /*blockBytes=*/256);
  Sources sources(manifest, "c");
  for (auto [rows, ranges] : {std::pair(1, 1), {2, 1}, {8, 1}, {1, 4}, {2, 2}}) {
    uint64_t read = 0;
    for (const Piece &wanted : cut({64, 16}, rows, 1, ranges))
      for (const Take &take : sources.takesFor(wanted))
        for (ByteRange range : take.bytesRead())
          read += range.end - range.begin;
    EXPECT_EQ(read, 64u * 16 * 4) << rows << ' ' << ranges;
  }
}

// The boxes overlap but have the expected total volume: rows 0-1 and rows 1-2 of four. Row 3 is missing.
TEST_F(SourcesTest, RejectsAHole) {
  Manifest manifest = store({pieceOf({4, 3}, {0, 0}, {2, 3}), pieceOf({4, 3}, {1, 0}, {2, 3})}, 0);
  Sources sources(manifest, "c");
  try {
    load(sources, pieceOf({4, 3}, {2, 0}, {2, 3}));
    ADD_FAILURE();
  } catch (const PlanError &error) {
    EXPECT_THAT(error.what(), HasSubstr("c: damaged: 3 of 6 elements of value w [2+2, 0+3] 0:6 are there"));
  }
}

TEST_F(SourcesTest, WeightsOfAnotherTypeComeFromMasters) {
  Manifest manifest = store({pieceOf({4, 3}, {0, 0}, {4, 3})}, 0);
  manifest.shards[0].pieces[0].piece.kind = "master";
  Sources sources(manifest, "c");
  EXPECT_EQ(sources.fault("value", "w"), "");
  EXPECT_EQ(sources.takesFor(pieceOf({4, 3}, {0, 0}, {4, 3})).size(), 1u);
  EXPECT_EQ(sources.fault("moment1", "w"), "it has no moment1 of 'w'");
}

} // namespace
} // namespace espalier::rt
