// A test double of libcuda.so.1: allocations, copies, fills.
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "test/emulator/device.h"

using namespace espalier::emulator;

namespace {

/// Rows of memory on the device or the host.
struct Place {
  bool isDevice;
  uint64_t address; // of the first row
  uint64_t pitch;
};

constexpr uint64_t maxPitch = INT32_MAX;

struct Copy {
  Place to, from;
  uint64_t width, height;
};

Ranges rangesOf(const Place &place, uint64_t width, uint64_t height) {
  Ranges ranges;
  if (width == place.pitch)
    return {{place.address, place.address + width * height}};
  for (uint64_t row = 0; row < height; ++row)
    ranges.push_back({place.address + row * place.pitch, place.address + row * place.pitch + width});
  return ranges;
}

bool exists(Device &device, const Place &place, uint64_t width, uint64_t height) {
  uint64_t bytes = (height - 1) * place.pitch + width;
  return place.address && (!place.isDevice || device.memory.find(place.address, bytes));
}

std::byte *rowOf(Device &device, const Place &place, uint64_t row, uint64_t width) {
  uint64_t address = place.address + row * place.pitch;
  return place.isDevice ? device.memory.find(address, width) : reinterpret_cast<std::byte *>(address);
}

std::string nameOf(const Copy &copy) {
  std::string bytes = "copy of " + std::to_string(copy.width * copy.height) + " bytes ";
  return bytes + (!copy.from.isDevice ? "to the device" : copy.to.isDevice ? "on the device" : "to the host");
}

/// Rejects overlapping source and target, because the driver does not guarantee the order in which it copies bytes.
void checkOverlap(const Accesses &touched, const Copy &copy) {
  if (Range both = firstCommon(touched.reads, touched.writes); both.begin < both.end)
    throw Fault(Fault::Check::race, "", 0, nameOf(copy) + ": what it writes overlaps what it reads");
}

Accesses carryOut(Device &device, const Copy &copy) {
  Accesses touched = {rangesOf(copy.from, copy.width, copy.height), rangesOf(copy.to, copy.width, copy.height)};
  checkOverlap(touched, copy);
  for (uint64_t row = 0; row < copy.height; ++row) {
    std::byte *to = rowOf(device, copy.to, row, copy.width), *from = rowOf(device, copy.from, row, copy.width);
    if (!to || !from)
      throw Fault(Fault::Check::bounds, "", 0, nameOf(copy) + ": the memory is gone");
    std::memcpy(to, from, copy.width);
  }
  return touched;
}

/// Enqueues a copy. If the host memory is not pinned, the driver reads or writes it before the call returns.
CUresult enqueue(Device &device, CUstream handle, const Copy &copy, bool isSynchronous) {
  Stream *stream = device.stream(handle);
  if (!stream)
    return CUDA_ERROR_INVALID_HANDLE;
  if (!copy.width || !copy.height)
    return CUDA_SUCCESS;
  if (!exists(device, copy.to, copy.width, copy.height) || !exists(device, copy.from, copy.width, copy.height))
    return CUDA_ERROR_INVALID_VALUE;
  auto isPageable = [&](const Place &place) {
    return !place.isDevice &&
           !device.isPinned(reinterpret_cast<void *>(place.address), (copy.height - 1) * place.pitch + copy.width);
  };
  device.queue.enqueue(stream, {nameOf(copy), [&device, copy] { return carryOut(device, copy); }});
  if (isSynchronous || isPageable(copy.to) || isPageable(copy.from))
    device.queue.finish(stream->last);
  return CUDA_SUCCESS;
}

Place onDevice(CUdeviceptr address, uint64_t bytes) { return {/*isDevice=*/true, address, bytes}; }
Place onHost(const void *address, uint64_t bytes) {
  return {/*isDevice=*/false, reinterpret_cast<uint64_t>(address), bytes};
}

CUresult copy(const Place &to, const Place &from, uint64_t bytes, CUstream stream, bool isSynchronous) {
  return guarded([&](Device &device) { return enqueue(device, stream, {to, from, bytes, 1}, isSynchronous); });
}

CUresult copyRows(const CUDA_MEMCPY2D *plan, CUstream stream, bool isSynchronous) {
  return guarded([&](Device &device) {
    auto side = [](CUmemorytype type, const void *host, CUdeviceptr address, size_t x, size_t y, size_t pitch) {
      bool isDevice = type == CU_MEMORYTYPE_DEVICE;
      uint64_t begin = isDevice ? address : reinterpret_cast<uint64_t>(host);
      return Place{isDevice, begin + y * pitch + x, pitch};
    };
    auto isKnown = [](CUmemorytype type) { return type == CU_MEMORYTYPE_DEVICE || type == CU_MEMORYTYPE_HOST; };
    const CUDA_MEMCPY2D &p = *plan;
    if (!isKnown(p.srcMemoryType) || !isKnown(p.dstMemoryType) || std::max(p.srcPitch, p.dstPitch) > maxPitch ||
        (p.Height > 1 && (p.srcPitch < p.srcXInBytes + p.WidthInBytes || p.dstPitch < p.dstXInBytes + p.WidthInBytes)))
      return CUDA_ERROR_INVALID_VALUE;
    Copy copy{side(p.dstMemoryType, p.dstHost, p.dstDevice, p.dstXInBytes, p.dstY, p.dstPitch),
              side(p.srcMemoryType, p.srcHost, p.srcDevice, p.srcXInBytes, p.srcY, p.srcPitch), p.WidthInBytes,
              p.Height};
    return enqueue(device, stream, copy, isSynchronous);
  });
}

/// Fills memory with a pattern of 1 or 4 bytes.
CUresult fill(CUdeviceptr to, uint32_t pattern, size_t patternBytes, size_t count, CUstream handle,
              bool isSynchronous) {
  return guarded([&](Device &device) {
    Stream *stream = device.stream(handle);
    if (!stream)
      return CUDA_ERROR_INVALID_HANDLE;
    uint64_t bytes = count * patternBytes;
    if (to % patternBytes || !device.memory.find(to, bytes))
      return CUDA_ERROR_INVALID_VALUE;
    if (!bytes)
      return CUDA_SUCCESS;
    auto run = [=, &device] {
      std::byte *at = device.memory.find(to, bytes);
      if (!at)
        throw Fault(Fault::Check::bounds, "", 0, "fill: the memory is gone");
      if (patternBytes == 1)
        std::memset(at, static_cast<int>(pattern), bytes);
      else
        for (uint64_t i = 0; i < count; ++i)
          std::memcpy(at + i * patternBytes, &pattern, patternBytes);
      return Accesses{{}, {{to, to + bytes}}};
    };
    device.queue.enqueue(stream, {"fill of " + std::to_string(bytes) + " bytes", run});
    if (isSynchronous)
      device.queue.finish(stream->last);
    return CUDA_SUCCESS;
  });
}

} // namespace

extern "C" {

EMULATOR_EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
  return guarded([&](Device &device) {
    *total = device.totalBytes();
    *free = *total - device.usedBytes(currentDevice);
    return CUDA_SUCCESS;
  });
}
EMULATOR_EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t bytes) {
  return guarded([&](Device &device) { return device.allocate(address, bytes, currentDevice); });
}
EMULATOR_EXPORT CUresult cuMemFree_v2(CUdeviceptr address) {
  return guarded([&](Device &device) { return device.release(address); });
}
EMULATOR_EXPORT CUresult cuMemHostAlloc(void **address, size_t bytes, unsigned flags) {
  return guarded(
      [&](Device &device) { return flags & ~7u ? CUDA_ERROR_INVALID_VALUE : device.allocateHost(address, bytes); });
}
EMULATOR_EXPORT CUresult cuMemAllocHost_v2(void **address, size_t bytes) { return cuMemHostAlloc(address, bytes, 0); }
EMULATOR_EXPORT CUresult cuMemFreeHost(void *address) {
  return guarded([&](Device &device) { return device.releaseHost(address); });
}

EMULATOR_EXPORT CUresult cuMemcpyHtoD_v2(CUdeviceptr to, const void *from, size_t bytes) {
  return copy(onDevice(to, bytes), onHost(from, bytes), bytes, nullptr, /*isSynchronous=*/true);
}
EMULATOR_EXPORT CUresult cuMemcpyDtoH_v2(void *to, CUdeviceptr from, size_t bytes) {
  return copy(onHost(to, bytes), onDevice(from, bytes), bytes, nullptr, /*isSynchronous=*/true);
}
EMULATOR_EXPORT CUresult cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes) {
  return copy(onDevice(to, bytes), onDevice(from, bytes), bytes, nullptr, /*isSynchronous=*/false);
}
EMULATOR_EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t bytes, CUstream stream) {
  return copy(onDevice(to, bytes), onHost(from, bytes), bytes, stream, /*isSynchronous=*/false);
}
EMULATOR_EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(onHost(to, bytes), onDevice(from, bytes), bytes, stream, /*isSynchronous=*/false);
}
EMULATOR_EXPORT CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
  return copy(onDevice(to, bytes), onDevice(from, bytes), bytes, stream, /*isSynchronous=*/false);
}
EMULATOR_EXPORT CUresult cuMemcpy2D_v2(const CUDA_MEMCPY2D *plan) {
  return copyRows(plan, nullptr, /*isSynchronous=*/true);
}
EMULATOR_EXPORT CUresult cuMemcpy2DAsync_v2(const CUDA_MEMCPY2D *plan, CUstream stream) {
  return copyRows(plan, stream, /*isSynchronous=*/false);
}

EMULATOR_EXPORT CUresult cuMemsetD8_v2(CUdeviceptr to, unsigned char value, size_t count) {
  return fill(to, value, 1, count, nullptr, /*isSynchronous=*/true);
}
EMULATOR_EXPORT CUresult cuMemsetD32_v2(CUdeviceptr to, unsigned value, size_t count) {
  return fill(to, value, 4, count, nullptr, /*isSynchronous=*/true);
}
EMULATOR_EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
  return fill(to, value, 1, count, stream, /*isSynchronous=*/false);
}
EMULATOR_EXPORT CUresult cuMemsetD32Async(CUdeviceptr to, unsigned value, size_t count, CUstream stream) {
  return fill(to, value, 4, count, stream, /*isSynchronous=*/false);
}

} // extern "C"
