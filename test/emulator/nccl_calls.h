// The functions of libnccl that the double implements.
#pragma once
#include "test/emulator/cuda_types.h"
#include "test/emulator/nccl_types.h"

extern "C" {
ncclResult_t ncclGetVersion(int *version);
const char *ncclGetErrorString(ncclResult_t result);
const char *ncclGetLastError(ncclComm_t communicator);
ncclResult_t ncclGetUniqueId(ncclUniqueId *id);
ncclResult_t ncclCommInitRankConfig(ncclComm_t *communicator, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t *config);
ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *communicator, ncclConfig_t *config);
ncclResult_t ncclCommFinalize(ncclComm_t communicator);
ncclResult_t ncclCommDestroy(ncclComm_t communicator);
ncclResult_t ncclCommAbort(ncclComm_t communicator);
ncclResult_t ncclCommGetAsyncError(ncclComm_t communicator, ncclResult_t *error);
ncclResult_t ncclCommCount(const ncclComm_t communicator, int *count);
ncclResult_t ncclCommCuDevice(const ncclComm_t communicator, int *device);
ncclResult_t ncclCommUserRank(const ncclComm_t communicator, int *rank);
ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                           ncclComm_t communicator, CUstream stream);
ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type, ncclComm_t communicator,
                           CUstream stream);
ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type, ncclRedOp_t reduction,
                               ncclComm_t communicator, CUstream stream);
ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator,
                      CUstream stream);
ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t communicator, CUstream stream);
ncclResult_t ncclGroupStart();
ncclResult_t ncclGroupEnd();
}
