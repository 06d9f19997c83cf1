// Reads a pb::LibraryCall and the types of its buffers with every count, size, type and byte range checked before it is
// used.
#pragma once

#include "runtime/kernels/dtype.h"
#include "runtime/plan.pb.h"

#include <initializer_list>
#include <span>
#include <string>

namespace espalier::rt {

/// All functions throw std::invalid_argument, e.g. "library call MATMUL: buffer 2 has 96 bytes,
/// needs 128".
class CallReader {
public:
  /// What a function has at least of each list.
  struct Counts {
    int buffers, sizes, floats = 0, scalars = 0;
  };

  /// `types`: those of the buffers' values, one per buffer.
  CallReader(const pb::LibraryCall &call, std::span<const pb::DataType> types, Counts counts);

  /// Size `index`, refused below `minimum`.
  int64_t size(int index, int64_t minimum = 0) const;
  double real(int index) const { return call_.floats(index); }
  /// Type of buffer `index`; must be f32, bf16 or f16.
  Storage floating(int index) const;
  /// Refuses buffer `index` unless it has this type.
  void expect(int index, Storage storage) const;
  /// Refuses buffer `index` unless it holds one element of this type.
  void expectOne(int index, Storage storage) const;
  /// Refuses buffer `index` unless it holds the product of `dims` elements of `bytesPerElement`.
  void holds(int index, std::initializer_list<int64_t> dims, int64_t bytesPerElement) const;
  /// Product of `dims`, refused if it does not fit 62 bits.
  int64_t product(std::initializer_list<int64_t> dims) const;
  [[noreturn]] void refuse(const std::string &reason) const;

private:
  const pb::LibraryCall &call_;
  std::span<const pb::DataType> types_;
};

} // namespace espalier::rt
