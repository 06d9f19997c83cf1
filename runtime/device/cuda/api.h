// Declarations of the CUDA driver, cuBLASLt and NCCL APIs that the back end uses, so that neither toolkit nor driver is
// needed to build. symbols.def lists functions and constants; this file declares the types. If the real headers are
// installed, test/runtime/device/cuda_api_test.cpp asserts that all declarations agree with them.
#pragma once

#include <cstddef>
#include <cstdint>

// Handle types have the driver's names, so that they are the same types as in its header.
struct CUctx_st;
struct CUlib_st;
struct CUkern_st;
struct CUfunc_st;
struct CUstream_st;
struct CUevent_st;
struct CUarray_st;
struct cublasLtContext;
struct ncclComm;

namespace espalier::rt::cuda {

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = CUctx_st *;
using CUlibrary = CUlib_st *;
using CUkernel = CUkern_st *;
using CUfunction = CUfunc_st *;
using CUstream = CUstream_st *;
using CUevent = CUevent_st *;
using CUarray = CUarray_st *;
using cublasLtHandle_t = cublasLtContext *;
using ncclComm_t = ncclComm *;

// symbols.def defines the enumerators as constants.
enum CUresult : int {};
enum CUdevice_attribute : int {};
enum CUfunction_attribute : int {};
enum CUjit_option : int {};
enum CUlibraryOption : int {};
enum CUmemorytype : int {};
enum cublasStatus_t : int {};
enum cublasOperation_t : int {};
enum cublasComputeType_t : int {};
enum cudaDataType_t : int {};
enum cublasLtMatmulDescAttributes_t : int {};
enum cublasLtEpilogue_t : int {};
enum cublasLtMatrixLayoutAttribute_t : int {};
enum cublasLtMatmulPreferenceAttributes_t : int {};
enum ncclResult_t : int {};
enum ncclRedOp_t : int {};
enum ncclDataType_t : int {};

#define CONSTANT(type, name, value) inline constexpr type name = static_cast<type>(value);
#define NCCL_CONSTANT(type, name, value) inline constexpr type name = static_cast<type>(value);
#include "runtime/device/cuda/symbols.def"

struct CUuuid {
  char bytes[16];
};

/// A copy of `Height` rows of `WidthInBytes` bytes each, with rows `Pitch` bytes apart.
struct CUDA_MEMCPY2D {
  size_t srcXInBytes, srcY;
  CUmemorytype srcMemoryType;
  const void *srcHost;
  CUdeviceptr srcDevice;
  CUarray srcArray;
  size_t srcPitch;
  size_t dstXInBytes, dstY;
  CUmemorytype dstMemoryType;
  void *dstHost;
  CUdeviceptr dstDevice;
  CUarray dstArray;
  size_t dstPitch;
  size_t WidthInBytes, Height;
};

struct CUlaunchAttribute;

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute *attrs;
  unsigned numAttrs;
};

// cuBLASLt's descriptors are opaque.
struct cublasLtMatmulDescOpaque_t;
struct cublasLtMatrixLayoutOpaque_t;
struct cublasLtMatmulPreferenceOpaque_t;
using cublasLtMatmulDesc_t = cublasLtMatmulDescOpaque_t *;
using cublasLtMatrixLayout_t = cublasLtMatrixLayoutOpaque_t *;
using cublasLtMatmulPreference_t = cublasLtMatmulPreferenceOpaque_t *;

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};

struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

struct ncclUniqueId {
  char internal[128];
};

/// The layout of NCCL 2.18. `size` is the size of this struct; newer libraries use defaults for their later fields.
struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
};

} // namespace espalier::rt::cuda
