// The launchers of a run, as one of them sees the others over the control channel: who lives, which failure was the
// first, and what all ranks waited for. The launcher of rank 0 decides; where it is lost, each one does for itself.
#pragma once

#include "runtime/launch/control_channel.h"
#include "runtime/launch/notices.h"
#include "runtime/launch/verdict.h"
#include "runtime/launch/watch.h"
#include "runtime/launch/words.h"

#include <functional>
#include <map>
#include <poll.h>
#include <set>

namespace espalier::rt::launch {

/// Where the launchers of a run meet, and who this one is.
struct Meeting {
  Endpoint endpoint = {}; ///< of the first one; port 0 there: any
  std::string token = "";
  Member own;
  int world = 1;
  bool isFirst = false;
  Milliseconds joinTime{5000}; ///< for which one that is not first tries to reach the first
};

/// Names of notices that stay on a host begin so.
constexpr char staysHere = '.';
/// Posted by the first launcher once it listens: "HOST:PORT".
constexpr const char *channelNotice = ".channel";
/// Posted by any other one once it has been let in.
constexpr const char *joinedNotice = ".joined";

class Launchers {
public:
  /// `whereTo` is asked until it says where to meet: then this one listens or connects. Notices of this host go to all
  /// others, theirs come here. The notices outlive this.
  Launchers(std::function<std::optional<Meeting>()> whereTo, Notices &notices, const Patience &patience);
  ~Launchers();

  /// From now on carries what ranks of this host say to those of others.
  void serve(std::vector<RankLine> lines);

  /// What to poll to be woken when another launcher says something.
  void addHandles(std::vector<pollfd> &handles) const;
  /// Hears what others say and says that this one lives. `isLook`: a look of the watcher has passed.
  void turn(bool isLook);

  /// The first failure of this host's ranks.
  void report(const Failure &failure);
  /// Why this host's ranks are to stop: a failure of any host.
  std::optional<Failure> failure() const;

  /// This host's ranks have ended after a failure. From now on turn() until hasReport().
  void settle(std::vector<Waiting> waiting);
  /// Whether all has been heard that will be. Gives up those who do not answer.
  bool hasReport() const;
  /// The first failure of the run and what the other ranks waited for, equal for all launchers that can hear each
  /// other.
  RankFailure report() const;
  /// Whether this launcher is the one that speaks to the user.
  bool speaks() const;
  /// Whether the first launcher has ended; false at itself.
  bool hasFirstEnded() const;

  /// Whether all ranks of the run have a launcher that was heard of.
  bool isComplete() const { return !roster.empty(); }
  /// At the first one: whether all have come, let in or not.
  bool haveAllCome() const { return !server || server->haveAllCome(); }
  /// At the first one: the ranks that have none, in words.
  std::string missing() const;

  /// This host's ranks have ended well.
  void leave();
  /// Whether all others have said so, or are lost.
  bool haveLeft() const;

private:
  void open(const Meeting &meeting);
  void hear(const ControlEvent &event);
  void greet(int peer, const Member &member);
  void hearMessage(int from, const Message &message);
  void miss(int peer, const Member &member, const std::string &how);
  void refuse(const ControlEvent &event);
  void countSilence();
  void carryNotices();
  void carry(int from, const Message &notice);
  void carryWords();
  void gather(const std::string &words, int from);
  void decide();
  void send(const Message &message);
  void finishReport();

  struct Peer {
    Member member;
    int silentLooks = 0;
    bool isDone = false, hasSettled = false, isLost = false;
  };

  std::function<std::optional<Meeting>()> whereTo;
  Notices &notices;
  Patience patience;
  Member own;
  int world = 0;
  bool isFirst = false, isServerLost = false, isRosterTold = false;
  std::unique_ptr<ControlServer> server; ///< at the first one
  std::unique_ptr<ControlClient> client; ///< at the others
  RankLines ranks{{}};
  Rounds rounds;              ///< at the first one
  std::map<int, Peer> peers;  ///< by the server's numbers; at a client the first one alone, as -1
  std::vector<Member> roster; ///< once told

  size_t carried = 0;            ///< notices of this host that have been looked at
  std::set<std::string> foreign; ///< that came from others

  Verdict verdict;
  bool isTold = false;              ///< the verdict, to all or to the first
  std::map<int, std::string> waits; ///< by rank
  bool isSettled = false;
  int settlingLooks = 0;
  std::optional<RankFailure> last; ///< the report, equal for all
};

} // namespace espalier::rt::launch
