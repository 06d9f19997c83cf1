// Builds the instruction streams: 1F1B, with receives as early as the order of transfers and their ring slots allow
// (runtime/README.md, section 3).
#include "test/runtime/sample_plan_builder.h"

#include <algorithm>
#include <google/protobuf/util/message_differencer.h>
#include <tuple>

namespace espalier::rt {
namespace {

/// Returns alternating forwards and backwards after one warm-up forward per following stage.
std::vector<ToyRun> runsOf(int64_t microBatches, int64_t ahead) {
  ahead = std::min(ahead, microBatches);
  std::vector<ToyRun> runs;
  for (int64_t m = 0; m < ahead; ++m)
    runs.push_back({false, m});
  for (int64_t m = 0; m < microBatches; ++m) {
    if (m + ahead < microBatches)
      runs.push_back({false, m + ahead});
    runs.push_back({true, m});
  }
  return runs;
}

int placeOf(const std::vector<ToyRun> &runs, bool isBackward, int64_t microBatch) {
  auto isIt = [&](const ToyRun &run) { return run.isBackward == isBackward && run.microBatch == microBatch; };
  return std::ranges::find_if(runs, isIt) - runs.begin();
}

/// End times by (stage, backward, micro-batch) if each RUN takes one unit of time.
class Ends {
public:
  Ends(int stages, int64_t microBatches) : microBatches(microBatches), ends(stages * 2 * microBatches, 0) {
    for (bool changed = true; changed;) {
      changed = false;
      for (int stage = 0; stage < stages; ++stage)
        changed |= pass(stage, stages);
    }
  }
  int64_t &at(int stage, bool isBackward, int64_t m) { return ends[(stage * 2 + isBackward) * microBatches + m]; }

private:
  bool pass(int stage, int stages) {
    bool changed = false;
    int64_t free = 0;
    for (const ToyRun &run : runsOf(microBatches, stages - 1 - stage)) {
      int before = run.isBackward ? stage + 1 : stage - 1;
      int64_t ready = before < 0 || before >= stages ? 0 : at(before, run.isBackward, run.microBatch);
      free = std::max(free, ready) + 1;
      int64_t &end = at(stage, run.isBackward, run.microBatch);
      changed |= end != free;
      end = free;
    }
    return changed;
  }
  const int64_t microBatches;
  std::vector<int64_t> ends;
};

void addFlight(pb::Start *start, uint32_t transfer, uint32_t call, int64_t microBatch,
               const std::vector<uint32_t> &slots) {
  pb::Flight *flight = start->add_flights();
  flight->set_transfer(transfer);
  flight->set_call(call);
  flight->set_micro_batch(microBatch);
  flight->mutable_slots()->Assign(slots.begin(), slots.end());
}

} // namespace

/// Builds one instruction stream. Merges consecutive STARTs and consecutive WAITs.
class ToyList {
public:
  /// Returns the slots of the layers' live ranges for a micro-batch.
  std::vector<uint32_t> slotsOf(int64_t microBatch) const {
    std::vector<uint32_t> slots;
    for (uint32_t lifetime : stage.chunks(0).lifetimes())
      slots.push_back(microBatch % stage.lifetimes(lifetime).slots());
    return slots;
  }
  explicit ToyList(const pb::Stage &stage) : stage(stage), stepCall(stage.calls_size() - 1) {}

  /// Merges consecutive starts.
  void start(uint32_t transfer, uint32_t call, int64_t microBatch) {
    if (actions.empty() || !actions.back().has_start())
      actions.emplace_back().mutable_start();
    addFlight(actions.back().mutable_start(), transfer, call, microBatch,
              call == stepCall ? std::vector<uint32_t>() : slotsOf(microBatch));
  }
  void wait(uint32_t transfer, uint32_t call, int64_t microBatch) {
    if (actions.empty() || !actions.back().has_wait())
      actions.emplace_back().mutable_wait();
    pb::Flight *flight = actions.back().mutable_wait()->add_flights();
    flight->set_transfer(transfer);
    flight->set_call(call);
    flight->set_micro_batch(microBatch);
  }
  /// Waits for all transfers of the last START.
  void waitForAll() {
    pb::Start started = actions.back().start();
    for (const pb::Flight &flight : started.flights())
      wait(flight.transfer(), flight.call(), flight.micro_batch());
  }
  pb::Run *run(Role role, uint32_t firstCall, uint32_t calls, int64_t microBatch) {
    pb::Run *run = actions.emplace_back().mutable_run();
    run->set_role(role);
    run->set_first_call(firstCall);
    run->set_calls(calls);
    run->set_micro_batch(microBatch);
    if (firstCall < stepCall)
      for (uint32_t slot : slotsOf(microBatch))
        run->add_slots(slot);
    return run;
  }

  /// Writes the stream as blocks. Actions that repeat with the next micro-batch become one block of several rounds.
  void write(pb::Actions *to, bool folds) const {
    pb::Block *single = nullptr;
    for (size_t i = 0; i < actions.size();) {
      auto [length, rounds] = folds ? repetition(i) : std::pair<size_t, size_t>(1, 1);
      if (rounds > 1 || !single) {
        single = to->add_blocks();
        single->set_rounds(rounds);
        single->set_advance(rounds > 1);
      }
      for (size_t k = 0; k < length; ++k)
        *single->add_actions() = actions[i + k];
      if (rounds > 1)
        single = nullptr;
      i += length * rounds;
    }
  }

  std::vector<pb::Action> actions;

private:
  bool follows(const pb::Action &before, const pb::Action &after) const {
    pb::Action wanted = before;
    auto advance = [&](auto *of) {
      of->set_micro_batch(of->micro_batch() + 1);
      for (int i = 0; i < of->slots_size(); ++i)
        of->set_slots(i, (of->slots(i) + 1) % stage.lifetimes(stage.chunks(0).lifetimes(i)).slots());
    };
    if (before.has_run())
      advance(wanted.mutable_run());
    else
      for (pb::Flight &flight :
           *(before.has_start() ? wanted.mutable_start()->mutable_flights() : wanted.mutable_wait()->mutable_flights()))
        advance(&flight);
    return google::protobuf::util::MessageDifferencer::Equals(wanted, after);
  }
  /// Returns the longest repetition that starts at an action: the number of actions per round and the number of rounds.
  std::pair<size_t, size_t> repetition(size_t at) const {
    std::pair<size_t, size_t> best = {1, 1};
    for (size_t length = 1; at + 2 * length <= actions.size(); ++length) {
      size_t same = 0;
      while (at + length + same < actions.size() && follows(actions[at + same], actions[at + length + same]))
        ++same;
      size_t rounds = same / length + 1;
      if (rounds > 1 && rounds * length > best.first * best.second)
        best = {length, rounds};
    }
    return best;
  }

  const pb::Stage &stage;
  const uint32_t stepCall;
};

StageLists SamplePlanBuilder::listsOf(int index) const {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  Ends ends(o.pp, o.microBatches);
  StageLists lists;
  lists.runs = runsOf(o.microBatches, o.pp - 1 - index);
  uint32_t flying = std::min<int64_t>(o.pp - index, o.microBatches);
  uint32_t inSlots = flying, doutSlots = 1;
  // Sort key: time at which the value is produced, backward, micro-batch, index of the transfer.
  using Key = std::tuple<int64_t, bool, int64_t, uint32_t>;
  std::vector<Key> order;
  for (int64_t m = 0; m < o.microBatches; ++m) {
    if (!isFirst) {
      order.emplace_back(ends.at(index - 1, false, m), false, m, in);
      order.emplace_back(ends.at(index, true, m), true, m, din);
    }
    if (!isLast) {
      order.emplace_back(ends.at(index, false, m), false, m, out);
      order.emplace_back(ends.at(index + 1, true, m), true, m, dout);
    }
  }
  std::ranges::sort(order);
  // No send may wait for an earlier receive, and no receive may start after its reader. Otherwise the blocking transfer
  // gets one more ring slot.
  for (bool isDone = false; !isDone;) {
    isDone = true;
    lists.starts.clear();
    int behind = -1;
    uint32_t *blocking = nullptr;
    for (auto [time, isBackward, m, transfer] : order) {
      bool isSend = transfer == out || transfer == din;
      uint32_t &slots = transfer == in ? inSlots : doutSlots;
      int run = placeOf(lists.runs, isBackward, m);
      int earliest = isSend ? run : m < slots ? -1 : placeOf(lists.runs, true, m - slots);
      if (behind > (isSend ? run : run - 1)) {
        ++*blocking;
        isDone = false;
        break;
      }
      if (!isSend && earliest > behind)
        blocking = &slots;
      behind = std::max(behind, earliest);
      lists.starts.push_back({transfer, m, behind});
    }
  }
  if (isFirst || isLast)
    lists.slots.emplace_back("inputs", std::min<int64_t>(flying + 1, o.microBatches));
  else
    lists.slots.emplace_back("inputs", 1);
  lists.slots.emplace_back("saved", flying);
  if (!isFirst) {
    lists.slots.emplace_back("in", inSlots);
    lists.slots.emplace_back("din", 1);
  }
  if (!isLast) {
    lists.slots.emplace_back("out", 1);
    lists.slots.emplace_back("dout", doutSlots);
  }
  return lists;
}

/// Writes the reductions, norm, all-reduce of sums, update, all-gather, and the results that the host reads.
void SamplePlanBuilder::writeTail(const pb::Stage &stage, ToyList &list) const {
  uint32_t stepCall = stage.calls_size() - 1;
  auto forBuckets = [&](auto act) {
    for (uint32_t call = 0; call < stepCall; ++call)
      for (const pb::BucketUse &use : stage.calls(call).buckets())
        for (const Layout *layout : {&table, &block})
          for (const ToyBucket &bucket : layout->buckets)
            if (use.updates() && bucket.number == use.bucket())
              act(call, bucket);
  };
  bool reduces = false;
  forBuckets([&](uint32_t call, const ToyBucket &bucket) {
    for (uint32_t transfer : bucket.reductions) {
      list.start(transfer, call, 0);
      reduces = true;
    }
  });
  if (reduces)
    list.waitForAll();
  list.run(Norm, 0, stepCall, 0);
  if (agree >= 0) {
    list.start(agree, stepCall, 0);
    list.wait(agree, stepCall, 0);
  }
  list.run(SetScalars, stepCall, 1, 0);
  list.run(Update, 0, stepCall, 0);
  forBuckets([&](uint32_t call, const ToyBucket &bucket) {
    if (bucket.gather >= 0)
      list.start(bucket.gather, call, 0);
  });
  list.start(metrics, stepCall, 0);
  list.waitForAll();
}

void SamplePlanBuilder::writeLists(pb::Stage *stage, int index, const StageLists &lists) const {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  uint32_t stepCall = stage->calls_size() - 1, lastCall = stepCall - 1;
  auto callOf = [&](uint32_t transfer) { return transfer == out || transfer == dout ? lastCall : 0; };
  std::vector<uint32_t> inputs;
  if (isFirst)
    inputs.push_back(copyTokens);
  if (isLast)
    inputs.push_back(copyLabels);
  int64_t inputSlots = lists.slots[0].second;
  ToyList train(*stage);
  auto startBehind = [&](int run) {
    for (int64_t m = 0; m < o.microBatches; ++m)
      if (run == (m < inputSlots ? -1 : placeOf(lists.runs, true, m - inputSlots)))
        for (uint32_t transfer : inputs)
          train.start(transfer, 0, m);
    for (const ToyStart &start : lists.starts)
      if (start.behind == run)
        train.start(start.transfer, callOf(start.transfer), start.microBatch);
  };
  train.start(setScalars, stepCall, 0);
  startBehind(-1);
  train.wait(setScalars, stepCall, 0);
  for (int run = 0; run < static_cast<int>(lists.runs.size()); ++run) {
    auto [isBackward, m] = lists.runs[run];
    if (!isBackward) {
      for (uint32_t transfer : inputs)
        train.wait(transfer, 0, m);
      if (!isFirst)
        train.wait(in, 0, m);
    }
    if (isBackward && !isLast)
      train.wait(dout, lastCall, m);
    bool sends = isBackward ? !isFirst : !isLast;
    if (sends && m > 0)
      train.wait(isBackward ? din : out, isBackward ? 0 : lastCall, m - 1);
    if (isBackward)
      writeBackward(*stage, train, m);
    else
      train.run(Forward, 0, stepCall, m);
    startBehind(run);
  }
  if (!isLast)
    train.wait(out, lastCall, o.microBatches - 1);
  if (!isFirst)
    train.wait(din, 0, o.microBatches - 1);
  writeTail(*stage, train);
  train.write(stage->add_entries(), o.folds);

  writeEvaluation(stage, inputs, !isFirst, !isLast);
}

void SamplePlanBuilder::writeEvaluation(pb::Stage *stage, const std::vector<uint32_t> &inputs, bool receives,
                                        bool sends) const {
  uint32_t stepCall = stage->calls_size() - 1;
  ToyList list(*stage);
  list.start(setScalars, stepCall, 0);
  for (uint32_t transfer : inputs)
    list.start(transfer, 0, 0);
  if (receives)
    list.start(in, 0, 0);
  list.waitForAll();
  list.run(Evaluate, 0, stepCall, 0);
  if (sends) {
    list.start(out, stepCall - 1, 0);
    list.waitForAll();
  }
  if (agree >= 0) {
    list.start(agree, stepCall, 0);
    list.waitForAll();
  }
  list.start(metrics, stepCall, 0);
  list.waitForAll();
  list.write(stage->add_entries(), o.folds);
}

/// The first backward overwrites gradients (beta = 0). On a stage with both uses of the table, the head overwrites and
/// the embedding adds.
void SamplePlanBuilder::writeBackward(const pb::Stage &stage, ToyList &list, int64_t m) const {
  uint32_t calls = stage.calls_size() - 1;
  bool hasBoth = o.pp == 1;
  auto backward = [&](uint32_t firstCall, uint32_t count, bool namesTable) {
    pb::Run *run = list.run(Backward, firstCall, count, m);
    run->set_backwards(true);
    std::vector<uint32_t> first;
    for (uint32_t call = firstCall; m == 0 && call < firstCall + count; ++call)
      for (const pb::BucketUse &use : stage.calls(call).buckets())
        if (namesTable || use.bucket() != table.buckets[0].number)
          first.push_back(use.bucket());
    std::ranges::sort(first);
    first.erase(std::ranges::unique(first).begin(), first.end());
    run->mutable_first()->Assign(first.begin(), first.end());
  };
  if (m > 0 || !hasBoth)
    return backward(0, calls, /*namesTable=*/true);
  backward(1, calls - 1, /*namesTable=*/true);
  backward(0, 1, /*namesTable=*/false);
}

} // namespace espalier::rt
