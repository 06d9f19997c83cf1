// The runtime's own kernels: the operations that a plan calls by pb::LibraryCall instead of generated code. A kernel is
// prepared once when the plan is loaded, then runs any number of times without allocating. The order of every sum
// depends on the shapes alone, never on the split into parts, so results are bitwise equal for any thread count.
#pragma once

#include "runtime/plan.pb.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace espalier::rt {

/// The arguments of one execution of a call.
struct CallArguments {
  void *const *buffers = nullptr;   ///< absolute addresses, in the order of LibraryCall.buffers
  const int64_t *scalars = nullptr; ///< values of LibraryCall.scalars, in order
  bool adds = false;                ///< accumulate into the destination instead of overwriting it: store && !first
  void *scratch = nullptr;          ///< sharedScratchBytes() bytes, the same for all parts and finish()
  uint32_t seed = 0;                ///< for randomBits() in runtime/abi.h
};

/// A prepared library call. Const after construction: threads may run parts concurrently, each part exactly once. Then
/// one thread calls finish(). Scratch memory is 64-byte aligned and need not be cleared.
///
/// Contracts of the functions, in addition to the comments in plan.proto:
/// - MATMUL: with `adds`, c += op(a) op(b). Any mix of f32, bf16 and f16; sums are f32. Rows are dense. With batch > 1,
///   the matrices of each buffer are contiguous.
/// - ATTENTION_FORWARD: q, out [batch, seq, kv_heads, group, head_dim], k, v [batch, seq, kv_heads, head_dim],
///   lse f32 [batch, seq, kv_heads, group] = log sum_j exp(scale q.k_j), natural logarithm. All have one type except
///   lse and step, an i32. floats: {scale > 0, dropout rate}; scalars: {stream, first sample, first head, sequence
///   length of the unsplit model (T)}, needed if the rate is not 0. Probability (q, k) of local head
///   h = kv_head * group + g in local sample b is kept if randomBits(seed, step, stream, first_sample + b,
///   ((first_head + h) * T + q) * T + k) >= dropoutThreshold(rate). With a sixth size, k and v have that many
///   positions. scalars[4] is then the position of q's first query, from which the causal mask and the random bits
///   count q.
/// - ATTENTION_BACKWARD: overwrites dq, dk, dv.
/// - EMBED: ids i32; rows outside [scalars[0], scalars[0] + rows) give zeros. Table and out may differ in type.
/// - EMBED_GRADIENT: dtable f32; ids outside the range are skipped. dtable is zeroed first unless `adds`.
/// - ROPE: x, y [tokens, heads, head_dim], positions i32 [tokens]; pairs (i, i + head_dim / 2). In place if y is x.
/// - SQUARED_NORM: out += weight * sum x^2, always accumulated. Infinities and NaNs propagate to out.
/// - ATTEND_CACHE: q, out, k, v as in ATTENTION_FORWARD, with the same type as the caches. Tokens of a sequence are
///   ordered by position; cache rows after the last position are not read.
/// - ROUTE: ties between scores go to the lower expert. Slots of an expert are assigned within a sample, all first
///   choices before second choices, tokens in order. Above the capacity the slot is -1.
/// - DISPATCH, COMBINE: skip entries with slot -1, or with an expert or slot out of range. Sums are f32, in the order
///   of choices.
/// - REDUCE_PARTS: out = sum of parts; with `adds`, out += sum.
class LibraryKernel {
public:
  virtual ~LibraryKernel() = default;

  /// Returns the number of independent parts; may be 0 for empty shapes.
  virtual int64_t parts() const = 0;
  /// Returns the bytes that each thread must pass as `threadScratch`.
  virtual size_t scratchBytesPerThread() const { return 0; }
  /// Executes part `part` of [0, parts()).
  virtual void run(const CallArguments &arguments, int64_t part, void *threadScratch) const = 0;
  /// Completes the call after all parts, on one thread.
  virtual void finish(const CallArguments &arguments) const {}
  /// Returns the bytes that the executor must pass as `CallArguments::scratch`.
  virtual size_t sharedScratchBytes() const { return 0; }
};

/// Prepares `call` for buffers of these types. Parts are sized to keep about `threads` >= 1 threads busy; any number of
/// threads can run them. Throws std::invalid_argument, with got and wanted values, if sizes, types or buffer bytes are
/// inconsistent.
std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads);

} // namespace espalier::rt
