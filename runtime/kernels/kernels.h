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
/// What each function does and expects: runtime/functions.def.
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
