// Messages: Heartbeat has no payload. A launcher sends Failure to the first launcher, which sends its decision to all.
// Done says that a launcher's ranks have completed. Settled lists the transfers that its ranks waited for when they
// were stopped. Report ends a failed run. Blob carries a key-value entry; a zero byte ends the key.
#include "runtime/launch/launchers.h"

#include "messages/json_reason.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace espalier::rt::launch {
namespace {

using Json = nlohmann::ordered_json;

/// The number of polls for which the first launcher waits for Settled messages, and the others for its report.
constexpr int reportPolls = 6;
/// Identifies the first launcher itself among the contributors to its all-gathers.
constexpr int self = -1;

std::string printFailure(const Failure &failure, const std::map<int, std::string> &waits) {
  Json list = Json::array();
  for (const auto &[rank, transfer] : waits)
    list.push_back({rank, transfer});
  Json json = {{"rank", failure.rank},
               {"stage", failure.stage},
               {"step", failure.step},
               {"action", failure.action},
               {"subprogram", failure.subprogram},
               {"op", failure.op},
               {"message", failure.message},
               {"echo", failure.isEcho},
               {"final", failure.isFinal},
               {"end_signal", failure.endSignal},
               {"waiting", list}};
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::map<int, std::string> parseWaits(const Json &list) {
  std::map<int, std::string> waits;
  for (const Json &entry : list)
    waits[entry.at(0)] = entry.at(1);
  return waits;
}

/// Parses the failure in a member's message. The signature was valid, so a malformed message is a bug of this program.
std::pair<Failure, std::map<int, std::string>> parseFailure(const std::string &text) {
  try {
    Json json = Json::parse(text);
    Failure failure;
    failure.rank = json.at("rank");
    failure.stage = json.at("stage");
    failure.step = json.at("step");
    failure.action = json.at("action");
    failure.subprogram = json.at("subprogram");
    failure.op = json.at("op");
    failure.message = json.at("message");
    failure.isEcho = json.at("echo");
    failure.isFinal = json.at("final");
    failure.endSignal = json.at("end_signal");
    return {failure, parseWaits(json.at("waiting"))};
  } catch (const nlohmann::json::exception &error) {
    throw FrameError(fmt::format("tells of a failure in unknown words: {}", jsonReason(error)));
  }
}

} // namespace

Launchers::Launchers(std::function<std::optional<Rendezvous>()> whereTo, KeyValueStore &keyValues,
                     const Patience &patience)
    : whereTo(std::move(whereTo)), keyValues(keyValues), patience(patience) {}

Launchers::~Launchers() = default;

void Launchers::open(const Rendezvous &rendezvous) {
  own = rendezvous.own;
  world = rendezvous.world;
  isFirst = rendezvous.isFirst;
  try {
    if (isFirst) {
      server = std::make_unique<ControlServer>(rendezvous.endpoint, rendezvous.token, own, world);
      keyValues.post(channelKey, fmt::format("{}:{}", rendezvous.endpoint.host, server->port()));
    } else {
      client = std::make_unique<ControlClient>(rendezvous.endpoint, rendezvous.token, own, rendezvous.joinTime);
      peers[-1].member.host = fmt::format("{}:{}", rendezvous.endpoint.host, rendezvous.endpoint.port);
      peers[-1].member.ranks = {0};
      keyValues.post(joinedKey, "");
      if (first.failure()) // a rank has failed meanwhile
        client->send({MessageKind::Failure, printFailure(*first.failure(), {})});
    }
  } catch (const std::exception &error) {
    Failure failure;
    failure.rank = own.ranks.front();
    failure.message = error.what();
    isServerLost = !isFirst;
    report(failure);
  }
}

void Launchers::serve(std::vector<RankChannel> channels) { ranks = RankChannels(std::move(channels)); }

void Launchers::addHandles(std::vector<pollfd> &handles) const {
  if (server)
    server->addHandles(handles);
  if (client)
    client->addHandles(handles);
  ranks.addHandles(handles);
}

void Launchers::turn(bool isPoll) {
  if (whereTo)
    if (std::optional<Rendezvous> rendezvous = whereTo()) {
      whereTo = nullptr;
      open(*rendezvous);
    }
  if (server || client)
    for (const ControlEvent &event : server ? server->poll(Milliseconds(0)) : client->poll(Milliseconds(0)))
      hear(event);
  if (server && !isRosterSent && server->isComplete()) {
    isRosterSent = true;
    roster = server->members();
    send({MessageKind::Roster, printMembers(roster)});
  }
  sendEntries();
  sendContributions();
  judgeStall();
  if (isPoll) {
    send({MessageKind::Heartbeat, ""});
    countSilence();
    first.poll();
    settlingPolls += isSettled;
  }
  decide();
  if (isSettled && !last)
    finishReport();
}

void Launchers::hear(const ControlEvent &event) {
  switch (event.kind) {
  case ControlEvent::Joined:
    greet(event.peer, event.member);
    break;
  case ControlEvent::Received:
    try {
      hearMessage(event.peer, event.message);
    } catch (const std::exception &error) {
      miss(event.peer, peers[event.peer].member, error.what());
    }
    break;
  case ControlEvent::Lost:
    miss(event.peer, peers[event.peer].member, event.text);
    break;
  case ControlEvent::Refused:
    refuse(event);
    break;
  }
}

/// Sends the entries and the failure that other launchers have received to a launcher that joins later.
void Launchers::greet(int number, const Member &member) {
  peers[number].member = member;
  for (size_t i = 0; i < carried; ++i)
    if (auto entry = keyValues.at(i); entry && !entry->first.starts_with(staysHere))
      server->send(number, {MessageKind::Blob, entry->first + '\0' + entry->second});
  if (isDecisionSent)
    server->send(number, {MessageKind::Failure, printFailure(*first.failure(), {})});
}

void Launchers::hearMessage(int from, const Message &message) {
  Peer &peer = peers[from];
  peer.silentPolls = 0;
  switch (message.kind) {
  case MessageKind::Roster:
    roster = parseMembers(message.payload);
    peer.member = roster.front();
    break;
  case MessageKind::Failure:
    first.consider(parseFailure(message.payload).first);
    break;
  case MessageKind::Settled:
    peer.hasSettled = true;
    waits.merge(parseFailure(message.payload).second);
    break;
  case MessageKind::Report: {
    auto [failure, transfers] = parseFailure(message.payload);
    std::vector<Waiting> waiting;
    for (const auto &[rank, transfer] : transfers)
      waiting.push_back({rank, transfer});
    first.consider(failure);
    last.emplace(failure, waiting);
    break;
  }
  case MessageKind::Stalled:
    peer.stalled = parseStalled(message.payload);
    break;
  case MessageKind::Done:
    peer.isDone = true;
    break;
  case MessageKind::Blob:
    copyEntry(from, message);
    break;
  case MessageKind::Contribution:
    gather(message.payload, from);
    break;
  case MessageKind::Gathered:
    ranks.deliver(message.payload);
    break;
  default:
    break;
  }
}

/// Reports a lost launcher as a failure, unless its ranks have completed.
void Launchers::miss(int number, const Member &member, const std::string &how) {
  Peer &peer = peers[number];
  if (std::exchange(peer.isLost, true) || peer.isDone || last)
    return;
  isServerLost |= client != nullptr;
  Failure failure;
  failure.rank = member.ranks.empty() ? 0 : member.ranks.front();
  failure.message =
      fmt::format("its launcher on {} is lost: {}",
                  member.pid ? fmt::format("{} (process {})", member.host, member.pid) : member.host, how);
  first.consider(failure);
}

/// Reports a refused host of this run as a failure, unless all ranks have launchers without it. Peers without the token
/// only cause a warning.
void Launchers::refuse(const ControlEvent &event) {
  if (event.member.ranks.empty() || isRosterSent) {
    constexpr int mostTold = 8;
    if (strangers++ < mostTold)
      fmt::print(stderr, "espalier: warning: not let into this run: {}{}\n", event.text,
                 strangers == mostTold ? "; further ones are not named" : "");
    return;
  }
  Failure failure;
  failure.rank = event.member.ranks.front();
  failure.message = event.text;
  first.consider(failure);
}

void Launchers::countSilence() {
  for (auto &[number, peer] : peers)
    if (++peer.silentPolls >= patience.silentPolls)
      miss(number, peer.member,
           fmt::format("no sign of life for {:.1f} seconds: the host is down, the link is cut or the process stopped",
                       patience.silentPolls * patience.pollMilliseconds / 1000.0));
}

void Launchers::sendEntries() {
  for (; server || client; ++carried) {
    auto entry = keyValues.at(carried);
    if (!entry)
      return;
    if (!entry->first.starts_with(staysHere) && !foreign.contains(entry->first))
      send({MessageKind::Blob, entry->first + '\0' + entry->second});
  }
}

void Launchers::copyEntry(int from, const Message &entry) {
  size_t end = entry.payload.find('\0');
  if (end == std::string::npos)
    throw FrameError("sends a notice without a name");
  foreign.insert(entry.payload.substr(0, end));
  keyValues.post(entry.payload.substr(0, end), entry.payload.substr(end + 1));
  for (auto &[number, peer] : peers)
    if (server && number != from)
      server->send(number, entry);
}

void Launchers::sendContributions() {
  for (const std::string &message : ranks.take())
    if (server)
      gather(message, self);
    else if (client)
      client->send({MessageKind::Contribution, message});
}

/// Adds a contribution to an all-gather, on the first launcher. Sends a complete all-gather to its contributors.
void Launchers::gather(const std::string &message, int from) {
  std::optional<AllGathers::Whole> whole = server ? allGathers.add(parseContribution(message), from) : std::nullopt;
  if (!whole)
    return;
  std::string gathered = print(whole->gathered);
  for (int peer : whole->from)
    if (peer != self)
      server->send(peer, {MessageKind::Gathered, gathered});
  ranks.deliver(gathered);
}

void Launchers::send(const Message &message) {
  if (server)
    server->broadcast(message);
  if (client)
    client->send(message);
}

void Launchers::reportStall(std::vector<StalledRank> ranks) {
  stalled = std::move(ranks);
  if (client)
    client->send({MessageKind::Stalled, printStalled(stalled)});
}

/// Looks for a run in which nobody moves, on the first launcher.
void Launchers::judgeStall() {
  if (!isRosterSent || stalled.empty() || first.failure())
    return;
  std::vector<StalledRank> all = stalled;
  for (const auto &[number, peer] : peers) {
    if (peer.stalled.empty() && !peer.isDone && !peer.isLost)
      return;
    all.insert(all.end(), peer.stalled.begin(), peer.stalled.end());
  }
  first.consider(blame(all));
}

void Launchers::report(const Failure &failure) {
  first.consider(failure);
  if (client)
    client->send({MessageKind::Failure, printFailure(failure, {})});
}

std::optional<Failure> Launchers::failure() const { return first.isDecided() ? first.failure() : std::nullopt; }

/// Broadcasts the decision on the first failure, on the first launcher.
void Launchers::decide() {
  if (!server || isDecisionSent || !first.isDecided())
    return;
  isDecisionSent = true;
  send({MessageKind::Failure, printFailure(*first.failure(), {})});
}

void Launchers::settle(std::vector<Waiting> waiting) {
  isSettled = true;
  for (Waiting &rank : waiting)
    waits[rank.rank] = std::move(rank.transfer);
  if (client && !isServerLost)
    client->send({MessageKind::Settled, printFailure(first.failure().value_or(Failure()), waits)});
}

/// Completes the report. The first launcher waits until all others have settled, and the others wait for its report.
/// Both give up after reportPolls polls.
void Launchers::finishReport() {
  bool isHeard = server ? std::ranges::all_of(peers,
                                              [](auto &entry) {
                                                const Peer &peer = entry.second;
                                                return peer.hasSettled || peer.isDone || peer.isLost;
                                              })
                        : isServerLost || !client;
  if (!first.failure() || (!(isHeard && first.isDecided()) && settlingPolls < reportPolls))
    return;
  const Failure &failure = *first.failure();
  std::vector<Waiting> waiting;
  for (int rank = 0; rank < world; ++rank)
    if (rank != failure.rank)
      waiting.push_back({rank, waits.contains(rank) ? waits.at(rank) : ""});
  last.emplace(failure, waiting);
  if (server) {
    for (const Waiting &rank : waiting)
      waits[rank.rank] = rank.transfer;
    waits.erase(failure.rank);
    send({MessageKind::Report, printFailure(failure, waits)});
  }
}

bool Launchers::hasReport() const { return last.has_value(); }

RankFailure Launchers::report() const { return *last; }

/// The first launcher reports, unless it has completed or is lost. If it is lost, one launcher reports for all: on
/// another host if there is one, because the host may be down.
bool Launchers::isReporter() const {
  if (isFirst || !client || peers.at(-1).isDone)
    return true;
  if (!isServerLost || roster.size() < 2)
    return isServerLost;
  auto elsewhere = std::ranges::find_if(roster, [&](const Member &each) { return each.host != roster[0].host; });
  return own == (elsewhere == roster.end() ? roster[1] : *elsewhere);
}

bool Launchers::hasFirstEnded() const {
  auto first = peers.find(-1);
  return first != peers.end() && first->second.isLost;
}

std::string Launchers::missing() const {
  std::set<int> absent;
  for (int rank = 0; rank < world; ++rank)
    absent.insert(rank);
  for (const Member &member : server ? server->members() : std::vector<Member>())
    for (int rank : member.ranks)
      absent.erase(rank);
  return fmt::format("{}", fmt::join(absent, ", "));
}

bool Launchers::haveLeft() const {
  return std::ranges::all_of(peers, [](auto &entry) { return entry.second.isDone || entry.second.isLost; });
}

void Launchers::leave() { send({MessageKind::Done, ""}); }

} // namespace espalier::rt::launch
