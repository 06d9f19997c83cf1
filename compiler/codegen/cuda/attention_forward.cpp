// Attention forward. A block has a tile of queries of one head and loops over the keys that they attend to. For each
// query it keeps the maximum score, the sum of exp(score - maximum) and the weighted sum of values (Dao,
// "FlashAttention-2", 2023). Scores stay in registers.
#include "compiler/codegen/cuda/attention.h"
#include "compiler/codegen/cuda/special_kernels.h"

#include <limits>
#include <numbers>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

class Forward {
public:
  Forward(KernelFunction &f, const AttentionConfig &config, bool storesMaxima)
      : storesMaxima(storesMaxima), block(f, config, attentionTiles(AttentionPass::Forward, config), /*ofKeys=*/false),
        f(f), sizes(block.sizes), queryTile(block.integer(0)), streamed(sizes.rows * sizes.ofKeys().pitch()),
        tiles(Tiles::make(f, sizes, block.integer(streamed + sizes.stages * sizes.pairBytes()))),
        slots(tiles->sumSlots(sizes.ofValues())) {
    for (Expr row : tiles->rows) {
      Expr query = block.first + row;
      visible.push_back(block.visibleKeys(query));
      maxima.emplace_back(block.number(-std::numeric_limits<double>::infinity()));
      totals.emplace_back(block.number(0));
      for (int slot = 0; slot < slots; ++slot)
        sums.emplace_back(block.number(0));
    }
    if (block.hasDocuments())
      block.loadDocuments(*tiles, visible);
  }

  void build() {
    tiles->startCopy(block.queries("q", block.head, block.first), sizes.rows, queryTile, sizes.ofKeys());
    Expr last = atMost(block.first + sizes.rows, block.queryCount) - 1;
    Expr seen = ceilDivide(block.visibleKeys(last), sizes.columns);
    if (block.hidesEarlyKeys()) {
      hiddenTiles = block.firstOfBlock() / sizes.columns;
      seen = seen - hiddenTiles;
    }
    block.stream(
        *tiles, seen, [&](Expr tile, Expr buffer) { issue(keyOf(tile), buffer); },
        [&](Expr tile, Expr buffer) {
          Expr firstKey = keyOf(tile);
          block.whenSeen(block.seesTile(firstKey, *tiles), [&] { use(firstKey, buffer); });
        });
    for (size_t row = 0; row < tiles->rows.size(); ++row)
      finish(row);
  }

private:
  Expr keyTile(Expr buffer) { return buffer * sizes.pairBytes() + streamed; }
  Expr valueTile(Expr buffer) { return keyTile(buffer) + sizes.columns * sizes.ofKeys().pitch(); }

  /// Returns the first key of a tile; tiles before the first visible key of the block are left out.
  Expr keyOf(Expr tile) { return block.hidesEarlyKeys() ? (tile + hiddenTiles) * sizes.columns : tile * sizes.columns; }

  void issue(Expr firstKey, Expr buffer) {
    tiles->startCopy(block.keys("k", firstKey), sizes.columns, keyTile(buffer), sizes.ofKeys());
    tiles->startCopy(block.keys("v", firstKey), sizes.columns, valueTile(buffer), sizes.ofValues());
  }

  Grid hide(const Grid &scores, Expr firstKey) {
    Expr isNeeded = firstKey + sizes.columns > block.visibleKeys(block.first);
    if (block.hidesEarlyKeys())
      isNeeded = isNeeded | (firstKey < block.firstOfLastRow());
    return hideScores(scores, isNeeded, [&](size_t row, size_t column) {
      return block.isVisible(row, visible[row], firstKey + tiles->columns[column]);
    });
  }

  void use(Expr firstKey, Expr buffer) {
    Grid scores = tiles->multiplyAcross(queryTile, keyTile(buffer), sizes.ofKeys());
    block.limit(scores);
    Grid weights = hide(scores, firstKey);
    Grid shrunk(weights.size());
    for (size_t row = 0; row < weights.size(); ++row) {
      Expr shrink = addRow(row, weights[row]);
      for (int slot = 0; slot < slots; ++slot)
        shrunk[row].push_back(sums[row * slots + slot].get() * shrink);
      if (block.config.rate > 0)
        for (size_t column = 0; column < weights[row].size(); ++column) {
          Expr isKept = block.isKept(block.head, block.first + tiles->rows[row], firstKey + tiles->columns[column]);
          weights[row][column] = select(isKept, weights[row][column], 0);
        }
    }
    Grid added = tiles->multiplyAlong(weights, valueTile(buffer), shrunk, sizes.ofValues());
    for (size_t row = 0; row < added.size(); ++row)
      for (int slot = 0; slot < slots; ++slot)
        sums[row * slots + slot].set(added[row][slot]);
  }

  /// Replaces scores by exp(scale * (score - maximum)). Returns the factor that rescales earlier sums.
  Expr addRow(size_t row, std::vector<Expr> &scores) {
    Expr before = maxima[row].get(), maximum = scores[0];
    for (Expr score : scores)
      maximum = atLeast(maximum, score);
    maximum = atLeast(before, tiles->reduceRow(maximum, Reduction::Max));
    maxima[row].set(maximum);
    Expr subtract = maximum * unit(), total = block.number(0);
    if (block.hidesEarlyKeys()) // the row may have seen no key yet, and -inf - -inf is NaN
      subtract = select(maximum > -std::numeric_limits<double>::infinity(), subtract, 0);
    Expr shrink = exp2(before * unit() - subtract);
    for (Expr &score : scores) {
      score = exp2(score * unit() - subtract);
      total = total + score;
    }
    totals[row].set(totals[row].get() * shrink + total); // over this thread's columns
    return shrink;
  }

  void finish(size_t row) {
    const AttentionConfig &config = block.config;
    Expr total = tiles->reduceRow(totals[row].get(), Reduction::Add);
    Expr query = block.first + tiles->rows[row];
    Expr factor(f, f.reciprocal(total.get()));
    std::vector<Expr> out;
    for (int slot = 0; slot < slots; ++slot)
      out.push_back(sums[row * slots + slot].get() * (factor * (1 / (1 - config.rate))));
    when(query < block.queryCount, [&] {
      tiles->storeRow(out, block.queries("out", block.head, query).base, sizes.ofValues());
      Expr lse = (maxima[row].get() * unit() + log2(total)) * std::numbers::ln2;
      storeValue(lse, block.statistics("lse", block.head, query).base);
      if (storesMaxima)
        storeValue(maxima[row].get() * (config.softCap > 0 ? 1 : config.scale),
                   block.statistics("largest", block.head, query).base);
    });
  }

  double unit() const { return block.unit(); }

  const bool storesMaxima;
  AttentionBlock block;
  KernelFunction &f;
  const TileSizes &sizes;
  Expr queryTile; ///< offsets in shared memory
  int64_t streamed;
  std::unique_ptr<Tiles> tiles;
  int slots;                 ///< of a row of sums
  Expr hiddenTiles;          ///< tiles of keys before the first visible key of the block
  std::vector<Expr> visible; ///< per row: end of the keys that it attends to
  std::vector<Variable> maxima, totals, sums;
};

} // namespace

template <> LogicalResult build<SpecialKernel::attention_forward>(KernelFunction &f, exec::KernelOp kernel) {
  Forward(f, AttentionConfig::of(*kernel.getParameters()), /*storesMaxima=*/false).build();
  return success();
}

template <> LogicalResult build<SpecialKernel::attention_forward_maxima>(KernelFunction &f, exec::KernelOp kernel) {
  Forward(f, AttentionConfig::of(*kernel.getParameters()), /*storesMaxima=*/true).build();
  return success();
}

} // namespace espalier::codegen::cuda
