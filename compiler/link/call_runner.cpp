#include "compiler/link/call_runner.h"

namespace espalier {

using namespace rt::pb;

void CallRunner::begin(bool trains) {
  if (llvm::none_of(context.in.plan.buckets(), [](const Bucket &bucket) { return bucket.has_whole_stored(); }))
    return;
  std::vector<CallRun> runs;
  for (const StageItem &item : context.list.items)
    if (item.kind == StageItem::Kind::Run)
      addRuns(item.run, trains ? ListContext::roleOf(item.run) : exec::Role::Evaluate, runs);
  gathers = placeGathers(context.stage, context.in.plan, context.in.buckets, runs);
  startGathers();
}

/// Appends the RUN of a chunk, one layer call at a time.
void CallRunner::addRuns(const planner::Action &action, exec::Role role, std::vector<CallRun> &runs) const {
  const Chunk &chunk = context.stage.chunks(action.chunk);
  bool isBackwards = role == exec::Role::Backward || role == exec::Role::Weight;
  for (uint32_t i = 0; i < chunk.calls(); ++i)
    runs.push_back({role, action.chunk, chunk.first_call() + (isBackwards ? chunk.calls() - 1 - i : i),
                    static_cast<uint32_t>(action.microBatch)});
}

/// Starts the gathers that may start before the next RUN.
void CallRunner::startGathers() {
  for (const BucketGather &gather : gathers.starts[ran])
    context.writer.start(context.writer.flight(gather.transfer, gather.chunk, gather.call, gather.microBatch));
}

void CallRunner::run(exec::Role role, int chunk, uint32_t firstCall, uint32_t calls, uint32_t microBatch,
                     bool backwards, const std::set<uint32_t> &first) {
  ActionWriter &writer = context.writer;
  if (gathers.starts.empty())
    return writer.run(role, chunk, firstCall, calls, microBatch, backwards, first);
  for (uint32_t i = 0; i < calls; ++i) {
    for (const BucketGather &gather : gathers.waits[ran])
      writer.wait(writer.flight(gather.transfer, gather.chunk, gather.call, gather.microBatch));
    uint32_t call = firstCall + (backwards ? calls - 1 - i : i);
    std::set<uint32_t> firstOfCall;
    for (const BucketUse &use : context.call(call).buckets())
      if (first.count(use.bucket()))
        firstOfCall.insert(use.bucket());
    writer.run(role, chunk, call, 1, microBatch, backwards, firstOfCall);
    ++ran;
    startGathers();
  }
}

} // namespace espalier
