// COPY, REARRANGE and ZERO on the device.
#pragma once

#include "runtime/device/cuda/queue.h"

namespace espalier::rt::cuda {

/// `blocks` runs of `bytes`, whose beginnings lie `fromStride` and `toStride` bytes apart.
struct StridedCopy {
  int64_t blocks = 0, fromStride = 0, toStride = 0, bytes = 0;
};

/// [outer, inner] runs of `bytes` become [inner, outer] of them, both dense.
struct Rearrangement {
  int64_t outer = 0, inner = 0, bytes = 0;
};

void copy(Queue &queue, CUdeviceptr to, CUdeviceptr from, const StridedCopy &copy);
void rearrange(Queue &queue, CUdeviceptr to, CUdeviceptr from, const Rearrangement &shape);
void zero(Queue &queue, CUdeviceptr to, int64_t bytes);

} // namespace espalier::rt::cuda
