// How the launchers of all hosts know each other: one TCP listener of the first host on one interface, and a connection
// of each other one to it. Every message is signed with a key of the run's token and both sides' nonces, so a stranger,
// a replay, or a launcher of another run or plan is refused and named. Nothing blocks but `poll`, for as long as it is
// told.
#pragma once

#include "runtime/launch/frames.h"

#include <chrono>
#include <memory>
#include <poll.h>
#include <string>
#include <vector>

namespace espalier::rt::launch {

using Milliseconds = std::chrono::milliseconds;

/// The channel cannot be opened, or this launcher was not let in; the text is a user error.
class ChannelError : public PlanError {
public:
  using PlanError::PlanError;
};

/// "HOST:PORT" or "[v6]:PORT".
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

/// Throws ChannelError where the text is no HOST:PORT.
Endpoint parseEndpoint(const std::string &text);

/// What a launcher says of itself.
struct Member {
  std::string planHash, version; ///< must be equal for all
  std::vector<int> ranks;        ///< that it starts
  std::string host;
  int64_t pid = 0;
  std::string refusal = "";       ///< why its ranks cannot run; empty where they can
  int process = 0, processes = 1; ///< its number among the launchers of the run, known without a plan
  bool operator==(const Member &) const = default;
};

/// What happened since the last poll.
struct ControlEvent {
  enum Kind {
    Joined,   ///< `peer` is a member now
    Received, ///< `message` from `peer`
    Lost,     ///< the connection of a member has ended; `text` says how
    Refused,  ///< somebody was not let in; `text` says who and why, `member` who it was where it knows the token
  };
  Kind kind = Received;
  int peer = -1; ///< a number of the server's; -1 at a client
  Message message;
  Member member;
  std::string text;
};

/// The first host's end.
class ControlServer {
public:
  /// Listens on the endpoint's address alone (port 0: any free one). `own` is the first host's launcher itself: others
  /// must run its plan, with none of its ranks, all below `world`. Where `own` has a refusal nobody is let in: all are
  /// told why, and their ranks may be any. Throws ChannelError.
  ControlServer(const Endpoint &endpoint, std::string token, Member own, int world);
  ~ControlServer();

  uint16_t port() const;
  /// What to poll to be woken when poll() has something to do.
  void addHandles(std::vector<pollfd> &handles) const;
  /// Waits up to `wait` for something to happen.
  std::vector<ControlEvent> poll(Milliseconds wait);
  /// Whether every rank is somebody's.
  bool isComplete() const;
  /// Whether all launchers of the run have come, let in or not.
  bool haveAllCome() const;
  /// All members, this one first, then as they came.
  std::vector<Member> members() const;
  void send(int peer, const Message &message);
  void broadcast(const Message &message);

private:
  struct State;
  std::unique_ptr<State> state;
};

/// Any other host's end.
class ControlClient {
public:
  /// Connects and joins, trying again until `timeout` while nobody listens. Throws ChannelError: nobody there, another
  /// token, or refused, with the server's reason; so is one whose ranks cannot run.
  ControlClient(const Endpoint &endpoint, std::string token, const Member &own, Milliseconds timeout);
  ~ControlClient();

  void addHandles(std::vector<pollfd> &handles) const;
  std::vector<ControlEvent> poll(Milliseconds wait);
  void send(const Message &message);

private:
  struct State;
  std::unique_ptr<State> state;
};

/// Members as JSON text and back, for rosters. Throws FrameError where the text is none.
std::string printMembers(const std::vector<Member> &members);
std::vector<Member> parseMembers(const std::string &text);

} // namespace espalier::rt::launch
