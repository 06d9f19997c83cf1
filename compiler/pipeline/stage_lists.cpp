#include "compiler/pipeline/stage_lists.h"

#include "dialects/exec/dialect.h"

#include <set>

namespace espalier {

namespace {

using namespace rt::pb;

/// Appends actions; neighbouring STARTs and neighbouring WAITs are one.
class ActionWriter {
public:
  ActionWriter(const Stage &stage, Actions &out) : stage(stage), block(*out.add_blocks()) { block.set_rounds(1); }

  Flight flight(int64_t transfer, int chunk, uint32_t call, uint32_t microBatch) const {
    Flight made;
    made.set_transfer(static_cast<uint32_t>(transfer));
    made.set_call(call);
    made.set_micro_batch(microBatch);
    addSlots(chunk, microBatch, *made.mutable_slots());
    return made;
  }

  void start(const Flight &flight) {
    if (!last() || !last()->has_start())
      block.add_actions()->mutable_start();
    *last()->mutable_start()->add_flights() = flight;
  }

  void wait(Flight flight) {
    if (!last() || !last()->has_wait())
      block.add_actions()->mutable_wait();
    flight.clear_slots();
    *last()->mutable_wait()->add_flights() = std::move(flight);
  }

  /// Starts nothing where no call has the role.
  void run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch, bool backwards = false,
           const std::set<uint32_t> &first = {}) {
    bool isNothing = true;
    for (uint32_t call = firstCall; call < firstCall + calls; ++call)
      isNothing = isNothing && stage.calls(static_cast<int>(call)).programs(static_cast<int>(role)) == 0;
    if (isNothing)
      return;
    Run &made = *block.add_actions()->mutable_run();
    made.set_role(static_cast<uint32_t>(role));
    made.set_first_call(firstCall);
    made.set_calls(calls);
    made.set_backwards(backwards);
    made.set_micro_batch(microBatch);
    addSlots(chunk, microBatch, *made.mutable_slots());
    made.mutable_first()->Assign(first.begin(), first.end());
  }

private:
  Action *last() { return block.actions_size() ? block.mutable_actions(block.actions_size() - 1) : nullptr; }

  void addSlots(int chunk, uint32_t microBatch, google::protobuf::RepeatedField<uint32_t> &slots) const {
    for (uint32_t lifetime : stage.chunks(chunk).lifetimes())
      slots.Add(microBatch % stage.lifetimes(static_cast<int>(lifetime)).slots());
  }

  const Stage &stage;
  Block &block;
};

/// One entry of one stage.
class ListBuilder {
public:
  ListBuilder(const ListInputs &in, const StageList &list, const Stage &stage, Actions &out)
      : in(in), list(list), stage(stage), writer(stage, out), stepChunk(stage.chunks_size() - 1),
        stepCall(stage.chunks(stepChunk).first_call()) {}

  void train() {
    begin();
    for (size_t index = 0; index < list.items.size(); ++index)
      if (list.items[index].kind != StageItem::Kind::Run)
        move(list.items[index]);
      else if (list.items[index].run.kind == planner::ActionKind::Forward)
        compute(exec::Role::Forward, list.items[index]);
      else
        backward(list.items[index].run, isLastBackward(index));
    finishSums();
    norm();
    agree();
    writer.run(exec::Role::Scalars, stepChunk, stepCall, 1, 0);
    update();
    start(in.transfers.metrics, stepChunk, stepCall);
    finish();
  }

  void evaluate() {
    begin();
    for (const StageItem &item : list.items)
      if (item.kind == StageItem::Kind::Run)
        compute(exec::Role::Evaluate, item);
      else
        move(item);
    agree();
    start(in.transfers.metrics, stepChunk, stepCall);
    finish();
  }

private:
  /// What is waited for at the end of a part of the list.
  void start(int64_t transfer, int chunk, uint32_t call) {
    open.push_back(writer.flight(transfer, chunk, call, 0));
    writer.start(open.back());
  }

  void finish() {
    for (Flight &flight : open)
      writer.wait(std::move(flight));
    open.clear();
  }

  void begin() { writer.start(writer.flight(in.transfers.set, stepChunk, stepCall, 0)); }

  /// The first RUN waits for the scalars.
  void awaitScalars() {
    if (!hasScalars)
      writer.wait(writer.flight(in.transfers.set, stepChunk, stepCall, 0));
    hasScalars = true;
  }

  void compute(exec::Role role, const StageItem &item) {
    awaitScalars();
    const Chunk &chunk = stage.chunks(item.run.chunk);
    writer.run(role, item.run.chunk, chunk.first_call(), chunk.calls(), item.run.microBatch);
  }

  void move(const StageItem &item) {
    for (const StageFlight &moved : item.flights) {
      const Chunk &chunk = stage.chunks(moved.chunk);
      bool atEnd = moved.kind == FlightKind::Out || moved.kind == FlightKind::DOut;
      uint32_t call = chunk.first_call() + (atEnd ? chunk.calls() - 1 : 0);
      Flight flight = writer.flight(transferOf(moved.kind), moved.chunk, call, moved.microBatch);
      if (item.kind == StageItem::Kind::Start)
        writer.start(flight);
      else
        writer.wait(std::move(flight));
    }
  }

  int64_t transferOf(FlightKind kind) const {
    switch (kind) {
    case FlightKind::Inputs:
      return in.transfers.inputs;
    case FlightKind::Out:
      return in.transfers.out;
    case FlightKind::In:
      return in.transfers.in;
    case FlightKind::DIn:
      return in.transfers.dIn;
    case FlightKind::DOut:
      return in.transfers.dOut;
    }
  }

  bool isLastBackward(size_t index) const {
    for (size_t later = index + 1; later < list.items.size(); ++later)
      if (const StageItem &item = list.items[later]; item.kind == StageItem::Kind::Run &&
                                                     item.run.kind != planner::ActionKind::Forward &&
                                                     item.run.chunk == list.items[index].run.chunk)
        return false;
    return true;
  }

  /// The calls of a chunk, last first. Cut where calls need different answers to whether a gradient is written first,
  /// and after the last micro-batch behind each call whose sums then start.
  void backward(const planner::Action &action, bool isLast) {
    awaitScalars();
    const Chunk &chunk = stage.chunks(action.chunk);
    std::set<uint32_t> first, added;
    uint32_t end = chunk.first_call() + chunk.calls(); // calls [call, end) are still to be run
    auto flush = [&](uint32_t begin) {
      if (begin < end)
        writer.run(exec::Role::Backward, action.chunk, begin, end - begin, action.microBatch, /*backwards=*/true,
                   first);
      first.clear();
      added.clear();
      end = begin;
    };
    for (uint32_t call = end; call-- > chunk.first_call();) {
      std::set<uint32_t> writes, adds;
      for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
        (written.insert({use.bucket(), use.owner()}).second ? writes : adds).insert(use.bucket());
      bool differs = llvm::any_of(writes, [&](uint32_t bucket) { return added.count(bucket) > 0; }) ||
                     llvm::any_of(adds, [&](uint32_t bucket) { return first.count(bucket) > 0; });
      if (differs)
        flush(call + 1);
      first.insert(writes.begin(), writes.end());
      added.insert(adds.begin(), adds.end());
      if (isLast && hasSums(call)) {
        flush(call);
        startSums(action.chunk, call, /*acrossStages=*/false);
      }
    }
    flush(chunk.first_call());
  }

  bool isTied(const BucketUse &use) const { return in.plan.buckets(static_cast<int>(use.bucket())).holders_size() > 0; }

  bool hasSums(uint32_t call) const {
    return llvm::any_of(stage.calls(static_cast<int>(call)).buckets(), [&](const BucketUse &use) {
      return use.updates() && !isTied(use) && !in.buckets[use.bucket()].sums.empty();
    });
  }

  void startSums(int chunk, uint32_t call, bool acrossStages) {
    for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
      if (use.updates() && isTied(use) == acrossStages)
        for (uint32_t transfer : in.buckets[use.bucket()].sums)
          start(transfer, chunk, call);
  }

  template <typename Visit> void forEachCall(Visit visit) const {
    for (int chunk = 0; chunk < stepChunk; ++chunk)
      for (uint32_t i = 0; i < stage.chunks(chunk).calls(); ++i)
        visit(chunk, stage.chunks(chunk).first_call() + i);
  }

  /// Sums over several stages come behind all that the stages send each other.
  void finishSums() {
    forEachCall([&](int chunk, uint32_t call) { startSums(chunk, call, /*acrossStages=*/true); });
    finish();
  }

  void norm() {
    for (int chunk = 0; chunk < stepChunk; ++chunk)
      writer.run(exec::Role::Norm, chunk, stage.chunks(chunk).first_call(), stage.chunks(chunk).calls(), 0);
  }

  void agree() {
    awaitScalars();
    if (in.transfers.agree < 0)
      return;
    start(in.transfers.agree, stepChunk, stepCall);
    finish();
  }

  /// Behind each call the updated shares set out to the other ranks.
  void update() {
    for (int chunk = 0; chunk < stepChunk; ++chunk) {
      uint32_t begin = stage.chunks(chunk).first_call(), end = begin + stage.chunks(chunk).calls();
      for (uint32_t call = begin; call < end; ++call) {
        auto gathers = [&](auto visit) {
          for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
            if (use.updates() && in.buckets[use.bucket()].gather >= 0)
              visit(in.buckets[use.bucket()].gather);
        };
        bool isCut = call + 1 == end;
        gathers([&](int64_t) { isCut = true; });
        if (!isCut)
          continue;
        writer.run(exec::Role::Update, chunk, begin, call + 1 - begin, 0);
        gathers([&](int64_t transfer) { start(transfer, chunk, call); });
        begin = call + 1;
      }
    }
  }

  const ListInputs &in;
  const StageList &list;
  const Stage &stage;
  ActionWriter writer;
  int stepChunk;
  uint32_t stepCall;
  bool hasScalars = false;
  std::set<std::pair<uint32_t, uint32_t>> written; ///< gradients of this entry: bucket, owner
  std::vector<Flight> open;
};

} // namespace

void addLists(const ListInputs &inputs, const StageList &training, const StageList &evaluation, Stage &stage) {
  Actions train, evaluate;
  ListBuilder(inputs, training, stage, train).train();
  ListBuilder(inputs, evaluation, stage, evaluate).evaluate();
  *stage.add_entries() = std::move(train);
  *stage.add_entries() = std::move(evaluate);
}

} // namespace espalier
