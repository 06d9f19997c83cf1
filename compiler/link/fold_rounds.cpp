// Recurring actions are equal if micro-batches and slots are counted relative to the action's first micro-batch. An
// action's successor is the next equal action whose micro-batch is larger by `advance`. If L adjacent actions have
// successors at distance L, they form a block. The block's rounds continue as long as this holds. The choice of blocks
// is a shortest path from the end of the list to its start, with encoded bytes as length.
#include "compiler/link/fold_rounds.h"

#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace espalier {

namespace {

using namespace rt::pb;

/// An action in a form that is relative to its first micro-batch.
struct Counted {
  uint32_t likeness = 0; ///< equal for actions that differ only by micro-batch
  uint32_t microBatch = 0;
  uint64_t bytes = 0; ///< encoded size
};

class ActionCounter {
public:
  explicit ActionCounter(const Stage &stage) : stage(stage), chunkOfCall(stage.calls_size()) {
    for (int chunk = 0; chunk < stage.chunks_size(); ++chunk)
      for (uint32_t i = 0; i < stage.chunks(chunk).calls(); ++i)
        chunkOfCall.at(stage.chunks(chunk).first_call() + i) = chunk;
  }

  Counted count(Action action) {
    Counted counted{.bytes = action.ByteSizeLong() + 2}; // tag and length of the field
    switch (action.body_case()) {
    case Action::kRun:
      counted.microBatch = action.run().micro_batch();
      countFrom(counted.microBatch, action.run().first_call(), *action.mutable_run());
      break;
    case Action::kStart:
      countFlights(counted, *action.mutable_start()->mutable_flights());
      break;
    case Action::kWait:
      countFlights(counted, *action.mutable_wait()->mutable_flights());
      break;
    case Action::BODY_NOT_SET:
      break;
    }
    std::string look;
    action.SerializeToString(&look);
    counted.likeness = likenesses.try_emplace(look, likenesses.size()).first->second;
    return counted;
  }

private:
  void countFlights(Counted &counted, google::protobuf::RepeatedPtrField<Flight> &flights) {
    counted.microBatch = flights.empty() ? 0 : flights[0].micro_batch();
    for (Flight &flight : flights)
      countFrom(counted.microBatch, flight.call(), flight);
  }

  /// Makes the numbers of a RUN or transfer relative to `microBatch`. A smaller micro-batch wraps around, so that equal
  /// actions still get equal numbers.
  template <typename T> void countFrom(uint32_t microBatch, uint32_t call, T &timed) {
    timed.set_micro_batch(timed.micro_batch() - microBatch);
    const Chunk &chunk = stage.chunks(chunkOfCall.at(call));
    for (int i = 0; i < std::min(timed.slots_size(), chunk.lifetimes_size()); ++i) {
      const Lifetime &lifetime = stage.lifetimes(static_cast<int>(chunk.lifetimes(i)));
      if (lifetime.rotates())
        timed.set_slots(i, (timed.slots(i) + lifetime.slots() - microBatch % lifetime.slots()) % lifetime.slots());
    }
  }

  const Stage &stage;
  std::vector<int> chunkOfCall;
  std::unordered_map<std::string, uint32_t> likenesses;
};

/// A range of a list: `length` actions, executed `rounds` times.
struct Stretch {
  size_t length = 0;
  uint32_t rounds = 1;
};

struct Folded {
  uint32_t advance = 0;
  uint64_t bytes = 0;
  std::vector<Stretch> stretches;
};

class Folder {
public:
  Folder(const std::vector<Counted> &actions, uint32_t advance)
      : actions(actions), advance(advance), distance(actions.size()), repeats(actions.size()) {}

  Folded fold() {
    findSuccessors();
    findShortest();
    Folded folded{.advance = advance, .bytes = best(0), .stretches = {}};
    for (size_t at = 0; at < actions.size();) {
      Stretch stretch = {.length = distance[at], .rounds = roundsAt(at)};
      if (rounds[at] > plain[at] + blockBytes)
        for (stretch = {.length = 1}; plain[at + stretch.length] < rounds[at + stretch.length]; ++stretch.length)
          ;
      folded.stretches.push_back(stretch);
      at += stretch.length * stretch.rounds;
    }
    return folded;
  }

private:
  static constexpr uint64_t blockBytes = 8; ///< tag, length, rounds and advance
  static constexpr uint64_t never = std::numeric_limits<uint64_t>::max() / 2;

  void findSuccessors() {
    std::map<std::pair<uint32_t, uint32_t>, size_t> next; // (likeness, micro-batch) -> next action
    for (size_t at = actions.size(); at-- > 0;) {
      if (auto found = next.find({actions[at].likeness, actions[at].microBatch + advance}); found != next.end())
        distance[at] = found->second - at;
      if (distance[at] > 0)
        repeats[at] = at + 1 < actions.size() && distance[at + 1] == distance[at] ? repeats[at + 1] + 1 : 1;
      next[{actions[at].likeness, actions[at].microBatch}] = at;
    }
  }

  uint32_t roundsAt(size_t at) const {
    return distance[at] == 0 ? 1 : static_cast<uint32_t>(repeats[at] / distance[at] + 1);
  }

  uint64_t best(size_t at) const { return std::min(rounds[at], plain[at] + blockBytes); }

  /// Computes, from the end of the list, the fewest bytes for the remaining actions: `plain` continues an open block of
  /// one round, `rounds` starts a block of several rounds.
  void findShortest() {
    size_t count = actions.size();
    std::vector<uint64_t> end(count + 1); // bytes of all previous actions
    for (size_t at = 0; at < count; ++at)
      end[at + 1] = end[at] + actions[at].bytes;
    plain.assign(count + 1, never);
    rounds.assign(count + 1, never);
    rounds[count] = 0;
    for (size_t at = count; at-- > 0;) {
      plain[at] = actions[at].bytes + std::min(plain[at + 1], rounds[at + 1]);
      if (size_t length = distance[at]; roundsAt(at) > 1)
        rounds[at] = blockBytes + end[at + length] - end[at] + best(at + length * roundsAt(at));
    }
  }

  const std::vector<Counted> &actions;
  uint32_t advance;
  std::vector<size_t> distance; ///< distance of each action to its successor; 0 if there is none
  std::vector<size_t>
      repeats; ///< number of adjacent actions, from this one on, whose successors are at the same distance
  std::vector<uint64_t> plain, rounds;
};

} // namespace

void foldRounds(const Stage &stage, uint32_t stages, Actions &actions) {
  ActionCounter counter(stage);
  std::vector<Action> list;
  std::vector<Counted> counted;
  for (Block &block : *actions.mutable_blocks())
    for (Action &action : *block.mutable_actions()) {
      counted.push_back(counter.count(action));
      list.push_back(std::move(action));
    }
  Folded folded = Folder(counted, 1).fold();
  if (stages > 1)
    if (Folded groups = Folder(counted, stages).fold(); groups.bytes < folded.bytes)
      folded = std::move(groups);

  actions.clear_blocks();
  size_t at = 0;
  for (const Stretch &stretch : folded.stretches) {
    Block &block = *actions.add_blocks();
    block.set_rounds(stretch.rounds);
    block.set_advance(stretch.rounds > 1 ? folded.advance : 0);
    for (size_t i = 0; i < stretch.length; ++i)
      *block.add_actions() = std::move(list[at + i]);
    at += stretch.length * stretch.rounds;
  }
}

} // namespace espalier
