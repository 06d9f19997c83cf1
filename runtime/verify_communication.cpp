// The happens-before graph over stages. Ranks of a stage run one program, so a cycle between ranks
// would be one between stages: it is enough to look at one rank per stage. Collectives inside a
// stage are issued in the same order by construction. An operation is taken to finish only when
// every member stands at its wait, and a send only when its receive has started: what passes here
// hangs under no back end.
#include "runtime/comm/comm.h"
#include "runtime/verify_rules.h"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <map>

namespace espalier::rt {
namespace {

/// One point of a stage's order that another stage can wait for.
struct Event {
  std::string name;
  std::vector<std::pair<int, size_t>> waitsFor; ///< stage and number of events that it must have behind it
};

/// A transfer or collective as one stage sees it.
struct Point {
  size_t start = 0, wait = 0; ///< events
  uint32_t microBatch = 0;
  const pb::Collective *collective = nullptr;
  std::string name;
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
    std::array<std::vector<Point>, 4> transfers;
    std::map<std::vector<uint32_t>, std::vector<Point>> collectives; ///< by stages of the group
    std::map<std::pair<Stream, uint32_t>, size_t> open;              ///< transfers by slot
  };

  void list(int stage);
  void listAction(int stage, const pb::Action &action, const std::string &name);
  void listCollectives(int stage, const pb::Action &action, const std::string &name);
  void listSubprogram(int stage, const pb::Subprogram &subprogram, const std::string &name);
  void start(int stage, Stream stream, const pb::Action &action, const std::string &name);
  void wait(int stage, Stream stream, const pb::Action &action, const std::string &name);
  void matchTransfers(int from, Stream send, int to, Stream receive);
  void matchCollectives(const std::vector<uint32_t> &group);
  void play();
  size_t addEvent(int stage, const std::string &name) {
    stages[stage].events.push_back({name, {}});
    return stages[stage].events.size() - 1;
  }

  const pb::Plan &plan;
  const bool isEvaluation;
  PlanErrors &errors;
  std::vector<StageOrder> stages;
};

void Order::check() {
  size_t before = errors.list.size();
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
  const auto &actions = isEvaluation ? plan.stages(stage).evaluation() : plan.stages(stage).schedule();
  for (int i = 0; i < actions.size(); ++i)
    listAction(stage, actions[i], actionName(stage, i, actions[i], isEvaluation));
  for (const auto &[key, point] : stages[stage].open)
    errors.add(fmt::format("{}: is never waited for", stages[stage].transfers[key.first][point].name));
}

void Order::listAction(int stage, const pb::Action &action, const std::string &name) {
  switch (action.kind()) {
  case pb::Action::START_RECEIVE_FORWARD:
    return start(stage, ReceiveForward, action, name);
  case pb::Action::WAIT_RECEIVE_FORWARD:
    return wait(stage, ReceiveForward, action, name);
  case pb::Action::START_SEND_FORWARD:
    return start(stage, SendForward, action, name);
  case pb::Action::WAIT_SEND_FORWARD:
    return wait(stage, SendForward, action, name);
  case pb::Action::START_RECEIVE_BACKWARD:
    return start(stage, ReceiveBackward, action, name);
  case pb::Action::WAIT_RECEIVE_BACKWARD:
    return wait(stage, ReceiveBackward, action, name);
  case pb::Action::START_SEND_BACKWARD:
    return start(stage, SendBackward, action, name);
  case pb::Action::WAIT_SEND_BACKWARD:
    return wait(stage, SendBackward, action, name);
  case pb::Action::LOAD_INPUTS:
    return;
  case pb::Action::AGREE: {
    std::vector<uint32_t> all(plan.stages_size());
    for (size_t i = 0; i < all.size(); ++i)
      all[i] = i;
    size_t event = addEvent(stage, name);
    stages[stage].collectives[all].push_back({event, event, 0, nullptr, name});
    return;
  }
  default:
    return listCollectives(stage, action, name);
  }
}

void Order::start(int stage, Stream stream, const pb::Action &action, const std::string &name) {
  StageOrder &order = stages[stage];
  bool isForward = stream == SendForward || stream == ReceiveForward;
  bool toNext = stream == SendForward || stream == ReceiveBackward;
  if (toNext ? stage + 1 == plan.stages_size() : stage == 0)
    return errors.add(fmt::format("{}: there is no stage on the other side", name));
  const pb::Stage &holder = plan.stages(stage);
  const pb::Binding &place = isForward ? (toNext ? holder.send_forward() : holder.receive_forward())
                                       : (toNext ? holder.receive_backward() : holder.send_backward());
  if (place.bytes() == 0)
    errors.add(fmt::format("{}: has no place for the stream", name));
  size_t number = order.transfers[stream].size();
  if (!order.open.emplace(std::pair(stream, action.slot()), number).second)
    errors.add(fmt::format("{}: slot {} is still in flight", name, action.slot()));
  if (order.open.size() > maxInFlight)
    errors.add(fmt::format("{}: more than {} transfers in flight", name, maxInFlight));
  order.transfers[stream].push_back({addEvent(stage, name), 0, action.micro_batch(), nullptr, name});
}

void Order::wait(int stage, Stream stream, const pb::Action &action, const std::string &name) {
  StageOrder &order = stages[stage];
  auto open = order.open.find({stream, action.slot()});
  if (open == order.open.end() || order.transfers[stream][open->second].microBatch != action.micro_batch())
    return errors.add(fmt::format("{}: waits for a transfer that was not started", name));
  order.transfers[stream][open->second].wait = addEvent(stage, name);
  order.open.erase(open);
}

void Order::listCollectives(int stage, const pb::Action &action, const std::string &name) {
  const auto &calls = plan.stages(stage).calls();
  for (int i = 0; i < calls.size(); ++i) {
    bool isReversed = action.kind() == pb::Action::BACKWARD;
    const pb::Call &call = calls[isReversed ? calls.size() - 1 - i : i];
    uint32_t number = 0;
    if (action.kind() == pb::Action::FORWARD)
      number = isEvaluation ? call.evaluate() : call.forward();
    else if (action.kind() == pb::Action::BACKWARD)
      number = call.backward();
    else if (action.kind() == pb::Action::REDUCE_GRADIENTS)
      number = call.reduce_gradients();
    else if (action.kind() == pb::Action::SQUARED_NORM)
      number = call.squared_norm();
    else
      number = call.optimizer();
    if (number > 0)
      listSubprogram(stage, plan.subprograms(number - 1), fmt::format("{}, layer {}", name, call.layer()));
  }
}

/// Only collectives across stages can tie one stage's order to another's.
void Order::listSubprogram(int stage, const pb::Subprogram &subprogram, const std::string &name) {
  std::map<uint32_t, std::pair<std::vector<uint32_t>, size_t>> open; // group and number, by id
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    std::string place = fmt::format("{}, {}", name, instructionName(plan, subprogram, i));
    if (instruction.has_start() && !instruction.start().stages().empty()) {
      const pb::Collective &collective = instruction.start();
      std::vector<uint32_t> group(collective.stages().begin(), collective.stages().end());
      std::ranges::sort(group);
      if (std::ranges::find(group, static_cast<uint32_t>(stage)) == group.end()) {
        errors.add(fmt::format("{}: stage {} is no member of the group it starts", place, stage));
        continue;
      }
      std::vector<Point> &points = stages[stage].collectives[group];
      open[collective.id()] = {group, points.size()};
      points.push_back({addEvent(stage, place), 0, 0, &collective, place});
    }
    auto started = instruction.has_wait() ? open.find(instruction.wait().id()) : open.end();
    if (started != open.end())
      stages[stage].collectives[started->second.first][started->second.second].wait = addEvent(stage, place);
  }
}

void Order::matchTransfers(int from, Stream send, int to, Stream receive) {
  const std::vector<Point> &sends = stages[from].transfers[send];
  const std::vector<Point> &receives = stages[to].transfers[receive];
  for (size_t i = 0; i < std::max(sends.size(), receives.size()); ++i) {
    if (i >= receives.size())
      return errors.add(fmt::format("{}: stage {} has no receive for it", sends[i].name, to));
    if (i >= sends.size())
      return errors.add(fmt::format("{}: stage {} has no send for it", receives[i].name, from));
    if (sends[i].microBatch != receives[i].microBatch)
      return errors.add(fmt::format("{}: meets {}", sends[i].name, receives[i].name));
    stages[from].events[sends[i].wait].waitsFor.push_back({to, receives[i].start + 1});
    stages[to].events[receives[i].wait].waitsFor.push_back({from, sends[i].start + 1});
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
  const std::vector<Point> &first = stages[group.front()].collectives[group];
  for (uint32_t member : group)
    if (size_t started = stages[member].collectives[group].size(); started != first.size())
      return errors.add(fmt::format("stage {} starts {} collectives of a group where stage {} "
                                    "starts {}",
                                    member, started, group.front(), first.size()));
  for (uint32_t member : group) {
    const std::vector<Point> &points = stages[member].collectives[group];
    for (size_t i = 0; i < points.size(); ++i) {
      if (!sameShape(points[i].collective, first[i].collective))
        return errors.add(fmt::format("{}: meets another collective, {}", points[i].name, first[i].name));
      for (uint32_t other : group)
        if (other != member)
          stages[member].events[points[i].wait].waitsFor.push_back(
              {static_cast<int>(other), stages[other].collectives[group][i].wait});
    }
  }
}

/// Lets every stage go on as far as it can; whoever does not reach its end waits for ever.
void Order::play() {
  std::vector<size_t> passed(stages.size(), 0);
  auto isFree = [&](const Event &event) {
    for (auto [stage, count] : event.waitsFor)
      if (passed[stage] < count)
        return false;
    return true;
  };
  for (bool moves = true; moves;) {
    moves = false;
    for (size_t i = 0; i < stages.size(); ++i)
      while (passed[i] < stages[i].events.size() && isFree(stages[i].events[passed[i]])) {
        ++passed[i];
        moves = true;
      }
  }
  for (size_t i = 0; i < stages.size(); ++i)
    if (passed[i] < stages[i].events.size())
      errors.add(fmt::format("{}: waits for ever", stages[i].events[passed[i]].name));
}

} // namespace

void verifyCommunication(const pb::Plan &plan, PlanErrors &errors) {
  Order(plan, /*isEvaluation=*/false, errors).check();
  Order(plan, /*isEvaluation=*/true, errors).check();
}

} // namespace espalier::rt
