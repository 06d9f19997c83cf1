// Rules H and I: the transfers between stages match on both sides, and all stages finish on devices that run one
// transfer at a time in order of issue. The ranks of a stage run the same instruction stream, so one rank per stage is
// enough.
#include "runtime/verify/order.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

/// Lists the in-flight transfers of all stages in an entry, and matches the transfers that run together.
class Matcher {
public:
  Matcher(const pb::Plan &plan, const Mesh &mesh, const Values &values, int entry, PlanErrors &errors)
      : plan(plan), mesh(mesh), values(values), entry(entry), errors(errors) {}

  std::vector<StageStream> list();

private:
  void listAction(const pb::Action &action, uint64_t moved);
  void listRun(const pb::Run &run);
  void issue(const pb::Flight &flight, uint64_t moved);
  void pair(uint32_t number, const Issued &issued);
  void match(const std::string &what, const std::vector<std::vector<uint32_t>> &sequences,
             const std::vector<uint32_t> &members);
  bool isSame(const Issued &a, const Issued &b, int stageA, int stageB) const;
  std::string nameOf(uint32_t stage, uint32_t number) const;

  const pb::Plan &plan;
  const Mesh &mesh;
  const Values &values;
  const int entry;
  PlanErrors &errors;
  std::vector<StageStream> streams;
  uint32_t stage = 0;
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint32_t> open; ///< in flight: transfer, call, micro-batch
  /// By channel, sender and receiver: the sequence of sends and the sequence of receives.
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::array<std::vector<uint32_t>, 2>> exchanges;
  std::map<std::pair<uint32_t, uint32_t>, std::map<uint32_t, std::vector<uint32_t>>> groups; ///< group, queue; stage
  uint32_t rendezvousCount = 0;
};

std::vector<StageStream> Matcher::list() {
  for (const pb::Stage &holder : plan.stages()) {
    stage = static_cast<uint32_t>(streams.size());
    streams.emplace_back();
    open.clear();
    for (const pb::Block &block : holder.entries(entry).blocks())
      for (uint32_t round = 0; round < block.rounds(); ++round)
        for (const pb::Action &action : block.actions())
          listAction(action, uint64_t(round) * block.advance());
  }
  for (const auto &[key, sequences] : exchanges) {
    auto [channel, sender, receiver] = key;
    match(fmt::format("line {}", channel), {sequences[0], sequences[1]}, {sender, receiver});
  }
  for (const auto &[key, sequences] : groups) {
    const pb::Group &group = plan.groups(static_cast<int>(key.first));
    std::vector<uint32_t> members(group.stages().begin(), group.stages().end());
    for (uint32_t i = 0; group.stages().empty() && i < streams.size(); ++i)
      members.push_back(i);
    std::vector<std::vector<uint32_t>> all;
    for (uint32_t member : members)
      all.push_back(sequences.count(member) ? sequences.at(member) : std::vector<uint32_t>());
    match(fmt::format("group {}", key.first), all, members);
  }
  return std::move(streams);
}

void Matcher::listAction(const pb::Action &action, uint64_t moved) {
  streams[stage].actions.push_back({&action, moved});
  if (action.has_run())
    return listRun(action.run());
  for (const pb::Flight &flight : action.start().flights())
    issue(flight, moved);
  for (const pb::Flight &flight : action.wait().flights()) {
    auto found = open.find({flight.transfer(), flight.call(), static_cast<uint32_t>(flight.micro_batch() + moved)});
    if (found == open.end())
      continue; // the simulation of the stage reports this error
    streams[stage].steps.push_back({found->second, true});
    open.erase(found);
  }
}

/// Records the transfers of a RUN's instructions. They queue up like all other transfers. The RUN waits for them, so
/// one entry represents all of them.
void Matcher::listRun(const pb::Run &run) {
  for (uint32_t i = 0; i < run.calls(); ++i) {
    const pb::Call &call = plan.stages(static_cast<int>(stage)).calls(static_cast<int>(run.first_call() + i));
    uint32_t number =
        run.role() < static_cast<uint32_t>(call.programs_size()) ? call.programs(static_cast<int>(run.role())) : 0;
    if (number == 0)
      continue;
    const pb::Subprogram &subprogram = plan.subprograms(static_cast<int>(number) - 1);
    bool communicates = std::ranges::any_of(subprogram.instructions(), &pb::Instruction::has_start);
    if (!communicates)
      continue;
    StageStream &stream = streams[stage];
    uint32_t issued = static_cast<uint32_t>(stream.transfers.size());
    stream.transfers.push_back({nullptr, 0, 0, static_cast<uint32_t>(stream.actions.size() - 1)});
    stream.steps.push_back({issued, false});
    stream.steps.push_back({issued, true});
    return; // one transfer represents all transfers of a RUN
  }
}

void Matcher::issue(const pb::Flight &flight, uint64_t moved) {
  StageStream &stream = streams[stage];
  uint32_t microBatch = static_cast<uint32_t>(flight.micro_batch() + moved);
  uint32_t number = static_cast<uint32_t>(stream.transfers.size());
  stream.transfers.push_back({&plan.transfers(static_cast<int>(flight.transfer())), flight.call(), microBatch,
                              static_cast<uint32_t>(stream.actions.size() - 1)});
  stream.steps.push_back({number, false});
  open[{flight.transfer(), flight.call(), microBatch}] = number;
  pair(number, stream.transfers.back());
}

void Matcher::pair(uint32_t number, const Issued &issued) {
  const pb::Transfer &transfer = *issued.transfer;
  if (transfer.kind() == pb::Transfer::COPY)
    return;
  uint32_t stages = static_cast<uint32_t>(plan.stages_size());
  if (transfer.kind() == pb::Transfer::SEND || transfer.kind() == pb::Transfer::RECEIVE) {
    int64_t peer = (int64_t(stage) + transfer.shift()) % stages;
    uint32_t other = static_cast<uint32_t>(peer < 0 ? peer + stages : peer);
    if (other == stage)
      return errors.add(fmt::format("{}: there is no stage on the other side", nameOf(stage, number)));
    bool sends = transfer.kind() == pb::Transfer::SEND;
    exchanges[{transfer.line(), sends ? stage : other, sends ? other : stage}][sends ? 0 : 1].push_back(number);
    return;
  }
  const pb::Group &group = plan.groups(static_cast<int>(transfer.group()));
  if (!mesh.divided(group.axes() & PP))
    return;
  if (!group.stages().empty() && std::ranges::count(group.stages(), stage) == 0)
    return errors.add(fmt::format("{}: stage {} is no member of the group it starts", nameOf(stage, number), stage));
  groups[{transfer.group(), transfer.queue()}][stage].push_back(number);
}

std::string Matcher::nameOf(uint32_t which, uint32_t number) const {
  const Issued &issued = streams[which].transfers[number];
  return fmt::format("stage {}, {}, {}/{}", which, plan.entries(entry).name(), issued.transfer->name(),
                     issued.microBatch);
}

/// Checks that the n-th transfers of all members are equal.
void Matcher::match(const std::string &what, const std::vector<std::vector<uint32_t>> &sequences,
                    const std::vector<uint32_t> &members) {
  for (size_t i = 1; i < members.size(); ++i)
    if (sequences[i].size() != sequences[0].size())
      return errors.add(fmt::format("{}, {}: stage {} starts {} transfers where stage {} starts {}",
                                    plan.entries(entry).name(), what, members[i], sequences[i].size(), members[0],
                                    sequences[0].size()));
  for (size_t n = 0; n < sequences[0].size(); ++n) {
    ++rendezvousCount;
    for (size_t i = 0; i < members.size(); ++i) {
      Issued &issued = streams[members[i]].transfers[sequences[i][n]];
      issued.rendezvous = rendezvousCount;
      issued.members = static_cast<uint32_t>(members.size());
      if (!isSame(issued, streams[members[0]].transfers[sequences[0][n]], static_cast<int>(members[i]),
                  static_cast<int>(members[0])))
        return errors.add(fmt::format("{}: meets {}, which is another", nameOf(members[i], sequences[i][n]),
                                      nameOf(members[0], sequences[0][n])));
    }
  }
}

bool Matcher::isSame(const Issued &a, const Issued &b, int stageA, int stageB) const {
  const pb::Transfer &one = *a.transfer, &other = *b.transfer;
  bool isLine = one.kind() == pb::Transfer::SEND || one.kind() == pb::Transfer::RECEIVE;
  if (!isLine && (one.kind() != other.kind() || one.reduction() != other.reduction() || one.shift() != other.shift()))
    return false;
  const auto &mine = one.from().empty() ? one.to() : one.from();
  const auto &theirs = other.from().empty() ? other.to() : other.from();
  if (mine.size() != theirs.size())
    return false;
  for (int i = 0; i < mine.size(); ++i) {
    const pb::Call &callA = plan.stages(stageA).calls(static_cast<int>(a.call));
    const pb::Call &callB = plan.stages(stageB).calls(static_cast<int>(b.call));
    if (mine[i].bytes() != theirs[i].bytes() || mine[i].value() != theirs[i].value() ||
        values.instanceOf(mine[i].value(), mine[i].layer(), callA, a.microBatch) !=
            values.instanceOf(theirs[i].value(), theirs[i].layer(), callB, b.microBatch))
      return false;
  }
  return true;
}

/// Advances every stage as far as possible. A stage that does not reach its end is deadlocked.
class Order {
public:
  Order(const pb::Plan &plan, int entry, std::vector<StageStream> streams, PlanErrors &errors)
      : plan(plan), entry(entry), streams(std::move(streams)), errors(errors) {}

  void check();

private:
  bool advance(uint32_t stage);
  bool endFront(uint32_t stage);

  const pb::Plan &plan;
  const int entry;
  std::vector<StageStream> streams;
  PlanErrors &errors;
  std::vector<uint32_t> waiting;                    ///< stages that may be able to advance
  std::map<uint32_t, std::vector<uint32_t>> fronts; ///< by incomplete collective: the stages that have it in front
};

void Order::check() {
  for (uint32_t stage = 0; stage < streams.size(); ++stage)
    waiting.push_back(stage);
  while (!waiting.empty()) {
    uint32_t stage = waiting.back();
    waiting.pop_back();
    while (advance(stage)) {
    }
  }
  for (size_t stage = 0; stage < streams.size(); ++stage) {
    const StageStream &stream = streams[stage];
    if (stream.next == stream.steps.size() && stream.front == stream.issued.size())
      continue;
    std::string front = "a transfer of the stage";
    if (stream.front < stream.issued.size() && stream.transfers[stream.issued[stream.front]].transfer) {
      const Issued &issued = stream.transfers[stream.issued[stream.front]];
      front = fmt::format("{}/{}", issued.transfer->name(), issued.microBatch);
    }
    size_t step = std::min(stream.next, stream.steps.size() - 1);
    auto [action, moved] = stream.actions[stream.transfers[stream.steps[step].transfer].action];
    errors.add(fmt::format("stage {}, {}: waits for ever: behind {} the front of its line is {}", stage,
                           plan.entries(entry).name(),
                           actionText(plan, plan.stages(static_cast<int>(stage)), *action, moved), front));
  }
}

/// Advances a stage by one step, or ends its front transfer. Returns whether either was possible.
bool Order::advance(uint32_t stage) {
  StageStream &stream = streams[stage];
  if (stream.next < stream.steps.size()) {
    const StreamStep &step = stream.steps[stream.next];
    if (!step.isWait || stream.transfers[step.transfer].hasEnded) {
      if (!step.isWait)
        stream.issued.push_back(step.transfer);
      ++stream.next;
      return true;
    }
  }
  return stream.front < stream.issued.size() && endFront(stage);
}

/// Ends the front transfer of a stage if that transfer is in front on all its members.
bool Order::endFront(uint32_t stage) {
  StageStream &stream = streams[stage];
  Issued &issued = stream.transfers[stream.issued[stream.front]];
  if (issued.rendezvous == 0) {
    issued.hasEnded = true;
    ++stream.front;
    return true;
  }
  std::vector<uint32_t> &here = fronts[issued.rendezvous];
  if (std::ranges::count(here, stage) > 0)
    return false;
  here.push_back(stage);
  if (here.size() < issued.members)
    return false;
  std::vector<uint32_t> members = std::move(here);
  fronts.erase(issued.rendezvous);
  for (uint32_t member : members) {
    StageStream &other = streams[member];
    other.transfers[other.issued[other.front]].hasEnded = true;
    ++other.front;
    waiting.push_back(member);
  }
  return true;
}

/// Checks that the plan lists exactly the communicators that occur: each group on a queue, and each channel between two
/// stages, once.
class Communicators {
public:
  Communicators(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) : plan(plan), mesh(mesh), errors(errors) {}

  void check();

private:
  using Key =
      std::tuple<bool, uint32_t, uint32_t, uint32_t>; // is it a channel; then group and queue, or channel and stages
  void use(const pb::Transfer &transfer, uint32_t stage);
  void useSubprograms();

  const pb::Plan &plan;
  const Mesh &mesh;
  PlanErrors &errors;
  std::map<Key, std::string> used; ///< each with the name of a transfer that uses it
};

void Communicators::use(const pb::Transfer &transfer, uint32_t stage) {
  uint32_t stages = static_cast<uint32_t>(plan.stages_size());
  if (transfer.kind() <= pb::Transfer::SHIFT) {
    const pb::Group &group = plan.groups(static_cast<int>(transfer.group()));
    if (mesh.divided(group.axes()))
      used.emplace(Key(false, transfer.group(), transfer.queue(), 0), transfer.name());
  } else if (transfer.kind() != pb::Transfer::COPY) {
    int64_t peer = ((int64_t(stage) + transfer.shift()) % stages + stages) % stages;
    bool sends = transfer.kind() == pb::Transfer::SEND;
    uint32_t other = static_cast<uint32_t>(peer);
    used.emplace(Key(true, transfer.line(), sends ? stage : other, sends ? other : stage), transfer.name());
  }
}

void Communicators::useSubprograms() {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (int i = 0; i < subprogram.instructions_size(); ++i) {
      if (!subprogram.instructions(i).has_start())
        continue;
      const pb::Transfer &transfer = plan.transfers(static_cast<int>(subprogram.instructions(i).start()));
      bool isOfStage = transfer.kind() <= pb::Transfer::SHIFT &&
                       !mesh.divided(plan.groups(static_cast<int>(transfer.group())).axes() & PP);
      if (!isOfStage)
        errors.add(fmt::format("{}: stages meet inside a subprogram", instructionName(plan, subprogram, i)));
      else
        use(transfer, 0);
    }
}

void Communicators::check() {
  useSubprograms();
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (const pb::Actions &entry : plan.stages(stage).entries())
      for (const pb::Block &block : entry.blocks())
        for (const pb::Action &action : block.actions())
          for (const pb::Flight &flight : action.start().flights())
            use(plan.transfers(static_cast<int>(flight.transfer())), static_cast<uint32_t>(stage));
  std::set<Key> listed;
  for (const pb::Communicator &one : plan.communicators()) {
    Key key =
        one.is_line() ? Key(true, one.line(), one.sender(), one.receiver()) : Key(false, one.group(), one.queue(), 0);
    std::string name = one.is_line()
                           ? fmt::format("line {} from stage {} to {}", one.line(), one.sender(), one.receiver())
                           : fmt::format("group {} on queue {}", one.group(), one.queue());
    if (!listed.insert(key).second)
      errors.add(fmt::format("two communicators for {}", name));
    if (used.count(key) == 0)
      errors.add(fmt::format("a communicator for {}, which nothing uses", name));
  }
  for (const auto &[key, name] : used)
    if (listed.count(key) == 0)
      errors.add(fmt::format("transfer '{}' has no communicator", name));
}

} // namespace

void verifyOrder(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Communicators(plan, mesh, errors).check();
  size_t before = errors.list.size();
  Values values(plan, mesh);
  for (int entry = 0; entry < plan.entries_size() && errors.list.size() == before; ++entry) {
    std::vector<StageStream> streams = Matcher(plan, mesh, values, entry, errors).list();
    if (errors.list.size() == before)
      Order(plan, entry, std::move(streams), errors).check();
  }
}

} // namespace espalier::rt::verify
