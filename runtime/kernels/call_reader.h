// Reads a pb::LibraryCall and its buffer types, and checks every count, size, type and byte range.
#pragma once

#include "runtime/kernels/dtype.h"
#include "runtime/plan.pb.h"

#include <initializer_list>
#include <span>
#include <string>

namespace espalier::rt {

/// All functions throw std::invalid_argument, for example "library call MATMUL: buffer 2 has 96 bytes, needs 128".
class CallReader {
public:
  /// The minimum lengths of a call's lists.
  struct Counts {
    int buffers, sizes, floats = 0, scalars = 0;
  };

  /// `types` holds the element type of each buffer.
  CallReader(const pb::LibraryCall &call, std::span<const pb::DataType> types, Counts counts);

  /// Returns size `index`. Throws if it is below `minimum`.
  int64_t size(int index, int64_t minimum = 0) const;
  double real(int index) const { return call_.floats(index); }
  /// Returns the type of buffer `index`, which must be f32, bf16 or f16.
  Storage floating(int index) const;
  /// Checks that buffer `index` has this type.
  void expect(int index, Storage storage) const;
  /// Checks that buffer `index` holds one element of this type.
  void expectOne(int index, Storage storage) const;
  /// Checks that buffer `index` holds the product of `dims` elements of `bytesPerElement` bytes.
  void holds(int index, std::initializer_list<int64_t> dims, int64_t bytesPerElement) const;
  /// Returns the product of `dims`. Throws if it does not fit in 62 bits.
  int64_t product(std::initializer_list<int64_t> dims) const;
  /// Throws the error of this call with `reason`.
  [[noreturn]] void refuse(const std::string &reason) const;

private:
  const pb::LibraryCall &call_;
  std::span<const pb::DataType> types_;
};

} // namespace espalier::rt
