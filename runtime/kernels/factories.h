// One factory per library function. The list follows from functions.def.
#pragma once

#include "runtime/kernels/call_reader.h"
#include "runtime/kernels/cpu/level.h"
#include "runtime/kernels/kernels.h"

#include <algorithm>

namespace espalier::rt {

/// The inputs of a CPU kernel: the call, the types of its buffers, and the loops of one instruction set level.
struct KernelRequest {
  const pb::LibraryCall &call;
  std::span<const pb::DataType> types;
  int threads;
  const cpu::Loops &loops;
  bool quantizes = false;
};

/// Like makeLibraryKernel(call, types, threads, quantizes), at a given instruction set level.
std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, const cpu::Loops &loops, bool quantizes = false);

/// Makes the CPU kernel of the library function with this number. Each function of functions.def has a specialization
/// in a file of this folder.
template <int function> std::unique_ptr<LibraryKernel> makeKernel(const KernelRequest &request);
#define FUNCTION(number, name, signature)                                                                              \
  template <> std::unique_ptr<LibraryKernel> makeKernel<number>(const KernelRequest &request);
#include "format/functions.def"

/// The range [begin, end) of one piece.
struct Piece {
  int64_t begin, end;
};

/// Returns the rows of a piece whose results are needed.
inline Piece neededRows(const CallArguments &arguments, Piece rows) {
  if (arguments.endRow == 0)
    return rows;
  return {std::max(rows.begin, arguments.firstRow), std::min(rows.end, arguments.endRow)};
}

/// Splits `total` units into pieces of `unitsPerPiece`; the last may be smaller.
struct Pieces {
  int64_t total = 0, unitsPerPiece = 1;

  int64_t count() const { return (total + unitsPerPiece - 1) / unitsPerPiece; }
  Piece operator[](int64_t index) const {
    int64_t begin = index * unitsPerPiece;
    return {begin, total - begin < unitsPerPiece ? total : begin + unitsPerPiece};
  }
};

/// Splits units of `bytesPerUnit` bytes into pieces of about `bytesPerPiece` bytes.
inline Pieces piecesOf(int64_t total, int64_t bytesPerUnit, int64_t bytesPerPiece) {
  int64_t units = bytesPerUnit > 0 ? bytesPerPiece / bytesPerUnit : bytesPerPiece;
  return {total, units > 0 ? units : 1};
}

} // namespace espalier::rt
