// Messages: Heartbeat has no payload. A launcher sends Failure to the first launcher, which sends its decision to all.
// Done says that a launcher's ranks have completed. Settled lists the transfers that its ranks waited for when they
// were stopped. Report ends a failed run. Blob carries a key-value entry; a zero byte ends the key.
#include "runtime/launch/launchers.h"

#include "runtime/json_reason.h"

#include <algorithm>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

namespace espalier::rt::launch {
namespace {

using Json = nlohmann::ordered_json;

/// The number of polls for which the first launcher waits for Settled messages, and the others for its report.
constexpr int reportLooks = 6;
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
    failure.endSignal = json.at("end_signal");
    return {failure, parseWaits(json.at("waiting"))};
  } catch (const nlohmann::json::exception &error) {
    throw FrameError(fmt::format("tells of a failure in unknown words: {}", jsonReason(error)));
  }
}

} // namespace

Launchers::Launchers(std::function<std::optional<Meeting>()> whereTo, Notices &notices, const Patience &patience)
    : whereTo(std::move(whereTo)), notices(notices), patience(patience) {}

Launchers::~Launchers() = default;

void Launchers::open(const Meeting &meeting) {
  own = meeting.own;
  world = meeting.world;
  isFirst = meeting.isFirst;
  try {
    if (isFirst) {
      server = std::make_unique<ControlServer>(meeting.endpoint, meeting.token, own, world);
      notices.post(channelNotice, fmt::format("{}:{}", meeting.endpoint.host, server->port()));
    } else {
      client = std::make_unique<ControlClient>(meeting.endpoint, meeting.token, own, meeting.joinTime);
      peers[-1].member.host = fmt::format("{}:{}", meeting.endpoint.host, meeting.endpoint.port);
      peers[-1].member.ranks = {0};
      notices.post(joinedNotice, "");
      if (verdict.failure()) // a rank has failed meanwhile
        client->send({MessageKind::Failure, printFailure(*verdict.failure(), {})});
    }
  } catch (const std::exception &error) {
    Failure failure;
    failure.rank = own.ranks.front();
    failure.message = error.what();
    isServerLost = !isFirst;
    report(failure);
  }
}

void Launchers::serve(std::vector<RankLine> lines) { ranks = RankLines(std::move(lines)); }

void Launchers::addHandles(std::vector<pollfd> &handles) const {
  if (server)
    server->addHandles(handles);
  if (client)
    client->addHandles(handles);
  ranks.addHandles(handles);
}

void Launchers::turn(bool isLook) {
  if (whereTo)
    if (std::optional<Meeting> meeting = whereTo()) {
      whereTo = nullptr;
      open(*meeting);
    }
  if (server || client)
    for (const ControlEvent &event : server ? server->poll(Milliseconds(0)) : client->poll(Milliseconds(0)))
      hear(event);
  if (server && !isRosterTold && server->isComplete()) {
    isRosterTold = true;
    roster = server->members();
    send({MessageKind::Roster, printMembers(roster)});
  }
  carryNotices();
  carryWords();
  if (isLook) {
    send({MessageKind::Heartbeat, ""});
    countSilence();
    verdict.look();
    settlingLooks += isSettled;
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
    if (auto notice = notices.at(i); notice && !notice->first.starts_with(staysHere))
      server->send(number, {MessageKind::Blob, notice->first + '\0' + notice->second});
  if (isTold)
    server->send(number, {MessageKind::Failure, printFailure(*verdict.failure(), {})});
}

void Launchers::hearMessage(int from, const Message &message) {
  Peer &peer = peers[from];
  peer.silentLooks = 0;
  switch (message.kind) {
  case MessageKind::Roster:
    roster = parseMembers(message.payload);
    peer.member = roster.front();
    break;
  case MessageKind::Failure:
    verdict.consider(parseFailure(message.payload).first);
    break;
  case MessageKind::Settled:
    peer.hasSettled = true;
    waits.merge(parseFailure(message.payload).second);
    break;
  case MessageKind::Report: {
    auto [failure, told] = parseFailure(message.payload);
    std::vector<Waiting> waiting;
    for (const auto &[rank, transfer] : told)
      waiting.push_back({rank, transfer});
    verdict.consider(failure);
    last.emplace(failure, waiting);
    break;
  }
  case MessageKind::Done:
    peer.isDone = true;
    break;
  case MessageKind::Blob:
    carry(from, message);
    break;
  case MessageKind::Words:
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
  verdict.consider(failure);
}

/// Reports a refused host of this run as a failure, unless all ranks have launchers without it. Peers without the token
/// only cause a warning.
void Launchers::refuse(const ControlEvent &event) {
  if (event.member.ranks.empty() || isRosterTold) {
    fmt::print(stderr, "espalier: warning: not let into this run: {}\n", event.text);
    return;
  }
  Failure failure;
  failure.rank = event.member.ranks.front();
  failure.message = event.text;
  verdict.consider(failure);
}

void Launchers::countSilence() {
  for (auto &[number, peer] : peers)
    if (++peer.silentLooks >= patience.silentLooks)
      miss(number, peer.member,
           fmt::format("no sign of life for {:.1f} seconds: the host is down, the link is cut or the process stopped",
                       patience.silentLooks * patience.lookMilliseconds / 1000.0));
}

void Launchers::carryNotices() {
  for (; server || client; ++carried) {
    auto notice = notices.at(carried);
    if (!notice)
      return;
    if (!notice->first.starts_with(staysHere) && !foreign.contains(notice->first))
      send({MessageKind::Blob, notice->first + '\0' + notice->second});
  }
}

void Launchers::carry(int from, const Message &notice) {
  size_t end = notice.payload.find('\0');
  if (end == std::string::npos)
    throw FrameError("sends a notice without a name");
  foreign.insert(notice.payload.substr(0, end));
  notices.post(notice.payload.substr(0, end), notice.payload.substr(end + 1));
  for (auto &[number, peer] : peers)
    if (server && number != from)
      server->send(number, notice);
}

void Launchers::carryWords() {
  for (const std::string &words : ranks.take())
    if (server)
      gather(words, self);
    else if (client)
      client->send({MessageKind::Words, words});
}

/// Adds a contribution to an all-gather, on the first launcher. Sends a complete all-gather to its contributors.
void Launchers::gather(const std::string &words, int from) {
  std::optional<Rounds::Whole> whole = server ? rounds.add(parseContribution(words), from) : std::nullopt;
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

void Launchers::report(const Failure &failure) {
  verdict.consider(failure);
  if (client)
    client->send({MessageKind::Failure, printFailure(failure, {})});
}

std::optional<Failure> Launchers::failure() const { return verdict.isDecided() ? verdict.failure() : std::nullopt; }

/// Broadcasts the decision on the first failure, on the first launcher.
void Launchers::decide() {
  if (!server || isTold || !verdict.isDecided())
    return;
  isTold = true;
  send({MessageKind::Failure, printFailure(*verdict.failure(), {})});
}

void Launchers::settle(std::vector<Waiting> waiting) {
  isSettled = true;
  for (Waiting &rank : waiting)
    waits[rank.rank] = std::move(rank.transfer);
  if (client && !isServerLost)
    client->send({MessageKind::Settled, printFailure(verdict.failure().value_or(Failure()), waits)});
}

/// Completes the report. The first launcher waits until all others have settled, and the others wait for its report.
/// Both give up after reportLooks polls.
void Launchers::finishReport() {
  bool isHeard = server ? std::ranges::all_of(peers,
                                              [](auto &entry) {
                                                const Peer &peer = entry.second;
                                                return peer.hasSettled || peer.isDone || peer.isLost;
                                              })
                        : isServerLost || !client;
  if (!verdict.failure() || (!(isHeard && verdict.isDecided()) && settlingLooks < reportLooks))
    return;
  const Failure &failure = *verdict.failure();
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

bool Launchers::speaks() const {
  if (isFirst || !client)
    return true;
  return isServerLost && (roster.size() < 2 || roster[1] == own);
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
