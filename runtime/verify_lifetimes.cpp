// Plays a stage's schedule and notes when each value is first and last touched. A value is what one
// call leaves in one region for one micro-batch; two values whose bytes overlap must not live at
// the same time.
#include "runtime/verify_rules.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <tuple>

namespace espalier::rt {
namespace {

constexpr int64_t forEver = int64_t(1) << 60;

enum class ValueKind { Persistent, Stream, Cotangent, Saved, Inputs, Workspace };

struct Life {
  std::string name;
  ValueKind kind;
  ByteRange bytes;
  int64_t first = 0, last = 0;
};

/// Regions that a subprogram reads and writes, as bits.
struct Touched {
  uint32_t read = 0, written = 0;
  bool any(pb::Region region) const { return (read | written) >> region & 1; }
  bool writes(pb::Region region) const { return written >> region & 1; }
};

void note(Touched &touched, const pb::BufferRef &buffer, bool isWritten) {
  (isWritten ? touched.written : touched.read) |= 1u << buffer.region();
}

Touched touchedBy(const pb::Subprogram &subprogram) {
  Touched touched;
  for (const pb::Instruction &instruction : subprogram.instructions()) {
    for (const pb::BufferRef &buffer : instruction.launch().buffers())
      note(touched, buffer, buffer.written());
    for (const pb::BufferRef &buffer : instruction.call().buffers())
      note(touched, buffer, buffer.written());
    for (const pb::BufferRef &buffer : instruction.start().from())
      note(touched, buffer, /*isWritten=*/false);
    for (const pb::BufferRef &buffer : instruction.start().to())
      note(touched, buffer, /*isWritten=*/true);
  }
  return touched;
}

ByteRange rangeIn(const pb::Binding &binding, uint32_t slot) {
  int64_t begin = binding.base() + slot * binding.slot_stride();
  return {begin, begin + static_cast<int64_t>(binding.bytes())};
}

class Lifetimes {
public:
  Lifetimes(const pb::Plan &plan, int index, bool isEvaluation, PlanErrors &errors)
      : plan(plan), stage(plan.stages(index)), index(index), isEvaluation(isEvaluation), errors(errors) {
    for (const pb::Subprogram &subprogram : plan.subprograms())
      touched.push_back(touchedBy(subprogram));
  }

  void check();

private:
  void addPersistent();
  void play(const pb::Action &action, const std::string &name);
  void playCall(int call, const pb::Action &action, const std::string &name);
  uint32_t subprogramOf(const pb::Call &call, pb::Action::Kind kind) const;
  void touch(ValueKind kind, int place, const pb::Action &action, const pb::Binding *binding, bool isWrite,
             const std::string &name);
  void reportOverlaps();
  void compare(const std::vector<const Life *> &one, const std::vector<const Life *> &other);

  const pb::Plan &plan;
  const pb::Stage &stage;
  const int index;
  const bool isEvaluation;
  PlanErrors &errors;
  std::vector<Touched> touched; ///< by subprogram
  std::vector<Life> lives;
  std::map<std::tuple<ValueKind, int, uint32_t, uint32_t>, size_t> lifeOf; ///< kind, place, slot, micro-batch
  int64_t time = 0;
};

void Lifetimes::check() {
  addPersistent();
  const auto &actions = isEvaluation ? stage.evaluation() : stage.schedule();
  for (int i = 0; i < actions.size(); ++i)
    play(actions[i], actionName(index, i, actions[i], isEvaluation));
  reportOverlaps();
}

void Lifetimes::addPersistent() {
  auto add = [&](const pb::Binding &binding, std::string name) {
    if (binding.bytes() > 0)
      lives.push_back({std::move(name), ValueKind::Persistent, rangeIn(binding, 0), 0, forEver});
  };
  add(stage.scalars_binding(), "the scalars");
  for (const pb::Call &call : stage.calls())
    for (const pb::Binding &binding : call.bindings())
      if (binding.region() == pb::PARAMETERS || binding.region() == pb::GRADIENTS || binding.region() == pb::STATE)
        add(binding, fmt::format("{} of layer {}", pb::Region_Name(binding.region()), call.layer()));
}

uint32_t Lifetimes::subprogramOf(const pb::Call &call, pb::Action::Kind kind) const {
  switch (kind) {
  case pb::Action::FORWARD:
    return isEvaluation ? call.evaluate() : call.forward();
  case pb::Action::BACKWARD:
    return call.backward();
  case pb::Action::REDUCE_GRADIENTS:
    return call.reduce_gradients();
  case pb::Action::SQUARED_NORM:
    return call.squared_norm();
  case pb::Action::OPTIMIZER:
    return call.optimizer();
  default:
    return 0;
  }
}

void Lifetimes::play(const pb::Action &action, const std::string &name) {
  int calls = stage.calls_size();
  ++time;
  switch (action.kind()) {
  case pb::Action::LOAD_INPUTS:
    return touch(ValueKind::Inputs, 0, action, &stage.inputs_binding(), true, name);
  case pb::Action::START_RECEIVE_FORWARD:
    return touch(ValueKind::Stream, 0, action, &stage.receive_forward(), true, name);
  case pb::Action::WAIT_RECEIVE_FORWARD:
    return touch(ValueKind::Stream, 0, action, &stage.receive_forward(), false, name);
  case pb::Action::START_SEND_FORWARD:
  case pb::Action::WAIT_SEND_FORWARD:
    return touch(ValueKind::Stream, calls, action, &stage.send_forward(), false, name);
  case pb::Action::START_RECEIVE_BACKWARD:
    return touch(ValueKind::Cotangent, calls, action, &stage.receive_backward(), true, name);
  case pb::Action::WAIT_RECEIVE_BACKWARD:
    return touch(ValueKind::Cotangent, calls, action, &stage.receive_backward(), false, name);
  case pb::Action::START_SEND_BACKWARD:
  case pb::Action::WAIT_SEND_BACKWARD:
    return touch(ValueKind::Cotangent, 0, action, &stage.send_backward(), false, name);
  default:
    break;
  }
  for (int i = 0; i < calls; ++i) {
    ++time;
    playCall(action.kind() == pb::Action::BACKWARD ? calls - 1 - i : i, action, name);
  }
}

void Lifetimes::playCall(int i, const pb::Action &action, const std::string &name) {
  const pb::Call &call = stage.calls(i);
  uint32_t number = subprogramOf(call, action.kind());
  if (number == 0)
    return;
  const Touched &regions = touched[number - 1];
  std::string place = fmt::format("{}, {} of layer {}", name, plan.subprograms(number - 1).name(), call.layer());
  auto visit = [&](pb::Region region, ValueKind kind, int position) {
    if (regions.any(region))
      touch(kind, position, action, bindingOf(stage, call, region), regions.writes(region), place);
  };
  visit(pb::INPUTS, ValueKind::Inputs, 0);
  visit(pb::STREAM_IN, ValueKind::Stream, i);
  visit(pb::STREAM_OUT, ValueKind::Stream, i + 1);
  visit(pb::COTANGENT_OUT, ValueKind::Cotangent, i + 1);
  visit(pb::COTANGENT_IN, ValueKind::Cotangent, i);
  visit(pb::SAVED, ValueKind::Saved, i);
  const pb::Binding *workspace = bindingOf(stage, call, pb::WORKSPACE);
  if (workspace && workspace->bytes() > 0 && plan.subprograms(number - 1).workspace_bytes() > 0)
    lives.push_back(
        {"the workspace in " + place, ValueKind::Workspace, rangeIn(*workspace, action.slot()), time, time});
}

void Lifetimes::touch(ValueKind kind, int place, const pb::Action &action, const pb::Binding *binding, bool isWrite,
                      const std::string &name) {
  static constexpr const char *names[] = {"", "stream", "cotangent", "saved values", "inputs", ""};
  if (!binding || binding->bytes() == 0)
    return;
  ByteRange bytes = rangeIn(*binding, action.slot());
  std::string value = fmt::format("{} {} of micro-batch {} in slot {}", names[static_cast<int>(kind)], place,
                                  action.micro_batch(), action.slot());
  auto [entry, isNew] = lifeOf.try_emplace({kind, place, action.slot(), action.micro_batch()}, lives.size());
  if (isNew) {
    if (!isWrite)
      errors.add(fmt::format("{}: reads {} before it is written", name, value));
    lives.push_back({value, kind, bytes, time, time});
    return;
  }
  Life &life = lives[entry->second];
  life.last = time;
  if (life.bytes.begin != bytes.begin)
    errors.add(fmt::format("{}: expects {} at byte {}, it was left at {}", name, value, bytes.begin, life.bytes.begin));
  life.bytes.end = std::max(life.bytes.end, bytes.end);
}

/// Reports the first pair of two lists, each sorted by time, that lives at the same time.
void Lifetimes::compare(const std::vector<const Life *> &one, const std::vector<const Life *> &other) {
  for (size_t i = 0, j = 0; i < one.size() && j < other.size();) {
    const Life &a = *one[i], &b = *other[j];
    if (a.first <= b.last && b.first <= a.last)
      return errors.add(fmt::format("stage {}{}: {} (bytes {} to {}) and {} (bytes {} to {}) "
                                    "overlap while both are live",
                                    index, isEvaluation ? ", evaluation" : "", a.name, a.bytes.begin, a.bytes.end,
                                    b.name, b.bytes.begin, b.bytes.end));
    ++(a.last < b.last ? i : j);
  }
}

void Lifetimes::reportOverlaps() {
  // Values in the same bytes form one group, so that many micro-batches in few slots stay cheap.
  std::map<std::pair<int64_t, int64_t>, std::vector<const Life *>> groups;
  for (const Life &life : lives)
    groups[{life.bytes.begin, life.bytes.end}].push_back(&life);
  auto isTiedPair = [](const Life &a, const Life &b) {
    // Calls that share a tied parameter bind overlapping places; parameters are told apart by their
    // slots.
    return a.kind == ValueKind::Persistent && b.kind == ValueKind::Persistent &&
           a.name.substr(0, a.name.find(' ')) == b.name.substr(0, b.name.find(' '));
  };
  for (auto &[range, members] : groups)
    std::ranges::sort(members, {}, &Life::first);
  std::vector<std::pair<std::pair<int64_t, int64_t>, const std::vector<const Life *> *>> open;
  for (const auto &[range, members] : groups) {
    for (size_t i = 1; i < members.size(); ++i)
      if (members[i - 1]->last >= members[i]->first && !isTiedPair(*members[i - 1], *members[i]))
        compare({members[i - 1]}, {members[i]});
    std::erase_if(open, [&](const auto &entry) { return entry.first.second <= range.first; });
    for (const auto &[otherRange, other] : open)
      if (!isTiedPair(*other->front(), *members.front()))
        compare(*other, members);
    if (range.first < range.second)
      open.push_back({range, &members});
  }
}

} // namespace

void verifyLifetimes(const pb::Plan &plan, PlanErrors &errors) {
  for (int i = 0; i < plan.stages_size(); ++i) {
    Lifetimes(plan, i, /*isEvaluation=*/false, errors).check();
    Lifetimes(plan, i, /*isEvaluation=*/true, errors).check();
  }
}

} // namespace espalier::rt
