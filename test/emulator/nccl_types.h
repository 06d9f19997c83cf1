// The declarations of nccl.h that the double uses, written independently of the product; see cuda_types.h.
#pragma once
#include <climits>
#include <cstddef>

using ncclComm_t = struct ncclComm *;

struct ncclUniqueId {
  char internal[128];
};

enum ncclResult_t : int {
  ncclSuccess = 0,
  ncclUnhandledCudaError = 1,
  ncclSystemError = 2,
  ncclInternalError = 3,
  ncclInvalidArgument = 4,
  ncclInvalidUsage = 5,
  ncclRemoteError = 6,
  ncclInProgress = 7,
};
enum ncclRedOp_t : int { ncclSum = 0, ncclProd = 1, ncclMax = 2, ncclMin = 3, ncclAvg = 4 };
enum ncclDataType_t : int {
  ncclInt8 = 0,
  ncclInt32 = 2,
  ncclFloat16 = 6,
  ncclFloat32 = 7,
  ncclBfloat16 = 9,
};

inline constexpr int NCCL_CONFIG_UNDEF_INT = INT_MIN;
inline constexpr int NCCL_SPLIT_NOCOLOR = -1;

/// The layout of NCCL 2.18; later fields are appended.
struct ncclConfig_t {
  size_t size;
  unsigned magic, version;
  int blocking, cgaClusterSize, minCTAs, maxCTAs;
  const char *netName;
  int splitShare;
};

inline constexpr ncclConfig_t unsetConfig = {sizeof(ncclConfig_t),
                                             0xcafebeef,
                                             21801,
                                             NCCL_CONFIG_UNDEF_INT,
                                             NCCL_CONFIG_UNDEF_INT,
                                             NCCL_CONFIG_UNDEF_INT,
                                             NCCL_CONFIG_UNDEF_INT,
                                             nullptr,
                                             NCCL_CONFIG_UNDEF_INT};
