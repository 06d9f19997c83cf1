#include "runtime/verify/play.h"

#include <algorithm>

namespace espalier::rt::verify {

std::string actionText(const pb::Plan &plan, const pb::Stage &stage, const pb::Action &action, uint64_t moved) {
  if (action.has_run()) {
    const pb::Run &run = action.run();
    const std::string &first = stage.calls(static_cast<int>(run.first_call())).name();
    const std::string &last = stage.calls(static_cast<int>(run.first_call() + run.calls()) - 1).name();
    return fmt::format("RUN {} of {}{}, micro-batch {}", plan.roles(static_cast<int>(run.role())), first,
                       run.calls() > 1 ? " to " + last : "", run.micro_batch() + moved);
  }
  std::string text = action.has_start() ? "START" : "WAIT";
  for (const pb::Flight &flight : action.has_start() ? action.start().flights() : action.wait().flights())
    text +=
        fmt::format(" {}/{}", plan.transfers(static_cast<int>(flight.transfer())).name(), flight.micro_batch() + moved);
  return text;
}

Play::Play(const ProgramView &view, int stageIndex, int entryIndex, PlanErrors &errors)
    : view(view), stageIndex(stageIndex), stage(view.plan.stages(stageIndex)), entryIndex(entryIndex),
      entry(view.plan.entries(entryIndex)), errors(errors), sums(view, stageIndex, entryIndex),
      slotOf(static_cast<size_t>(stage.lifetimes_size()), 0) {
  for (uint64_t bytes : stage.arena_bytes())
    memories.emplace_back(static_cast<int64_t>(bytes));
  for (const pb::Call &one : stage.calls()) {
    std::vector<Bound> &regions = bounds.emplace_back(static_cast<size_t>(view.plan.regions_size()));
    for (const pb::Binding &binding : one.bindings())
      regions[binding.region()] = {&stage.places(static_cast<int>(binding.place())),
                                   static_cast<int64_t>(binding.offset())};
  }
  for (const pb::Chunk &chunk : stage.chunks())
    chunkOf.insert(chunkOf.end(), chunk.calls(), &chunk);
}

std::string Play::position() const {
  std::string text = fmt::format("stage {}, {}", stageIndex, entry.name());
  if (action)
    text += ", " + actionText(view.plan, stage, *action, uint64_t(round) * advance);
  if (call >= 0 && action && action->has_run() && action->run().calls() > 1)
    text += ", " + stage.calls(call).name();
  return text;
}

std::string Play::describe(const Writer &writer) const {
  if (!writer.action)
    return "from before";
  std::string text = "left by " + actionText(view.plan, stage, *writer.action, writer.round);
  return writer.call < 0 ? text : text + ", " + stage.calls(writer.call).name();
}

std::string Play::describe(const Instance &instance) const {
  const ValueInfo &info = view.values[instance.value];
  std::string text = view.plan.values(static_cast<int>(instance.value)).name();
  if (info.layering != ValueInfo::OfStage)
    text += fmt::format(" of layer {}", instance.layer);
  return info.isPerMicroBatch ? text + fmt::format(", micro-batch {}", instance.microBatch) : text;
}

std::string Play::explain(const Fault &fault) const {
  switch (fault.kind) {
  case Fault::Written:
    return fmt::format("a transfer writes byte {}", fault.byte);
  case Fault::Read:
    return fmt::format("a transfer reads byte {}", fault.byte);
  case Fault::OtherCut:
    return fmt::format("byte {} is split otherwise", fault.byte);
  case Fault::OtherContent:
    break;
  }
  const Content &found = fault.found;
  if (found.kind == Content::Undefined)
    return fmt::format("byte {} holds nothing", fault.byte);
  return fmt::format("byte {} holds {}{}, {}", fault.byte, found.kind == Content::Sum ? "a sum, " : "",
                     describe(found.instance), describe(writers[found.writer]));
}

void Play::play() {
  begin();
  for (const pb::Block &block : stage.entries(entryIndex).blocks()) {
    advance = block.advance();
    for (round = 0; round < block.rounds(); ++round) {
      act(block);
      if (errors.list.size() > 16) // later errors are likely to be consequences of the first ones
        return;
    }
  }
  action = nullptr;
  call = -1;
  end();
}

void Play::act(const pb::Block &block) {
  for (const pb::Action &next : block.actions()) {
    action = &next;
    call = -1;
    if (next.has_run())
      run(next.run());
    for (const pb::Flight &flight : next.start().flights())
      startTransfer(flight);
    for (const pb::Flight &flight : next.wait().flights())
      waitForTransfer(flight);
  }
}

void Play::setSlots(uint32_t which, const google::protobuf::RepeatedField<uint32_t> &slots) {
  call = static_cast<int>(which);
  const pb::Chunk &chunk = *chunkOf[which];
  for (int i = 0; i < slots.size(); ++i) {
    uint32_t lifetime = chunk.lifetimes(i);
    const pb::Lifetime &known = stage.lifetimes(static_cast<int>(lifetime));
    uint64_t moved = known.rotates() ? uint64_t(round) * advance : 0;
    slotOf[lifetime] = static_cast<uint32_t>((slots[i] + moved) % known.slots());
  }
}

Play::Where Play::where(int region) const {
  const Bound &bound = bounds[static_cast<size_t>(call)][static_cast<size_t>(region)];
  if (!bound.place)
    return {};
  return {bound.place->memory(), offsetOf(*bound.place, slotOf[bound.place->lifetime()]) + bound.offset};
}

std::optional<Instance> Play::instanceOf(uint32_t value, int32_t layer) {
  std::optional<Instance> instance = view.values.instanceOf(value, layer, stage.calls(call), microBatch);
  if (!instance)
    add("names '{}', whose bucket the call does not use", view.plan.values(static_cast<int>(value)).name());
  return instance;
}

Content Play::contentOf(const Operand &operand, const Where &at, const Instance &instance) const {
  Content content;
  content.kind = Content::Ready;
  content.instance = instance;
  content.origin = at.base + operand.origin;
  content.tag = view.values[operand.value].tag;
  content.writer = static_cast<uint32_t>(writers.size() - 1);
  return content;
}

/// Checks that all bytes hold the instance that the operand names. One write must have written all of them, and they
/// must have one version. A sum must also be complete.
bool Play::checkReady(const Operand &operand, uint32_t queue, std::string_view verb) {
  std::optional<Instance> instance = instanceOf(operand);
  if (!instance)
    return false;
  const ValueInfo &info = view.values[operand.value];
  Where at = where(operand.region);
  Span span = spanOf(operand, at);
  std::optional<int64_t> origin;
  std::optional<uint32_t> version;
  bool hasSums = false, isIncomplete = false;
  auto isGood = [&](const Content &content) {
    // All gradients that use this ring slot have the same zeros between parameters.
    if (content.isPadding && content.sum == info.root)
      return content.origin == at.base + operand.origin;
    if (content.instance != *instance || content.kind < Content::Ready ||
        (operand.value != info.root && content.tag != info.tag))
      return false;
    if (content.origin + operand.valueBegin > span.begin || span.end > content.origin + operand.valueEnd ||
        content.origin != origin.value_or(content.origin))
      return false;
    origin = content.origin;
    if (content.kind == Content::Sum) {
      hasSums = true;
      isIncomplete = content.terms != sums.expected(content.sum, *instance);
      return !isIncomplete;
    }
    bool isKept = info.part == ValueInfo::Stored || info.part == ValueInfo::State;
    bool isSame = !isKept || content.version == version.value_or(content.version);
    version = content.version;
    return isSame;
  };
  std::optional<Fault> fault = bytesOf(at).check(span, isGood, queue);
  if (fault && isIncomplete) {
    add("{} '{}' before all its terms are there, or with a term too many", verb, describe(*instance));
    return false;
  }
  if (fault) {
    add("{} bytes {} to {} of {} for {}: {}", verb, operand.span.begin, operand.span.end, regionName(operand.region),
        describe(*instance), explain(*fault));
    return false;
  }
  if (hasSums)
    bytesOf(at).change(span, [](int64_t, Content &content) { content.isRead |= content.kind == Content::Sum; });
  return true;
}

/// Checks that no in-flight transfer accesses the bytes, and that they hold no sum that is still to be read.
bool Play::checkFree(const Where &at, const Span &span, uint32_t queue, std::string_view what) {
  std::optional<Fault> fault = bytesOf(at).free(span, queue);
  if (!fault)
    fault = bytesOf(at).check(
        span,
        [](const Content &content) { return content.kind != Content::Sum || content.isRead || content.isPadding; },
        queue);
  if (fault)
    add("writes {} where it is in use: {}", what, explain(*fault));
  return !fault;
}

void Play::run(const pb::Run &run) {
  microBatch = run.micro_batch() + round * advance;
  for (uint32_t i = 0; i < run.calls(); ++i)
    runCall(run, static_cast<int>(run.first_call() + (run.backwards() ? run.calls() - 1 - i : i)));
}

void Play::runCall(const pb::Run &run, int index) {
  const Summary *summary = view.summaryOf(stage.calls(index), run.role());
  if (!summary)
    return;
  setSlots(static_cast<uint32_t>(index), run.slots());
  writers.push_back({action, round * advance, index});
  if (!done.emplace(run.role(), index, microBatch).second)
    add("runs a second time");
  std::vector<uint32_t> key = {static_cast<uint32_t>(index), run.role()};
  for (uint32_t lifetime : chunkOf[static_cast<size_t>(index)]->lifetimes())
    key.push_back(slotOf[lifetime]);
  if (knownPlaces.insert(std::move(key)).second)
    checkPlaces(*summary);
  bool isGood = true;
  for (const Operand &need : summary->needs)
    isGood = isGood && checkReady(need, noQueue, "reads");
  for (const Square &square : summary->squares)
    sums.square(static_cast<uint32_t>(index), square, spanOf(square.operand, where(square.operand.region)));
  sums.read(*summary);
  applyTerms(*summary, run);
  applyClobbers(*summary);
  applyGives(*summary);
}

/// Checks that the regions that a subprogram accesses are disjoint. Regions that it only reads may overlap.
void Play::checkPlaces(const Summary &summary) {
  for (size_t i = 0; i < summary.touched.size(); ++i)
    for (size_t j = i + 1; j < summary.touched.size(); ++j) {
      const Touched &one = summary.touched[i], &other = summary.touched[j];
      if (one.begin == one.end || other.begin == other.end || !(one.isWritten || other.isWritten))
        continue;
      Where here = where(static_cast<int>(i)), there = where(static_cast<int>(j));
      Span a = {here.base + one.begin, here.base + one.end, 0},
           b = {there.base + other.begin, there.base + other.end, 0};
      if (here.memory == there.memory && a.overlaps(b))
        add("{} and {} overlap while both are in use, at bytes {} to {} and {} to {}", regionName(static_cast<int>(i)),
            regionName(static_cast<int>(j)), a.begin, a.end, b.begin, b.end);
    }
}

void Play::applyTerms(const Summary &summary, const pb::Run &run) {
  for (const Operand &term : summary.terms)
    applyTerm(term, run);
}

/// Checks the order of additions, because another order gives different bits. A role adds the micro-batches of a call
/// in ascending order. For sums of the stage, calls add in ascending order within a micro-batch. The backward
/// subprograms of calls that share a bucket depend on each other.
void Play::checkTurn(uint32_t sum, const pb::Run &run, const Instance &instance) {
  uint32_t &before = lastMicroBatch.try_emplace({sum, run.role(), call}, microBatch).first->second;
  if (microBatch < before)
    add("adds to '{}' behind a later micro-batch", describe(instance));
  before = microBatch;
  if (view.values[sum].layering == ValueInfo::OfBucket)
    return;
  int &last = lastCall.try_emplace({sum, run.role(), microBatch}, call).first->second;
  if (call < last)
    add("adds to '{}' behind a later call", describe(instance));
  last = call;
}

void Play::applyTerm(const Operand &term, const pb::Run &run) {
  std::optional<Instance> instance = instanceOf(term);
  if (!instance)
    return;
  const ValueInfo &info = view.values[term.value];
  Where at = where(term.region);
  Span span = spanOf(term, at);
  Content fresh = contentOf(term, at, *instance);
  fresh.kind = Content::Sum;
  fresh.tag = 0;
  fresh.sum = info.layering == ValueInfo::OfBucket ? info.root : term.value;
  checkTurn(fresh.sum, run, *instance);
  bool isFirst = term.access == Access::AddUnlessFirst && std::ranges::count(run.first(), info.bucket) > 0;
  auto isSum = [&](const Content &old) {
    return old.kind == Content::Sum && old.sum == fresh.sum && !old.isRead && old.instance == *instance &&
           old.origin == fresh.origin;
  };
  auto isFree = [](const Content &old) { return old.kind != Content::Sum; };
  std::optional<Fault> fault = bytesOf(at).free(span);
  if (!fault)
    fault = isFirst ? bytesOf(at).check(span, isFree) : bytesOf(at).check(span, isSum);
  if (fault)
    return add("{} the sum {}: {}", isFirst ? "begins" : "adds to", describe(*instance), explain(*fault));
  uint64_t added = term.access == Access::Update ? 0 : Sums::term(static_cast<uint32_t>(call), microBatch);
  bytesOf(at).change(span, [&](int64_t, Content &content) {
    uint64_t before = isFirst || content.kind != Content::Sum ? 0 : content.terms;
    content = fresh;
    content.terms = before + added;
    content.writer = 0; // without a writer, so that neighbours with equal terms are merged
  });
}

void Play::applyClobbers(const Summary &summary) {
  for (const Clobber &clobber : summary.clobbers) {
    Where at = where(clobber.region);
    Span span = {at.base + clobber.span.begin, at.base + clobber.span.end, clobber.span.part};
    if (checkFree(at, span, noQueue, regionName(clobber.region)))
      bytesOf(at).set(span, {});
  }
}

void Play::applyGives(const Summary &summary) {
  if (!summary.updatedBuckets.empty() && !sums.knowsNorm())
    add("updates parameters before the norm of their gradients is read");
  for (uint32_t bucket : summary.updatedBuckets)
    if (const pb::BucketUse *use = useOf(stage.calls(call), bucket); use && !use->updates())
      add("updates bucket '{}', which another call does", view.plan.buckets(static_cast<int>(bucket)).name());
  for (const Give &give : summary.gives) {
    std::optional<Instance> instance = instanceOf(give.value, give.layer);
    Where at = where(give.region);
    Span span = {at.base + give.span.begin, at.base + give.span.end, give.span.part};
    if (!instance || !checkFree(at, span, noQueue, describe(*instance)))
      continue;
    const ValueInfo &info = view.values[give.value];
    bool isKept = info.part == ValueInfo::Stored || info.part == ValueInfo::State;
    if (isKept && summary.updatedBuckets.count(info.bucket) == 0)
      add("writes '{}', which only an update does", describe(*instance));
    Content content;
    content.kind = Content::Ready;
    content.instance = *instance;
    content.origin = at.base + give.origin;
    content.tag = give.tag;
    content.writer = static_cast<uint32_t>(writers.size() - 1);
    bytesOf(at).change(span, [&](int64_t, Content &old) {
      uint32_t before = old.version;
      old = content;
      old.version = isKept ? before + give.writes : 0;
    });
  }
}

} // namespace espalier::rt::verify
