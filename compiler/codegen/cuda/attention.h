// What the kernels of attention share: which part of the tensors a block has, positions and masks, dropout.
//
// Layouts: q, out and their gradients [batch, seq, kv_heads, group, head_dim]; k, v and theirs [batch, keys, kv_heads,
// head_dim]; lse and delta f32 [batch, seq, kv_heads, group].
#pragma once

#include "compiler/codegen/cuda/tiles.h"

namespace espalier::codegen::cuda {

/// What the code of a kernel depends on.
struct AttentionConfig {
  mlir::Type element;
  int64_t headDim;
  bool isCausal, isPart; ///< q has a part of the sequence
  double scale, rate;

  static AttentionConfig of(mlir::DictionaryAttr parameters);
};

/// Which kernel; each has its own tiles.
enum class AttentionPass { Forward, KeyGradient, QueryGradient };
TileSizes attentionTiles(AttentionPass pass, const AttentionConfig &config);
/// Dynamic shared memory of a block.
int64_t attentionSharedBytes(AttentionPass pass, const AttentionConfig &config);

/// Scalars of a launch, in order: five sizes, of which the code knows the head's already, and what positions and random
/// bits depend on.
enum AttentionScalar : unsigned {
  Batch,
  Queries,
  Keys,
  KvHeads,
  Group,
  HeadDim,
  FirstPosition, ///< of q's first query
  Stream,
  FirstSample,
  FirstHead,
  UnsplitSequence,
  Seed,
  AttentionScalarCount
};

/// Scores of which `isSeen(row slot, column slot)` does not hold become -infinity; looked at only where `isNeeded`,
/// which is the same for all threads.
Grid hideScores(const Grid &scores, Expr isNeeded, const std::function<Expr(size_t, size_t)> &isSeen);

/// A kernel of attention being built: sizes and the place of the block, which has `tile` of one head of one sample.
class AttentionBlock {
public:
  /// `ofKeys`: blocks are tiles of keys of a key-value head, else tiles of queries of a query head. `step`: the buffer
  /// with that slot.
  AttentionBlock(KernelFunction &f, const AttentionConfig &config, const TileSizes &sizes, bool ofKeys, unsigned step);

  /// From the query `first` of query head `head` on, rows of a tensor like q in buffer `index`.
  TileSource queries(unsigned index, Expr head, Expr first);
  /// The same for keys of the block's key-value head.
  TileSource keys(unsigned index, Expr first);
  /// The same for a tensor like lse.
  TileSource statistics(unsigned index, Expr head, Expr first);
  /// Keys below this are seen by the query.
  Expr visibleKeys(Expr query);
  /// Calls `issue(tile, buffer)` so that loads of tile + 1 go on while `use(tile, buffer)` runs, for tiles [0, count).
  void stream(Tiles &tiles, Expr count, const std::function<void(Expr, Expr)> &issue,
              const std::function<void(Expr, Expr)> &use);
  /// Runs `body` where `isSeen` holds, which is the same for all rows that go together: what the causal mask hides from
  /// all of them would add zeros.
  void whenSeen(Expr isSeen, const std::function<void()> &body);
  /// 1 where dropout keeps the probability of (query, key), both i32, of the block's sample and query head `head`.
  Expr isKept(Expr head, Expr query, Expr key);

  Expr scalar(unsigned index) { return {f, f.scalar(index)}; }
  Expr integer(int64_t value) { return {f, f.integer(value)}; }
  Expr number(double value) { return {f, f.number(value)}; }

  KernelFunction &f;
  const AttentionConfig config;
  const TileSizes sizes;
  Expr queryCount, keyCount, kvHeads, group; ///< i32
  Expr first;                                ///< first query or key of the block
  Expr sample, kvHead;
  Expr head; ///< query head: kvHead * group + its number in the group; that of the group's first for blocks of keys
  Expr firstPosition;

private:
  void makeRoundKeys(unsigned step);
  Expr heads() { return kvHeads * group; }

  std::vector<Expr> roundKeys;
  Expr sampleBits;
};

} // namespace espalier::codegen::cuda
