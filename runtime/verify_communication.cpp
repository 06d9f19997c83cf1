// The happens-before graph over stages. Ranks of a stage run one program, so a cycle between ranks
// would be one between stages: it is enough to look at one rank per stage. Collectives inside a
// stage are issued in the same order by construction. An operation is taken to finish only when
// every member stands at its wait, and a send only when its receive has started: what passes here
// hangs under no back end. There are as many events as micro-batches times transfers: they are kept
// small and named only in errors.
#include "runtime/comm/comm.h"
#include "runtime/verify_rules.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

namespace espalier::rt {
namespace {

/// Where an event stands: an action, one of the stage's calls and an instruction of its subprogram, or none.
struct Position {
  int action = 0, call = -1, instruction = -1;
};

/// So many events of a stage.
struct Progress {
  int stage = -1;
  uint32_t events = 0;
};

/// One point of a stage's order that another stage can wait for.
struct Event {
  Position position;
  Progress waitsFor; ///< what must be behind it; collectives wait for `gathered` as well
};

/// A transfer as one stage sees it, by events.
struct Transfer {
  uint32_t start = 0, wait = 0;
  uint32_t microBatch = 0;
};

/// A collective over stages as one stage sees it, by events.
struct Gathering {
  uint32_t start = 0, wait = 0;
  const pb::Collective *collective = nullptr;
};

enum Stream { SendForward, ReceiveForward, SendBackward, ReceiveBackward };

class Order {
public:
  Order(const pb::Plan &plan, bool isEvaluation, PlanErrors &errors)
      : plan(plan), isEvaluation(isEvaluation), errors(errors), stages(plan.stages_size()) {}

  void check();

private:
  struct StageOrder {
    std::vector<Event> events;
    std::array<std::vector<Transfer>, 4> transfers;
    std::map<std::vector<uint32_t>, std::vector<Gathering>> collectives; ///< by stages of the group
    std::map<uint32_t, std::vector<Progress>> gathered;                  ///< by the event that waits for all of them
    std::map<std::pair<Stream, uint32_t>, size_t> open;                  ///< transfers by slot
  };

  void list(int stage);
  void listAction(int stage, const pb::Action &action, Position position);
  void listCollectives(int stage, const pb::Action &action, Position position);
  void listSubprogram(int stage, const pb::Subprogram &subprogram, Position position);
  void start(int stage, Stream stream, const pb::Action &action, Position position);
  void wait(int stage, Stream stream, const pb::Action &action, Position position);
  void matchTransfers(int from, Stream send, int to, Stream receive);
  void matchCollectives(const std::vector<uint32_t> &group);
  void play();
  uint32_t addEvent(int stage, Position position) {
    stages[stage].events.push_back({position, {}});
    return static_cast<uint32_t>(stages[stage].events.size() - 1);
  }
  const google::protobuf::RepeatedPtrField<pb::Action> &actionsOf(int stage) const {
    return isEvaluation ? plan.stages(stage).evaluation() : plan.stages(stage).schedule();
  }
  std::string nameOf(int stage, Position position) const;
  std::string nameOf(int stage, uint32_t event) const { return nameOf(stage, stages[stage].events[event].position); }

  const pb::Plan &plan;
  const bool isEvaluation;
  PlanErrors &errors;
  std::vector<StageOrder> stages;
  std::vector<bool> joinsStages; ///< subprograms with collectives over stages
};

std::string Order::nameOf(int stage, Position position) const {
  const pb::Action &action = actionsOf(stage)[position.action];
  std::string name = actionName(stage, position.action, action, isEvaluation);
  if (position.call < 0)
    return name;
  const pb::Call &call = plan.stages(stage).calls(position.call);
  const pb::Subprogram &subprogram = plan.subprograms(subprogramOf(call, action.kind(), isEvaluation) - 1);
  return fmt::format("{}, layer {}, {}", name, call.layer(), instructionName(plan, subprogram, position.instruction));
}

void Order::check() {
  size_t before = errors.list.size();
  for (const pb::Subprogram &subprogram : plan.subprograms())
    joinsStages.push_back(std::ranges::any_of(subprogram.instructions(),
                                              [](const pb::Instruction &i) { return !i.start().stages().empty(); }));
  for (int i = 0; i < plan.stages_size(); ++i)
    list(i);
  for (int i = 0; i + 1 < plan.stages_size(); ++i) {
    matchTransfers(i, SendForward, i + 1, ReceiveForward);
    matchTransfers(i + 1, SendBackward, i, ReceiveBackward);
  }
  std::map<std::vector<uint32_t>, bool> groups;
  for (const StageOrder &stage : stages)
    for (const auto &[group, points] : stage.collectives)
      groups[group] = true;
  for (const auto &[group, seen] : groups)
    matchCollectives(group);
  if (errors.list.size() == before)
    play();
}

void Order::list(int stage) {
  const auto &actions = actionsOf(stage);
  for (int i = 0; i < actions.size(); ++i)
    listAction(stage, actions[i], {i});
  for (const auto &[key, number] : stages[stage].open)
    errors.add(fmt::format("{}: is never waited for", nameOf(stage, stages[stage].transfers[key.first][number].start)));
}

void Order::listAction(int stage, const pb::Action &action, Position position) {
  switch (action.kind()) {
  case pb::Action::START_RECEIVE_FORWARD:
    return start(stage, ReceiveForward, action, position);
  case pb::Action::WAIT_RECEIVE_FORWARD:
    return wait(stage, ReceiveForward, action, position);
  case pb::Action::START_SEND_FORWARD:
    return start(stage, SendForward, action, position);
  case pb::Action::WAIT_SEND_FORWARD:
    return wait(stage, SendForward, action, position);
  case pb::Action::START_RECEIVE_BACKWARD:
    return start(stage, ReceiveBackward, action, position);
  case pb::Action::WAIT_RECEIVE_BACKWARD:
    return wait(stage, ReceiveBackward, action, position);
  case pb::Action::START_SEND_BACKWARD:
    return start(stage, SendBackward, action, position);
  case pb::Action::WAIT_SEND_BACKWARD:
    return wait(stage, SendBackward, action, position);
  case pb::Action::LOAD_INPUTS:
    return;
  case pb::Action::AGREE: {
    std::vector<uint32_t> all(plan.stages_size());
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = i;
    uint32_t event = addEvent(stage, position);
    stages[stage].collectives[all].push_back({event, event, nullptr});
    return;
  }
  default:
    return listCollectives(stage, action, position);
  }
}

void Order::start(int stage, Stream stream, const pb::Action &action, Position position) {
  StageOrder &order = stages[stage];
  bool isForward = stream == SendForward || stream == ReceiveForward;
  bool toNext = stream == SendForward || stream == ReceiveBackward;
  if (toNext ? stage + 1 == plan.stages_size() : stage == 0)
    return errors.add(fmt::format("{}: there is no stage on the other side", nameOf(stage, position)));
  const pb::Stage &holder = plan.stages(stage);
  const pb::Binding &place = isForward ? (toNext ? holder.send_forward() : holder.receive_forward())
                                       : (toNext ? holder.receive_backward() : holder.send_backward());
  if (place.bytes() == 0)
    errors.add(fmt::format("{}: has no place for the stream", nameOf(stage, position)));
  size_t number = order.transfers[stream].size();
  if (!order.open.emplace(std::pair(stream, action.slot()), number).second)
    errors.add(fmt::format("{}: slot {} is still in flight", nameOf(stage, position), action.slot()));
  if (order.open.size() > maxInFlight)
    errors.add(fmt::format("{}: more than {} transfers in flight", nameOf(stage, position), maxInFlight));
  order.transfers[stream].push_back({addEvent(stage, position), 0, action.micro_batch()});
}

void Order::wait(int stage, Stream stream, const pb::Action &action, Position position) {
  StageOrder &order = stages[stage];
  auto open = order.open.find({stream, action.slot()});
  if (open == order.open.end() || order.transfers[stream][open->second].microBatch != action.micro_batch())
    return errors.add(fmt::format("{}: waits for a transfer that was not started", nameOf(stage, position)));
  order.transfers[stream][open->second].wait = addEvent(stage, position);
  order.open.erase(open);
}

void Order::listCollectives(int stage, const pb::Action &action, Position position) {
  const auto &calls = plan.stages(stage).calls();
  for (int i = 0; i < calls.size(); ++i) {
    position.call = action.kind() == pb::Action::BACKWARD ? calls.size() - 1 - i : i;
    uint32_t number = subprogramOf(calls[position.call], action.kind(), isEvaluation);
    if (number > 0 && joinsStages[number - 1])
      listSubprogram(stage, plan.subprograms(number - 1), position);
  }
}

/// Only collectives across stages can tie one stage's order to another's.
void Order::listSubprogram(int stage, const pb::Subprogram &subprogram, Position position) {
  std::map<uint32_t, std::pair<std::vector<uint32_t>, size_t>> open; // group and number, by id
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    position.instruction = i;
    if (instruction.has_start() && !instruction.start().stages().empty()) {
      const pb::Collective &collective = instruction.start();
      std::vector<uint32_t> group(collective.stages().begin(), collective.stages().end());
      std::ranges::sort(group);
      if (std::ranges::find(group, static_cast<uint32_t>(stage)) == group.end()) {
        errors.add(fmt::format("{}: stage {} is no member of the group it starts", nameOf(stage, position), stage));
        continue;
      }
      std::vector<Gathering> &gatherings = stages[stage].collectives[group];
      open[collective.id()] = {group, gatherings.size()};
      gatherings.push_back({addEvent(stage, position), 0, &collective});
    }
    auto started = instruction.has_wait() ? open.find(instruction.wait().id()) : open.end();
    if (started != open.end())
      stages[stage].collectives[started->second.first][started->second.second].wait = addEvent(stage, position);
  }
}

void Order::matchTransfers(int from, Stream send, int to, Stream receive) {
  const std::vector<Transfer> &sends = stages[from].transfers[send];
  const std::vector<Transfer> &receives = stages[to].transfers[receive];
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i >= receives.size())
      return errors.add(fmt::format("{}: stage {} has no receive for it", nameOf(from, sends[i].start), to));
    if (i >= sends.size())
      return errors.add(fmt::format("{}: stage {} has no send for it", nameOf(to, receives[i].start), from));
    if (sends[i].microBatch != receives[i].microBatch)
      return errors.add(fmt::format("{}: meets {}", nameOf(from, sends[i].start), nameOf(to, receives[i].start)));
    stages[from].events[sends[i].wait].waitsFor = {to, receives[i].start + 1};
    stages[to].events[receives[i].wait].waitsFor = {from, sends[i].start + 1};
  }
  const pb::Stage &source = plan.stages(from), &target = plan.stages(to);
  uint64_t sent = send == SendForward ? source.send_forward().bytes() : source.send_backward().bytes();
  uint64_t received = send == SendForward ? target.receive_forward().bytes() : target.receive_backward().bytes();
  if (!sends.empty() && sent != received)
    errors.add(fmt::format("stage {} sends {} bytes where stage {} receives {}", from, sent, to, received));
}

bool sameShape(const pb::Collective *a, const pb::Collective *b) {
  if (!a || !b)
    return a == b;
  return a->kind() == b->kind() && a->reduction() == b->reduction() && a->type() == b->type() &&
         std::ranges::equal(a->elements(), b->elements());
}

void Order::matchCollectives(const std::vector<uint32_t> &group) {
  const std::vector<Gathering> &first = stages[group.front()].collectives[group];
  for (uint32_t member : group)
    if (size_t started = stages[member].collectives[group].size(); started != first.size())
      return errors.add(fmt::format("stage {} starts {} collectives of a group where stage {} "
                                    "starts {}",
                                    member, started, group.front(), first.size()));
  for (uint32_t member : group) {
    const std::vector<Gathering> &points = stages[member].collectives[group];
    for (size_t i = 0; i < points.size(); ++i) {
      if (!sameShape(points[i].collective, first[i].collective))
        return errors.add(fmt::format("{}: meets another collective, {}",
                                      nameOf(static_cast<int>(member), points[i].start),
                                      nameOf(static_cast<int>(group.front()), first[i].start)));
      for (uint32_t other : group)
        if (other != member)
          stages[member].gathered[points[i].wait].push_back(
              {static_cast<int>(other), stages[other].collectives[group][i].wait});
    }
  }
}

/// Lets every stage go on as far as it can; whoever does not reach its end waits for ever.
void Order::play() {
  std::vector<uint32_t> passed(stages.size(), 0);
  auto isBehind = [&](Progress progress) { return progress.stage < 0 || passed[progress.stage] >= progress.events; };
  auto isFree = [&](const StageOrder &order, uint32_t event) {
    auto gathered = order.gathered.find(event);
    return isBehind(order.events[event].waitsFor) &&
           (gathered == order.gathered.end() || std::ranges::all_of(gathered->second, isBehind));
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t i = 0; i < stages.size(); ++i)
      while (passed[i] < stages[i].events.size() && isFree(stages[i], passed[i])) {
        ++passed[i];
        moves = true;
      }
  }
  for (size_t i = 0; i < stages.size(); ++i)
    if (passed[i] < stages[i].events.size())
      errors.add(fmt::format("{}: waits for ever", nameOf(static_cast<int>(i), passed[i])));
}

} // namespace

void verifyCommunication(const pb::Plan &plan, PlanErrors &errors) {
  Order(plan, /*isEvaluation=*/false, errors).check();
  Order(plan, /*isEvaluation=*/true, errors).check();
}

} // namespace espalier::rt
