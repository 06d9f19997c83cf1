// Reads a pb::LibraryCall and the types of its buffers, by the names in its row of functions.def. Checks every count,
// size, type and byte range before use.
#pragma once

#include "format/zigzag.h"
#include "runtime/kernels/call_rows.h"
#include "runtime/kernels/dtype.h"

#include <span>
#include <string>

namespace espalier::rt {

/// Provides checked access to a call. All functions throw std::invalid_argument, e.g. "library call MATMUL: buffer 2
/// has 96 bytes, needs 128".
class CallReader {
public:
  /// Refuses a call that does not match its row. `types` has the type of each buffer's value.
  CallReader(const pb::LibraryCall &call, std::span<const pb::DataType> types);

  /// Returns a size; refuses a size below `minimum`.
  int64_t size(std::string_view name, int64_t minimum = 0) const;
  /// Returns the size `zigzag` of REARRANGE; refuses an unknown order, and blocks that have no halves.
  Zigzag zigzag() const;
  /// Returns a float of the call.
  double real(std::string_view name) const;
  bool has(std::string_view operand) const;
  /// Returns the index of an operand's buffer.
  int buffer(std::string_view operand) const;
  /// Returns the storage type of an operand.
  Storage storage(std::string_view operand) const;
  /// Refuses a call with fewer scalars. `reason` completes the message, e.g. "for dropout".
  void needScalars(int count, const std::string &reason) const;
  /// Returns the product of two sizes; refuses a product that is too large.
  int64_t product(int64_t a, int64_t b) const;
  [[noreturn]] void refuse(const std::string &reason) const { refuse(call_, reason); }
  [[noreturn]] static void refuse(const pb::LibraryCall &call, const std::string &reason);

private:
  void checkCounts() const;
  void checkSizes() const;
  void checkBuffers() const;

  const pb::LibraryCall &call_;
  std::span<const pb::DataType> types_;
  const CallRows rows_;
  std::vector<const OperandSignature *> operands_; ///< one per buffer
};

} // namespace espalier::rt
