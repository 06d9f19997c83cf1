#include "runtime/run/startup_guard.h"

#include "messages/data_error.h"
#include "messages/error_line.h"
#include "runtime/comm/mpi.h"
#include "runtime/launch/host_rendezvous.h"
#include "runtime/run/rank_processes.h"
#include "runtime/run/rank_result.h"
#include "runtime/status.h"

#include <fmt/format.h>

namespace espalier::rt {
namespace {

using namespace launch;

/// Sends the refusal to the launchers of all hosts. The first host answers each launcher that connects; other hosts
/// connect to the first host.
void broadcastToHosts(const RunOptions &options, const Member &own) {
  Endpoint endpoint = parseEndpoint(options.topology->rendezvous);
  if (own.ranks.front() != 0) {
    ControlClient(endpoint, options.token, own, startTogether);
    return;
  }
  ControlServer server(endpoint, options.token, own, options.topology->world);
  auto end = std::chrono::steady_clock::now() + startTogether;
  auto isStopped = [&] { return options.stopSignal && options.stopSignal() != 0; };
  while (!server.haveAllCome() && !isStopped() && std::chrono::steady_clock::now() < end)
    server.poll(Milliseconds(100));
}

void broadcast(const RunOptions &options, const std::string &why, int status) {
  Member own = describeProcess(*options.topology);
  own.refusal = why.substr(0, 4000); // the longest text that receivers read
  try {
    if (options.comm == Comm::mpi)
      MpiWorld::endAll(status);
    else if (options.comm == Comm::hosts)
      broadcastToHosts(options, own);
    else
      HostRendezvous(*options.topology, own, startTogether, options.stopSignal);
  } catch (const std::exception &) {
    // The connection attempt fails as expected, or no peer can be reached.
  }
}

/// Returns whether peers wait for this process before ranks begin. Processes of mpirun end together with this one;
/// processes of srun wait in MPI.
bool isAwaited(const RunOptions &options) {
  if (!options.topology)
    return false;
  bool hasNeighbours = options.comm == Comm::shm && !options.topology->hostRendezvous.empty();
  bool isInSlurm = options.comm == Comm::mpi && options.topology->launcher == Topology::Slurm;
  return hasNeighbours || isInSlurm || (options.comm == Comm::hosts && !options.topology->rendezvous.empty());
}

} // namespace

void printAtOnce(const std::exception &error) {
  if (dynamic_cast<const DataError *>(&error)) // includes its place
    printErrorText(error.what());
  else
    printError("espalier", error.what());
  std::fflush(stderr);
}

void guardStartup(const RunOptions &options, const std::function<void()> &work) {
  try {
    work();
  } catch (const std::exception &error) {
    if (!isAwaited(options))
      throw;
    printAtOnce(error);
    int status = StartupError::current().status;
    broadcast(options, error.what(), status);
    throw ReportedElsewhere(status);
  }
}

} // namespace espalier::rt
