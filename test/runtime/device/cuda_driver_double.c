/* Just enough of a driver, of cuBLASLt and of NCCL to be asked for its version, which is VERSION. */
#include <stddef.h>

int cuGetErrorString(int error, const char **words) {
  *words = "out of order";
  return 0;
}

int cuDriverGetVersion(int *version) {
  *version = VERSION;
  return STATUS;
}

const char *cublasLtGetStatusString(int status) { return "out of order"; }

size_t cublasLtGetVersion(void) { return VERSION * 10; }

const char *ncclGetErrorString(int status) { return "out of order"; }

const char *ncclGetLastError(void *communicator) { return "a link is down"; }

int ncclGetVersion(int *version) {
  *version = VERSION * 2;
  return STATUS;
}
