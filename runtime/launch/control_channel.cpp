#include "runtime/launch/control_channel.h"

#include "runtime/launch/socket.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <poll.h>
#include <set>
#include <thread>

namespace espalier::rt::launch {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

/// The time within which a connection must prove that it knows the token, and the limits of connections that have not:
/// in all, and accepted per poll. Members do not count, so strangers take no place from them.
constexpr Milliseconds introductionTime{2000};
constexpr size_t mostStrangers = 256, mostAccepted = 64;
/// The bytes read per connection and poll, and the limit of unsent bytes for a member that does not read.
constexpr size_t readAtOnce = 1 << 20, mostUnsent = 16 << 20;
constexpr int mostRanks = 1 << 20;

std::string textOf(const Digest &digest) { return {reinterpret_cast<const char *>(digest.data()), digest.size()}; }

Digest digestOf(std::string_view text) {
  Digest digest{};
  if (text.size() < digest.size())
    throw FrameError("sends a nonce that is too short");
  std::copy_n(text.begin(), digest.size(), digest.begin());
  return digest;
}

Json jsonOf(const Member &member) {
  return {{"plan", member.planHash},   {"version", member.version},
          {"ranks", member.ranks},     {"host", member.host},
          {"pid", member.pid},         {"refusal", member.refusal},
          {"process", member.process}, {"processes", member.processes}};
}

Member memberOf(const Json &json) {
  constexpr size_t mostText = 4096;
  try {
    Member member{json.at("plan").get<std::string>(),
                  json.at("version").get<std::string>(),
                  json.at("ranks").get<std::vector<int>>(),
                  json.at("host").get<std::string>(),
                  json.at("pid").get<int64_t>(),
                  json.at("refusal").get<std::string>(),
                  json.at("process").get<int>(),
                  json.at("processes").get<int>()};
    bool areRanks = std::ranges::all_of(member.ranks, [](int rank) { return rank >= 0 && rank < mostRanks; });
    bool areTexts = std::ranges::all_of(std::array{&member.host, &member.planHash, &member.refusal},
                                        [](const std::string *text) { return text->size() <= mostText; });
    bool isOneOfThem = member.process >= 0 && member.process < member.processes && member.processes <= mostRanks;
    if (!areRanks || !areTexts || !isOneOfThem)
      throw FrameError("describes itself with impossible ranks or names");
    return member;
  } catch (const nlohmann::json::exception &) {
    throw FrameError("does not describe itself");
  }
}

Json parse(const std::string &text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded())
    throw FrameError("sends what is no JSON");
  return json;
}

} // namespace

Endpoint parseEndpoint(const std::string &text) {
  size_t colon = text.rfind(':');
  std::string host = text.substr(0, colon == std::string::npos ? 0 : colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  int port = -1;
  const char *begin = text.data() + (colon == std::string::npos ? text.size() : colon + 1),
             *end = text.data() + text.size();
  auto [last, error] = std::from_chars(begin, end, port);
  if (host.empty() || error != std::errc() || last != end || port < 0 || port > 65535)
    throw ChannelError(fmt::format("\"{}\" is no HOST:PORT, as 10.0.0.1:4000 or [fd00::1]:4000", text));
  return {host, static_cast<uint16_t>(port)};
}

std::string printMembers(const std::vector<Member> &members) {
  Json list = Json::array();
  for (const Member &member : members)
    list.push_back(jsonOf(member));
  return list.dump();
}

std::vector<Member> parseMembers(const std::string &text) {
  Json json = parse(text);
  std::vector<Member> members;
  for (const Json &entry : json)
    members.push_back(memberOf(entry));
  if (members.empty())
    throw FrameError("names no member");
  return members;
}

/// The state of a connection that both ends have.
struct Connection {
  Socket socket;
  std::string address; ///< address of the peer
  FrameOpener opener;
  std::optional<FrameSealer> sealer; ///< set once the session key is known
  std::string unsent;
  std::string error;      ///< why the connection has ended; empty while it is open
  bool isClosed = false;  ///< the peer has closed the connection, or the network has
  bool isForeign = false; ///< the peer does not know the token

  /// Returns the events to poll for: readable always, writable if bytes are unsent.
  pollfd handle() const { return {socket.number(), static_cast<short>(POLLIN | (unsent.empty() ? 0 : POLLOUT)), 0}; }

  void send(const Message &message) {
    if (!sealer || !error.empty())
      return;
    unsent += sealer->seal(message);
    flush();
    if (unsent.size() > mostUnsent)
      error = "does not read what it is sent";
  }

  void flush() {
    if (error.empty())
      (void)socket.write(unsent, error);
  }

  /// Returns the complete messages that have arrived. A protocol error ends the connection.
  std::vector<Message> receive(size_t mostBytes = readAtOnce) {
    std::vector<Message> messages;
    while (std::optional<Message> message = take(messages.empty() ? mostBytes : 0))
      messages.push_back(std::move(*message));
    return messages;
  }

  /// Reads at most `mostBytes` bytes and returns the next complete message, if there is one.
  std::optional<Message> take(size_t mostBytes) {
    std::string bytes;
    isClosed |= mostBytes > 0 && !socket.read(bytes, mostBytes, error);
    try {
      opener.feed(bytes);
      return opener.next();
    } catch (const FrameError &wrong) {
      error = wrong.what();
      isClosed = false;
      isForeign = dynamic_cast<const ForeignFrame *>(&wrong) != nullptr;
    }
    return std::nullopt;
  }
};

struct ControlServer::State {
  struct Peer {
    Connection connection;
    Digest nonce;
    Clock::time_point since;
    std::optional<Member> member;
    Member refused; ///< the claimed identity, if the peer was refused
  };

  Socket listener;
  std::string token;
  std::vector<Member> all; ///< this process first
  int world;
  std::set<int> ranks; ///< ranks that have a launcher
  std::set<int> come;  ///< launchers that have identified themselves, whether accepted or refused
  std::map<int, Peer> peers;
  int next = 0;

  /// Closes the oldest unproved connection of the address with the most of them, so that a host whose connections fill
  /// the limit displaces its own. A launcher that is displaced tries again.
  void displaceStranger() {
    auto hostOf = [](const Peer &peer) {
      return peer.connection.address.substr(0, peer.connection.address.rfind(':'));
    };
    std::map<std::string, std::vector<int>> strangers; // by host, the oldest first
    for (const auto &[number, peer] : peers)
      if (!peer.member)
        strangers[hostOf(peer)].push_back(number);
    auto most = std::ranges::max_element(strangers, {}, [](const auto &entry) { return entry.second.size(); });
    peers.erase(most->second.front());
  }

  void accept() {
    for (size_t accepted = 0; accepted < mostAccepted; ++accepted) {
      auto connection = acceptFrom(listener);
      if (!connection)
        return;
      size_t strangers = std::ranges::count_if(peers, [](auto &entry) { return !entry.second.member; });
      if (strangers >= mostStrangers)
        displaceStranger();
      Digest nonce = makeNonce();
      Peer peer{{std::move(connection->first), connection->second,
                 FrameOpener(joinKey(token, nonce), Direction::ToServer), std::nullopt, "", ""},
                nonce,
                Clock::now(),
                std::nullopt,
                {}};
      peer.connection.unsent = FrameSealer(publicKey(), Direction::ToClient).seal({MessageKind::Hello, textOf(nonce)});
      peer.connection.flush();
      peers.emplace(next++, std::move(peer));
    }
  }

  /// Returns why a launcher is refused, or an empty string.
  std::string whyNot(const Member &member) const {
    const Member &own = all.front();
    for (const Member *one : {&own, &member})
      if (!one->refusal.empty())
        return fmt::format("{} cannot take part: {}", one->host, one->refusal);
    if (member.version != own.version)
      return fmt::format("{} runs espalier {}, the first host, {}, runs {}; install the same build on every host",
                         member.host, member.version, own.host, own.version);
    if (member.planHash != own.planHash)
      return fmt::format("{} has another plan (hash {}, the first host's is {}); give all hosts the same file",
                         member.host, member.planHash, own.planHash);
    for (int rank : member.ranks) {
      if (rank >= world)
        return fmt::format("{} starts rank {}, the plan has {}", member.host, rank, world);
      if (!ranks.contains(rank))
        continue;
      auto holder = std::ranges::find_if(all, [&](const Member &m) { return std::ranges::count(m.ranks, rank) > 0; });
      return fmt::format("{} starts rank {}, which {} (process {}) has started", member.host, rank, holder->host,
                         holder->pid);
    }
    return "";
  }

  /// Handles the first message of a peer: its nonce, followed by its identity.
  void join(int number, Peer &peer, const Message &message, std::vector<ControlEvent> &events) {
    if (message.kind != MessageKind::Join)
      throw FrameError("does not say who it is first");
    Digest clientNonce = digestOf(message.payload);
    Member member = memberOf(parse(message.payload.substr(clientNonce.size())));
    Digest session = sessionKey(token, peer.nonce, clientNonce);
    peer.connection.opener.changeKey(session);
    peer.connection.sealer.emplace(session, Direction::ToClient);
    come.insert(member.process);
    if (std::string why = whyNot(member); !why.empty()) {
      peer.connection.send({MessageKind::Refusal, why});
      peer.refused = member;
      throw FrameError(why);
    }
    peer.connection.send({MessageKind::Hello, ""}); // accepted
    ranks.insert(member.ranks.begin(), member.ranks.end());
    all.push_back(member);
    peer.member = member;
    events.push_back({ControlEvent::Joined, number, {}, member, ""});
  }

  void turn(int number, Peer &peer, std::vector<ControlEvent> &events) {
    for (Message &message : peer.connection.receive(peer.member ? readAtOnce : mostUnprovedBytes)) {
      try {
        if (peer.member)
          events.push_back({ControlEvent::Received, number, std::move(message), *peer.member, ""});
        else
          join(number, peer, message, events);
      } catch (const FrameError &wrong) {
        peer.connection.error = wrong.what();
        return;
      }
    }
    if (!peer.member && peer.connection.isForeign) {
      std::string ignored, bytes = FrameSealer(publicKey(), Direction::ToClient).seal({MessageKind::Refusal, ""});
      (void)peer.connection.socket.write(bytes, ignored);
    }
    if (!peer.member && Clock::now() - peer.since > introductionTime && peer.connection.error.empty())
      peer.connection.error = "does not say who it is";
  }

  /// Removes connections that have ended and reports them.
  void sweep(std::vector<ControlEvent> &events) {
    for (auto entry = peers.begin(); entry != peers.end();) {
      Peer &peer = entry->second;
      if (peer.connection.error.empty()) {
        ++entry;
        continue;
      }
      ControlEvent event{peer.member ? ControlEvent::Lost : ControlEvent::Refused, entry->first, {}, {}, ""};
      event.member = peer.member.value_or(peer.refused);
      bool hasSaidWho = !peer.refused.ranks.empty(); // the error then names the peer
      event.text =
          hasSaidWho ? peer.connection.error : fmt::format("{} {}", peer.connection.address, peer.connection.error);
      events.push_back(std::move(event));
      entry = peers.erase(entry);
    }
  }
};

ControlServer::ControlServer(const Endpoint &endpoint, std::string token, Member own, int world)
    : state(std::make_unique<State>()) {
  if (token.empty())
    throw ChannelError("launchers need a token that all of them know: ESPALIER_TOKEN or --token-file");
  state->listener = listenAt(endpoint);
  state->token = std::move(token);
  state->ranks.insert(own.ranks.begin(), own.ranks.end());
  state->come = {own.process};
  state->all.push_back(std::move(own));
  state->world = world;
}

ControlServer::~ControlServer() = default;

uint16_t ControlServer::port() const { return portOf(state->listener); }

bool ControlServer::isComplete() const { return static_cast<int>(state->ranks.size()) == state->world; }

bool ControlServer::haveAllCome() const { return static_cast<int>(state->come.size()) >= state->all.front().processes; }

std::vector<Member> ControlServer::members() const { return state->all; }

void ControlServer::addHandles(std::vector<pollfd> &handles) const {
  handles.push_back({state->listener.number(), POLLIN, 0});
  for (const auto &[number, peer] : state->peers)
    handles.push_back(peer.connection.handle());
}

std::vector<ControlEvent> ControlServer::poll(Milliseconds wait) {
  std::vector<ControlEvent> events;
  std::vector<pollfd> handles;
  addHandles(handles);
  ::poll(handles.data(), handles.size(), static_cast<int>(wait.count()));
  state->accept();
  for (auto &[number, peer] : state->peers) {
    peer.connection.flush();
    state->turn(number, peer, events);
  }
  state->sweep(events);
  return events;
}

void ControlServer::send(int peer, const Message &message) {
  if (auto found = state->peers.find(peer); found != state->peers.end() && found->second.member)
    found->second.connection.send(message);
}

void ControlServer::broadcast(const Message &message) {
  for (auto &[number, peer] : state->peers)
    if (peer.member)
      peer.connection.send(message);
}

struct ControlClient::State {
  Connection connection;
  bool isOver = false; ///< no further event will follow
};

namespace {

/// Returns the next message of a connection, or nothing after `end` or after an error, which the connection records.
std::optional<Message> await(Connection &connection, Clock::time_point end) {
  while (connection.error.empty() && Clock::now() < end) {
    auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now()).count() + 1;
    pollfd handle = connection.handle();
    ::poll(&handle, 1, static_cast<int>(left));
    connection.flush();
    if (std::optional<Message> message = connection.take(readAtOnce)) {
      if (connection.isClosed && message->kind == MessageKind::Refusal)
        connection.error.clear(); // the refusal was sent before the peer closed the connection
      return message;
    }
  }
  if (connection.error.empty()) {
    connection.error = "says nothing";
    connection.isClosed = true;
  }
  return std::nullopt;
}

/// Returns a connection that has joined, or one that the server has turned away without a reason, as a server does that
/// has too many connections. Throws ChannelError if the server gives a reason, or is none.
Connection joinOnce(Socket socket, const std::string &address, const std::string &token, const Member &own,
                    Clock::time_point end) {
  Connection connection{std::move(socket), address, FrameOpener(publicKey(), Direction::ToClient),
                        std::nullopt,      "",      ""};
  auto ask = [&](MessageKind wanted) -> std::optional<Message> {
    std::optional<Message> message = await(connection, end);
    if (message && message->kind == MessageKind::Refusal)
      throw ChannelError(fmt::format("refused by {}: {}", address, message->payload));
    if (!message && connection.isClosed)
      return std::nullopt;
    if (!message || message->kind != wanted)
      throw ChannelError(fmt::format("{} {}: is it the first host of this run, with the same token?", address,
                                     message ? "answers something else" : connection.error));
    return message;
  };
  std::optional<Message> hello = ask(MessageKind::Hello);
  if (!hello)
    return connection;
  Digest serverNonce = digestOf(hello->payload), clientNonce = makeNonce();
  connection.unsent += FrameSealer(joinKey(token, serverNonce), Direction::ToServer)
                           .seal({MessageKind::Join, textOf(clientNonce) + jsonOf(own).dump()});
  Digest session = sessionKey(token, serverNonce, clientNonce);
  connection.opener.changeKey(session);
  connection.sealer.emplace(session, Direction::ToServer);
  connection.flush();
  if (ask(MessageKind::Hello)) {
    connection.error.clear(); // later messages and the end may have arrived with this one
    connection.isClosed = false;
  }
  return connection;
}

} // namespace

ControlClient::ControlClient(const Endpoint &endpoint, std::string token, const Member &own, Milliseconds timeout) {
  if (token.empty())
    throw ChannelError("launchers need a token that all of them know: ESPALIER_TOKEN or --token-file");
  constexpr Milliseconds again{100}, longestTry{10000};
  std::string address = fmt::format("{}:{}", endpoint.host, endpoint.port), last;
  for (Clock::time_point end = Clock::now() + timeout;; std::this_thread::sleep_for(again)) {
    if (Socket socket = connectTo(endpoint, static_cast<int>(again.count()) * 10); socket.isOpen()) {
      Connection connection =
          joinOnce(std::move(socket), address, token, own, std::min(end, Clock::now() + longestTry));
      if (connection.error.empty()) {
        state = std::make_unique<State>(State{std::move(connection)});
        return;
      }
      last = connection.error;
    }
    if (Clock::now() < end)
      continue;
    if (last.empty())
      throw ChannelError(fmt::format("nobody listens at {} after {:.0f} s: does the first host run, and may this one "
                                     "reach it?",
                                     address, timeout.count() / 1000.0));
    throw ChannelError(fmt::format("{} {}, also after {:.0f} s: is it the first host of this run, with the same token?",
                                   address, last, timeout.count() / 1000.0));
  }
}

ControlClient::~ControlClient() = default;

void ControlClient::addHandles(std::vector<pollfd> &handles) const {
  if (state->connection.error.empty())
    handles.push_back(state->connection.handle());
}

std::vector<ControlEvent> ControlClient::poll(Milliseconds wait) {
  Connection &connection = state->connection;
  std::vector<ControlEvent> events;
  if (state->isOver) {
    std::this_thread::sleep_for(wait);
    return events;
  }
  if (connection.error.empty()) { // else the last messages may have arrived together with the answer to Join
    pollfd handle = connection.handle();
    ::poll(&handle, 1, static_cast<int>(wait.count()));
    connection.flush();
  }
  for (Message &message : connection.receive())
    events.push_back({ControlEvent::Received, -1, std::move(message), {}, ""});
  if (!connection.error.empty()) {
    state->isOver = true;
    events.push_back({ControlEvent::Lost, -1, {}, {}, fmt::format("{} {}", connection.address, connection.error)});
  }
  return events;
}

void ControlClient::send(const Message &message) { state->connection.send(message); }

} // namespace espalier::rt::launch
