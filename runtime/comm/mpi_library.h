// OpenMPI, loaded at run time, so that the binary builds and starts without OpenMPI. Handles are OpenMPI's own
// pointers. Only the part of its interface is declared that has been stable since version 3.
#pragma once

#include <cstddef>
#include <string>

namespace espalier::rt {

/// The functions and constants of OpenMPI that the runtime uses.
struct MpiLibrary {
  using Handle = void *;
  struct Status {
    int source, tag, error, cancelled;
    size_t bytes;
  };
  static constexpr int success = 0, truncated = 15, errorInStatus = 18;
  static constexpr int anySource = -1, serialized = 2; ///< serialized: MPI_THREAD_SERIALIZED

  /// Opens the library. Throws PlanError if it is missing or is not OpenMPI.
  explicit MpiLibrary(std::string name = "libmpi.so.40");

  /// Throws std::runtime_error with MPI's error text unless `code` is success.
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
  Send *startSend, *startSynchronousSend; ///< a synchronous send completes after its receive has begun
  int (*startReceive)(void *, int, Handle, int, int, Handle, Handle *);
  int (*testSome)(int, Handle *, int *, int *, Status *);
  int (*cancel)(Handle *);
  int (*probe)(int, int, Handle, int *, Status *);
  int (*countOf)(const Status *, Handle, int *);
  int (*errorString)(int, char *, int *);
  Handle world, byte, errorsReturn;
};

} // namespace espalier::rt
