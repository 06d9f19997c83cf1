// Rule A for stages: live ranges, allocations, calls, chunks and instruction streams.
#include "format/abi.h"
#include "runtime/program.h"
#include "runtime/verify/limits.h"
#include "runtime/verify/rules.h"

#include <algorithm>
#include <limits>
#include <set>

namespace espalier::rt::verify {
namespace {

class Stages {
public:
  Stages(const pb::Plan &plan, PlanErrors &errors) : plan(plan), errors(errors) {}

  void check();

private:
  void checkStage(const pb::Stage &stage);
  void checkPlace(const pb::Stage &stage, const pb::Place &place);
  void checkCall(const pb::Stage &stage, const pb::Call &call);
  void checkChunks(const pb::Stage &stage);
  void checkExchange(const pb::Stage &stage, const pb::Exchange &exchange);
  void checkScalars(const pb::Stage &stage);
  void checkLayers();
  void checkBlocks(const pb::Stage &stage, const pb::Entry &entry, const pb::Actions &actions);
  void checkAction(const pb::Stage &stage, const pb::Action &action);
  void checkRun(const pb::Stage &stage, const pb::Run &run);
  void checkFlight(const pb::Stage &stage, const pb::Flight &flight, bool isStart);
  void checkSlots(const pb::Stage &stage, const pb::Chunk &chunk,
                  const google::protobuf::RepeatedField<uint32_t> &slots);
  void checkMicroBatch(uint32_t microBatch);

  void index(uint64_t value, int64_t size, std::string_view what) {
    if (value >= static_cast<uint64_t>(size))
      add("{} {} of {}", what, value, size);
  }
  /// Adds an error of the current stage or action.
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(name + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  PlanErrors &errors;
  std::string name;
  std::vector<const pb::Chunk *> chunkOf; ///< by call of the current stage
  uint64_t actions = 0;
  uint64_t greatestMicroBatch = 0, rounds = 1, advance = 0; ///< values of the current entry and block
};

void Stages::check() {
  for (int i = 0; i < plan.stages_size(); ++i) {
    name = fmt::format("stage {}", i);
    checkStage(plan.stages(i));
  }
  checkLayers();
  if (!errors.empty())
    return;
  for (int e = 0; e < plan.entries_size(); ++e) {
    actions = 0;
    for (int i = 0; i < plan.stages_size(); ++i) {
      const pb::Stage &stage = plan.stages(i);
      chunkOf.assign(static_cast<size_t>(stage.calls_size()), nullptr);
      for (const pb::Chunk &chunk : stage.chunks())
        for (uint32_t call = chunk.first_call(); call < chunk.first_call() + chunk.calls(); ++call)
          chunkOf[call] = &chunk;
      name = fmt::format("stage {}, {}", i, plan.entries(e).name());
      checkBlocks(stage, plan.entries(e), stage.entries(e));
    }
  }
}

void Stages::checkStage(const pb::Stage &stage) {
  if (stage.arena_bytes_size() != pb::Memory_ARRAYSIZE)
    return add("has {} arenas, there are {} memories", stage.arena_bytes_size(), pb::Memory_ARRAYSIZE);
  for (uint64_t bytes : stage.arena_bytes())
    if (bytes > maxBytes)
      add("an arena of {} bytes", bytes);
  if (stage.entries_size() != plan.entries_size())
    add("has lists for {} of {} entries", stage.entries_size(), plan.entries_size());
  if (stage.lifetimes().empty() || stage.lifetimes(0).slots() != 1)
    add("lifetime 0, of what is resident, has one slot");
  for (int size : {stage.lifetimes_size(), stage.places_size(), stage.calls_size(), stage.exchanges_size()})
    if (size > maxTable)
      return add("{} lifetimes, places, calls or exchanges, at most {} are possible", size, maxTable);
  for (const pb::Lifetime &lifetime : stage.lifetimes())
    if (lifetime.slots() == 0 || lifetime.slots() > maxSlots)
      add("lifetime '{}' has {} slots, needs 1 to {}", lifetime.name(), lifetime.slots(), maxSlots);
  for (const pb::Place &place : stage.places())
    checkPlace(stage, place);
  std::set<std::string_view> names;
  for (const pb::Call &call : stage.calls()) {
    checkCall(stage, call);
    if (!names.insert(call.name()).second)
      add("two calls are named '{}'", call.name());
  }
  checkChunks(stage);
  for (const pb::Exchange &exchange : stage.exchanges())
    checkExchange(stage, exchange);
  checkScalars(stage);
}

void Stages::checkPlace(const pb::Stage &stage, const pb::Place &place) {
  index(place.lifetime(), stage.lifetimes_size(), "lifetime");
  if (!pb::Memory_IsValid(place.memory()))
    return add("a place in unknown memory");
  if (place.lifetime() >= static_cast<uint32_t>(stage.lifetimes_size()))
    return;
  uint64_t slots = stage.lifetimes(static_cast<int>(place.lifetime())).slots();
  bool hasAll = static_cast<uint64_t>(place.offsets_size()) == slots;
  if (place.offsets_size() != 1 && !hasAll)
    add("a place has {} offsets for {} slots", place.offsets_size(), slots);
  if (place.exchanged() && (place.memory() != pb::HOST || place.offsets_size() != 1))
    add("a value exchanged with the host must be in host memory, at one offset and a stride");
  for (uint64_t offset : place.offsets())
    if (offset > maxBytes)
      add("a place at {}", offset);
  if (place.bytes() > maxBytes || place.stride() > maxStride)
    add("a place of {} bytes with a stride of {}", place.bytes(), place.stride());
}

void Stages::checkCall(const pb::Stage &stage, const pb::Call &call) {
  if (call.programs_size() > plan.roles_size())
    add("{} has subprograms for {} roles of {}", call.name(), call.programs_size(), plan.roles_size());
  for (uint32_t program : call.programs())
    index(program, int64_t(plan.subprograms_size()) + 1, "subprogram");
  if (call.layer() < -1 || call.layer() > int64_t(maxRanks))
    add("{} is layer {}", call.name(), call.layer());
  std::set<uint32_t> bound;
  for (const pb::Binding &binding : call.bindings()) {
    index(binding.region(), plan.regions_size(), "region");
    index(binding.place(), stage.places_size(), "place");
    if (binding.offset() > maxBytes)
      add("{} is bound at {}", call.name(), binding.offset());
    if (!bound.insert(binding.region()).second)
      add("{} binds region {} twice", call.name(), binding.region());
  }
  std::set<uint32_t> used;
  for (const pb::BucketUse &use : call.buckets()) {
    index(use.bucket(), plan.buckets_size(), "bucket");
    if (!used.insert(use.bucket()).second)
      add("{} uses bucket {} twice", call.name(), use.bucket());
  }
}

/// Checks that each call lies in exactly one chunk and that chunks are contiguous.
void Stages::checkChunks(const pb::Stage &stage) {
  uint64_t next = 0;
  for (const pb::Chunk &chunk : stage.chunks()) {
    if (chunk.first_call() != next || chunk.calls() == 0)
      add("chunk '{}' begins with call {}, call {} comes next", chunk.name(), chunk.first_call(), next);
    next += chunk.calls();
    for (uint32_t lifetime : chunk.lifetimes())
      index(lifetime, stage.lifetimes_size(), "lifetime");
    std::set<uint32_t> listed(chunk.lifetimes().begin(), chunk.lifetimes().end());
    if (listed.size() != static_cast<size_t>(chunk.lifetimes_size()))
      add("chunk '{}' lists a lifetime twice", chunk.name());
  }
  if (next != static_cast<uint64_t>(stage.calls_size()))
    add("chunks hold {} of {} calls", next, stage.calls_size());
}

void Stages::checkExchange(const pb::Stage &stage, const pb::Exchange &exchange) {
  const pb::Buffer &buffer = exchange.buffer();
  index(exchange.call(), stage.calls_size(), "call");
  index(buffer.region(), plan.regions_size(), "region");
  index(buffer.value(), plan.values_size(), "value");
  if (buffer.offset() > maxBytes || buffer.bytes() > maxBytes || buffer.part() || buffer.has_reads_at())
    add("exchange '{}' has {} bytes at {}", exchange.name(), buffer.bytes(), buffer.offset());
  // The results that the host reads are the scalars that it has filled, after the entry has updated them.
  std::string_view called = exchange.name();
  if (called == "results")
    called = "scalars";
  if (buffer.value() < static_cast<uint32_t>(plan.values_size()) &&
      plan.values(static_cast<int>(buffer.value())).name() != called)
    add("exchange '{}' has value '{}'", exchange.name(), plan.values(static_cast<int>(buffer.value())).name());
  for (uint32_t axes : exchange.split())
    if (axes & ~allAxes)
      add("exchange '{}' is split over {}, which is no set of axes", exchange.name(), axes);
  for (uint32_t entry : exchange.entries())
    index(entry, plan.entries_size(), "entry");
}

/// Checks that each stage receives the scalars of a step and returns its results, both in training and in evaluation.
void Stages::checkScalars(const pb::Stage &stage) {
  for (const char *entry : {"train_step", "evaluate"}) {
    std::optional<uint32_t> number = findEntry(plan, entry);
    for (const char *exchanged : {"scalars", "results"}) {
      std::optional<uint32_t> found = number ? findExchange(stage, exchanged) : std::nullopt;
      const pb::Exchange *exchange = found ? &stage.exchanges(static_cast<int>(*found)) : nullptr;
      bool isRight = exchange && exchange->buffer().bytes() == sizeof(Scalars) &&
                     std::ranges::count(exchange->entries(), *number) > 0;
      if (number && !isRight)
        add("does not exchange '{}', {} bytes, in {}", exchanged, sizeof(Scalars), entry);
    }
  }
}

/// Checks that the layers of all stages are 0 .. n-1, each once. A stage states the number and the first of its
/// repeated layers. Stages are in the order of their first layers, because ranks add sums in the order of stages and
/// another order gives different bits.
void Stages::checkLayers() {
  std::set<int32_t> layers;
  std::set<std::string_view> names;
  name = "the stages";
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Call &call : stage.calls()) {
      if (call.layer() >= 0 && !layers.insert(call.layer()).second)
        add("call layer {} twice", call.layer());
      if (call.layer() >= 0 && !names.insert(call.name()).second)
        add("call two layers '{}'", call.name());
    }
  if (!layers.empty() && *layers.rbegin() + 1 != static_cast<int64_t>(layers.size()))
    return add("call {} layers of {}", layers.size(), *layers.rbegin() + 1);
  int32_t before = -1; // the first layer of the previous stage that has layers
  for (int i = 0; i < plan.stages_size(); ++i) {
    std::set<int64_t> own;
    int32_t least = std::numeric_limits<int32_t>::max();
    for (const pb::Call &call : plan.stages(i).calls()) {
      if (call.layer() >= 0)
        least = std::min(least, call.layer());
      if (call.layer() > 0 && call.layer() < *layers.rbegin())
        own.insert(call.layer() - 1);
    }
    uint64_t first = plan.stages(i).first_layer(), count = plan.stages(i).layers();
    name = fmt::format("stage {}", i);
    if (least < before)
      add("begins with layer {}, the stage before it with layer {}: they stand in the order of their first layers",
          least, before);
    if (least != std::numeric_limits<int32_t>::max())
      before = least;
    if (count != own.size() || (count > 0 && static_cast<int64_t>(first) != *own.begin()))
      add("says {} layers from layer {} on, calls {} from {} on", count, first, own.size(),
          own.empty() ? 0 : *own.begin());
  }
}

void Stages::checkBlocks(const pb::Stage &stage, const pb::Entry &entry, const pb::Actions &blocks) {
  greatestMicroBatch = entry.micro_batches() - 1;
  for (const pb::Block &block : blocks.blocks()) {
    if (block.rounds() == 0 || block.rounds() > maxMicroBatches || block.advance() > maxMicroBatches)
      return add("a block of {} rounds that advances by {}", block.rounds(), block.advance());
    actions += uint64_t(block.rounds()) * static_cast<uint64_t>(block.actions_size());
    if (actions > maxActions)
      return add("more than {} actions", maxActions);
    rounds = block.rounds();
    advance = block.advance();
    std::string list = name;
    for (int i = 0; i < block.actions_size(); ++i) {
      name = fmt::format("{}, action {} of its block", list, i);
      checkAction(stage, block.actions(i));
    }
    name = list;
  }
}

void Stages::checkAction(const pb::Stage &stage, const pb::Action &action) {
  if (action.has_run())
    return checkRun(stage, action.run());
  if (!action.has_start() && !action.has_wait())
    return add("neither run, start nor wait");
  for (const pb::Flight &flight : action.start().flights())
    checkFlight(stage, flight, /*isStart=*/true);
  for (const pb::Flight &flight : action.wait().flights())
    checkFlight(stage, flight, /*isStart=*/false);
}

void Stages::checkMicroBatch(uint32_t microBatch) {
  uint64_t last = microBatch + (rounds - 1) * advance;
  if (last > greatestMicroBatch)
    add("micro-batch {} of {}", last, greatestMicroBatch + 1);
}

void Stages::checkRun(const pb::Stage &stage, const pb::Run &run) {
  index(run.role(), plan.roles_size(), "role");
  checkMicroBatch(run.micro_batch());
  for (uint32_t bucket : run.first())
    index(bucket, plan.buckets_size(), "bucket");
  uint64_t end = uint64_t(run.first_call()) + run.calls();
  if (run.calls() == 0 || end > static_cast<uint64_t>(stage.calls_size()))
    return add("runs calls {} to {} of {}", run.first_call(), end, stage.calls_size());
  const pb::Chunk *chunk = chunkOf[run.first_call()];
  if (chunk != chunkOf[end - 1])
    return add("runs calls of two chunks");
  checkSlots(stage, *chunk, run.slots());
}

void Stages::checkFlight(const pb::Stage &stage, const pb::Flight &flight, bool isStart) {
  index(flight.transfer(), plan.transfers_size(), "transfer");
  index(flight.call(), stage.calls_size(), "call");
  checkMicroBatch(flight.micro_batch());
  if (flight.call() >= static_cast<uint32_t>(stage.calls_size()))
    return;
  if (isStart)
    checkSlots(stage, *chunkOf[flight.call()], flight.slots());
  else if (!flight.slots().empty())
    add("a wait names slots");
}

void Stages::checkSlots(const pb::Stage &stage, const pb::Chunk &chunk,
                        const google::protobuf::RepeatedField<uint32_t> &slots) {
  if (slots.size() != chunk.lifetimes_size())
    return add("{} slots for the {} lifetimes of chunk '{}'", slots.size(), chunk.lifetimes_size(), chunk.name());
  for (int i = 0; i < slots.size(); ++i)
    index(slots[i], stage.lifetimes(static_cast<int>(chunk.lifetimes(i))).slots(), "slot");
}

} // namespace

void verifyStages(const pb::Plan &plan, PlanErrors &errors) { Stages(plan, errors).check(); }

} // namespace espalier::rt::verify
