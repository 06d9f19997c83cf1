// Code shared by the attention kernels: the block's part of the tensors, positions and masks, dropout.
//
// Layouts: q and its gradient [batch, seq, kv_heads, group, head_dim]; k and its gradient [batch, keys, kv_heads,
// head_dim]; out, v and their gradients likewise with value_dim for head_dim; lse and delta f32 [batch, seq, kv_heads,
// group]; visible_from i32 [batch, seq].
#pragma once

#include "compiler/codegen/cuda/tiles.h"

#include <numbers>

namespace espalier::codegen::cuda {

/// The compile-time parameters of a kernel.
struct AttentionConfig {
  mlir::Type element;
  int64_t headDim, valueDim;
  bool isCausal, isPart; ///< `isPart`: q has only a shard of the sequence
  double scale, rate;
  int64_t window;    ///< keys that a query attends to, itself last; 0: no limit
  double softCap;    ///< c: scores s become c tanh(s / c); 0: none
  bool hasDocuments; ///< the operand visible_from limits the keys
  bool isZigzag;     ///< the queries are two runs of positions

  /// Convert from and to the attributes of a kernel.
  static AttentionConfig of(mlir::DictionaryAttr parameters);
};

/// The three attention kernels, each with its own tile sizes.
enum class AttentionPass { Forward, KeyGradient, QueryGradient };
TileSizes attentionTiles(AttentionPass pass, const AttentionConfig &config);
/// Returns the dynamic shared memory of a block in bytes.
int64_t attentionSharedBytes(AttentionPass pass, const AttentionConfig &config);

/// Sets scores to -infinity where `isSeen(row slot, column slot)` is false. Skipped unless `isNeeded`, which must be
/// equal for all threads.
Grid hideScores(const Grid &scores, Expr isNeeded, const std::function<Expr(size_t, size_t)> &isSeen);

/// An attention kernel under construction: its sizes and the position of the block, which processes one tile of one
/// head.
class AttentionBlock {
public:
  /// If `ofKeys`, blocks are tiles of keys of a key-value head, else tiles of queries of a query head.
  AttentionBlock(KernelFunction &f, const AttentionConfig &config, const TileSizes &sizes, bool ofKeys);

  /// Returns the rows of q, out or a gradient of them from query `first` of query head `head` on.
  TileSource queries(llvm::StringRef operand, Expr head, Expr first);
  /// Returns rows of k, v or a gradient of them for the block's key-value head.
  TileSource keys(llvm::StringRef operand, Expr first);
  /// Returns rows of an lse-like operand.
  TileSource statistics(llvm::StringRef operand, Expr head, Expr first);
  /// Returns the query's position. Positions increase with queries.
  Expr positionOf(Expr query);
  /// Returns the position of the query that comes `inside` after `query`. Kernels compute the position of `query` once
  /// for many such queries, unless in zigzag order.
  Expr positionOf(Expr query, Expr inside);
  /// Returns the number of queries at positions before `key`.
  Expr queriesBefore(Expr key);
  /// Returns the end of the keys that the query attends to.
  Expr visibleKeys(Expr query);
  /// Returns the first key that the query attends to. Queries after the last belong to the last query's document.
  Expr firstVisible(Expr query);
  bool hasWindow() const { return config.window > 0; }
  bool hasDocuments() const { return config.hasDocuments; }
  /// Returns whether keys before the causal mask's border can be hidden.
  bool hidesEarlyKeys() const { return hasWindow() || hasDocuments(); }
  /// Loads the first visible keys of the rows of a block of queries, once. Call if hasDocuments(), before the next
  /// three functions.
  void loadDocuments(const Tiles &tiles, const std::vector<Expr> &visible);
  /// Return the first key that the first and the last query of the block attend to.
  Expr firstOfBlock() { return hasDocuments() ? blockFrom : firstVisible(first); }
  Expr firstOfLastRow() { return hasDocuments() ? lastFrom : firstVisible(first + (sizes.rows - 1)); }
  /// Returns whether the row in slot `row` attends to a key; `visible` is the end of the row's keys.
  Expr isVisible(size_t row, Expr visible, Expr key);
  /// Returns rows of visible_from.
  TileSource documents(Expr first);
  /// Returns an upper bound of the queries that attend to `lastKey` or earlier keys: exact for up to 1024 queries, and
  /// within 1/1024 of the queries otherwise. All threads take part.
  Expr endOfDocuments(Expr lastKey);
  /// Returns whether the window has a key that is `distance` keys before the query. Not if the key is after the query.
  Expr isInWindow(Expr distance) { return unsignedAtLeast(integer(config.window - 1), distance); }
  /// Replaces products of q and k by scores, so that multiplying them by unit() gives base-2 logarithms. Without a cap
  /// a score is the product.
  void limit(Grid &scores);
  double unit() const { return (config.softCap > 0 ? 1 : config.scale) * std::numbers::log2e; }
  /// Returns the derivative of a score with respect to scale * product.
  Expr slopeOf(Expr score);
  /// Pipelines tiles [0, count): `issue(tile, buffer)` loads tile + 1 while `use(tile, buffer)` runs.
  void stream(Tiles &tiles, Expr count, const std::function<void(Expr, Expr)> &issue,
              const std::function<void(Expr, Expr)> &use);
  /// Returns whether a row of the block that is processed together with this thread's rows attends to a key of the tile
  /// that begins with `firstKey`.
  Expr seesTile(Expr firstKey, const Tiles &tiles);
  /// Runs `body` if `isSeen`, which is equal for all rows processed together. Skips tiles that the causal mask hides
  /// from all of them.
  void whenSeen(Expr isSeen, const std::function<void()> &body);
  /// Returns 1 if dropout keeps the probability of (query, key), both i32, of the block's sample and query head `head`.
  Expr isKept(Expr head, Expr query, Expr key);

  Expr scalar(llvm::StringRef name) { return {f, f.scalar(name)}; }
  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  Expr number(double value) { return {f, f.number(value)}; }

  KernelFunction &f;
  const AttentionConfig config;
  const TileSizes sizes;
  Expr queryCount, keyCount, kvHeads, group; ///< i32
  Expr first;                                ///< first query or key of the block
  Expr sample, kvHead;
  Expr head; ///< query head: kvHead * group + index in the group; for blocks of keys, the first head of the group

private:
  Expr firstPosition, secondPosition; ///< of the first query of each run of queries; one run, unless in zigzag order

  void makeRoundKeys();
  /// Returns the elements of a row of an operand.
  int64_t depthOf(llvm::StringRef operand) const;
  Expr heads() { return kvHeads * group; }
  /// Returns visible_from of the query, at most the query's position.
  Expr documentOf(Expr query);

  Expr blockFrom, lastFrom, warpFrom;  ///< first visible keys: of the block's first and last row, of the warp's first
  std::vector<Expr> from, lastOffsets; ///< per row slot: first visible key, and the number of visible keys after it

  std::vector<Expr> roundKeys;
  Expr sampleBits;
};

} // namespace espalier::codegen::cuda
