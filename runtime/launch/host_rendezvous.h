// The rendezvous of processes of one host that were started one by one (torchrun, srun). They find each other under a
// host-local name, check that they belong to one run, and receive the shared memory that the first process creates. The
// connections stay open, so the end of a connection signals the end of a process.
#pragma once

#include "runtime/launch/control_channel.h"
#include "runtime/launch/socket.h"
#include "runtime/launch/topology.h"
#include "runtime/launch/watch.h"

namespace espalier::rt::launch {

/// One process's end of the rendezvous.
class HostRendezvous {
public:
  /// Connects the process with rank 0 and its peers, for `patience` at most. Polls `stopSignal` meanwhile, unless it is
  /// empty. Throws LaunchError if a peer is missing or belongs to another run, or if the first process itself has a
  /// refusal in `own`. Throws ReportedElsewhere if another process reports the error, or after a signal.
  HostRendezvous(const Topology &topology, const Member &own, Milliseconds patience,
                 std::function<int()> stopSignal = {});
  ~HostRendezvous();

  /// Returns whether this process has rank 0.
  bool isFirst() const { return ranks.front() == 0; }

  /// The data that the first process sends to its peers.
  struct Setup {
    int file;                    ///< of ShmWorld::openForOthers; the receiver owns its copy
    std::string checkpointToken; ///< of the folder that the first process has locked
  };
  /// Sends the setup to all peers. Only the first process calls this.
  void send(const Setup &setup);
  /// Receives the setup. Throws ReportedElsewhere if the first process has ended instead.
  Setup receive();

  /// Returns the peers, with a handle for each connection.
  std::vector<Neighbour> neighbours() const;

private:
  struct Peer {
    Socket socket;
    std::vector<int> ranks;
  };
  void acceptPeers(const Topology &topology, const Member &own);
  void connectToFirst(const Topology &topology, const Member &own);
  struct Fault {
    std::string text;
    bool isReportedThere = false; ///< the process with the fault reports it
  };
  Peer identify(Socket socket, const Member &own, Fault &fault);
  bool pause(int handle, int milliseconds);

  std::vector<int> ranks; ///< of this process
  const std::function<int()> stopSignal;
  const double seconds; ///< how long to wait for peers, until `end`
  std::chrono::steady_clock::time_point end;
  std::vector<Peer> peers; ///< the peers; other processes have only the first process here
};

} // namespace espalier::rt::launch
