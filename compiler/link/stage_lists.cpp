#include "compiler/link/stage_lists.h"

#include "compiler/link/call_runner.h"
#include "compiler/link/gradient_sums.h"

namespace espalier {

namespace {

using namespace rt::pb;

/// Builds the actions of one entry of one stage.
class ListBuilder {
public:
  ListBuilder(const ListInputs &in, const StageList &list, const Stage &stage, Actions &out)
      : in(in), list(list), stage(stage), writer(stage, out), context{in, list, stage, writer}, open(writer),
        runner(context), scattered(context), stepChunk(context.stepChunk()), stepCall(context.stepCall()) {}

  void train() {
    GradientSums sums(context, open);
    begin(/*trains=*/true);
    for (size_t index = 0; index < list.items.size(); ++index)
      if (list.items[index].kind != StageItem::Kind::Run)
        move(list.items[index]);
      else if (list.items[index].run.kind == planner::ActionKind::Forward)
        compute(exec::Role::Forward, list.items[index].run);
      else
        addGradients(index, sums);
    scattered.add(std::nullopt);
    sums.finish();
    norm();
    agree();
    writer.run(exec::Role::Scalars, stepChunk, stepCall, 1, 0);
    update();
    finish();
  }

  void evaluate() {
    begin(/*trains=*/false);
    for (const StageItem &item : list.items)
      if (item.kind == StageItem::Kind::Run)
        compute(exec::Role::Evaluate, item.run);
      else
        move(item);
    agree();
    finish();
  }

private:
  void begin(bool trains) {
    writer.start(writer.flight(in.transfers.set, stepChunk, stepCall, 0));
    runner.begin(trains);
  }

  void finish() {
    open.start(in.transfers.metrics, stepChunk, stepCall);
    open.finish();
  }

  /// Waits for the scalars before the first RUN.
  void awaitScalars() {
    if (!hasScalars)
      writer.wait(writer.flight(in.transfers.set, stepChunk, stepCall, 0));
    hasScalars = true;
  }

  void compute(exec::Role role, const planner::Action &action) {
    awaitScalars();
    const Chunk &chunk = stage.chunks(action.chunk);
    runner.run(role, action.chunk, chunk.first_call(), chunk.calls(), action.microBatch);
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
    const StreamTransfers &streams = in.returns && flight.chunk == 1 ? in.transfers.back : in.transfers.forth;
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

  /// Runs the gradient programs of a chunk's layer calls in reverse order. Splits a RUN where calls differ in whether a
  /// gradient is overwritten (beta = 0). Also splits it after each layer call that completes sums, and around each call
  /// that scatters a micro-batch's gradient.
  void addGradients(size_t index, GradientSums &sums) {
    awaitScalars();
    const planner::Action &action = list.items[index].run;
    exec::Role role = ListContext::roleOf(action);
    const Chunk &chunk = stage.chunks(action.chunk);
    std::set<uint32_t> first, added;
    uint32_t end = chunk.first_call() + chunk.calls(); // calls [call, end) have not run yet
    auto flush = [&](uint32_t begin) {
      if (begin < end)
        runner.run(role, action.chunk, begin, end - begin, action.microBatch, /*backwards=*/true, first);
      first.clear();
      added.clear();
      end = begin;
    };
    for (uint32_t call = end; call-- > chunk.first_call();) {
      std::set<uint32_t> writes, adds;
      bool isScatteredCall = false;
      for (const GradientTerm &term : context.termsOf(call, role)) {
        bool isScattered = context.isScattered(term.bucket);
        uint32_t sum = isScattered ? action.microBatch : 0; // one sum per micro-batch, or one sum for all
        (written.insert({term.value, context.ownerOf(call, term.bucket), sum}).second ? writes : adds)
            .insert(term.bucket);
        isScatteredCall |= isScattered;
      }
      if (isScatteredCall) {
        flush(call + 1);
        scattered.add(wholeSlot(stage, call, exec::Region::WholeGradients));
      }
      bool differs = llvm::any_of(writes, [&](uint32_t bucket) { return added.count(bucket) > 0; }) ||
                     llvm::any_of(adds, [&](uint32_t bucket) { return first.count(bucket) > 0; });
      if (differs)
        flush(call + 1);
      first.insert(writes.begin(), writes.end());
      added.insert(adds.begin(), adds.end());
      if (isScatteredCall || sums.startAfter(index, call))
        flush(call);
      if (isScatteredCall)
        scattered.scatter(action.chunk, call, action.microBatch);
      if (sums.startAfter(index, call))
        sums.start(index, call);
    }
    flush(chunk.first_call());
  }

  void norm() {
    for (int chunk = 0; chunk < stepChunk; ++chunk)
      writer.run(exec::Role::Norm, chunk, stage.chunks(chunk).first_call(), stage.chunks(chunk).calls(), 0);
  }

  void agree() {
    awaitScalars();
    if (in.transfers.agree < 0)
      return;
    open.start(in.transfers.agree, stepChunk, stepCall);
    open.finish();
  }

  /// Runs the updates and starts the all-gather of updated shards after each layer call. Shards that are gathered
  /// before each read are not gathered here.
  void update() {
    for (int chunk = 0; chunk < stepChunk; ++chunk) {
      uint32_t begin = stage.chunks(chunk).first_call(), end = begin + stage.chunks(chunk).calls();
      for (uint32_t call = begin; call < end; ++call) {
        std::vector<int64_t> updated;
        for (const BucketUse &use : context.call(call).buckets())
          if (use.updates() && in.buckets[use.bucket()].gather >= 0 &&
              !in.plan.buckets(static_cast<int>(use.bucket())).has_whole_stored())
            updated.push_back(in.buckets[use.bucket()].gather);
        if (updated.empty() && call + 1 < end)
          continue;
        writer.run(exec::Role::Update, chunk, begin, call + 1 - begin, 0);
        open.makeRoom(updated.size());
        for (int64_t transfer : updated)
          open.start(transfer, chunk, call);
        begin = call + 1;
      }
    }
  }

  const ListInputs &in;
  const StageList &list;
  const Stage &stage;
  ActionWriter writer;
  ListContext context;
  OpenTransfers open;
  CallRunner runner;
  ScatteredGradients scattered;
  int stepChunk;
  uint32_t stepCall;
  bool hasScalars = false;
  std::set<std::tuple<uint32_t, uint32_t, int>>
      written; ///< sums that this entry has written: value, owner, and micro-batch for sums of one micro-batch
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
