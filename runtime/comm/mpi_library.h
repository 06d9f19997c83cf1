// OpenMPI, found at run time: a binary starts where none is installed, and is built where none is. Handles are its own
// pointers; what stands here is what of its interface has been the same since version 3.
#pragma once

#include <cstddef>
#include <string>

namespace espalier::rt {

struct MpiLibrary {
  using Handle = void *;
  struct Status {
    int source, tag, error, cancelled;
    size_t bytes;
  };
  static constexpr int success = 0, truncated = 15, errorInStatus = 18;
  static constexpr int anySource = -1, serialized = 2; ///< serialized: one thread at a time

  /// Opens the library. Throws PlanError where there is none, or not OpenMPI.
  explicit MpiLibrary(std::string name = "libmpi.so.40");

  /// Throws std::runtime_error in MPI's words unless `code` is success.
  void check(int code, const char *doing) const;

  int (*initThread)(int *, char ***, int, int *);
  int (*initialized)(int *);
  int (*finalize)();
  int (*abortAll)(Handle, int); ///< does not return
  int (*commRank)(Handle, int *);
  int (*commSize)(Handle, int *);
  int (*commDuplicate)(Handle, Handle *);
  int (*commSetErrorHandler)(Handle, Handle);
  using Send = int(const void *, int, Handle, int, int, Handle, Handle *);
  Send *startSend, *startSynchronousSend; ///< the latter lasts until its receive has begun
  int (*startReceive)(void *, int, Handle, int, int, Handle, Handle *);
  int (*testSome)(int, Handle *, int *, int *, Status *);
  int (*cancel)(Handle *);
  int (*probe)(int, int, Handle, int *, Status *);
  int (*countOf)(const Status *, Handle, int *);
  int (*errorString)(int, char *, int *);
  Handle world, byte, errorsReturn;
};

} // namespace espalier::rt
