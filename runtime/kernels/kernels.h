// The runtime's own kernels: operations that a plan calls by pb::LibraryCall instead of generated code. A kernel is
// prepared once, when the plan is loaded, and then runs any number of times without allocating. The order of every sum
// depends only on shapes and not on how work is split, so results are bitwise equal for any number of threads.
#pragma once

#include "format/plan.pb.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

namespace espalier::rt {

/// The arguments of one execution of a call.
struct CallArguments {
  void *const *buffers = nullptr;   ///< absolute addresses, in the order of LibraryCall.buffers
  const int64_t *scalars = nullptr; ///< values of LibraryCall.scalars, in order
  bool adds = false;                ///< adds to the destination instead of overwriting it, as LibraryCall.store and
                                    ///< `first` of the RUN define
  /// If `endRow` is above 0, only the call's outermost rows [firstRow, endRow) of the result are needed.
  int64_t firstRow = 0, endRow = 0;
  /// Null, or the first rows of the sequences, as ActiveTokens::starts: the rows of tokens lie side by side.
  const int32_t *starts = nullptr;
  const void *packed = nullptr; ///< null, or the weights as PackedLayout describes them; the call reads no others
  void *scratch = nullptr;      ///< sharedScratchBytes() bytes, the same for all parts and finish()
  uint32_t seed = 0;            ///< the seed of randomBits() in format/abi.h

  /// Returns the first row of a sequence and the row behind its last one, of `tokens` each unless `starts` says more.
  std::pair<int64_t, int64_t> rowsOf(int64_t sequence, int64_t tokens) const {
    return starts && tokens > 1 ? std::pair<int64_t, int64_t>(starts[sequence], starts[sequence + 1])
                                : std::pair(sequence * tokens, (sequence + 1) * tokens);
  }
};

/// The layout in which a product reads its second operand, so that weights can be packed once instead of in each run.
struct PackedLayout {
  int64_t k = 0, n = 0, batch = 0;
  bool isTransposed = false; ///< as it is stored
  int a = 0, b = 0;          ///< element types of the operands, as numbers of Storage
  bool isQuantized = false;  ///< whether the copy has 8 bits: Q8Block

  bool operator==(const PackedLayout &) const = default;
};

/// A prepared library call. format/functions.def defines the functions. The object is const after construction.
/// Threads may run its parts at the same time, each part exactly once; then one thread calls finish(). Scratch memory
/// is 64-byte aligned and need not be cleared.
class LibraryKernel {
public:
  virtual ~LibraryKernel() = default;

  /// Returns the number of independent parts, which may be 0 for empty shapes.
  virtual int64_t parts() const = 0;
  /// Returns the bytes that each thread must pass as `threadScratch`.
  virtual size_t scratchBytesPerThread() const { return 0; }
  /// Runs part `part` of [0, parts()).
  virtual void run(const CallArguments &arguments, int64_t part, void *threadScratch) const = 0;
  /// Completes the call after all parts, on one thread.
  virtual void finish(const CallArguments &arguments) const {}
  /// Returns the layout of packed weights that the call can read. Calls of equal layouts can share a copy.
  virtual std::optional<PackedLayout> packedLayout() const { return std::nullopt; }
  /// Returns whether a row of the result has the same bits as in a call of the same function with more rows.
  virtual bool hasEqualRows() const { return true; }
  /// Returns whether packing the weights in each run costs more than the products.
  virtual bool wantsPacked() const { return false; }
  /// Returns the bytes of the packed weights of packedLayout().
  virtual size_t packedBytes() const { return 0; }
  /// Returns the number of independent parts of pack().
  virtual int64_t packParts() const { return 0; }
  /// Packs part `part` of `weights`, the second operand, to `packed`.
  virtual void pack(const void *weights, void *packed, int64_t part) const {}
  /// Returns the bytes that the executor must pass as `CallArguments::scratch`.
  virtual size_t sharedScratchBytes() const { return 0; }
};

/// Prepares `call`, whose buffers have these types. Splits the work so that about `threads` (at least 1) threads are
/// busy; any number of threads may run the parts. If `quantizes`, a product packs its weights in 8 bits. Throws
/// std::invalid_argument if the call's sizes, types or buffer bytes do not match. The message gives the value found and
/// the value wanted.
std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, bool quantizes = false);

} // namespace espalier::rt
