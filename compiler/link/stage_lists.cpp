#include "compiler/link/stage_lists.h"

#include "compiler/link/action_writer.h"
#include "compiler/link/place_gathers.h"

#include <map>
#include <set>

namespace espalier {

namespace {

using namespace rt::pb;
using llvm::ArrayRef;

/// Largest number of in-flight sums and gathers.
constexpr size_t mostOpen = 48;

/// Builds the actions of one entry of one stage.
class ListBuilder {
public:
  ListBuilder(const ListInputs &in, const StageList &list, const Stage &stage, Actions &out)
      : in(in), list(list), stage(stage), writer(stage, out), stepChunk(stage.chunks_size() - 1),
        stepCall(stage.chunks(stepChunk).first_call()) {}

  void train() {
    placeSums();
    begin(/*trains=*/true);
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
    begin(/*trains=*/false);
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
  /// Starts a transfer that a later finish() or makeRoom() waits for.
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

  /// Makes room for `count` new transfers, because at most `mostOpen` may be in flight. Waits for the oldest first.
  void makeRoom(size_t count) {
    if (open.size() + count > mostOpen)
      awaitOldest(std::min(open.size(), open.size() + count - mostOpen));
  }

  void begin(bool trains) {
    writer.start(writer.flight(in.transfers.set, stepChunk, stepCall, 0));
    if (llvm::none_of(in.plan.buckets(), [](const Bucket &bucket) { return bucket.has_whole_stored(); }))
      return;
    std::vector<CallRun> runs;
    for (const StageItem &item : list.items)
      if (item.kind == StageItem::Kind::Run)
        addRuns(item.run, trains ? roleOf(item.run) : exec::Role::Evaluate, runs);
    gathers = placeGathers(stage, in.plan, in.buckets, runs);
    startGathers();
  }

  /// Appends the RUN of a chunk, one call at a time.
  void addRuns(const planner::Action &action, exec::Role role, std::vector<CallRun> &runs) const {
    const Chunk &chunk = stage.chunks(action.chunk);
    bool isBackwards = role == exec::Role::Backward || role == exec::Role::Weight;
    for (uint32_t i = 0; i < chunk.calls(); ++i)
      runs.push_back({role, action.chunk, chunk.first_call() + (isBackwards ? chunk.calls() - 1 - i : i),
                      static_cast<uint32_t>(action.microBatch)});
  }

  /// Starts the gathers that may start before the next RUN.
  void startGathers() {
    for (const BucketGather &gather : gathers.starts[ran])
      writer.start(writer.flight(gather.transfer, gather.chunk, gather.call, gather.microBatch));
  }

  /// Runs one or more calls. If parameters are gathered, runs the calls one at a time and waits for each call's gathers
  /// before it.
  void runCalls(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch,
                bool backwards = false, const std::set<uint32_t> &first = {}) {
    if (gathers.starts.empty())
      return writer.run(role, chunk, firstCall, calls, microBatch, backwards, first);
    for (uint32_t i = 0; i < calls; ++i) {
      for (const BucketGather &gather : gathers.waits[ran])
        writer.wait(writer.flight(gather.transfer, gather.chunk, gather.call, gather.microBatch));
      uint32_t call = firstCall + (backwards ? calls - 1 - i : i);
      std::set<uint32_t> firstOfCall;
      for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
        if (first.count(use.bucket()))
          firstOfCall.insert(use.bucket());
      writer.run(role, chunk, call, 1, microBatch, backwards, firstOfCall);
      ++ran;
      startGathers();
    }
  }

  /// Waits for the scalars before the first RUN.
  void awaitScalars() {
    if (!hasScalars)
      writer.wait(writer.flight(in.transfers.set, stepChunk, stepCall, 0));
    hasScalars = true;
  }

  void compute(exec::Role role, const StageItem &item) {
    awaitScalars();
    const Chunk &chunk = stage.chunks(item.run.chunk);
    runCalls(role, item.run.chunk, chunk.first_call(), chunk.calls(), item.run.microBatch);
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
    switch (action.kind) {
    case planner::ActionKind::Forward:
      return exec::Role::Forward;
    case planner::ActionKind::Backward:
      return exec::Role::Backward;
    case planner::ActionKind::Weight:
      break;
    }
    return exec::Role::Weight;
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

  /// Assigns the sums over a stage's ranks to the last RUN that adds to the bucket, over all calls and chunks. The sums
  /// start after that RUN.
  void placeSums() {
    using Place = std::pair<size_t, uint32_t>;            // item, call
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
        if (use.updates() && !isTied(use) && !isScattered(use.bucket()) && !in.buckets[use.bucket()].sums.empty())
          sumsBehind[lasts.at({use.bucket(), use.owner()})].push_back({chunk, call, use.bucket()});
    });
  }

  /// Runs the gradient calls of a chunk in reverse order. Splits a RUN where calls differ in whether a gradient is
  /// overwritten (beta = 0). Also splits it after each call that completes sums, and around each call that scatters a
  /// micro-batch's gradient.
  void addGradients(size_t index) {
    awaitScalars();
    const planner::Action &action = list.items[index].run;
    exec::Role role = roleOf(action);
    const Chunk &chunk = stage.chunks(action.chunk);
    std::set<uint32_t> first, added;
    uint32_t end = chunk.first_call() + chunk.calls(); // calls [call, end) have not run yet
    auto flush = [&](uint32_t begin) {
      if (begin < end)
        runCalls(role, action.chunk, begin, end - begin, action.microBatch, /*backwards=*/true, first);
      first.clear();
      added.clear();
      end = begin;
    };
    for (uint32_t call = end; call-- > chunk.first_call();) {
      std::set<uint32_t> writes, adds;
      bool isScatteredCall = false;
      for (const GradientTerm &term : termsOf(call, role)) {
        uint32_t sum = isScattered(term.bucket) ? action.microBatch : 0; // one sum per micro-batch, or one sum for all
        (written.insert({term.value, ownerOf(call, term.bucket), sum}).second ? writes : adds).insert(term.bucket);
        isScatteredCall |= isScattered(term.bucket);
      }
      if (isScatteredCall) {
        flush(call + 1);
        addShares(wholeSlot(stage, call, exec::Region::WholeGradients));
      }
      bool differs = llvm::any_of(writes, [&](uint32_t bucket) { return added.count(bucket) > 0; }) ||
                     llvm::any_of(adds, [&](uint32_t bucket) { return first.count(bucket) > 0; });
      if (differs)
        flush(call + 1);
      first.insert(writes.begin(), writes.end());
      added.insert(adds.begin(), adds.end());
      auto sums = sumsBehind.find({index, call});
      if (isScatteredCall || sums != sumsBehind.end())
        flush(call);
      if (isScatteredCall)
        scatter(action.chunk, call, action.microBatch);
      if (sums != sumsBehind.end())
        startSums(sums->second);
    }
    flush(chunk.first_call());
  }

  /// Returns whether each micro-batch's gradient of the bucket is scattered, so that ranks accumulate shards.
  bool isScattered(uint32_t bucket) const { return in.buckets[bucket].scatter >= 0; }

  /// Starts the reduce-scatters of the gradients that a call has completed.
  void scatter(int chunk, uint32_t call, uint32_t microBatch) {
    Scattered made{wholeSlot(stage, call, exec::Region::WholeGradients), chunk, call, microBatch, {}, {}};
    for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
      if (use.updates() && isScattered(use.bucket())) {
        made.flights.push_back(writer.flight(in.buckets[use.bucket()].scatter, chunk, call, microBatch));
        made.buckets.insert(use.bucket());
        writer.start(made.flights.back());
      }
    if (!made.flights.empty())
      scattered.push_back(std::move(made));
  }

  /// Adds scattered gradients to the accumulators, so that their slots may be overwritten. Adds those of one slot, or
  /// all of them.
  void addShares(std::optional<WholeSlot> slot) {
    std::vector<Scattered> left;
    for (Scattered &one : scattered) {
      if (slot && one.slot != *slot) {
        left.push_back(std::move(one));
        continue;
      }
      for (const Flight &flight : one.flights)
        writer.wait(flight);
      bool isFirst = accumulated.insert(one.call).second;
      writer.run(exec::Role::Add, one.chunk, one.call, 1, one.microBatch, /*backwards=*/false,
                 isFirst ? one.buckets : std::set<uint32_t>());
    }
    scattered = std::move(left);
  }

  bool isTied(const BucketUse &use) const { return in.plan.buckets(static_cast<int>(use.bucket())).holders_size() > 0; }

  /// A bucket, with the call that updates it.
  struct BucketOfCall {
    int chunk;
    uint32_t call, bucket;
  };

  /// Starts sums in the listed order. All sums of one call start together.
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

  /// The gradients of a call and micro-batch that are not yet accumulated.
  struct Scattered {
    WholeSlot slot;
    int chunk;
    uint32_t call, microBatch;
    std::vector<Flight> flights;
    std::set<uint32_t> buckets;
  };

  template <typename Visit> void forEachCall(Visit visit) const {
    for (int chunk = 0; chunk < stepChunk; ++chunk)
      for (uint32_t i = 0; i < stage.chunks(chunk).calls(); ++i)
        visit(chunk, stage.chunks(chunk).first_call() + i);
  }

  /// Adds the sums that need all gradients. Sums over several stages come after all transfers between stages. Sums of
  /// shards come after the last shard.
  void finishSums() {
    addShares(std::nullopt);
    std::vector<BucketOfCall> shares, tied;
    forEachCall([&](int chunk, uint32_t call) {
      for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
        if (use.updates() && isTied(use))
          tied.push_back({chunk, call, use.bucket()});
        else if (use.updates() && isScattered(use.bucket()))
          shares.push_back({chunk, call, use.bucket()});
    });
    startSums(shares);
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

  /// Runs the updates and starts the all-gather of updated shards after each call. Shards that are gathered before each
  /// read are not gathered here.
  void update() {
    for (int chunk = 0; chunk < stepChunk; ++chunk) {
      uint32_t begin = stage.chunks(chunk).first_call(), end = begin + stage.chunks(chunk).calls();
      for (uint32_t call = begin; call < end; ++call) {
        std::vector<int64_t> updated;
        for (const BucketUse &use : stage.calls(static_cast<int>(call)).buckets())
          if (use.updates() && in.buckets[use.bucket()].gather >= 0 &&
              !in.plan.buckets(static_cast<int>(use.bucket())).has_whole_stored())
            updated.push_back(in.buckets[use.bucket()].gather);
        if (updated.empty() && call + 1 < end)
          continue;
        writer.run(exec::Role::Update, chunk, begin, call + 1 - begin, 0);
        makeRoom(updated.size());
        for (int64_t transfer : updated)
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
  std::set<std::tuple<uint32_t, uint32_t, int>>
      written; ///< sums that this entry has written: value, owner, and micro-batch for sums of one micro-batch
  std::map<std::pair<size_t, uint32_t>, std::vector<BucketOfCall>> sumsBehind; ///< by item and call
  std::vector<Flight> open;
  Gathers gathers;
  size_t ran = 0; ///< number of RUNs so far, which indexes `gathers`
  std::vector<Scattered> scattered;
  std::set<uint32_t> accumulated; ///< calls whose shards have been accumulated before
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
