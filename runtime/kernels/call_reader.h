// Reads a pb::LibraryCall and the types of its buffers by the names of its row in functions.def. Every count, size,
// type and byte range is checked before it is used.
#pragma once

#include "runtime/kernels/call_rows.h"
#include "runtime/kernels/dtype.h"

#include <span>
#include <string>

namespace espalier::rt {

/// All functions throw std::invalid_argument, e.g. "library call MATMUL: buffer 2 has 96 bytes,
/// needs 128".
class CallReader {
public:
  /// Refuses a call that is not as its row says. `types`: those of the buffers' values, one per buffer.
  CallReader(const pb::LibraryCall &call, std::span<const pb::DataType> types);

  /// A size, refused below `minimum`.
  int64_t size(std::string_view name, int64_t minimum = 0) const;
  /// A float of the call.
  double real(std::string_view name) const;
  bool has(std::string_view operand) const;
  /// The index of an operand's buffer.
  int buffer(std::string_view operand) const;
  /// The type of an operand.
  Storage storage(std::string_view operand) const;
  /// Refuses a call with fewer scalars; `reason`: "for dropout".
  void needScalars(int count, const std::string &reason) const;
  /// Product of two sizes, refused if it is too large.
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
  std::vector<const OperandSignature *> operands_; ///< by buffer
};

} // namespace espalier::rt
