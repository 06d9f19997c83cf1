// COPY, REARRANGE and ZERO on the device.
#pragma once

#include "format/zigzag.h"
#include "runtime/device/cuda/queue.h"

namespace espalier::rt::cuda {

/// Copies `blocks` blocks of `bytes` bytes, with block starts `fromStride` and `toStride` bytes apart.
struct StridedCopy {
  int64_t blocks = 0, fromStride = 0, toStride = 0, bytes = 0;
};

/// Transposes [outer, inner] blocks of `bytes` bytes into [inner, outer]; both sides are contiguous. `zigzag` is that
/// of REARRANGE in functions.def.
struct Rearrangement {
  int64_t outer = 0, inner = 0, bytes = 0;
  Zigzag zigzag = Zigzag::None;
};

/// Enqueue the operation.
void copy(Queue &queue, CUdeviceptr to, CUdeviceptr from, const StridedCopy &copy);
void rearrange(Queue &queue, CUdeviceptr to, CUdeviceptr from, const Rearrangement &shape);
void zero(Queue &queue, CUdeviceptr to, int64_t bytes);

} // namespace espalier::rt::cuda
