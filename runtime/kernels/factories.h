// One factory per function of pb::LibraryCall. kernels.cpp holds the table.
#pragma once

#include "runtime/kernels/call_reader.h"
#include "runtime/kernels/cpu/level.h"
#include "runtime/kernels/kernels.h"

namespace espalier::rt {

/// Like makeLibraryKernel(call, types, threads), at a given instruction set level.
std::unique_ptr<LibraryKernel> makeLibraryKernel(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 int threads, const cpu::Loops &loops);

std::unique_ptr<LibraryKernel> makeMatmul(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                          const cpu::Loops &loops, int threads);
std::unique_ptr<LibraryKernel> makeAttentionForward(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                    const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeAttentionBackward(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                     const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeAttendCache(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                               const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeTakeRow(const pb::LibraryCall &call, std::span<const pb::DataType> types);
std::unique_ptr<LibraryKernel> makeEmbed(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                         const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeEmbedGradient(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                                 const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeRope(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                        const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeRoute(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                         const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeDispatch(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                            const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeCombine(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                           const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeSquaredNorm(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                               const cpu::Loops &loops);
std::unique_ptr<LibraryKernel> makeCopy(const pb::LibraryCall &call, std::span<const pb::DataType> types);
std::unique_ptr<LibraryKernel> makeZero(const pb::LibraryCall &call, std::span<const pb::DataType> types);
std::unique_ptr<LibraryKernel> makeRearrange(const pb::LibraryCall &call, std::span<const pb::DataType> types);
std::unique_ptr<LibraryKernel> makeUpdateScalars(const pb::LibraryCall &call, std::span<const pb::DataType> types);
std::unique_ptr<LibraryKernel> makeReduceParts(const pb::LibraryCall &call, std::span<const pb::DataType> types,
                                               const cpu::Loops &loops);

/// The range [begin, end) of one piece.
struct Piece {
  int64_t begin, end;
};

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
