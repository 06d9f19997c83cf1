#include "runtime/comm/mpi_library.h"

#include "runtime/status.h"

#include <array>
#include <dlfcn.h>
#include <fmt/format.h>

namespace espalier::rt {

MpiLibrary::MpiLibrary(std::string name) {
  // RTLD_GLOBAL, because OpenMPI's plug-ins look up its symbols.
  void *library = dlopen(name.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    throw PlanError(fmt::format("running over MPI needs OpenMPI: {}", dlerror()));
  auto find = [&](const char *symbol) {
    void *address = dlsym(library, symbol);
    if (!address)
      throw PlanError(fmt::format("running over MPI needs OpenMPI: {} lacks {}", name, symbol));
    return address;
  };
  auto resolve = [&](auto &function, const char *symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(find(symbol));
  };
  resolve(initThread, "MPI_Init_thread");
  resolve(initialized, "MPI_Initialized");
  resolve(finalize, "MPI_Finalize");
  resolve(abortAll, "MPI_Abort");
  resolve(commRank, "MPI_Comm_rank");
  resolve(commSize, "MPI_Comm_size");
  resolve(commDuplicate, "MPI_Comm_dup");
  resolve(commSetErrorHandler, "MPI_Comm_set_errhandler");
  resolve(startSend, "MPI_Isend");
  resolve(startSynchronousSend, "MPI_Issend");
  resolve(startReceive, "MPI_Irecv");
  resolve(testSome, "MPI_Testsome");
  resolve(cancel, "MPI_Cancel");
  resolve(probe, "MPI_Iprobe");
  resolve(countOf, "MPI_Get_count");
  resolve(errorString, "MPI_Error_string");
  world = find("ompi_mpi_comm_world");
  byte = find("ompi_mpi_byte");
  errorsReturn = find("ompi_mpi_errors_return");
}

void MpiLibrary::check(int code, const char *doing) const {
  if (code == success)
    return;
  std::array<char, 512> text{}; // MPI_MAX_ERROR_STRING is 256
  int length = 0;
  errorString(code, text.data(), &length);
  throw std::runtime_error(fmt::format("MPI refuses {}: {}", doing, text.data()));
}

} // namespace espalier::rt
