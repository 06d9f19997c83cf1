// The runtime's own kernels: the operations a plan names by pb::LibraryCall instead of generated
// code. A kernel is prepared once when the plan is loaded and then run any number of times without
// allocating. The order of every sum depends on the shapes alone, never on how the work is cut into
// parts, so results are bit-identical for any thread count.
#pragma once

#include "runtime/plan.pb.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace espalier::rt {

/// What one execution of a call gets besides its fixed shapes.
struct CallArguments {
  void *const *buffers = nullptr;   ///< absolute addresses, in the order of LibraryCall.buffers
  const int64_t *scalars = nullptr; ///< values of LibraryCall.scalars, in order
  bool adds = false;                ///< add to the destination instead of overwriting it: store and `first` together
  void *scratch = nullptr;          ///< sharedScratchBytes() bytes, the same for all parts and finish()
  uint32_t seed = 0;                ///< of randomBits in runtime/abi.h
};

/// A prepared library call. Const after construction: threads may run parts of it at the same time,
/// each part exactly once, then one thread calls finish(). Scratch memory is 64-byte aligned and
/// need not be cleared.
///
/// What each function expects beyond the comments in plan.proto:
/// - MATMUL: with `adds`, c += op(a) op(b). Any mix of f32, bf16 and f16; sums are f32. Dense rows; with batch > 1 the
///   matrices of each buffer follow each other.
/// - ATTENTION_FORWARD: q, out [batch, seq, kv_heads, group, head_dim], k, v [batch, seq, kv_heads, head_dim],
///   lse f32 [batch, seq, kv_heads, group] = log sum_j exp(scale q.k_j), natural logarithm. One type for all but lse
///   and step, an i32. floats: {scale > 0, dropout rate}; scalars: {stream, first sample, first head, sequence length
///   of the unsplit model (T)}, needed when the rate is not 0. Probability (q, k) of local head h = kv_head * group + g
///   in local sample b is kept when randomBits(seed, step, stream, first_sample + b, ((first_head + h) * T + q) * T +
///   k) >= dropoutThreshold(rate). With a sixth size k and v have that many positions, and scalars[4] is the position
///   of q's first query, which the causal mask and q of the random bits count from.
/// - ATTENTION_BACKWARD: overwrites dq, dk, dv.
/// - EMBED: ids i32; rows outside [scalars[0], scalars[0] + rows) give zeros. Table and out may differ in type.
/// - EMBED_GRADIENT: dtable f32; such rows are skipped. Unless it adds, dtable is zeroed first.
/// - ROPE: x, y [tokens, heads, head_dim], positions i32 [tokens]; pairs (i, i + head_dim / 2); in place if y is x.
/// - SQUARED_NORM: out += weight * sum x^2, always added; infinities and NaNs reach out.
/// - ATTEND_CACHE: q, out as at ATTENTION_FORWARD, k and v too; one type for these and the caches. Tokens of a sequence
///   come in the order of their positions; rows of the caches behind the last one are not read.
/// - ROUTE: of equal scores the lower expert is better; slots of an expert are given within a sample, to first choices
///   before second ones, tokens in order; slot -1 above the capacity.
/// - DISPATCH, COMBINE: what has a slot of -1, or an expert or slot outside of the sizes, does not move. Sums are f32, over
///   choices in order.
/// - REDUCE_PARTS: out = sum of parts, or out += sum where it adds.
class LibraryKernel {
public:
  virtual ~LibraryKernel() = default;

  /// Number of independent pieces; may be 0 for empty shapes.
  virtual int64_t parts() const = 0;
  /// Bytes that each thread must pass as `threadScratch`.
  virtual size_t scratchBytesPerThread() const { return 0; }
  /// Does part `part` of [0, parts()).
  virtual void run(const CallArguments &arguments, int64_t part, void *threadScratch) const = 0;
  /// Completes the call after all parts, on one thread.
  virtual void finish(const CallArguments &arguments) const {}
  /// Bytes that the executor must pass as `CallArguments::scratch`.
  virtual size_t sharedScratchBytes() const { return 0; }
};

/// Prepares `call`, whose buffers have these types, for about `threads` threads, at least 1: parts are cut so that so
/// many are kept busy, and any number can run them. Throws std::invalid_argument with a sentence that says what was got
/// and what was wanted when the call's sizes, types or buffer bytes do not fit each other.
std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads);

} // namespace espalier::rt
