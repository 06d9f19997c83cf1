// Processes of one host that something else started one by one (torchrun, srun): they find each other under a name that
// only this host knows, see that they mean one run, and get the memory that the first of them makes. The connections
// stay: one that ends says that its process has ended.
#pragma once

#include "runtime/launch/control_channel.h"
#include "runtime/launch/processes.h"
#include "runtime/launch/socket.h"
#include "runtime/launch/topology.h"

namespace espalier::rt::launch {

class HostMeeting {
public:
  /// The process with rank 0 waits for the others, the others for it, for `patience` at most. `stopSignal`: asked
  /// meanwhile, may be empty. Throws LaunchError where somebody does not come or means another run, or `own` is refused
  /// something at the first, and ReportedElsewhere where the first process has said so, another one is refused
  /// something, or a signal came.
  HostMeeting(const Topology &topology, const Member &own, Milliseconds patience, std::function<int()> stopSignal = {});
  ~HostMeeting();

  bool isFirst() const { return ranks.front() == 0; }

  /// What the first process gives to the others.
  struct Gift {
    int file; ///< of ShmWorld::openForOthers; of the receiver from then on
    std::string words;
  };
  void give(const Gift &gift);
  /// Throws ReportedElsewhere where the first process has ended instead.
  Gift take();

  /// The other end of each connection.
  std::vector<Neighbour> neighbours() const;

private:
  struct Guest {
    Socket socket;
    std::vector<int> ranks;
  };
  void receiveGuests(const Topology &topology, const Member &own);
  void visitFirst(const Topology &topology, const Member &own);
  struct Fault {
    std::string text;
    bool isToldThere = false; ///< the process that has it says so
  };
  Guest welcome(Socket socket, const Member &own, Fault &fault);
  bool pause(int handle, int milliseconds);

  std::vector<int> ranks; ///< of this process
  const std::function<int()> stopSignal;
  const double seconds; ///< for which others are waited for, until `end`
  std::chrono::steady_clock::time_point end;
  std::vector<Guest> guests; ///< of the others, the first process alone
};

} // namespace espalier::rt::launch
