#include "runtime/device/cuda/movement.h"

namespace espalier::rt::cuda {
namespace {

/// The largest row pitch in bytes of the driver's 2D copies.
constexpr int64_t maxPitch = INT32_MAX;

void copyRows(Queue &queue, CUdeviceptr to, CUdeviceptr from, const StridedCopy &copy) {
  CUDA_MEMCPY2D rows = {};
  rows.srcMemoryType = rows.dstMemoryType = CU_MEMORYTYPE_DEVICE;
  rows.srcDevice = from;
  rows.srcPitch = static_cast<size_t>(copy.fromStride);
  rows.dstDevice = to;
  rows.dstPitch = static_cast<size_t>(copy.toStride);
  rows.WidthInBytes = static_cast<size_t>(copy.bytes);
  rows.Height = static_cast<size_t>(copy.blocks);
  queue.driver.cuMemcpy2DAsync_v2(&rows, queue.stream());
}

/// Copies chunk by chunk.
void rearrangeChunks(Queue &queue, CUdeviceptr to, CUdeviceptr from, const Rearrangement &shape) {
  auto [outer, inner, bytes, zigzag] = shape;
  bool isFrom = zigzag == Zigzag::From;
  int64_t parts = isFrom ? outer : inner, blocks = isFrom ? inner : outer, half = bytes / 2;
  for (int64_t chunk = 0; chunk < 2 * parts; ++chunk) {
    int64_t ofPart = (zigzagPart(chunk, parts) * blocks * 2 + (chunk < parts ? 0 : 1)) * half, ofWhole = chunk * half;
    copy(queue, to + (isFrom ? ofWhole : ofPart), from + (isFrom ? ofPart : ofWhole),
         {.blocks = blocks,
          .fromStride = isFrom ? bytes : parts * bytes,
          .toStride = isFrom ? parts * bytes : bytes,
          .bytes = half});
  }
}

} // namespace

void copy(Queue &queue, CUdeviceptr to, CUdeviceptr from, const StridedCopy &copy) {
  if (copy.blocks <= 0 || copy.bytes <= 0)
    return;
  bool isDense = copy.fromStride == copy.bytes && copy.toStride == copy.bytes;
  if (isDense || copy.blocks == 1) {
    queue.driver.cuMemcpyDtoDAsync_v2(to, from, static_cast<size_t>(copy.blocks * copy.bytes), queue.stream());
    return;
  }
  bool isRows = copy.fromStride >= copy.bytes && copy.fromStride <= maxPitch && copy.toStride <= maxPitch;
  if (isRows)
    return copyRows(queue, to, from, copy);
  // Overlapping blocks, or blocks too far apart for a 2D copy.
  for (int64_t block = 0; block < copy.blocks; ++block)
    queue.driver.cuMemcpyDtoDAsync_v2(to + block * copy.toStride, from + block * copy.fromStride,
                                      static_cast<size_t>(copy.bytes), queue.stream());
}

void rearrange(Queue &queue, CUdeviceptr to, CUdeviceptr from, const Rearrangement &shape) {
  auto [outer, inner, bytes, zigzag] = shape;
  if (zigzag != Zigzag::None)
    return rearrangeChunks(queue, to, from, shape);
  // One strided copy per index of the shorter dimension.
  if (outer <= inner)
    for (int64_t i = 0; i < outer; ++i)
      copy(queue, to + i * bytes, from + i * inner * bytes,
           {.blocks = inner, .fromStride = bytes, .toStride = outer * bytes, .bytes = bytes});
  else
    for (int64_t i = 0; i < inner; ++i)
      copy(queue, to + i * outer * bytes, from + i * bytes,
           {.blocks = outer, .fromStride = inner * bytes, .toStride = bytes, .bytes = bytes});
}

void zero(Queue &queue, CUdeviceptr to, int64_t bytes) {
  if (bytes > 0)
    queue.driver.cuMemsetD8Async(to, 0, static_cast<size_t>(bytes), queue.stream());
}

} // namespace espalier::rt::cuda
