// MATMUL: c is split into tiles, with one part per tile. One thread computes a tile over all of k, in blocks that
// depend only on k. So the order of every sum does not depend on the tiles.
#include "runtime/kernels/factories.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

namespace espalier::rt {

namespace {

struct Tiling {
  int64_t rows, columns;
};

/// The largest tiles. With the deepest block of k, packed b takes 576 KiB of the L2 cache. If c is not f32, its sums
/// are kept beside b, and b takes 384 KiB. At full height, packing b costs about 1/50 of the time of the products.
constexpr Tiling kLargest = {768, 384}, kLargestWithSums = {448, 256};
constexpr int64_t kColumnStep = 32;
/// The largest tiles of products with so few rows that nothing is packed in a run. A row of c stays in the L1 cache.
constexpr Tiling kLargestOfFewRows = {4, 4096};
/// The most rows of products for which weights are packed beforehand, as when a batch of sequences decodes one token
/// each: packing costs more than the products.
constexpr int64_t kMostRowsOfDecoding = 16;

/// Weights in 8 bits have at least 1/8 as many columns as rows. Narrower ones have few bytes and much influence, as
/// those of the router of experts.
constexpr int64_t kNarrowest = 8;

/// The most ranges of rows that a product of experts multiplies, and the fewest zero rows between two ranges.
constexpr size_t kMostSpans = 64;
constexpr int64_t kLeastGap = 16;

/// Returns the predicted cycles of a product in tiles of this size: 32 multiply-adds per cycle and one packed element
/// per cycle.
double predictedCycles(int64_t m, int64_t n, int64_t k, int64_t batch, Tiling tiling, int threads) {
  constexpr double kStartCycles = 3000;
  int64_t tiles = batch * ((m + tiling.rows - 1) / tiling.rows) * ((n + tiling.columns - 1) / tiling.columns);
  double rows = static_cast<double>(tiling.rows), columns = static_cast<double>(tiling.columns);
  double depth = static_cast<double>(k);
  double tile = kStartCycles + rows * columns * depth / 32 + rows * depth + columns * depth;
  return static_cast<double>((tiles + threads - 1) / threads) * tile;
}

/// Returns the tiling with the least predicted time; ties go to the larger tile.
Tiling chooseTiling(int64_t m, int64_t n, int64_t k, int64_t batch, Tiling largest, int threads) {
  Tiling best{};
  double least = -1;
  m = std::max<int64_t>(m, 1);
  n = std::max<int64_t>(n, 1);
  int64_t fewestRows = (m + largest.rows - 1) / largest.rows;
  int64_t fewestColumns = (n + largest.columns - 1) / largest.columns;
  // Each row of tiles reads b.
  int64_t mostRows = m <= kMostRowsOfDecoding ? fewestRows : fewestRows + 7;
  for (int64_t down = fewestRows; down <= mostRows; ++down)
    for (int64_t across = fewestColumns; across < fewestColumns + 8; ++across) {
      int64_t columns = (n + across - 1) / across;
      Tiling tiling{(m + down - 1) / down, (columns + kColumnStep - 1) / kColumnStep * kColumnStep};
      double cycles = predictedCycles(m, n, k, batch, tiling, threads);
      if (least < 0 || cycles < least) {
        least = cycles;
        best = tiling;
      }
    }
  return best;
}

class Matmul final : public LibraryKernel {
public:
  explicit Matmul(const KernelRequest &request)
      : loops_(request.loops), transposeA_(request.call.transpose_a()), transposeB_(request.call.transpose_b()) {
    const pb::LibraryCall &call = request.call;
    hasBias_ = call.epilogue() == pb::LibraryCall::BIAS;
    if (call.epilogue() != pb::LibraryCall::NONE && !hasBias_)
      CallReader::refuse(call, "has an epilogue, which this target has not");
    CallReader reader(call, request.types);
    m_ = reader.size("m");
    n_ = reader.size("n");
    k_ = reader.size("k");
    batch_ = reader.size("batch");
    isQuantized_ = request.quantizes && !transposeA_ && n_ * kNarrowest >= k_;
    a_ = reader.storage("a");
    b_ = reader.storage("b");
    c_ = reader.storage("c");
    if (hasBias_) {
      if (k_ == 0 || batch_ != 1 || call.store() != pb::OVERWRITE)
        reader.refuse("has a bias, which requires k above 0, one matrix and a result that is overwritten");
      if (reader.storage("bias") != c_)
        reader.refuse("has a bias of another type than its result");
    }
    // When decoding, perhaps only one expert has tokens, so the tiles of one product must keep all threads busy.
    Tiling tiling = chooseTiling(m_, n_, k_, hasFewRows() ? 1 : std::max<int64_t>(batch_, 1),
                                 hasFewRows()         ? kLargestOfFewRows
                                 : c_ == Storage::F32 ? kLargest
                                                      : kLargestWithSums,
                                 request.threads);
    down_ = {m_, tiling.rows};
    across_ = {n_, tiling.columns};
    rowsFastest_ = m_ < n_;
  }

  int64_t parts() const override { return batch_ * down_.count() * across_.count(); }

  size_t scratchBytesPerThread() const override {
    cpu::GemmTask largest = {};
    largest.a.storage = a_;
    largest.b.storage = b_;
    largest.c.storage = c_;
    largest.m = std::min(m_, down_.unitsPerPiece);
    largest.n = std::min(n_, across_.unitsPerPiece);
    largest.k = k_;
    largest.isUnpacked = hasFewRows();
    size_t bytes = loops_.gemmScratchBytes(largest);
    if (!hasFewRows() || !packedLayout())
      return bytes;
    constexpr float weights = 0; // no scratch for b
    largest.isUnpacked = false;
    largest.isQuantized = isQuantized_;
    largest.packed = &weights;
    return std::max(bytes, loops_.gemmScratchBytes(largest));
  }

  std::optional<PackedLayout> packedLayout() const override {
    // Few rows are bound by the bytes of b, and packed elements of 16 bits may take 32.
    if ((hasFewRows() && b_ != Storage::F32 && !isQuantized_) || k_ == 0)
      return std::nullopt;
    return PackedLayout{k_, n_, batch_, transposeB_, static_cast<int>(a_), static_cast<int>(b_), isQuantized_};
  }
  /// Few rows of a transposed b are dot products, whose sums have another order.
  bool hasEqualRows() const override { return !hasFewRows() || !transposeB_ || isQuantized_; }
  bool wantsPacked() const override { return packedLayout() && (isQuantized_ || m_ <= kMostRowsOfDecoding); }
  size_t packedBytes() const override { return static_cast<size_t>(batch_ * floatsBefore(n_)) * sizeof(float); }
  int64_t packParts() const override { return batch_ * packed().count(); }

  void pack(const void *weights, void *to, int64_t part) const override {
    int64_t matrix = part / packed().count();
    Piece columns = packed()[part % packed().count()];
    cpu::GemmTask task = columnsOfB(columns.end - columns.begin);
    task.b = operand(const_cast<void *>(weights), b_, matrix * k_ * n_, !transposeB_, columns.begin, n_, k_);
    task.b.transposed = transposeB_;
    loops_.packWeights(task, static_cast<float *>(to) + matrix * floatsBefore(n_) + floatsBefore(columns.begin));
  }

  void run(const CallArguments &arguments, int64_t part, void *threadScratch) const override {
    int64_t tiles = down_.count() * across_.count();
    int64_t matrix = part / tiles, tile = part % tiles;
    // Iterates over the smaller operand first, so that it stays in the shared cache while the larger one streams.
    Piece rows = neededRows(arguments, down_[rowsFastest_ ? tile % down_.count() : tile / across_.count()]);
    Piece columns = across_[rowsFastest_ ? tile / down_.count() : tile % across_.count()];
    if (rows.begin >= rows.end)
      return;
    cpu::GemmTask task;
    task.a = operand(arguments.buffers[0], a_, matrix * m_ * k_, transposeA_, rows.begin, m_, k_);
    task.b = operand(arguments.buffers[1], b_, matrix * k_ * n_, !transposeB_, columns.begin, n_, k_);
    task.b.transposed = transposeB_;
    task.c = operand(arguments.buffers[2], c_, matrix * m_ * n_ + columns.begin, false, rows.begin, m_, n_);
    task.m = rows.end - rows.begin;
    task.n = columns.end - columns.begin;
    task.k = k_;
    task.accumulate = arguments.adds;
    std::array<cpu::Span, kMostSpans> spans;
    if (batch_ > 1) {
      Piece lines = transposeA_ ? Piece{0, k_} : rows;
      task.lines = filledLines(arguments.buffers[0], matrix, lines, spans);
      if (task.lines.empty())
        return task.accumulate ? void() : clear(task);
    }
    if (hasBias_)
      task.bias = static_cast<const char *>(arguments.buffers[3]) + columns.begin * bytesOf(c_);
    if (arguments.packed)
      task.packed =
          static_cast<const float *>(arguments.packed) + matrix * floatsBefore(n_) + floatsBefore(columns.begin);
    task.scratch = threadScratch;
    task.isUnpacked = hasFewRows() && !arguments.packed;
    task.isQuantized = isQuantized_ && arguments.packed;
    loops_.gemm(task);
  }

private:
  /// Returns the ranges of stored rows of a that are not zero, relative to the first of `lines`. Rows of experts are
  /// zero if no token has the slot. Zero rows between close ranges are included. The check of a row ends at the first
  /// byte that is not zero, so it costs little for rows with tokens. Whole rows are checked, because the ranges must
  /// not depend on the tiles.
  std::span<const cpu::Span> filledLines(const void *a, int64_t matrix, Piece lines,
                                         std::array<cpu::Span, kMostSpans> &spans) const {
    size_t count = 0, bytes = static_cast<size_t>((transposeA_ ? m_ : k_) * bytesOf(a_));
    const char *row = static_cast<const char *>(a) + static_cast<size_t>(matrix * m_ * k_ * bytesOf(a_)) +
                      static_cast<size_t>(lines.begin) * bytes;
    for (int64_t line = 0; line < lines.end - lines.begin && bytes > 0; ++line, row += bytes) {
      if (row[0] == 0 && std::memcmp(row, row + 1, bytes - 1) == 0)
        continue;
      if (count == 0 || (line >= spans[count - 1].end + kLeastGap && count < kMostSpans))
        spans[count++].begin = line;
      spans[count - 1].end = line + 1;
    }
    return std::span(spans).first(count);
  }

  static void clear(const cpu::GemmTask &task) {
    for (int64_t row = 0; row < task.m; ++row)
      std::memset(static_cast<char *>(task.c.data) + row * task.c.stride * bytesOf(task.c.storage), 0,
                  static_cast<size_t>(task.n * bytesOf(task.c.storage)));
  }

  /// Returns the parts in which b is packed.
  Pieces packed() const { return {n_, kLargest.columns}; }

  /// Returns the floats of the first `columns` columns of a packed b.
  int64_t floatsBefore(int64_t columns) const { return columns > 0 ? loops_.packedFloats(columnsOfB(columns)) : 0; }

  /// Returns a task for packing `columns` columns of b.
  cpu::GemmTask columnsOfB(int64_t columns) const {
    cpu::GemmTask task = {};
    task.a.storage = a_;
    task.b.storage = b_;
    task.c.storage = c_;
    task.m = m_;
    task.n = columns;
    task.k = k_;
    task.isQuantized = isQuantized_;
    return task;
  }

  /// Depends on the whole product and not on a tile, because tiles depend on the number of threads and results must
  /// not.
  bool hasFewRows() const { return m_ <= kLargestOfFewRows.rows; }

  /// Returns the matrix from line `first` on. Memory holds [lines, width], or [width, lines] if `across`.
  static cpu::Matrix operand(void *base, Storage storage, int64_t offset, bool across, int64_t first, int64_t lines,
                             int64_t width) {
    int64_t start = offset + (across ? first : first * width);
    return {static_cast<char *>(base) + start * bytesOf(storage), storage, across ? lines : width, across};
  }

  const cpu::Loops &loops_;
  bool transposeA_, transposeB_, rowsFastest_ = false, hasBias_ = false, isQuantized_;
  int64_t m_, n_, k_, batch_;
  Storage a_, b_, c_;
  Pieces down_, across_;
};

} // namespace

template <> std::unique_ptr<LibraryKernel> makeKernel<pb::LibraryCall::MATMUL>(const KernelRequest &request) {
  return std::make_unique<Matmul>(request);
}

} // namespace espalier::rt
