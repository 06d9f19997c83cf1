// The gradient of attention. Probabilities are recomputed from lse. With p the probabilities, r the dropout factors (0
// or 1 / (1 - rate)) and delta = sum over a row of dout * out:
//   dv = (p r)^T dout,  ds = p (r * dout v^T - delta),  dq = scale ds k,  dk = scale ds^T q.
// A soft cap multiplies ds by the derivative of the capped score.
// Two kernels: one computes dq by blocks of queries and stores delta; one computes dk and dv by blocks of keys, each of
// which loops over the queries of its group in order. No two blocks add to one element, so the order of all sums is
// fixed.
#include "compiler/codegen/cuda/attention.h"
#include "compiler/codegen/cuda/special_kernels.h"

#include <numbers>

using namespace mlir;

namespace espalier::codegen::cuda {

namespace {

/// The work on a tile of scores that both gradients share.
class Gradient {
public:
  Gradient(KernelFunction &f, const AttentionConfig &config, AttentionPass pass, bool ofKeys)
      : block(f, config, attentionTiles(pass, config), ofKeys), f(f), sizes(block.sizes), firstTile(block.integer(0)),
        secondTile(block.integer(sizes.rows * sizes.ofKeys().pitch())),
        streamed(sizes.rows * (sizes.ofKeys().pitch() + sizes.ofValues().pitch())),
        statistics(streamed + sizes.stages * sizes.pairBytes() + sizes.scratchBytes()),
        tiles(Tiles::make(f, sizes, block.integer(streamed + sizes.stages * sizes.pairBytes()))) {}

protected:
  Expr firstStreamed(Expr buffer) { return buffer * sizes.pairBytes() + streamed; }
  Expr secondStreamed(Expr buffer) { return firstStreamed(buffer) + sizes.columns * sizes.ofKeys().pitch(); }

  std::vector<Variable> zeroSums(TileDepth depth) {
    std::vector<Variable> sums;
    for (size_t i = 0; i < tiles->rows.size() * tiles->sumSlots(depth); ++i)
      sums.emplace_back(block.number(0));
    return sums;
  }

  /// Computes sums += weights times the tile at `b`.
  void add(std::vector<Variable> &sums, const Grid &weights, Expr b, TileDepth depth) {
    Grid before(tiles->rows.size());
    int slots = tiles->sumSlots(depth);
    for (size_t i = 0; i < sums.size(); ++i)
      before[i / slots].push_back(sums[i].get());
    Grid after = tiles->multiplyAlong(weights, b, before, depth);
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i].set(after[i / slots][i % slots]);
  }

  /// Stores the block's rows, multiplied by `factor`.
  void store(const std::vector<Variable> &sums, double factor, Expr count, TileDepth depth,
             const std::function<TileSource(Expr)> &placeOf) {
    int slots = tiles->sumSlots(depth);
    for (size_t row = 0; row < tiles->rows.size(); ++row) {
      std::vector<Expr> result;
      for (int slot = 0; slot < slots; ++slot)
        result.push_back(sums[row * slots + slot].get() * factor);
      Expr index = block.first + tiles->rows[row];
      when(index < count, [&] { tiles->storeRow(result, placeOf(index).base, depth); });
    }
  }

  /// Returns the derivatives of scores, before any of them is hidden; empty without a soft cap.
  Grid slopesOf(const Grid &scores) {
    Grid slopes;
    for (size_t row = 0; block.config.softCap > 0 && row < scores.size(); ++row) {
      slopes.emplace_back();
      for (Expr score : scores[row])
        slopes.back().push_back(block.slopeOf(score));
    }
    return slopes;
  }

  TileDepth ofKeys() const { return sizes.ofKeys(); }
  TileDepth ofValues() const { return sizes.ofValues(); }
  double unit() const { return block.unit(); }
  double keptFactor() const { return 1 / (1 - block.config.rate); }

  AttentionBlock block;
  KernelFunction &f;
  const TileSizes &sizes;
  Expr firstTile, secondTile; ///< offsets in shared memory
  int64_t streamed, statistics;
  std::unique_ptr<Tiles> tiles;
};

/// Rows are keys; columns are the queries of one head after the other.
class KeyGradient : Gradient {
public:
  KeyGradient(KernelFunction &f, const AttentionConfig &config)
      : Gradient(f, config, AttentionPass::KeyGradient, /*ofKeys=*/true) {
    Expr firstQuery = config.isCausal ? block.queriesBefore(block.first) : block.integer(0);
    firstColumns = firstQuery / sizes.columns;
    Expr endQuery = block.queryCount;
    if (block.hasWindow()) // the block's last key is in the window of `window` queries
      endQuery = atMost(endQuery, block.queriesBefore(block.first + (sizes.rows - 1 + config.window)));
    if (block.hasDocuments())
      endQuery = atMost(endQuery, block.endOfDocuments(block.first + (sizes.rows - 1)));
    perHead = atLeast(ceilDivide(endQuery, sizes.columns) - firstColumns, 0);
  }

  void build() {
    tiles->startCopy(block.keys("k", block.first), sizes.rows, firstTile, ofKeys());
    tiles->startCopy(block.keys("v", block.first), sizes.rows, secondTile, ofValues());
    if (std::max(sizes.headDim, sizes.valueDim) <= 128) {
      run(/*withValues=*/true, /*withKeys=*/true);
      return;
    }
    // Two passes, because the sums of both gradients do not fit in the registers.
    run(/*withValues=*/true, /*withKeys=*/false);
    f.barrier();
    run(/*withValues=*/false, /*withKeys=*/true);
  }

private:
  void run(bool withValues, bool withKeys) {
    std::vector<Variable> keySums, valueSums;
    if (withKeys)
      keySums = zeroSums(ofKeys());
    if (withValues)
      valueSums = zeroSums(ofValues());
    block.stream(
        *tiles, block.group * perHead, [&](Expr tile, Expr buffer) { issue(tile, buffer); },
        [&](Expr tile, Expr buffer) {
          Expr lastQuery = queryOf(tile) + (sizes.columns - 1);
          Expr isSeen = block.first + tiles->firstRow <= block.positionOf(lastQuery);
          if (block.hasWindow())
            isSeen = isSeen & (block.first + tiles->lastRow + block.config.window > block.positionOf(queryOf(tile)));
          if (block.hasDocuments())
            isSeen = isSeen & (documentOf(buffer, queryOf(tile), block.integer(0)) <= block.first + tiles->lastRow);
          block.whenSeen(isSeen, [&] { use(tile, buffer, keySums, valueSums); });
        });
    if (withKeys)
      store(keySums, block.config.scale, block.keyCount, ofKeys(), [&](Expr key) { return block.keys("dk", key); });
    if (withValues)
      store(valueSums, keptFactor(), block.keyCount, ofValues(), [&](Expr key) { return block.keys("dv", key); });
  }

  Expr headOf(Expr tile) { return block.head + tile / atLeast(perHead, 1); }
  Expr queryOf(Expr tile) { return (firstColumns + tile % atLeast(perHead, 1)) * sizes.columns; }
  Expr sharedFloat(Expr offset) { return loadValue(sharedAt(f, offset), f.b.getF32Type()); }
  Expr lseOf(Expr buffer) { return buffer * ((block.hasDocuments() ? 3 : 2) * sizes.columns * 4) + statistics; }
  /// Returns visible_from of a query of the tile that begins with `firstQuery`, at most the query's position.
  Expr documentOf(Expr buffer, Expr firstQuery, Expr column) {
    Expr begin = loadValue(sharedAt(f, lseOf(buffer) + (column + 2 * sizes.columns) * 4), f.b.getI32Type());
    return atMost(begin, block.positionOf(firstQuery, column));
  }

  void issue(Expr tile, Expr buffer) {
    Expr head = headOf(tile), query = queryOf(tile);
    tiles->startCopy(block.queries("q", head, query), sizes.columns, firstStreamed(buffer), ofKeys());
    tiles->startCopy(block.queries("dout", head, query), sizes.columns, secondStreamed(buffer), ofValues());
    tiles->startFloats(block.statistics("lse", head, query), sizes.columns, lseOf(buffer));
    tiles->startFloats(block.statistics("delta", head, query), sizes.columns, lseOf(buffer) + sizes.columns * 4);
    if (block.hasDocuments())
      tiles->startFloats(block.documents(query), sizes.columns, lseOf(buffer) + 2 * sizes.columns * 4);
  }

  /// Queries after the last are zeros and add nothing.
  Grid hide(const Grid &scores, Expr firstQuery, Expr buffer) {
    if (!block.config.isCausal)
      return scores;
    Expr isNeeded = block.first + sizes.rows > block.positionOf(firstQuery) + 1;
    if (block.hasWindow())
      isNeeded = isNeeded |
                 (block.first + block.config.window <= block.positionOf(firstQuery, block.integer(sizes.columns - 1)));
    if (block.hasDocuments()) {
      Expr last = atMost(block.queryCount - 1 - firstQuery, sizes.columns - 1);
      isNeeded = isNeeded | (block.first < documentOf(buffer, firstQuery, last));
    }
    return hideScores(scores, isNeeded, [&](size_t row, size_t column) {
      Expr key = block.first + tiles->rows[row], query = block.positionOf(firstQuery, tiles->columns[column]);
      if (!block.hasDocuments())
        return block.hasWindow() ? block.isInWindow(query - key) : key <= query;
      Expr earlier = query - documentOf(buffer, firstQuery, tiles->columns[column]);
      if (block.hasWindow())
        earlier = atMost(earlier, block.config.window - 1);
      return unsignedAtLeast(earlier, query - key); // a later key has a large unsigned distance
    });
  }

  void use(Expr tile, Expr buffer, std::vector<Variable> &keySums, std::vector<Variable> &valueSums) {
    Expr head = headOf(tile), firstQuery = queryOf(tile);
    // The sign of a weight encodes whether dropout drops it.
    Grid scores = tiles->multiplyAcross(firstTile, firstStreamed(buffer), ofKeys());
    block.limit(scores);
    Grid scoreSlopes = slopesOf(scores), weights = hide(scores, firstQuery, buffer), kept = weights;
    for (size_t column = 0; column < tiles->columns.size(); ++column) {
      Expr subtract = sharedFloat(lseOf(buffer) + tiles->columns[column] * 4) * std::numbers::log2e;
      for (size_t row = 0; row < weights.size(); ++row) {
        Expr &weight = weights[row][column];
        weight = kept[row][column] = exp2(weight * unit() - subtract);
        if (block.config.rate > 0) {
          Expr query = firstQuery + tiles->columns[column], key = block.first + tiles->rows[row];
          weight = select(block.isKept(head, query, key), weight, weight * -1.0);
          kept[row][column] = atLeast(weight, 0.0);
        }
      }
    }
    if (!valueSums.empty())
      add(valueSums, kept, secondStreamed(buffer), ofValues());
    if (keySums.empty())
      return;
    Grid slopes = tiles->multiplyAcross(secondTile, secondStreamed(buffer), ofValues());
    for (size_t column = 0; column < tiles->columns.size(); ++column) {
      Expr delta = sharedFloat(lseOf(buffer) + (tiles->columns[column] + sizes.columns) * 4);
      for (size_t row = 0; row < weights.size(); ++row) {
        Expr weight = weights[row][column], slope = slopes[row][column];
        if (block.config.rate > 0) {
          slope = select(weight >= 0.0, slope * keptFactor(), 0.0);
          weight = atLeast(weight, weight * -1.0);
        }
        slopes[row][column] = weight * (slope - delta);
        if (!scoreSlopes.empty())
          slopes[row][column] = slopes[row][column] * scoreSlopes[row][column];
      }
    }
    add(keySums, slopes, firstStreamed(buffer), ofKeys());
  }

  Expr firstColumns, perHead; ///< tiles of queries that are masked, and that are not
};

/// Rows are queries; columns are keys.
class QueryGradient : Gradient {
public:
  QueryGradient(KernelFunction &f, const AttentionConfig &config)
      : Gradient(f, config, AttentionPass::QueryGradient, /*ofKeys=*/false), sums(zeroSums(ofKeys())) {}

  void build() {
    tiles->startCopy(block.queries("q", block.head, block.first), sizes.rows, firstTile, ofKeys());
    tiles->startCopy(block.queries("dout", block.head, block.first), sizes.rows, secondTile, ofValues());
    for (Expr row : tiles->rows) {
      visible.push_back(block.visibleKeys(block.first + row));
      lse.push_back(statistic("lse", row) * std::numbers::log2e);
      delta.push_back(makeDelta(row));
    }
    if (block.hasDocuments())
      block.loadDocuments(*tiles, visible);
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
          if (sizes.columns > 32) // without a branch, fewer registers are live
            return use(firstKey, buffer);
          block.whenSeen(block.seesTile(firstKey, *tiles), [&] { use(firstKey, buffer); });
        });
    store(sums, block.config.scale, block.queryCount, ofKeys(),
          [&](Expr query) { return block.queries("dq", block.head, query); });
  }

private:
  /// Loads a statistic of a row of the block; rows after the last query use the last query.
  Expr statistic(StringRef operand, Expr row) {
    Expr query = atMost(block.first + row, block.queryCount - 1);
    return loadValue(block.statistics(operand, block.head, query).base, f.b.getF32Type());
  }

  /// Computes delta, which is subtracted from every slope of a row. The lanes of a row load 16 bytes of dout and out
  /// each in turn.
  Expr makeDelta(Expr row) {
    Expr query = atMost(block.first + row, block.queryCount - 1);
    Expr out = block.queries("out", block.head, query).base, dout = block.queries("dout", block.head, query).base;
    int perPiece = static_cast<int>(16 / sizes.elementBytes());
    Variable sum(block.number(0));
    for (int64_t first = 0; first < sizes.valueDim; first += tiles->rowLanes * perPiece) {
      Expr d = tiles->rowLane * perPiece + first;
      when(d < sizes.valueDim, [&] {
        std::vector<Expr> a = loadElements(elementAt(out, d, sizes.element), sizes.element, perPiece);
        std::vector<Expr> b = loadElements(elementAt(dout, d, sizes.element), sizes.element, perPiece);
        for (int i = 0; i < perPiece; ++i)
          sum.set(sum.get() + a[i] * b[i]);
      });
    }
    Expr total = tiles->reduceRow(sum.get(), Reduction::Add);
    when((block.first + row < block.queryCount) & (tiles->rowLane == 0),
         [&] { storeValue(total, block.statistics("delta", block.head, query).base); });
    return total;
  }

  /// Returns the first key of a tile; tiles before the first visible key of the block are left out.
  Expr keyOf(Expr tile) { return block.hidesEarlyKeys() ? (tile + hiddenTiles) * sizes.columns : tile * sizes.columns; }

  void issue(Expr firstKey, Expr buffer) {
    tiles->startCopy(block.keys("k", firstKey), sizes.columns, firstStreamed(buffer), ofKeys());
    tiles->startCopy(block.keys("v", firstKey), sizes.columns, secondStreamed(buffer), ofValues());
  }

  void use(Expr firstKey, Expr buffer) {
    Expr isNeeded = firstKey + sizes.columns > block.visibleKeys(block.first);
    if (block.hidesEarlyKeys())
      isNeeded = isNeeded | (firstKey < block.firstOfLastRow());
    Grid scores = tiles->multiplyAcross(firstTile, firstStreamed(buffer), ofKeys());
    block.limit(scores);
    Grid scoreSlopes = slopesOf(scores);
    Grid weights = hideScores(scores, isNeeded, [&](size_t row, size_t column) {
      return block.isVisible(row, visible[row], firstKey + tiles->columns[column]);
    });
    Grid slopes = tiles->multiplyAcross(secondTile, secondStreamed(buffer), ofValues());
    for (size_t row = 0; row < weights.size(); ++row)
      for (size_t column = 0; column < tiles->columns.size(); ++column) {
        Expr weight = exp2(weights[row][column] * unit() - lse[row]), slope = slopes[row][column];
        if (block.config.rate > 0)
          slope = select(block.isKept(block.head, block.first + tiles->rows[row], firstKey + tiles->columns[column]),
                         slope * keptFactor(), 0);
        slopes[row][column] = weight * (slope - delta[row]);
        if (!scoreSlopes.empty())
          slopes[row][column] = slopes[row][column] * scoreSlopes[row][column];
      }
    add(sums, slopes, firstStreamed(buffer), ofKeys());
  }

  Expr hiddenTiles; ///< tiles of keys before the first visible key of the block
  std::vector<Variable> sums;
  std::vector<Expr> visible, lse, delta; ///< per row
};

} // namespace

template <> LogicalResult build<SpecialKernel::attention_key_gradient>(KernelFunction &f, exec::KernelOp kernel) {
  KeyGradient(f, AttentionConfig::of(*kernel.getParameters())).build();
  return success();
}

template <> LogicalResult build<SpecialKernel::attention_query_gradient>(KernelFunction &f, exec::KernelOp kernel) {
  QueryGradient(f, AttentionConfig::of(*kernel.getParameters())).build();
  return success();
}

} // namespace espalier::codegen::cuda
