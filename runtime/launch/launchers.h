// The peer launchers of a run, as one launcher sees them over the control channel: which are alive, which failure was
// the first, and which transfers all ranks waited for. The launcher of rank 0 decides. If it is lost, each launcher
// decides for itself.
#pragma once

#include "runtime/launch/all_gather.h"
#include "runtime/launch/control_channel.h"
#include "runtime/launch/first_failure.h"
#include "runtime/launch/key_value_store.h"
#include "runtime/launch/stall.h"
#include "runtime/launch/watch.h"

#include <functional>
#include <map>
#include <poll.h>
#include <set>

namespace espalier::rt::launch {

/// The rendezvous of the launchers of a run, and the identity of this launcher.
struct Rendezvous {
  Endpoint endpoint = {}; ///< of the first launcher; port 0 there: any free port
  std::string token = "";
  Member own;
  int world = 1;
  bool isFirst = false;
  Milliseconds joinTime{5000}; ///< how long other launchers try to reach the first one
};

/// The prefix of keys that are not sent to other hosts.
constexpr char staysHere = '.';
/// The key under which the first launcher posts its address "HOST:PORT" when it listens.
constexpr const char *channelKey = ".channel";
/// The key that any other launcher posts when it has joined.
constexpr const char *joinedKey = ".joined";

/// This launcher's end of the control channel, with the state of its peers.
class Launchers {
public:
  /// Creates a launcher. Each turn calls `whereTo` until it returns the rendezvous; then this launcher listens or
  /// connects. Entries of `keyValues` are copied between all hosts. `keyValues` must outlive this object.
  Launchers(std::function<std::optional<Rendezvous>()> whereTo, KeyValueStore &keyValues, const Patience &patience);
  ~Launchers();

  /// Starts to forward messages between the ranks of this host and of other hosts.
  void serve(std::vector<RankChannel> channels);

  /// Adds the handles that become ready when another launcher sends a message.
  void addHandles(std::vector<pollfd> &handles) const;
  /// Handles received messages and sends a heartbeat. `isPoll` tells that a poll interval has passed.
  void turn(bool isPoll);

  /// Reports that no rank of this host has moved for too long, or, with an empty list, that they move again. If no
  /// host's ranks move, the rank that the others wait for has failed.
  void reportStall(std::vector<StalledRank> ranks);
  /// Reports the first failure of this host's ranks to the other launchers.
  void report(const Failure &failure);
  /// Returns the failure of any host because of which this host's ranks must stop.
  std::optional<Failure> failure() const;

  /// Reports that this host's ranks have ended after a failure. Afterwards call turn() until hasReport().
  void settle(std::vector<Waiting> waiting);
  /// Returns whether the report is complete. Launchers that do not answer in time are left out.
  bool hasReport() const;
  /// Returns the first failure of the run and the transfers that the other ranks waited for. The report is equal for
  /// all connected launchers.
  RankFailure report() const;
  /// Returns whether this launcher reports to the user.
  bool isReporter() const;
  /// Returns whether the first launcher has ended. Returns false on the first launcher.
  bool hasFirstEnded() const;

  /// Returns whether every rank of the run has a known launcher.
  bool isComplete() const { return !roster.empty(); }
  /// On the first launcher: returns whether all launchers have connected, accepted or refused.
  bool haveAllCome() const { return !server || server->haveAllCome(); }
  /// On the first launcher: returns the ranks without a launcher, as text.
  std::string missing() const;

  /// Reports that this host's ranks have completed.
  void leave();
  /// Returns whether all other launchers have completed or are lost.
  bool haveLeft() const;

private:
  void open(const Rendezvous &rendezvous);
  void hear(const ControlEvent &event);
  void greet(int peer, const Member &member);
  void hearMessage(int from, const Message &message);
  void miss(int peer, const Member &member, const std::string &how);
  void refuse(const ControlEvent &event);
  void countSilence();
  void sendEntries();
  void copyEntry(int from, const Message &entry);
  void sendContributions();
  void gather(const std::string &message, int from);
  void decide();
  void send(const Message &message);
  void finishReport();
  void judgeStall();

  struct Peer {
    Member member;
    int silentPolls = 0;
    bool isDone = false, hasSettled = false, isLost = false;
    std::vector<StalledRank> stalled = {}; ///< empty while its ranks move
  };

  std::function<std::optional<Rendezvous>()> whereTo;
  KeyValueStore &keyValues;
  Patience patience;
  Member own;
  int world = 0;
  bool isFirst = false, isServerLost = false, isRosterSent = false;
  std::unique_ptr<ControlServer> server; ///< on the first launcher
  std::unique_ptr<ControlClient> client; ///< on the others
  RankChannels ranks{{}};
  AllGathers allGathers;      ///< on the first launcher
  std::map<int, Peer> peers;  ///< by the server's numbers; a client has only the first launcher, as -1
  std::vector<Member> roster; ///< set when all ranks have launchers

  size_t carried = 0;            ///< number of this host's entries that were processed
  std::set<std::string> foreign; ///< keys of entries from other hosts

  std::vector<StalledRank> stalled; ///< of this host; empty while they move
  FirstFailure first;
  bool isDecisionSent = false;      ///< the decision was sent to all
  std::map<int, std::string> waits; ///< the awaited transfer, by rank
  int strangers = 0;                ///< connections that were not let in
  bool isSettled = false;
  int settlingPolls = 0;
  std::optional<RankFailure> last; ///< the report, equal for all launchers
};

} // namespace espalier::rt::launch
