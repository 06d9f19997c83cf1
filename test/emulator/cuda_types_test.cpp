// Compares our declarations with the real headers, if these are installed.
#include <gtest/gtest.h>

#ifdef ESPALIER_CUDA_HEADER
#include <cstddef>
#include <cstdint>
#include <cublasLt.h>
#include <cuda.h>

namespace ours {
#include "test/emulator/cublaslt_types.h"
#include "test/emulator/cuda_types.h"
} // namespace ours

#define SAME(name) static_assert(static_cast<int>(ours::name) == static_cast<int>(::name))
SAME(CUDA_ERROR_INVALID_VALUE);
SAME(CUDA_ERROR_OUT_OF_MEMORY);
SAME(CUDA_ERROR_NOT_INITIALIZED);
SAME(CUDA_ERROR_NO_DEVICE);
SAME(CUDA_ERROR_INVALID_DEVICE);
SAME(CUDA_ERROR_INVALID_CONTEXT);
SAME(CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(CUDA_ERROR_INVALID_PTX);
SAME(CUDA_ERROR_UNSUPPORTED_PTX_VERSION);
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
SAME(CU_DEVICE_ATTRIBUTE_MAX_PITCH);
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
SAME(CUBLAS_STATUS_NOT_INITIALIZED);
SAME(CUBLAS_STATUS_INVALID_VALUE);
SAME(CUBLAS_STATUS_EXECUTION_FAILED);
SAME(CUBLAS_STATUS_NOT_SUPPORTED);
SAME(CUBLAS_OP_N);
SAME(CUBLAS_OP_T);
SAME(CUBLAS_COMPUTE_32F);
SAME(CUBLAS_COMPUTE_32F_PEDANTIC);
SAME(CUBLAS_COMPUTE_32F_FAST_TF32);
SAME(CUDA_R_32F);
SAME(CUDA_R_16F);
SAME(CUDA_R_16BF);
SAME(CUBLASLT_ORDER_COL);
SAME(CUBLASLT_ORDER_ROW);
SAME(CUBLASLT_EPILOGUE_DEFAULT);
SAME(CUBLASLT_EPILOGUE_BIAS);
SAME(CUBLASLT_EPILOGUE_GELU);
SAME(CUBLASLT_EPILOGUE_GELU_BIAS);
SAME(CUBLASLT_EPILOGUE_GELU_AUX);
SAME(CUBLASLT_EPILOGUE_GELU_AUX_BIAS);
SAME(CUBLASLT_EPILOGUE_DGELU);
SAME(CUBLASLT_EPILOGUE_BGRADA);
SAME(CUBLASLT_MATMUL_DESC_COMPUTE_TYPE);
SAME(CUBLASLT_MATMUL_DESC_SCALE_TYPE);
SAME(CUBLASLT_MATMUL_DESC_POINTER_MODE);
SAME(CUBLASLT_MATMUL_DESC_TRANSA);
SAME(CUBLASLT_MATMUL_DESC_TRANSB);
SAME(CUBLASLT_MATMUL_DESC_TRANSC);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD);
SAME(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
SAME(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(CUBLASLT_MATRIX_LAYOUT_TYPE);
SAME(CUBLASLT_MATRIX_LAYOUT_ORDER);
SAME(CUBLASLT_MATRIX_LAYOUT_ROWS);
SAME(CUBLASLT_MATRIX_LAYOUT_COLS);
SAME(CUBLASLT_MATRIX_LAYOUT_LD);
SAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(CUBLASLT_MATMUL_PREF_SEARCH_MODE);
SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
SAME(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
SAME(CUBLASLT_MATMUL_PREF_MAX_WAVES_COUNT);
SAME(CUBLASLT_MATMUL_PREF_IMPL_MASK);
static_assert(sizeof(ours::cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(ours::cublasLtMatmulHeuristicResult_t) == sizeof(::cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(ours::cublasLtMatmulHeuristicResult_t, state) ==
              offsetof(::cublasLtMatmulHeuristicResult_t, state));
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

#ifdef ESPALIER_NCCL_HEADER
#include <climits>
#include <cstddef>

// Included before the real header, whose macros have the same names.
namespace ours {
#include "test/emulator/nccl_types.h"
} // namespace ours
constexpr int ourNoColor = ours::NCCL_SPLIT_NOCOLOR;
#include <nccl.h>

#define SAME_OF_NCCL(name) static_assert(static_cast<int>(ours::name) == static_cast<int>(::name))
SAME_OF_NCCL(ncclUnhandledCudaError);
SAME_OF_NCCL(ncclSystemError);
SAME_OF_NCCL(ncclInternalError);
SAME_OF_NCCL(ncclInvalidArgument);
SAME_OF_NCCL(ncclInvalidUsage);
SAME_OF_NCCL(ncclRemoteError);
SAME_OF_NCCL(ncclInProgress);
SAME_OF_NCCL(ncclSum);
SAME_OF_NCCL(ncclProd);
SAME_OF_NCCL(ncclMax);
SAME_OF_NCCL(ncclMin);
SAME_OF_NCCL(ncclAvg);
SAME_OF_NCCL(ncclInt8);
SAME_OF_NCCL(ncclInt32);
SAME_OF_NCCL(ncclFloat16);
SAME_OF_NCCL(ncclFloat32);
SAME_OF_NCCL(ncclBfloat16);
static_assert(ourNoColor == NCCL_SPLIT_NOCOLOR);
static_assert(sizeof(ours::ncclUniqueId) == sizeof(::ncclUniqueId));
static_assert(sizeof(ours::ncclConfig_t) <= sizeof(::ncclConfig_t));
static_assert(offsetof(ours::ncclConfig_t, magic) == offsetof(::ncclConfig_t, magic));
static_assert(offsetof(ours::ncclConfig_t, blocking) == offsetof(::ncclConfig_t, blocking));
static_assert(offsetof(ours::ncclConfig_t, maxCTAs) == offsetof(::ncclConfig_t, maxCTAs));
static_assert(offsetof(ours::ncclConfig_t, splitShare) == offsetof(::ncclConfig_t, splitShare));

TEST(NcclTypes, AgreeWithTheRealHeader) {
  const ::ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
  EXPECT_EQ(ours::unsetConfig.magic, theirs.magic);
  EXPECT_EQ(ours::unsetConfig.blocking, theirs.blocking);
}
#else
TEST(NcclTypes, AgreeWithTheRealHeader) { GTEST_SKIP() << "no nccl.h here"; }
#endif
