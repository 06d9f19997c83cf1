// Our declarations of the driver's interface against the real header, where there is one.
#include <gtest/gtest.h>

#ifdef ESPALIER_CUDA_HEADER
#include <cstddef>
#include <cstdint>
#include <cuda.h>

namespace ours {
#include "test/emulator/cuda_types.h"
}

#define SAME(name) static_assert(static_cast<int>(ours::name) == static_cast<int>(::name))
SAME(CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_ERROR_NO_DEVICE);
SAME(CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CUDA_ERROR_INVALID_PTX);
SAME(CUDA_ERROR_INVALID_HANDLE);
SAME(CUDA_ERROR_NOT_FOUND);
SAME(CUDA_ERROR_NOT_READY);
SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(CUDA_ERROR_MISALIGNED_ADDRESS);
SAME(CUDA_ERROR_LAUNCH_FAILED);
SAME(CUDA_ERROR_NOT_SUPPORTED);
SAME(CUDA_ERROR_UNKNOWN);
SAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK);
SAME(CU_DEVICE_ATTRIBUTE_WARP_SIZE);
SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(CU_JIT_ERROR_LOG_BUFFER);
SAME(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES);
SAME(CU_MEMORYTYPE_HOST);
SAME(CU_MEMORYTYPE_DEVICE);
SAME(CU_STREAM_NON_BLOCKING);
SAME(CU_EVENT_DISABLE_TIMING);
SAME(CU_EVENT_BLOCKING_SYNC);
static_assert(sizeof(ours::CUDA_MEMCPY2D) == sizeof(::CUDA_MEMCPY2D));
static_assert(offsetof(ours::CUDA_MEMCPY2D, dstDevice) == offsetof(::CUDA_MEMCPY2D, dstDevice));
static_assert(offsetof(ours::CUDA_MEMCPY2D, Height) == offsetof(::CUDA_MEMCPY2D, Height));
static_assert(sizeof(ours::CUlaunchConfig) == sizeof(::CUlaunchConfig));
static_assert(offsetof(ours::CUlaunchConfig, hStream) == offsetof(::CUlaunchConfig, hStream));
static_assert(offsetof(ours::CUlaunchConfig, numAttrs) == offsetof(::CUlaunchConfig, numAttrs));
static_assert(sizeof(ours::CUuuid) == sizeof(::CUuuid));

TEST(CudaTypes, AgreeWithTheRealHeader) {
  EXPECT_EQ(reinterpret_cast<uintptr_t>(ours::legacyStream), reinterpret_cast<uintptr_t>(CU_STREAM_LEGACY));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(ours::perThreadStream), reinterpret_cast<uintptr_t>(CU_STREAM_PER_THREAD));
}
#else
TEST(CudaTypes, AgreeWithTheRealHeader) { GTEST_SKIP() << "no cuda.h here"; }
#endif
