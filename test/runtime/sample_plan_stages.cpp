// Builds a stage: consecutive allocations for every region of its calls, and the host staging buffers.
#include "test/runtime/sample_plan_builder.h"

#include "format/abi.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {
namespace {

uint64_t aligned(uint64_t bytes) { return (bytes + 63) / 64 * 64; }

void bind(pb::Call *call, Region region, uint32_t place, uint64_t offset = 0) {
  pb::Binding *binding = call->add_bindings();
  binding->set_region(region);
  binding->set_place(place);
  binding->set_offset(offset);
}

void useBuckets(pb::Call *call, const Layout &layout, uint32_t owner, bool updates) {
  for (const ToyBucket &bucket : layout.buckets) {
    pb::BucketUse *use = call->add_buckets();
    use->set_bucket(bucket.number);
    use->set_owner(owner);
    use->set_updates(updates);
  }
}

} // namespace

uint32_t SamplePlanBuilder::lifetime(pb::Stage *stage, const std::string &name, uint32_t slots, bool rotates) {
  pb::Lifetime *made = stage->add_lifetimes();
  made->set_name(name);
  made->set_slots(slots);
  made->set_rotates(rotates);
  return stage->lifetimes_size() - 1;
}

uint32_t SamplePlanBuilder::place(pb::Stage *stage, uint32_t lifetime, const std::string &memoryClass, uint64_t bytes) {
  uint64_t stride = aligned(bytes), begin = stage->arena_bytes(pb::DEVICE);
  uint64_t taken = stride * stage->lifetimes(lifetime).slots();
  stage->set_arena_bytes(pb::DEVICE, begin + taken);
  auto found = std::ranges::find(*stage->mutable_memory(), memoryClass, &pb::MemoryClass::name);
  pb::MemoryClass *sum = found == stage->mutable_memory()->end() ? stage->add_memory() : &*found;
  sum->set_name(memoryClass);
  sum->set_bytes(sum->bytes() + taken);
  pb::Place *place = stage->add_places();
  place->set_lifetime(lifetime);
  place->set_memory(pb::DEVICE);
  place->set_bytes(bytes);
  place->add_offsets(begin);
  place->set_stride(stride);
  place->set_memory_class(memoryClass);
  return stage->places_size() - 1;
}

/// Adds an allocation with two alternating copies in host memory.
uint32_t SamplePlanBuilder::hostPlace(pb::Stage *stage, uint32_t lifetime, uint64_t bytes) {
  uint64_t stride = aligned(bytes), begin = stage->arena_bytes(pb::HOST);
  stage->set_arena_bytes(pb::HOST, begin + 2 * stride * stage->lifetimes(lifetime).slots());
  pb::Place *place = stage->add_places();
  place->set_lifetime(lifetime);
  place->set_memory(pb::HOST);
  place->set_bytes(bytes);
  place->add_offsets(begin);
  place->set_stride(stride);
  place->set_exchanged(true);
  return stage->places_size() - 1;
}

void SamplePlanBuilder::bindParameters(pb::Stage *stage, pb::Call *call, const Layout &layout) {
  bind(call, Parameters, place(stage, 0, "parameters", layout.parameterBytes));
  bind(call, Gradients, place(stage, 0, "gradients", layout.gradientBytes));
  bind(call, State, place(stage, 0, "optimizer", layout.stateBytes));
}

/// Adds embed on the first stage, head on the last stage, the blocks between them, and the call of the step.
void SamplePlanBuilder::addCalls(pb::Stage *stage, int index) {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  int calls = static_cast<int>(stage->layers()) + isFirst + isLast;
  for (int i = 0; i < calls; ++i) {
    pb::Call *call = stage->add_calls();
    bool isEmbed = isFirst && i == 0, isHead = isLast && i == calls - 1;
    call->set_layer(isEmbed ? 0 : isHead ? o.layers + 1 : stage->first_layer() + i + !isFirst);
    call->set_name(isEmbed ? "embed" : isHead ? "head" : fmt::format("block.{}", call->layer() - 1));
    call->mutable_programs()->Resize(RoleCount, 0);
    auto set = [&](Role role, uint32_t program) { call->set_programs(role, program); };
    set(Forward, isEmbed ? embedForward : isHead ? headForward : blockForward);
    set(Evaluate, call->programs(Forward));
    set(Backward, isEmbed ? embedBackward : isHead ? headBackward : blockBackward);
    const Layout &layout = isEmbed || isHead ? table : block;
    bool isSecondUse = isHead && isFirst;
    if (!isSecondUse) {
      set(Norm, layout.norm);
      set(Update, layout.update);
      bindParameters(stage, call, layout);
    } else {
      for (int binding = 0; binding < 3; ++binding)
        *call->add_bindings() = stage->calls(0).bindings(binding);
    }
    useBuckets(call, layout, isHead ? 0 : call->layer(), !isSecondUse);
  }
  pb::Call *last = stage->add_calls();
  last->set_name("step");
  last->set_layer(-1);
  last->mutable_programs()->Resize(RoleCount, 0);
  last->set_programs(SetScalars, step);
}

/// The second of two consecutive calls saves the activation between them. A received activation has its own live range.
void SamplePlanBuilder::bindStreams(pb::Stage *stage, int index) {
  auto find = [&](const char *name) -> uint32_t {
    auto found = std::ranges::find(stage->lifetimes(), name, &pb::Lifetime::name);
    return found - stage->lifetimes().begin();
  };
  uint64_t bytes = streamBytes();
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  int calls = stage->calls_size() - 1;
  for (int i = 0; i < calls; ++i)
    if (stage->calls(i).name().starts_with("block"))
      bind(stage->mutable_calls(i), Saved, place(stage, find("saved"), "saved", bytes));
  for (int i = 0; i + 1 < calls; ++i) {
    uint32_t between = place(stage, find("saved"), "saved", bytes), back = place(stage, 0, "streams", bytes);
    bind(stage->mutable_calls(i), StreamOut, between);
    bind(stage->mutable_calls(i + 1), StreamIn, between);
    bind(stage->mutable_calls(i), CotangentOut, back);
    bind(stage->mutable_calls(i + 1), CotangentIn, back);
  }
  if (!isFirst) {
    bind(stage->mutable_calls(0), StreamIn, place(stage, find("in"), "streams", bytes));
    bind(stage->mutable_calls(0), CotangentIn, place(stage, find("din"), "streams", bytes));
  }
  if (!isLast) {
    bind(stage->mutable_calls(calls - 1), StreamOut, place(stage, find("out"), "streams", bytes));
    bind(stage->mutable_calls(calls - 1), CotangentOut, place(stage, find("dout"), "streams", bytes));
  }
}

void SamplePlanBuilder::addExchanges(pb::Stage *stage, int index) {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  uint32_t last = stage->calls_size() - 1;
  auto exchange = [&](const char *name, uint32_t call, const pb::Buffer &buffer, bool isFilled) {
    pb::Exchange *made = stage->add_exchanges();
    made->set_name(name);
    made->set_call(call);
    *made->mutable_buffer() = buffer;
    made->set_filled_by_host(isFilled);
    made->add_entries(TrainStep);
    made->add_entries(EvaluateEntry);
    return made;
  };
  if (isFirst || isLast)
    bind(stage->mutable_calls(0), Staged, hostPlace(stage, /*staged=*/1, 2 * alignedInput()));
  auto samples = [&](pb::Exchange *made) {
    made->add_split(mesh.divided(DP));
    made->add_split(0);
  };
  if (isFirst)
    samples(exchange("tokens", 0, at(Staged, 0, inputBytes(), tokens), /*isFilled=*/true));
  if (isLast)
    samples(exchange("labels", 0, at(Staged, alignedInput(), inputBytes(), labels), /*isFilled=*/true));
  uint64_t bytes = ScalarSlotCount * 4;
  bind(stage->mutable_calls(last), HostSettings, hostPlace(stage, 0, bytes));
  bind(stage->mutable_calls(last), Results, hostPlace(stage, 0, bytes));
  exchange("scalars", last, at(HostSettings, 0, bytes, scalars), /*isFilled=*/true);
  exchange("results", last, at(Results, 0, bytes, scalars), /*isFilled=*/false);
}

void SamplePlanBuilder::addStage(int index) {
  pb::Stage *stage = plan.add_stages();
  stage->add_arena_bytes(0);
  stage->add_arena_bytes(0);
  // The first stages get the remaining layers, so that stages have different sizes.
  int first = 0, count = 0;
  for (int i = 0; i <= index; ++i) {
    first += count;
    count = o.layers / o.pp + (i < o.layers % o.pp);
  }
  stage->set_first_layer(first);
  stage->set_layers(count);
  StageLists lists = listsOf(index);
  lifetime(stage, "resident", 1, /*rotates=*/false);
  lifetime(stage, "staged", o.microBatches);
  for (const auto &[name, slots] : lists.slots)
    lifetime(stage, name, slots);
  addCalls(stage, index);
  uint32_t common[2] = {place(stage, 0, "workspace", 64), place(stage, 0, "scalars", ScalarSlotCount * 4)};
  auto inputs = std::ranges::find(stage->lifetimes(), "inputs", &pb::Lifetime::name) - stage->lifetimes().begin();
  uint32_t inputPlace = place(stage, inputs, "inputs", 2 * alignedInput());
  for (pb::Call &call : *stage->mutable_calls()) {
    bind(&call, Workspace, common[0]);
    bind(&call, ScalarSlots, common[1]);
    bind(&call, Inputs, inputPlace);
  }
  bindStreams(stage, index);
  addExchanges(stage, index);
  pb::Chunk *chunk = stage->add_chunks();
  chunk->set_name("layers");
  chunk->set_calls(stage->calls_size() - 1);
  for (int i = 1; i < stage->lifetimes_size(); ++i)
    chunk->add_lifetimes(i);
  pb::Chunk *last = stage->add_chunks();
  last->set_name("step");
  last->set_first_call(chunk->calls());
  last->set_calls(1);
  writeLists(stage, index, lists);
}

} // namespace espalier::rt
