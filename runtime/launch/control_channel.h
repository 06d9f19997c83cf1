// The control channel between the launchers of all hosts: one TCP listener of the first host on one interface, to which
// every other launcher connects. Every message is signed with a key that is derived from the run's token and the nonces
// of both sides. So strangers, replays, and launchers of another run or plan are refused and named. Only `poll` blocks,
// for at most the given time.
#pragma once

#include "runtime/launch/frames.h"

#include <chrono>
#include <memory>
#include <poll.h>
#include <string>
#include <vector>

namespace espalier::rt::launch {

using Milliseconds = std::chrono::milliseconds;

/// The channel cannot be opened, or this launcher was refused. The text is a user error.
class ChannelError : public PlanError {
public:
  using PlanError::PlanError;
};

/// A network address, "HOST:PORT" or "[v6]:PORT".
struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

/// Parses HOST:PORT. Throws ChannelError for any other text.
Endpoint parseEndpoint(const std::string &text);

/// The identity of a launcher.
struct Member {
  std::string planHash, version; ///< must be equal for all launchers
  std::vector<int> ranks;        ///< that this launcher starts
  std::string host;
  int64_t pid = 0;
  std::string refusal = "";       ///< why its ranks cannot run; empty: they can
  int process = 0, processes = 1; ///< its index among the launchers of the run, known without a plan
  bool operator==(const Member &) const = default;
};

/// An event since the last poll.
struct ControlEvent {
  enum Kind {
    Joined,   ///< `peer` is a member now
    Received, ///< `message` from `peer`
    Lost,     ///< the connection of a member has ended; `text` has the reason
    Refused,  ///< a peer was refused; `text` names the peer and the reason, `member` is set if it knows the token
  };
  Kind kind = Received;
  int peer = -1; ///< the server's number of the peer; -1 at a client
  Message message;
  Member member;
  std::string text;
};

/// The first host's end of the channel.
class ControlServer {
public:
  /// Listens on the endpoint's address only (port 0: any free port). `own` is the first host's launcher. Other
  /// launchers must run the same plan and have other ranks, all below `world`. If `own` has a refusal, every launcher
  /// is refused with that reason, whatever its ranks. Throws ChannelError.
  ControlServer(const Endpoint &endpoint, std::string token, Member own, int world);
  ~ControlServer();

  /// Returns the port of the listener.
  uint16_t port() const;
  /// Adds the handles that become ready when poll() has work to do.
  void addHandles(std::vector<pollfd> &handles) const;
  /// Waits up to `wait` for an event, and returns all events since the last call.
  std::vector<ControlEvent> poll(Milliseconds wait);
  /// Returns whether every rank has a launcher.
  bool isComplete() const;
  /// Returns whether all launchers of the run have connected, accepted or refused.
  bool haveAllCome() const;
  /// Returns all members: this launcher first, then the others in order of arrival.
  std::vector<Member> members() const;
  /// Sends a message to one member.
  void send(int peer, const Message &message);
  /// Sends a message to all members.
  void broadcast(const Message &message);

private:
  struct State;
  std::unique_ptr<State> state;
};

/// The end of the channel on any other host.
class ControlClient {
public:
  /// Connects and joins; retries until `timeout` while no listener exists. Throws ChannelError if there is no listener,
  /// if the token differs, or if the server refuses this launcher. The server refuses every launcher whose ranks cannot
  /// run.
  ControlClient(const Endpoint &endpoint, std::string token, const Member &own, Milliseconds timeout);
  ~ControlClient();

  /// Adds the handles that become ready when poll() has work to do.
  void addHandles(std::vector<pollfd> &handles) const;
  /// Waits up to `wait` for an event, and returns all events since the last call.
  std::vector<ControlEvent> poll(Milliseconds wait);
  /// Sends a message to the server.
  void send(const Message &message);

private:
  struct State;
  std::unique_ptr<State> state;
};

/// Convert members to JSON text and back, for rosters. parseMembers throws FrameError for malformed text.
std::string printMembers(const std::vector<Member> &members);
std::vector<Member> parseMembers(const std::string &text);

} // namespace espalier::rt::launch
