#include "compiler/pipeline/stage_lists.h"

#include "dialects/exec/dialect.h"

#include <map>
#include <set>

namespace espalier {

namespace {

using namespace rt::pb;
using llvm::ArrayRef;

/// Flights of sums and gathers that may be open at once.
constexpr size_t mostOpen = 48;

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
    placeSums();
    begin();
    for (size_t index = 0; index < list.items.size(); ++index)
      if (list.items[index].kind != StageItem::Kind::Run)
        move(list.items[index]);
      else if (list.items[index].run.kind == planner::ActionKind::Forward)
        compute(exec::Role::Forward, list.items[index]);
      else
        addGradients(index);
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

  void finish() { awaitOldest(open.size()); }

  void awaitOldest(size_t count) {
    for (size_t i = 0; i < count; ++i)
      writer.wait(std::move(open[i]));
    open.erase(open.begin(), open.begin() + static_cast<std::ptrdiff_t>(count));
  }

  /// Before so many flights are started: no queue may have more than `mostOpen` of them, and the oldest are done first.
  void makeRoom(size_t count) {
    if (open.size() + count > mostOpen)
      awaitOldest(std::min(open.size(), open.size() + count - mostOpen));
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
      Flight flight = writer.flight(transferOf(moved), moved.chunk, call, moved.microBatch);
      if (item.kind == StageItem::Kind::Start)
        writer.start(flight);
      else
        writer.wait(std::move(flight));
    }
  }

  int64_t transferOf(const StageFlight &flight) const {
    const StreamTransfers &streams = in.vShape && flight.chunk == 1 ? in.transfers.back : in.transfers.forth;
    switch (flight.kind) {
    case FlightKind::Inputs:
      return in.transfers.inputs;
    case FlightKind::Out:
      return streams.out;
    case FlightKind::In:
      return streams.in;
    case FlightKind::DIn:
      return streams.dIn;
    case FlightKind::DOut:
      return streams.dOut;
    }
  }

  static exec::Role roleOf(const planner::Action &action) {
    return action.kind == planner::ActionKind::Weight ? exec::Role::Weight : exec::Role::Backward;
  }

  const std::vector<GradientTerm> &termsOf(uint32_t call, exec::Role role) const {
    static const std::vector<GradientTerm> none;
    uint32_t program = stage.calls(static_cast<int>(call)).programs(static_cast<int>(role));
    return program == 0 ? none : in.terms[program - 1];
  }

  uint32_t ownerOf(uint32_t call, uint32_t bucket) const {
    auto isUse = [&](const BucketUse &use) { return use.bucket() == bucket; };
    return llvm::find_if(stage.calls(static_cast<int>(call)).buckets(), isUse)->owner();
  }

  /// Sums over the ranks of the stage start behind the last RUN that adds to the bucket, of whatever call and chunk.
  void placeSums() {
    using Place = std::pair<size_t, uint32_t>;             // item, call
    std::map<std::pair<uint32_t, uint32_t>, Place> lasts; // by bucket and owner
    for (size_t index = 0; index < list.items.size(); ++index) {
      const planner::Action &action = list.items[index].run;
      if (list.items[index].kind != StageItem::Kind::Run || action.kind == planner::ActionKind::Forward)
        continue;
      const Chunk &chunk = stage.chunks(action.chunk);
      for (uint32_t call = chunk.first_call() + chunk.calls(); call-- > chunk.first_call();)
        for (const GradientTerm &term : termsOf(call, roleOf(action)))
          lasts[{term.bucket, ownerOf(call, term.bucket)}] = {index, call};
    }
    forEachCall([&](int chunk, uint32_t call) {
      for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
        if (use.updates() && !isTied(use) && !in.buckets[use.bucket()].sums.empty())
          sumsBehind[lasts.at({use.bucket(), use.owner()})].push_back({chunk, call, use.bucket()});
    });
  }

  /// The calls of a chunk, last first. Cut where calls need different answers to whether a gradient is written first,
  /// and behind each call with which sums are complete.
  void addGradients(size_t index) {
    awaitScalars();
    const planner::Action &action = list.items[index].run;
    exec::Role role = roleOf(action);
    const Chunk &chunk = stage.chunks(action.chunk);
    std::set<uint32_t> first, added;
    uint32_t end = chunk.first_call() + chunk.calls(); // calls [call, end) are still to be run
    auto flush = [&](uint32_t begin) {
      if (begin < end)
        writer.run(role, action.chunk, begin, end - begin, action.microBatch, /*backwards=*/true, first);
      first.clear();
      added.clear();
      end = begin;
    };
    for (uint32_t call = end; call-- > chunk.first_call();) {
      std::set<uint32_t> writes, adds;
      for (const GradientTerm &term : termsOf(call, role))
        (written.insert({term.value, ownerOf(call, term.bucket)}).second ? writes : adds).insert(term.bucket);
      bool differs = llvm::any_of(writes, [&](uint32_t bucket) { return added.count(bucket) > 0; }) ||
                     llvm::any_of(adds, [&](uint32_t bucket) { return first.count(bucket) > 0; });
      if (differs)
        flush(call + 1);
      first.insert(writes.begin(), writes.end());
      added.insert(adds.begin(), adds.end());
      if (auto sums = sumsBehind.find({index, call}); sums != sumsBehind.end()) {
        flush(call);
        startSums(sums->second);
      }
    }
    flush(chunk.first_call());
  }

  bool isTied(const BucketUse &use) const { return in.plan.buckets(static_cast<int>(use.bucket())).holders_size() > 0; }

  /// A bucket of the call that updates it.
  struct BucketOfCall {
    int chunk;
    uint32_t call, bucket;
  };

  /// In the order listed; of one call all at once.
  void startSums(ArrayRef<BucketOfCall> buckets) {
    for (size_t i = 0; i < buckets.size();) {
      size_t sums = 0, end = i;
      for (; end < buckets.size() && buckets[end].call == buckets[i].call; ++end)
        sums += in.buckets[buckets[end].bucket].sums.size();
      makeRoom(sums);
      for (; i < end; ++i)
        for (uint32_t transfer : in.buckets[buckets[i].bucket].sums)
          start(transfer, buckets[i].chunk, buckets[i].call);
    }
  }

  template <typename Visit> void forEachCall(Visit visit) const {
    for (int chunk = 0; chunk < stepChunk; ++chunk)
      for (uint32_t i = 0; i < stage.chunks(chunk).calls(); ++i)
        visit(chunk, stage.chunks(chunk).first_call() + i);
  }

  /// Sums over several stages come behind all that the stages send each other.
  void finishSums() {
    std::vector<BucketOfCall> tied;
    forEachCall([&](int chunk, uint32_t call) {
      for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
        if (use.updates() && isTied(use))
          tied.push_back({chunk, call, use.bucket()});
    });
    startSums(tied);
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
        std::vector<int64_t> gathers;
        for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
          if (use.updates() && in.buckets[use.bucket()].gather >= 0)
            gathers.push_back(in.buckets[use.bucket()].gather);
        if (gathers.empty() && call + 1 < end)
          continue;
        writer.run(exec::Role::Update, chunk, begin, call + 1 - begin, 0);
        makeRoom(gathers.size());
        for (int64_t transfer : gathers)
          start(transfer, chunk, call);
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
  std::set<std::pair<uint32_t, uint32_t>> written; ///< gradients of this entry: value, owner
  std::map<std::pair<size_t, uint32_t>, std::vector<BucketOfCall>> sumsBehind; ///< by item and call
  std::vector<Flight> open;
};

} // namespace

void addTraining(const ListInputs &inputs, const StageList &list, Stage &stage) {
  Actions actions;
  ListBuilder(inputs, list, stage, actions).train();
  *stage.add_entries() = std::move(actions);
}

void addEvaluation(const ListInputs &inputs, const StageList &list, Stage &stage) {
  Actions actions;
  ListBuilder(inputs, list, stage, actions).evaluate();
  *stage.add_entries() = std::move(actions);
}

} // namespace espalier
