// The inner loops of the kernels: one function table per instruction set level (x86-64, -v3, -v4, and -v4 with bf16
// products). The table is chosen once, when a plan is loaded. Levels differ in rounding (fused multiply-add, vector
// width); the number of threads never changes the result.
#pragma once

#include "runtime/kernels/dtype.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace espalier::rt::cpu {

/// One operand or result of a matrix product, with `stride` elements between stored rows.
struct Matrix {
  void *data;
  Storage storage;
  int64_t stride;
  bool transposed; ///< memory holds the transpose of the operand
};

/// The range [begin, end).
struct Span {
  int64_t begin, end;
};

/// c = a b or c += a b, with a [m, k], b [k, n], c [m, n], or c = a b + bias; `scratch` has gemmScratchBytes().
struct GemmTask {
  Matrix a, b, c;
  int64_t m, n, k;
  bool accumulate;
  void *scratch;
  /// Multiplies without packing, for products of few rows. This changes the order of sums, so all tiles of a product
  /// must agree.
  bool isUnpacked = false;
  const void *bias = nullptr; ///< [n], of c's type
  /// Null, or b from its first column of this task on, as packWeights() writes it. Then b.data is not read.
  const float *packed = nullptr;
  bool isQuantized = false; ///< packed b has 8 bits: the weights of Q8Block, decoded and summed in f32
  /// Ranges of stored rows of a, ascending: rows of a, or of k if a is transposed. All other stored rows of a are zero,
  /// and are not multiplied. Empty: all rows.
  std::span<const Span> lines = {};
};

/// Dropout of attention probabilities; see LibraryKernel. A threshold of 0 means no dropout.
struct AttentionDropout {
  uint32_t threshold;
  float scale; ///< 1 / (1 - rate)
  uint32_t seed, step, stream, firstSample;
  int64_t firstHead, unsplitSequence;
};

/// The queries of q have positions (of positionOf) among the `keys` positions of k and v.
struct AttentionShape {
  int64_t batch, sequence, keys, kvHeads, group;
  int64_t headDim;  ///< columns of q and k
  int64_t valueDim; ///< columns of v and out
  bool causal;
  float scale;
  Storage storage;
  int64_t window = 0;  ///< keys that a query attends to, itself last; 0: no limit
  float softCap = 0;   ///< c: scores s become c tanh(s / c); 0: none
  bool zigzag = false; ///< the queries are two runs of positions: see functions.def
};

/// Queries [firstQuery, endQuery) of all heads of one kv head of one sample.
struct AttentionForwardTask {
  const AttentionShape *shape;
  AttentionDropout dropout;
  const void *q, *k, *v;
  void *out;
  float *lse;
  int64_t sample, kvHead, firstQuery, endQuery, firstPosition;
  void *scratch;
  const int32_t *visibleFrom = nullptr; ///< [sequence], of the sample: as in functions.def
  float *largest = nullptr;             ///< the largest score of the task; null: not wanted
};

/// All queries of one kv head of one sample.
struct AttentionBackwardTask {
  const AttentionShape *shape;
  AttentionDropout dropout;
  const void *q, *k, *v, *out;
  const float *lse;
  const void *dout;
  void *dq, *dk, *dv;
  int64_t sample, kvHead, firstPosition;
  void *scratch;
  const int32_t *visibleFrom = nullptr; ///< [sequence], of the sample: as in functions.def
};

/// All tokens of one kv head of one sequence over its caches [context, headDim] and [context, valueDim]. Strides
/// between tokens are in elements; the queries of a kv head are contiguous. `scratch` has room for kLargestHead and for
/// `context` floats, each rounded up by a whole vector.
struct AttendCacheTask {
  Storage storage;
  int64_t tokens, group, headDim, valueDim, context;
  int64_t queryStride, keyStride, valueStride, outStride, sumStride;
  float scale;
  int64_t window; ///< as in AttentionShape
  float softCap;
  const void *q, *k, *v; ///< q, k and v of the first token
  const int32_t *positions;
  void *out, *keys, *values;
  /// Null, or the logarithms of the sums of the exponentials of scores: those of a kv head are contiguous.
  float *logSumExp;
  float *scratch;
};

/// The largest head dimension that attention supports.
inline constexpr int64_t kLargestHead = 384; // one row of a packed operand

/// Which columns of a head a rotary embedding rotates: `rotary` ones from `first` on, in pairs (i, i + rotary / 2), or
/// (2 i, 2 i + 1) if interleaved. The result is multiplied by the amplitude.
struct RopeForm {
  int64_t first, rotary;
  bool isInterleaved, isInverse;
  float amplitude;
};

/// Tokens [0, tokens) of a rotary embedding. `frequencies` has rotary / 2 entries in turns per position.
struct RopeTask {
  const void *x;
  void *y;
  Storage from, to;
  const int32_t *positions;
  const double *frequencies;
  int64_t tokens, heads, headDim;
  RopeForm form;
  float *scratch; ///< headDim floats
};

/// A recurrence of functions.def. `groups` have q and k of their own, and `group` heads each.
struct RecurrenceShape {
  int64_t batch, sequence, groups, group, keyDim, valueDim, chunk;
  bool byColumn, delta;
  Storage storage;
};

/// The largest number of positions in a chunk of a recurrence.
inline constexpr int64_t kLongestChunk = 128;

/// One head of one sample of a recurrence. If `dout` is not null, its derivative for all heads of the head's group. The
/// sample has the rows [begin, begin + rows) of all samples' positions. Those behind the first `length` are padding.
struct RecurrenceTask {
  const RecurrenceShape *shape;
  const void *q, *k, *v;
  const float *decay, *beta;
  const int32_t *visibleFrom; ///< [sequence], of the sample; null: none
  int64_t begin, rows, length;
  int64_t head; ///< counts the heads of all groups
  void *scratch;
  float *state = nullptr; ///< null, or a state [keyDim, valueDim] that becomes the one after the last position
  bool continues = false; ///< whether the first position continues from the state
  void *out = nullptr;    ///< only of a recurrence
  const void *dout = nullptr;
  void *dq = nullptr, *dk = nullptr, *dv = nullptr;
  float *ddecay = nullptr, *dbeta = nullptr;
};

/// The channels [first, first + count) of a causal convolution of functions.def. `scratch` has (taps + 1) * count
/// floats, each row rounded up to a whole vector.
struct ConvTask {
  Storage from, to; ///< of x, and of y or dy
  int64_t batch, sequence, channels, taps;
  int64_t first = 0, count = 0;
  const int32_t *visibleFrom = nullptr; ///< [batch, sequence]; null: none
  const void *x = nullptr;
  float *scratch = nullptr;
  const int32_t *positions = nullptr; ///< of the rows; null: the convolution is not carried
  const int32_t *starts = nullptr;    ///< first rows of the samples; null: a row for each position
  void *halo = nullptr;               ///< [batch, taps - 1, channels], like x
};

/// The functions of one level.
struct Loops {
  const char *name;
  size_t (*gemmScratchBytes)(const GemmTask &largest);
  void (*gemm)(const GemmTask &task);
  /// Returns the floats of b, packed for products of these types: panels of columns one behind the other. So the
  /// offset of a column that begins a panel is the size of the columns before it.
  int64_t (*packedFloats)(const GemmTask &task);
  void (*packWeights)(const GemmTask &task, float *to);
  size_t (*attentionForwardScratchBytes)(const AttentionShape &shape, int64_t queries);
  void (*attentionForward)(const AttentionForwardTask &task);
  size_t (*attentionBackwardScratchBytes)(const AttentionShape &shape);
  void (*attentionBackward)(const AttentionBackwardTask &task);
  void (*attendCache)(const AttendCacheTask &task);
  void (*convert)(const void *from, Storage fromStorage, void *to, Storage toStorage, int64_t elements);
  /// Computes to[i] += from[i].
  void (*add)(const void *from, Storage fromStorage, float *to, int64_t elements);
  /// Computes to[i] += factor * from[i].
  void (*addScaled)(const void *from, Storage fromStorage, float factor, float *to, int64_t elements);
  double (*squaredSum)(const float *x, int64_t elements);
  void (*rope)(const RopeTask &task);
  size_t (*recurrenceScratchBytes)(const RecurrenceShape &shape, bool isBackward);
  void (*recurrence)(const RecurrenceTask &task);
  /// Computes y for all samples, or the transposed convolution; `weight` is [channels, taps].
  void (*causalConv)(const ConvTask &task, const void *weight, Storage ofWeight, bool isTransposed, void *y);
  /// Overwrites or adds to the gradient of the weight, `gradient` [channels, taps].
  void (*causalConvGradient)(const ConvTask &task, const void *dy, void *gradient, Storage ofGradient, bool adds);
};

/// Returns the fastest level that this machine supports. Processors of one model have the same level.
const Loops &bestLoops();

/// Returns every level that this machine supports, slowest first, for tests. Sets `count` to their number.
const Loops *const *usableLoops(int &count);

} // namespace espalier::rt::cpu
