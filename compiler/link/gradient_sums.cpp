#include "compiler/link/gradient_sums.h"

namespace espalier {

using namespace rt::pb;

void ScatteredGradients::scatter(int chunk, uint32_t call, uint32_t microBatch) {
  Scattered made{wholeSlot(context.stage, call, exec::Region::WholeGradients), chunk, call, microBatch, {}, {}};
  for (const BucketUse &use : context.call(call).buckets())
    if (use.updates() && context.isScattered(use.bucket())) {
      made.flights.push_back(context.writer.flight(context.in.buckets[use.bucket()].scatter, chunk, call, microBatch));
      made.buckets.insert(use.bucket());
      context.writer.start(made.flights.back());
    }
  if (!made.flights.empty())
    scattered.push_back(std::move(made));
}

void ScatteredGradients::add(std::optional<WholeSlot> slot) {
  std::vector<Scattered> left;
  for (Scattered &one : scattered) {
    if (slot && one.slot != *slot) {
      left.push_back(std::move(one));
      continue;
    }
    for (const Flight &flight : one.flights)
      context.writer.wait(flight);
    bool isFirst = accumulated.insert(one.call).second;
    context.writer.run(exec::Role::Add, one.chunk, one.call, 1, one.microBatch, /*backwards=*/false,
                       isFirst ? one.buckets : std::set<uint32_t>());
  }
  scattered = std::move(left);
}

GradientSums::GradientSums(const ListContext &context, OpenTransfers &open) : context(context), open(open) {
  using Place = std::pair<size_t, uint32_t>;            // item, call
  std::map<std::pair<uint32_t, uint32_t>, Place> lasts; // by bucket and owner
  for (auto [index, item] : llvm::enumerate(context.list.items)) {
    if (item.kind != StageItem::Kind::Run || item.run.kind == planner::ActionKind::Forward)
      continue;
    const Chunk &chunk = context.stage.chunks(item.run.chunk);
    for (uint32_t call = chunk.first_call() + chunk.calls(); call-- > chunk.first_call();)
      for (const GradientTerm &term : context.termsOf(call, ListContext::roleOf(item.run)))
        lasts[{term.bucket, context.ownerOf(call, term.bucket)}] = {index, call};
  }
  context.forEachCall([&](int chunk, uint32_t call) {
    for (const BucketUse &use : context.call(call).buckets())
      if (use.updates() && !context.isTied(use.bucket()) && !context.isScattered(use.bucket()) &&
          !context.in.buckets[use.bucket()].sums.empty())
        sumsBehind[lasts.at({use.bucket(), use.owner()})].push_back({chunk, call, use.bucket()});
  });
}

/// Starts sums in the listed order. All sums of one layer call start together.
void GradientSums::start(llvm::ArrayRef<BucketOfCall> buckets) {
  for (size_t i = 0; i < buckets.size();) {
    size_t sums = 0, end = i;
    for (; end < buckets.size() && buckets[end].call == buckets[i].call; ++end)
      sums += context.in.buckets[buckets[end].bucket].sums.size();
    open.makeRoom(sums);
    for (; i < end; ++i)
      for (uint32_t transfer : context.in.buckets[buckets[i].bucket].sums)
        open.start(transfer, buckets[i].chunk, buckets[i].call);
  }
}

void GradientSums::finish() {
  std::vector<BucketOfCall> shares, tied;
  context.forEachCall([&](int chunk, uint32_t call) {
    for (const BucketUse &use : context.call(call).buckets())
      if (use.updates() && context.isTied(use.bucket()))
        tied.push_back({chunk, call, use.bucket()});
      else if (use.updates() && context.isScattered(use.bucket()))
        shares.push_back({chunk, call, use.bucket()});
  });
  start(shares);
  start(tied);
  open.finish();
}

} // namespace espalier
