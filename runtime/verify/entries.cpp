// Rule J: the state in which an entry begins, the values that the host fills, and the state that an entry must leave.
#include "format/abi.h"
#include "runtime/verify/play.h"

#include <algorithm>

namespace espalier::rt::verify {

void playEntry(const ProgramView &view, int stage, int entry, PlanErrors &errors) {
  Play(view, stage, entry, errors).play();
}

bool Play::finds(uint32_t region) const { return std::ranges::count(entry.finds(), region) > 0; }
bool Play::writes(uint32_t region) const { return std::ranges::count(entry.writes(), region) > 0; }

void Play::begin() {
  for (call = 0; call < stage.calls_size(); ++call)
    for (const pb::BucketUse &use : stage.calls(call).buckets())
      beginBucket(stage.calls(call), use, use.bucket());
  for (call = 0; call < stage.calls_size(); ++call)
    findResident();
  for (const pb::Exchange &exchange : stage.exchanges())
    if (exchange.filled_by_host() && std::ranges::count(exchange.entries(), static_cast<uint32_t>(entryIndex)) > 0)
      fill(exchange);
  call = -1;
}

/// Marks the stored values and the optimizer state of a bucket as ready, because the previous entry has written them.
void Play::beginBucket(const pb::Call &, const pb::BucketUse &use, uint32_t number) {
  const pb::Bucket &bucket = view.plan.buckets(static_cast<int>(number));
  auto set = [&](const pb::Buffer &buffer) {
    Operand operand = view.values.operandOf(buffer, Access::Write);
    Where at = where(operand.region);
    std::optional<Instance> instance = instanceOf(operand);
    Content content = contentOf(operand, at, *instance);
    content.writer = 0;
    bytesOf(at).set(spanOf(operand, at), content);
  };
  if (finds(bucket.stored().region()))
    set(bucket.stored());
  for (const pb::Buffer &state : bucket.state())
    if (use.updates() && finds(state.region()))
      set(state);
  if (!bucket.has_gradient())
    return;
  const pb::Buffer &gradient = bucket.has_whole_gradient() ? bucket.whole_gradient() : bucket.gradient();
  uint32_t lifetime = bounds[static_cast<size_t>(call)][gradient.region()].place->lifetime();
  uint32_t slots = stage.lifetimes(static_cast<int>(lifetime)).slots();
  for (slotOf[lifetime] = 0; slotOf[lifetime] < slots; ++slotOf[lifetime])
    beginGradient(bucket, gradient);
  slotOf[lifetime] = 0;
}

/// Marks the padding between parameters as zeros. No instruction ever writes anything else there.
void Play::beginGradient(const pb::Bucket &bucket, const pb::Buffer &buffer) {
  Operand gradient = view.values.operandOf(buffer, Access::Write);
  Where at = where(gradient.region);
  std::optional<Instance> instance = instanceOf(gradient);
  Content zeros = contentOf(gradient, at, *instance);
  zeros.kind = Content::Sum;
  zeros.sum = instance->value;
  zeros.isPadding = true;
  zeros.writer = 0;
  Span all = spanOf(gradient, at);
  int64_t next = all.begin, width = widthOf(gradientType(view.plan, bucket));
  std::vector<std::pair<int64_t, int64_t>> parameters;
  for (const pb::Parameter &parameter : bucket.parameters()) {
    int64_t elements = 1;
    for (int i = 0; i < parameter.padded_shape_size(); ++i)
      elements *= static_cast<int64_t>(parameter.padded_shape(i)) / view.mesh.count(parameter.split(i));
    parameters.push_back({all.begin + static_cast<int64_t>(parameter.first()) * width, elements * width});
  }
  std::ranges::sort(parameters);
  for (const auto &[begin, bytes] : parameters) {
    bytesOf(at).set({next, begin, 0}, zeros);
    next = begin + bytes;
  }
  bytesOf(at).set({next, all.end, 0}, zeros);
}

/// Returns whether the operand is a resident value outside of all buckets, such as a cache, in a region that the entry
/// finds.
bool Play::isCache(const Operand &need) const {
  const ValueInfo &info = view.values[need.value];
  return info.isResident && info.part == ValueInfo::None && finds(static_cast<uint32_t>(need.region));
}

void Play::findResident() {
  for (uint32_t role = 0; role < static_cast<uint32_t>(view.plan.roles_size()); ++role)
    if (const Summary *summary = view.summaryOf(stage.calls(call), role))
      for (const Operand &need : summary->needs) {
        if (!isCache(need))
          continue;
        Where at = where(need.region);
        Content content = contentOf(need, at, *instanceOf(need));
        content.writer = 0;
        bytesOf(at).set(spanOf(need, at), content);
      }
}

/// Checks that resident values are ready at the end of the entry, so that the next entry finds them.
void Play::keepResident() {
  for (uint32_t role = 0; role < static_cast<uint32_t>(view.plan.roles_size()); ++role)
    if (const Summary *summary = view.summaryOf(stage.calls(call), role))
      for (const Operand &need : summary->needs)
        if (isCache(need))
          checkReady(need, noQueue, "ends without");
}

/// Marks the values that the host fills as ready. Ring slot m holds the value of micro-batch m.
void Play::fill(const pb::Exchange &exchange) {
  call = static_cast<int>(exchange.call());
  Operand operand = view.values.operandOf(exchange.buffer(), Access::Write);
  const pb::Place *place = bounds[exchange.call()][exchange.buffer().region()].place;
  uint32_t slots = stage.lifetimes(static_cast<int>(place->lifetime())).slots();
  if (view.values[operand.value].isPerMicroBatch && slots < entry.micro_batches())
    add("the host has room for {} of {} micro-batches of '{}'", slots, entry.micro_batches(), exchange.name());
  for (microBatch = 0; microBatch < std::min(slots, entry.micro_batches()); ++microBatch) {
    slotOf[place->lifetime()] = microBatch;
    Where at = where(operand.region);
    std::optional<Instance> instance = instanceOf(operand);
    Span span = spanOf(operand, at);
    auto isUnused = [](const Content &content) { return content.kind == Content::Undefined; };
    if (bytesOf(at).check(span, isUnused))
      add("the host fills '{}' and something else in one place", exchange.name());
    Content content = contentOf(operand, at, *instance);
    content.writer = 0;
    bytesOf(at).set(span, content);
    filled.push_back(span);
  }
}

void Play::end() {
  for (const auto &[key, transfer] : inFlight)
    add("{}/{} is never waited for", view.plan.transfers(static_cast<int>(std::get<0>(key))).name(), std::get<2>(key));
  if (!inFlight.empty())
    return;
  for (call = 0; call < stage.calls_size(); ++call)
    for (const pb::BucketUse &use : stage.calls(call).buckets())
      endBucket(stage.calls(call), use, use.bucket());
  for (call = 0; call < stage.calls_size(); ++call)
    keepResident();
  for (const pb::Exchange &exchange : stage.exchanges())
    if (!exchange.filled_by_host() && std::ranges::count(exchange.entries(), static_cast<uint32_t>(entryIndex)) > 0)
      readByHost(exchange);
  call = -1;
  sums.check([&](std::string sentence) { add("{}", sentence); });
}

void Play::endBucket(const pb::Call &, const pb::BucketUse &use, uint32_t number) {
  const pb::Bucket &bucket = view.plan.buckets(static_cast<int>(number));
  checkVersion(bucket.stored(), static_cast<uint32_t>(call), bucket);
  for (const pb::Buffer &state : bucket.state())
    if (use.updates())
      checkVersion(state, static_cast<uint32_t>(call), bucket);
}

void Play::checkVersion(const pb::Buffer &buffer, uint32_t which, const pb::Bucket &bucket) {
  if (!writes(buffer.region()) && !finds(buffer.region()))
    return;
  uint32_t version = writes(buffer.region()) && !bucket.frozen() ? 1 : 0;
  Operand operand = view.values.operandOf(buffer, Access::Read);
  Where at = where(operand.region);
  std::optional<Instance> instance = instanceOf(operand);
  auto isKept = [&](const Content &content) {
    return content.kind == Content::Ready && content.instance == *instance &&
           content.origin == at.base + operand.origin && content.version == version;
  };
  if (auto fault = bytesOf(at).check(spanOf(operand, at), isKept))
    add("ends with {} of bucket '{}' of {} not {} at byte {}", regionName(operand.region), bucket.name(),
        stage.calls(static_cast<int>(which)).name(), version ? "written once, and all of it" : "kept", fault->byte);
}

void Play::readByHost(const pb::Exchange &exchange) {
  call = static_cast<int>(exchange.call());
  Operand operand = view.values.operandOf(exchange.buffer(), Access::Read);
  const pb::Place *place = bounds[exchange.call()][exchange.buffer().region()].place;
  bool isPerMicroBatch = view.values[operand.value].isPerMicroBatch;
  for (microBatch = 0; microBatch < (isPerMicroBatch ? entry.micro_batches() : 1); ++microBatch) {
    slotOf[place->lifetime()] = microBatch;
    if (checkReady(operand, noQueue, "the host reads") && exchange.name() == "results")
      checkAgreed(exchange, operand);
  }
}

/// Checks that the sums that the host reads are all-reduced over all ranks, as are the stop requests.
void Play::checkAgreed(const pb::Exchange &exchange, const Operand &operand) {
  uint32_t all = view.mesh.divided(allAxes), root = view.values[operand.value].root;
  Where at = where(operand.region);
  for (uint32_t slot : {LossSum, TokenCount, SquaredNorm, StopRequests}) {
    bool isTerm = std::ranges::any_of(view.plan.values(), [&](const pb::Value &value) {
      return value.whole() == root + 1 && value.first() == slot && value.elements() == 1 &&
             view.mesh.divided(value.partial()) == all;
    });
    auto isAgreed = [&](const Content &content) {
      return content.tag > 0 && view.mesh.divided(view.plan.values(static_cast<int>(content.tag) - 1).partial()) == 0;
    };
    int64_t begin = at.base + operand.span.begin + slot * 4;
    if (all && (!isTerm || bytesOf(at).check({begin, begin + 4, 0}, isAgreed)))
      add("slot {} of '{}', which the host reads, is not summed over all ranks", slot, exchange.name());
  }
}

} // namespace espalier::rt::verify
