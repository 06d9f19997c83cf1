// Plays a stage's schedule and notes when each value is first and last touched. A value is what one
// call leaves in one region for one micro-batch; two values whose bytes overlap must not live at
// the same time. There are as many values as micro-batches times layers: they get their names only
// in errors.
#include "runtime/verify_rules.h"

#include <algorithm>
#include <deque>
#include <fmt/format.h>
#include <map>
#include <unordered_map>

namespace espalier::rt {
namespace {

constexpr int64_t forEver = int64_t(1) << 60;

enum class ValueKind { Persistent, Stream, Cotangent, Saved, Inputs, Workspace };

/// What an instruction leaves: at a place between calls, in a slot, for a micro-batch. A workspace is left by a call
/// (its place) of an action (in place of the micro-batch), persistent values by a region (its place) of a call's layer
/// (in place of the slot).
struct Value {
  ValueKind kind;
  int place = 0;
  uint32_t slot = 0, microBatch = 0;
  bool operator==(const Value &) const = default;
};

struct ValueHash {
  size_t operator()(const Value &value) const {
    uint64_t number = uint64_t(value.place) * 8 + static_cast<uint64_t>(value.kind);
    return ((number * 0x9e3779b97f4a7c15 + value.slot) * 0x9e3779b97f4a7c15 + value.microBatch) * 0x9e3779b97f4a7c15;
  }
};

struct Life {
  Value value;
  ByteRange bytes;
  int64_t first = 0, last = 0;
};

/// Where the play stands: an action, and one of the stage's calls or none.
struct Position {
  int action = 0, call = -1;
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
  void play(const pb::Action &action, int number);
  void playCall(int call, const pb::Action &action, int number);
  void touch(ValueKind kind, int place, const pb::Action &action, const pb::Binding *binding, bool isWrite,
             Position position);
  const google::protobuf::RepeatedPtrField<pb::Action> &actions() const {
    return isEvaluation ? stage.evaluation() : stage.schedule();
  }
  std::string nameOf(Position position) const;
  std::string nameOf(const Value &value) const;
  void reportOverlaps();
  void compare(const std::vector<const Life *> &one, const std::vector<const Life *> &other);

  const pb::Plan &plan;
  const pb::Stage &stage;
  const int index;
  const bool isEvaluation;
  PlanErrors &errors;
  std::vector<Touched> touched;                        ///< by subprogram
  std::deque<Life> lives;                              ///< which grow without being moved
  std::unordered_map<Value, size_t, ValueHash> lifeOf; ///< index in `lives`
  int64_t time = 0;
};

void Lifetimes::check() {
  addPersistent();
  for (int i = 0; i < actions().size(); ++i)
    play(actions()[i], i);
  reportOverlaps();
}

std::string Lifetimes::nameOf(Position position) const {
  const pb::Action &action = actions()[position.action];
  std::string name = actionName(index, position.action, action, isEvaluation);
  if (position.call < 0)
    return name;
  const pb::Call &call = stage.calls(position.call);
  const pb::Subprogram &subprogram = plan.subprograms(subprogramOf(call, action.kind(), isEvaluation) - 1);
  return fmt::format("{}, {} of layer {}", name, subprogram.name(), call.layer());
}

std::string Lifetimes::nameOf(const Value &value) const {
  static constexpr const char *names[] = {"", "stream", "cotangent", "saved values", "inputs", ""};
  if (value.kind == ValueKind::Persistent)
    return value.place == pb::SCALARS ? "the scalars"
                                      : fmt::format("{} of layer {}", pb::Region_Name(value.place), value.slot);
  if (value.kind == ValueKind::Workspace)
    return "the workspace in " + nameOf(Position{static_cast<int>(value.microBatch), value.place});
  return fmt::format("{} {} of micro-batch {} in slot {}", names[static_cast<int>(value.kind)], value.place,
                     value.microBatch, value.slot);
}

void Lifetimes::addPersistent() {
  auto add = [&](const pb::Binding &binding, int region, uint32_t layer) {
    if (binding.bytes() > 0)
      lives.push_back({{ValueKind::Persistent, region, layer, 0}, rangeIn(binding, 0), 0, forEver});
  };
  add(stage.scalars_binding(), pb::SCALARS, 0);
  for (const pb::Call &call : stage.calls())
    for (const pb::Binding &binding : call.bindings())
      if (binding.region() == pb::PARAMETERS || binding.region() == pb::GRADIENTS || binding.region() == pb::STATE)
        add(binding, binding.region(), call.layer());
}

void Lifetimes::play(const pb::Action &action, int number) {
  int calls = stage.calls_size();
  Position position{number};
  ++time;
  switch (action.kind()) {
  case pb::Action::LOAD_INPUTS:
    return touch(ValueKind::Inputs, 0, action, &stage.inputs_binding(), true, position);
  case pb::Action::START_RECEIVE_FORWARD:
    return touch(ValueKind::Stream, 0, action, &stage.receive_forward(), true, position);
  case pb::Action::WAIT_RECEIVE_FORWARD:
    return touch(ValueKind::Stream, 0, action, &stage.receive_forward(), false, position);
  case pb::Action::START_SEND_FORWARD:
  case pb::Action::WAIT_SEND_FORWARD:
    return touch(ValueKind::Stream, calls, action, &stage.send_forward(), false, position);
  case pb::Action::START_RECEIVE_BACKWARD:
    return touch(ValueKind::Cotangent, calls, action, &stage.receive_backward(), true, position);
  case pb::Action::WAIT_RECEIVE_BACKWARD:
    return touch(ValueKind::Cotangent, calls, action, &stage.receive_backward(), false, position);
  case pb::Action::START_SEND_BACKWARD:
  case pb::Action::WAIT_SEND_BACKWARD:
    return touch(ValueKind::Cotangent, 0, action, &stage.send_backward(), false, position);
  default:
    break;
  }
  for (int i = 0; i < calls; ++i) {
    ++time;
    playCall(action.kind() == pb::Action::BACKWARD ? calls - 1 - i : i, action, number);
  }
}

void Lifetimes::playCall(int i, const pb::Action &action, int number) {
  const pb::Call &call = stage.calls(i);
  uint32_t subprogram = subprogramOf(call, action.kind(), isEvaluation);
  if (subprogram == 0)
    return;
  const Touched &regions = touched[subprogram - 1];
  auto visit = [&](pb::Region region, ValueKind kind, int place) {
    if (regions.any(region))
      touch(kind, place, action, bindingOf(stage, call, region), regions.writes(region), {number, i});
  };
  visit(pb::INPUTS, ValueKind::Inputs, 0);
  visit(pb::STREAM_IN, ValueKind::Stream, i);
  visit(pb::STREAM_OUT, ValueKind::Stream, i + 1);
  visit(pb::COTANGENT_OUT, ValueKind::Cotangent, i + 1);
  visit(pb::COTANGENT_IN, ValueKind::Cotangent, i);
  visit(pb::SAVED, ValueKind::Saved, i);
  const pb::Binding *workspace = bindingOf(stage, call, pb::WORKSPACE);
  if (workspace && workspace->bytes() > 0 && plan.subprograms(subprogram - 1).workspace_bytes() > 0)
    lives.push_back(
        {{ValueKind::Workspace, i, 0, static_cast<uint32_t>(number)}, rangeIn(*workspace, action.slot()), time, time});
}

void Lifetimes::touch(ValueKind kind, int place, const pb::Action &action, const pb::Binding *binding, bool isWrite,
                      Position position) {
  if (!binding || binding->bytes() == 0)
    return;
  ByteRange bytes = rangeIn(*binding, action.slot());
  Value value{kind, place, action.slot(), action.micro_batch()};
  auto [entry, isNew] = lifeOf.try_emplace(value, lives.size());
  if (isNew) {
    if (!isWrite)
      errors.add(fmt::format("{}: reads {} before it is written", nameOf(position), nameOf(value)));
    lives.push_back({value, bytes, time, time});
    return;
  }
  Life &life = lives[entry->second];
  life.last = time;
  if (life.bytes.begin != bytes.begin)
    errors.add(fmt::format("{}: expects {} at byte {}, it was left at {}", nameOf(position), nameOf(value), bytes.begin,
                           life.bytes.begin));
  life.bytes.end = std::max(life.bytes.end, bytes.end);
}

/// Reports the first pair of two lists, each sorted by time, that lives at the same time.
void Lifetimes::compare(const std::vector<const Life *> &one, const std::vector<const Life *> &other) {
  for (size_t i = 0, j = 0; i < one.size() && j < other.size();) {
    const Life &a = *one[i], &b = *other[j];
    if (a.first <= b.last && b.first <= a.last)
      return errors.add(fmt::format("stage {}{}: {} (bytes {} to {}) and {} (bytes {} to {}) "
                                    "overlap while both are live",
                                    index, isEvaluation ? ", evaluation" : "", nameOf(a.value), a.bytes.begin,
                                    a.bytes.end, nameOf(b.value), b.bytes.begin, b.bytes.end));
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
    return a.value.kind == ValueKind::Persistent && b.value.kind == ValueKind::Persistent &&
           a.value.place == b.value.place;
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
