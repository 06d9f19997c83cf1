#include "runtime/verify/sums.h"

#include <algorithm>

namespace espalier::rt::verify {

Sums::Sums(const ProgramView &view, int stage, int entry)
    : view(view), stage(view.plan.stages(stage)), entry(view.plan.entries(entry)), entryIndex(entry),
      microBatches(static_cast<size_t>(view.plan.roles_size())) {
  countRoles();
  for (const Summary &summary : view.summaries)
    for (const Operand &term : summary.terms)
      if (!summary.squares.empty() && view.values[term.value].layering == ValueInfo::OfStage)
        normValues.insert(term.value);
}

void Sums::read(const Summary &summary) {
  for (const Operand &need : summary.needs)
    for (uint32_t norm : normValues) {
      const ValueInfo &wanted = view.values[norm], &info = view.values[need.value];
      hasReadNorm |= info.root == wanted.root && need.valueBegin <= wanted.begin && wanted.end <= need.valueEnd;
    }
}

void Sums::countRoles() {
  for (const pb::Block &block : stage.entries(entryIndex).blocks())
    for (const pb::Action &action : block.actions())
      for (uint32_t round = 0; action.has_run() && round < block.rounds(); ++round)
        microBatches[action.run().role()].insert(action.run().micro_batch() + round * block.advance());
}

/// Returns whether only other entries of the stage run the role. For example, training counts the load of experts, and
/// evaluation does not.
bool Sums::isOfOthers(uint32_t role) const {
  auto runsIt = [&](const pb::Actions &list) {
    return std::ranges::any_of(list.blocks(), [&](const pb::Block &block) {
      return std::ranges::any_of(
          block.actions(), [&](const pb::Action &action) { return action.has_run() && action.run().role() == role; });
    });
  };
  return microBatches[role].empty() && std::ranges::any_of(stage.entries(), runsIt);
}

/// Returns whether any stage runs a subprogram in this entry that adds to the value.
bool Sums::isCounted(uint32_t sum) const {
  auto isAddedBy = [&](const pb::Stage &any, const pb::Run &run) {
    for (uint32_t call = run.first_call(); call < run.first_call() + run.calls(); ++call) {
      const Summary *summary = view.summaryOf(any.calls(static_cast<int>(call)), run.role());
      if (summary && std::ranges::count(summary->terms, sum, &Operand::value) > 0)
        return true;
    }
    return false;
  };
  for (const pb::Stage &any : view.plan.stages())
    for (const pb::Block &block : any.entries(entryIndex).blocks())
      for (const pb::Action &action : block.actions())
        if (action.has_run() && isAddedBy(any, action.run()))
          return true;
  return false;
}

/// Returns the hash of one term (a finalizer of SplitMix64). Sums of these hashes distinguish multisets of terms.
uint64_t Sums::term(uint32_t call, uint32_t microBatch) {
  uint64_t x = (uint64_t(call) << 32 | microBatch) + 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Sums::expected(uint32_t sum, const Instance &instance) {
  auto [place, isNew] = known.emplace(std::tuple(sum, instance.layer, instance.microBatch), 0);
  if (!isNew)
    return place->second;
  const ValueInfo &info = view.values[sum];
  place->second = info.layering == ValueInfo::OfBucket ? expectedGradient(info, instance) : expectedStatistic(sum);
  return place->second;
}

/// Returns the hash of a gradient. Each call with the bucket adds once per micro-batch; a gradient of one micro-batch
/// counts that micro-batch only. To a sharded accumulator, the call that updates the bucket adds all shards.
uint64_t Sums::expectedGradient(const ValueInfo &info, const Instance &instance) const {
  uint64_t sum = 0;
  for (int call = 0; call < stage.calls_size(); ++call) {
    const pb::BucketUse *use = useOf(stage.calls(call), info.bucket);
    if (!use || static_cast<int32_t>(use->owner()) != instance.layer || (info.share && !use->updates()))
      continue;
    for (uint32_t i = 0; i < entry.micro_batches(); ++i)
      if (!info.isPerMicroBatch || i == instance.microBatch)
        sum += term(static_cast<uint32_t>(call), i);
  }
  return sum;
}

/// Returns the hash of a statistic. Each call whose subprogram adds to the sum does so whenever its role runs.
uint64_t Sums::expectedStatistic(uint32_t sum) const {
  uint64_t hash = 0;
  for (int call = 0; call < stage.calls_size(); ++call)
    for (uint32_t role = 0; role < microBatches.size(); ++role)
      if (const Summary *summary = view.summaryOf(stage.calls(call), role)) {
        auto additions = std::ranges::count_if(
            summary->terms, [&](const Operand &term) { return term.value == sum && term.access != Access::Update; });
        for (uint32_t microBatch : microBatches[role])
          hash += static_cast<uint64_t>(additions) * term(static_cast<uint32_t>(call), microBatch);
      }
  return hash;
}

void Sums::square(uint32_t call, const Square &square, const Span &span) {
  const ValueInfo &info = view.values[square.operand.value];
  const pb::BucketUse *use = useOf(stage.calls(static_cast<int>(call)), info.bucket);
  if (!use || info.part == ValueInfo::None)
    return;
  Squared &norm = norms[{info.bucket, use->owner()}];
  norm.spans.push_back(span);
  norm.isWeightWrong |= square.weight != view.plan.buckets(static_cast<int>(info.bucket)).norm_weight();
}

void Sums::check(const std::function<void(std::string)> &add) const {
  for (const pb::Call &call : stage.calls())
    for (const pb::BucketUse &use : call.buckets()) {
      const pb::Bucket &bucket = view.plan.buckets(static_cast<int>(use.bucket()));
      uint32_t region = bucket.stored().region();
      if (use.updates() && !bucket.frozen() && std::ranges::count(entry.writes(), region) > 0)
        checkNorm(call, use, add);
    }
  checkStatistics(add);
}

void Sums::checkNorm(const pb::Call &call, const pb::BucketUse &use,
                     const std::function<void(std::string)> &add) const {
  const pb::Bucket &bucket = view.plan.buckets(static_cast<int>(use.bucket()));
  auto norm = norms.find({use.bucket(), use.owner()});
  // Shards are squared with `part` of the whole gradient, or each shard as a whole value.
  int64_t shares = bucket.has_whole_gradient() ? view.mesh.count(bucket.share()) : 1;
  Axes part = bucket.has_whole_gradient() ? 0 : view.mesh.divided(bucket.share());
  int64_t bytes = static_cast<int64_t>(bucket.elements()) / shares * widthOf(gradientType(view.plan, bucket)),
          found = 0;
  int64_t wanted = bucket.norm_weight() == 0 ? 0 : bytes; // the verifier of buckets checks the weight
  bool isWrong = norm != norms.end() && norm->second.isWeightWrong;
  std::vector<Span> spans = norm == norms.end() ? std::vector<Span>() : norm->second.spans;
  std::ranges::sort(spans, {}, &Span::begin);
  for (size_t i = 0; i < spans.size(); ++i) {
    found += spans[i].end - spans[i].begin;
    isWrong |= i > 0 && spans[i - 1].overlaps(spans[i]);
    isWrong |= spans[i].part != part;
  }
  if (found != wanted)
    add(fmt::format("{} of {} bytes of the gradient of bucket '{}' of {} are in the norm", found, wanted, bucket.name(),
                    call.name()));
  else if (isWrong)
    add(fmt::format("the gradient of bucket '{}' of {} is in the norm twice, in other parts than it has, or not with "
                    "weight {}",
                    bucket.name(), call.name(), bucket.norm_weight()));
}

/// Checks that an entry that the host reads counts every statistic that a role adds to. The norm is an exception,
/// because only an update needs it. Roles that only other entries run are an exception unless the sum has terms of
/// other stages.
void Sums::checkStatistics(const std::function<void(std::string)> &add) const {
  bool isRead = std::ranges::any_of(stage.exchanges(), [&](const pb::Exchange &exchange) {
    return !exchange.filled_by_host() && std::ranges::count(exchange.entries(), static_cast<uint32_t>(entryIndex)) > 0;
  });
  for (const pb::Call &call : stage.calls())
    for (uint32_t role = 0; isRead && role < microBatches.size(); ++role) {
      const Summary *summary = view.summaryOf(call, role);
      if (!summary || !summary->squares.empty())
        continue;
      for (const Operand &term : summary->terms)
        if (view.values[term.value].layering == ValueInfo::OfStage && expectedStatistic(term.value) == 0 &&
            !(isOfOthers(role) && isCounted(term.value)))
          add(fmt::format("nothing is added to '{}', which the host reads",
                          view.plan.values(static_cast<int>(term.value)).name()));
    }
  for (size_t role = 0; role < microBatches.size(); ++role)
    if (size_t count = microBatches[role].size(); count > 1 && count != entry.micro_batches())
      add(fmt::format("role '{}' runs for {} of {} micro-batches", view.plan.roles(static_cast<int>(role)), count,
                      entry.micro_batches()));
}

} // namespace espalier::rt::verify
