// The device arena of a stage, in order: parameters, gradients, optimizer state, input slots, what is kept per
// micro-batch in flight (slot by slot: each call's incoming stream, then its saved values), the buffers at the stage's
// borders, the workspace that all subprograms share, scalars. A call writes its stream straight into the next call's
// saved stream. A stream that backward does not read is not kept: forward passes it on in the two buffers that the
// cotangents take turns in later. The host arena has what is exchanged with the host, twice.
#include "compiler/pipeline/assign_stages.h"

#include "compiler/pipeline/stage_lists.h"
#include "dialects/exec/dialect.h"
#include "planner/explain.h"

#include "runtime/abi.h"

#include <map>

using namespace mlir;

namespace espalier {

std::vector<LayerCall> callsOf(const RunConfig &run, const planner::Plan &plan, int stage) {
  std::vector<LayerCall> calls;
  const planner::StagePlan &part = plan.stages[stage];
  const auto &runs = run.model.runs;
  if (stage == 0)
    calls.push_back({runs.front().kind, -1, 0, "none"});
  int layer = 0;
  for (size_t i = 1; i + 1 < runs.size(); ++i)
    for (int repeat = 0; repeat < runs[i].count; ++repeat, ++layer)
      if (layer >= part.firstLayer && layer < part.firstLayer + part.layers)
        calls.push_back({runs[i].kind, layer, static_cast<uint32_t>(layer + 1),
                         recomputeName(part.recompute[layer - part.firstLayer])});
  if (stage + 1 == plan.pp)
    calls.push_back({runs.back().kind, -1, static_cast<uint32_t>(layer + 1), "none"});
  return calls;
}

namespace {

using namespace rt::pb;
using exec::Region;
using exec::Role;

constexpr uint64_t scalarBytes = uint64_t{rt::ScalarSlotCount} * 4;

const char *nameOf(LifetimeKind kind) {
  switch (kind) {
  case LifetimeKind::Inputs:
    return "inputs";
  case LifetimeKind::Saved:
    return "saved";
  case LifetimeKind::SavedForWeights:
    return "saved_for_weights";
  case LifetimeKind::SavedByBackward:
    return "saved_by_backward";
  case LifetimeKind::Out:
    return "out";
  case LifetimeKind::In:
    return "in";
  case LifetimeKind::DIn:
    return "din";
  case LifetimeKind::DOut:
    return "dout";
  }
}

/// Hands out places of a stage's arenas and sums those of the device by memory class.
class PlaceBuilder {
public:
  PlaceBuilder(Stage &stage, uint64_t guard) : stage(stage), guard(guard) {
    stage.mutable_arena_bytes()->Resize(Memory_ARRAYSIZE, 0);
  }

  /// A place in every slot of the lifetime.
  uint32_t take(uint64_t bytes, uint32_t lifetime, const char *memoryClass) {
    uint64_t stride = alignUp(bytes, guard), slots = stage.lifetimes(static_cast<int>(lifetime)).slots();
    addToClass(memoryClass, stride * slots);
    Place &place = add(bytes, lifetime, DEVICE, stride, stride * slots);
    place.set_memory_class(memoryClass);
    return stage.places_size() - 1;
  }

  /// Two copies, in turns.
  uint32_t exchanged(uint64_t bytes, uint32_t lifetime) {
    uint64_t stride = alignUp(bytes, 0), slots = stage.lifetimes(static_cast<int>(lifetime)).slots();
    add(bytes, lifetime, HOST, stride, 2 * stride * slots).set_exchanged(true);
    return stage.places_size() - 1;
  }

  static void bind(Call &call, Region region, uint32_t place, uint64_t offset = 0) {
    Binding &binding = *call.add_bindings();
    binding.set_region(static_cast<uint32_t>(region));
    binding.set_place(place);
    binding.set_offset(offset);
  }

private:
  Place &add(uint64_t bytes, uint32_t lifetime, Memory memory, uint64_t stride, uint64_t taken) {
    Place &place = *stage.add_places();
    place.set_lifetime(lifetime);
    place.set_memory(memory);
    place.set_bytes(bytes);
    place.add_offsets(stage.arena_bytes(memory));
    place.set_stride(stride);
    stage.set_arena_bytes(memory, stage.arena_bytes(memory) + taken);
    return place;
  }

  void addToClass(const char *memoryClass, uint64_t bytes) {
    for (MemoryClass &entry : *stage.mutable_memory())
      if (entry.name() == memoryClass) {
        entry.set_bytes(entry.bytes() + bytes);
        return;
      }
    MemoryClass *entry = stage.add_memory();
    entry->set_name(memoryClass);
    entry->set_bytes(bytes);
  }

  Stage &stage;
  uint64_t guard;
};

/// Bytes of each region that a subprogram may touch.
std::vector<uint64_t> reachOf(const Plan &plan, const Subprogram &program) {
  std::vector<uint64_t> reach(plan.regions_size(), 0);
  auto visit = [&](const auto &buffers) {
    for (const Buffer &buffer : buffers)
      reach[buffer.region()] = std::max(reach[buffer.region()], buffer.offset() + buffer.bytes());
  };
  for (const Instruction &instruction : program.instructions()) {
    if (instruction.has_launch())
      visit(instruction.launch().buffers());
    else if (instruction.has_call())
      visit(instruction.call().buffers());
    if (instruction.body_case() != Instruction::kStart)
      continue;
    const Transfer &transfer = plan.transfers(static_cast<int>(instruction.start()));
    visit(transfer.from());
    visit(transfer.to());
  }
  return reach;
}

class StageAssigner {
public:
  StageAssigner(const StageInputs &in, Plan &out) : in(in), out(out) {
    for (auto [index, subprogram] : llvm::enumerate(out.subprograms())) {
      if (!subprogram.instructions().empty())
        subprograms[subprogram.name()] = index + 1;
      reach.push_back(reachOf(out, subprogram));
    }
    for (const SegmentLayout &segment : in.segments)
      layouts[segment.kind] = &segment;
  }

  void run() {
    auto table = planner::buildSchedule(in.plan.schedule, in.plan.pp, in.plan.microBatches, in.plan.virtualStages);
    ListOptions options;
    options.everyChunkHasInputs = layersReadInputs();
    std::vector<StageList> training = expandSchedule(table, options), evaluation = expandEvaluation(table, options);
    for (int stage = 0; stage < in.plan.pp; ++stage)
      assign(stage, training[stage], evaluation[stage]);
  }

private:
  uint32_t subprogram(const std::string &name) const {
    auto found = subprograms.find(name);
    return found == subprograms.end() ? 0 : found->second;
  }

  uint64_t reached(const Call &call, Role role, Region region) const {
    uint32_t program = call.programs(static_cast<int>(role));
    return program == 0 ? 0 : reach[program - 1][static_cast<size_t>(region)];
  }

  /// Whether a layer that repeats reads what the host stages, such as positions.
  bool layersReadInputs() const {
    const std::string &first = in.run.model.runs.front().kind, &last = in.run.model.runs.back().kind;
    for (auto [index, subprogram] : llvm::enumerate(out.subprograms())) {
      StringRef kind = StringRef(subprogram.name()).split('.').first;
      if (kind != first && kind != last && reach[index][static_cast<size_t>(Region::Inputs)] > 0)
        return true;
    }
    return false;
  }

  void assign(int number, const StageList &training, const StageList &evaluation) {
    Stage &stage = *out.add_stages();
    stage.set_first_layer(in.plan.stages[number].firstLayer);
    stage.set_layers(in.plan.stages[number].layers);
    std::vector<LayerCall> calls = callsOf(in.run, in.plan, number);
    for (const LayerCall &call : calls)
      addCall(call, stage);
    addChunks(training, static_cast<uint32_t>(calls.size()), stage);
    PlaceBuilder places(stage, in.regions.guardBytes);
    bindParameters(calls, stage, places);
    bindInputs(training, stage, places);
    bindActivations(calls, number, training, stage, places);
    bindCommon(stage, places);
    addExchanges(stage, places);
    addLists({in.transfers, in.buckets, out}, training, evaluation, stage);
  }

  void addCall(const LayerCall &call, Stage &stage) {
    Call &entry = *stage.add_calls();
    entry.set_name(call.kind + (call.index < 0 ? "" : "." + std::to_string(call.index)));
    entry.set_layer(static_cast<int32_t>(call.layer));
    entry.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
    auto set = [&](Role role, const std::string &name) {
      entry.set_programs(static_cast<int>(role), subprogram(call.kind + "." + name));
    };
    set(Role::Forward, call.policy + ".forward");
    set(Role::Backward, call.policy + ".backward");
    set(Role::Evaluate, "evaluate");
    set(Role::Norm, "norm");
    set(Role::Update, "update");
    for (const SegmentBucket &bucket : layouts.at(call.kind)->buckets) {
      BucketUse &use = *entry.add_buckets();
      use.set_bucket(bucket.number);
      use.set_owner(bucket.isTied ? 0 : call.layer); // the first segment owns what is tied
      use.set_updates(!bucket.isTiedHere);
    }
  }

  /// One chunk of layers, and one for what is once per step.
  void addChunks(const StageList &list, uint32_t calls, Stage &stage) {
    Lifetime &resident = *stage.add_lifetimes();
    resident.set_name("resident");
    resident.set_slots(1);
    auto add = [&](const char *name, uint32_t slots) {
      Lifetime &lifetime = *stage.add_lifetimes();
      lifetime.set_name(name);
      lifetime.set_slots(slots);
      lifetime.set_rotates(true);
    };
    Chunk &layers = *stage.add_chunks();
    layers.set_name("layers");
    layers.set_calls(calls);
    if (list.lifetimeOf(0, LifetimeKind::Inputs) >= 0)
      add("staged", static_cast<uint32_t>(in.plan.microBatches));
    firstLifetime = stage.lifetimes_size();
    for (const StageLifetime &lifetime : list.lifetimes)
      add(nameOf(lifetime.kind), static_cast<uint32_t>(lifetime.slots));
    for (int lifetime = 1; lifetime < stage.lifetimes_size(); ++lifetime)
      layers.add_lifetimes(lifetime);
    Call &step = *stage.add_calls();
    step.set_name("step");
    step.set_layer(-1);
    step.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
    step.set_programs(static_cast<int>(Role::Scalars), subprogram("step.scalars"));
    Chunk &last = *stage.add_chunks();
    last.set_name("step");
    last.set_first_call(calls);
    last.set_calls(1);
  }

  /// The stage's lifetime for one of the list's; the resident one where the chunk has none.
  uint32_t lifetimeOf(const StageList &list, LifetimeKind kind) const {
    int lifetime = list.lifetimeOf(0, kind);
    return lifetime < 0 ? 0 : firstLifetime + static_cast<uint32_t>(lifetime);
  }

  /// Segments that share tied parameters on this stage share one region.
  void bindParameters(ArrayRef<LayerCall> calls, Stage &stage, PlaceBuilder &places) {
    bool isShared = llvm::any_of(layouts.at(calls.back().kind)->buckets,
                                 [](const SegmentBucket &bucket) { return bucket.isTiedHere; });
    struct Class {
      Region region;
      const char *name;
      uint64_t SegmentLayout::*bytes;
    };
    for (Class memory : {Class{Region::Parameters, "parameters", &SegmentLayout::parameterBytes},
                         Class{Region::Gradients, "gradients", &SegmentLayout::gradientBytes},
                         Class{Region::State, "optimizer", &SegmentLayout::stateBytes}}) {
      uint32_t first = 0;
      for (auto [index, call] : llvm::enumerate(calls)) {
        uint64_t bytes = layouts.at(call.kind)->*memory.bytes;
        if (bytes == 0)
          continue;
        bool sharesFirst = isShared && index + 1 == calls.size();
        uint32_t place = sharesFirst ? first : places.take(bytes, 0, memory.name);
        if (index == 0)
          first = place;
        PlaceBuilder::bind(*stage.mutable_calls(static_cast<int>(index)), memory.region, place);
      }
    }
  }

  void bindInputs(const StageList &list, Stage &stage, PlaceBuilder &places) {
    uint32_t lifetime = lifetimeOf(list, LifetimeKind::Inputs);
    if (lifetime == 0)
      return;
    uint32_t place = places.take(in.regions.inputBytes, lifetime, "inputs");
    for (int call = 0; call + 1 < stage.calls_size(); ++call)
      PlaceBuilder::bind(*stage.mutable_calls(call), Region::Inputs, place);
    PlaceBuilder::bind(*stage.mutable_calls(0), Region::Staged, places.exchanged(in.regions.inputBytes, lifetime - 1));
  }

  uint64_t savedBytes(const LayerCall &call) const {
    auto found = in.regions.savedBytes.find(call.kind + "." + call.policy);
    return found == in.regions.savedBytes.end() ? 0 : found->second;
  }

  /// Whether backward reads the stream that came in.
  bool keepsStream(const Call &call) const {
    return call.programs(static_cast<int>(Role::Backward)) == 0 || reached(call, Role::Backward, Region::StreamIn) > 0;
  }

  void bindActivations(ArrayRef<LayerCall> calls, int number, const StageList &list, Stage &stage,
                       PlaceBuilder &places) {
    uint64_t stream = alignUp(in.regions.streamBytes, in.regions.guardBytes), bytes = in.regions.streamBytes;
    bool isFirst = number == 0, isLast = number + 1 == in.plan.pp;
    int count = static_cast<int>(calls.size());
    uint64_t slotBytes = 0;
    std::vector<uint64_t> streamOffset, savedOffset;
    for (int i = 0; i < count; ++i) { // the first call's stream has a place of its own, or it is the embedding
      streamOffset.push_back(slotBytes);
      slotBytes += i == 0 || !keepsStream(stage.calls(i)) ? 0 : stream;
      savedOffset.push_back(slotBytes);
      slotBytes += savedBytes(calls[i]);
    }
    uint32_t kept = slotBytes ? places.take(slotBytes, lifetimeOf(list, LifetimeKind::Saved), "activations") : 0;
    auto border = [&](LifetimeKind kind, const char *memoryClass) {
      return places.take(bytes, lifetimeOf(list, kind), memoryClass);
    };
    uint32_t received = isFirst ? 0 : border(LifetimeKind::In, "activations");
    uint32_t sent = isLast ? 0 : border(LifetimeKind::Out, "boundary");
    uint32_t cotangentIn = isLast ? 0 : border(LifetimeKind::DOut, "boundary");
    uint32_t cotangentOut = isFirst ? 0 : border(LifetimeKind::DIn, "boundary");
    uint32_t cotangents[2] = {places.take(bytes, 0, "boundary"), places.take(bytes, 0, "boundary")};

    auto bindStream = [&](Call &call, Region region, int i) { // the stream that call i reads
      if (i == 0)
        PlaceBuilder::bind(call, region, received);
      else if (keepsStream(stage.calls(i)))
        PlaceBuilder::bind(call, region, kept, streamOffset[i]);
      else
        PlaceBuilder::bind(call, region, cotangents[i % 2]);
    };
    for (int i = 0; i < count; ++i) {
      Call &call = *stage.mutable_calls(i);
      bool hasIn = !(isFirst && i == 0), hasOut = !(isLast && i + 1 == count), sends = i + 1 == count;
      if (savedBytes(calls[i]))
        PlaceBuilder::bind(call, Region::Saved, kept, savedOffset[i]);
      if (hasIn) {
        bindStream(call, Region::StreamIn, i);
        PlaceBuilder::bind(call, Region::CotangentIn, i == 0 ? cotangentOut : cotangents[i % 2]);
      }
      if (hasOut && sends)
        PlaceBuilder::bind(call, Region::StreamOut, sent);
      else if (hasOut)
        bindStream(call, Region::StreamOut, i + 1);
      if (hasOut)
        PlaceBuilder::bind(call, Region::CotangentOut, sends ? cotangentIn : cotangents[(i + 1) % 2]);
    }
  }

  /// The workspace and the scalars, one for all calls.
  void bindCommon(Stage &stage, PlaceBuilder &places) {
    uint64_t bytes = 0;
    for (const Call &call : stage.calls())
      for (uint32_t role = 0; role <= exec::getMaxEnumValForRole(); ++role)
        bytes = std::max(bytes, reached(call, static_cast<Role>(role), Region::Workspace));
    uint32_t workspace = places.take(bytes, 0, "workspace"), scalars = places.take(scalarBytes, 0, "scalars");
    for (Call &call : *stage.mutable_calls()) {
      PlaceBuilder::bind(call, Region::Workspace, workspace);
      PlaceBuilder::bind(call, Region::Scalars, scalars);
    }
  }

  void addExchanges(Stage &stage, PlaceBuilder &places) {
    const Transfer &inputs = out.transfers(static_cast<int>(in.transfers.inputs));
    bool hasInputs = llvm::any_of(stage.calls(0).bindings(), [](const Binding &binding) {
      return binding.region() == static_cast<uint32_t>(Region::Staged);
    });
    auto add = [&](const std::string &name, uint32_t call, const Buffer &buffer, bool isFilled) -> Exchange & {
      Exchange &exchange = *stage.add_exchanges();
      exchange.set_name(name);
      exchange.set_call(call);
      *exchange.mutable_buffer() = buffer;
      exchange.set_filled_by_host(isFilled);
      for (EntryNumber entry : {EntryNumber::TrainStep, EntryNumber::Evaluate})
        exchange.add_entries(static_cast<uint32_t>(entry));
      return exchange;
    };
    for (const Buffer &buffer : inputs.from()) {
      if (!hasInputs)
        break;
      Exchange &exchange = add(out.values(static_cast<int>(buffer.value())).name(), 0, buffer, /*isFilled=*/true);
      exchange.add_split((in.plan.dp > 1 ? exec::axisBit("dp") : 0) | (in.plan.ep > 1 ? exec::axisBit("ep") : 0));
      exchange.add_split(in.plan.cp > 1 ? exec::axisBit("cp") : 0);
    }
    uint32_t last = stage.calls_size() - 1;
    Call &step = *stage.mutable_calls(static_cast<int>(last));
    PlaceBuilder::bind(step, Region::Settings, places.exchanged(scalarBytes, 0));
    PlaceBuilder::bind(step, Region::Results, places.exchanged(scalarBytes, 0));
    add("scalars", last, out.transfers(static_cast<int>(in.transfers.set)).from(0), /*isFilled=*/true);
    add("results", last, out.transfers(static_cast<int>(in.transfers.metrics)).to(0), /*isFilled=*/false);
  }

  const StageInputs &in;
  Plan &out;
  std::map<std::string, uint32_t> subprograms;
  std::vector<std::vector<uint64_t>> reach; ///< by subprogram and region
  std::map<std::string, const SegmentLayout *> layouts;
  uint32_t firstLifetime = 1; ///< of the list's, in the stage at hand
};

} // namespace

void assignStages(const StageInputs &inputs, Plan &out) { StageAssigner(inputs, out).run(); }

} // namespace espalier
