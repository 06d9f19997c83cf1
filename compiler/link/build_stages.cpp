// Lays out the arenas of a stage. The device arena holds, in order:
//   - parameters, gradients and optimizer state
//   - counters of layers, such as the choices of experts
//   - gathered parameters and gradients: one buffer for the embedding, one for the head, and two ring slots for each
//     kind of layer
//   - input slots
//   - per chunk, the values saved per in-flight micro-batch (each layer call's incoming stream, then its saved values)
//   and
//     the buffers at the chunk's borders
//   - two cotangent buffers that layer calls use in turn
//   - the workspace that all programs use, and the scalars
// The host arena holds the double-buffered host staging buffers. A plan that only evaluates has parameters, inputs,
// streams, workspace and scalars.
#include "compiler/link/build_stages.h"

#include "compiler/link/bind_activations.h"
#include "compiler/link/fold_rounds.h"
#include "compiler/link/stage_lists.h"

#include "format/abi.h"

using namespace mlir;

namespace espalier {

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

/// Expands the schedules of all stages.
class ScheduleExpander {
public:
  using Calls = std::vector<std::vector<std::vector<LayerCall>>>; ///< by stage and chunk
  ScheduleExpander(const StageInputs &in, const Plan &out, const ProgramExtents &extents, const Calls &calls)
      : in(in), extents(extents),
        table(planner::buildSchedule(in.plan.schedule, in.plan.pp, static_cast<int>(in.plan.microBatches),
                                     in.plan.virtualStages)) {
    options.everyChunkHasInputs = layersReadInputs(out);
    options.readsStreamAgain = [&](int stage, int chunk) { return readsStreamAgain(calls[stage][chunk].front()); };
  }

  std::vector<StageList> training() const { return expandSchedule(table, options); }
  /// Expands the schedule of a step with another number of micro-batches.
  std::vector<StageList> training(int64_t microBatches) const {
    return expandSchedule(
        planner::buildSchedule(in.plan.schedule, in.plan.pp, static_cast<int>(microBatches), in.plan.virtualStages),
        options);
  }
  std::vector<StageList> evaluation() const { return expandEvaluation(table, options); }

private:
  /// Returns whether a repeated layer reads inputs from the host, such as positions.
  bool layersReadInputs(const Plan &out) const {
    const std::string &first = in.runs.front().kind, &last = in.runs.back().kind;
    for (auto [index, program] : llvm::enumerate(out.subprograms())) {
      StringRef kind = StringRef(program.name()).split('.').first;
      if (kind != first && kind != last && extents.bytes(static_cast<uint32_t>(index) + 1, Region::Inputs) > 0)
        return true;
    }
    return false;
  }

  /// Returns whether the backward pass of a chunk's first layer call reads the received stream.
  bool readsStreamAgain(const LayerCall &call) const {
    std::string prefix = call.kind + "." + call.policy;
    auto reads = [&](const char *phase) { return extents.bytes(extents.find(prefix + phase), Region::StreamIn) > 0; };
    return extents.find(prefix + ".backward") == 0 || reads(".backward") || reads(".weight");
  }

  const StageInputs &in;
  const ProgramExtents &extents;
  planner::ScheduleTable table;
  ListOptions options;
};

/// Builds one stage without its instruction streams.
class StageBuilder {
public:
  explicit StageBuilder(StageDraft &draft) : draft(draft), in(draft.in), stage(draft.stage) {}

  void build(int number) {
    for (const std::vector<LayerCall> &calls : draft.chunks)
      for (const LayerCall &call : calls)
        addCall(call);
    addLifetimes();
    addChunks(number);
    PlaceBuilder places(stage, in.regions.guardBytes);
    bindParameters(
        in.module, in.trains, [&](const Call &call) { return draft.isRepeated(call) ? draft.wholeLayers : 0; }, stage,
        places);
    bindCounters(places);
    bindInputs(places);
    bindActivations(draft, places);
    bindCommon(places);
    addExchanges(places);
  }

private:
  void addCall(const LayerCall &layer) {
    Call &call = addLayerCall(layer, in.module, stage);
    auto set = [&](Role role, const std::string &name) {
      call.set_programs(static_cast<int>(role), draft.extents.find(layer.kind + "." + name));
    };
    set(Role::Forward, layer.policy + ".forward");
    set(Role::Backward, layer.policy + ".backward");
    set(Role::Weight, layer.policy + ".weight");
    set(Role::Evaluate, "evaluate");
    set(Role::Add, "add");
    set(Role::Norm, "norm");
    set(Role::Update, "update");
  }

  /// Returns the suffix of names that belong to one chunk.
  std::string suffix(int chunk) const { return draft.chunks.size() > 1 ? "." + std::to_string(chunk) : ""; }

  uint32_t addLifetime(const std::string &name, uint32_t slots, bool rotates) {
    Lifetime &lifetime = *stage.add_lifetimes();
    lifetime.set_name(name);
    lifetime.set_slots(slots);
    lifetime.set_rotates(rotates);
    return static_cast<uint32_t>(stage.lifetimes_size() - 1);
  }

  void addLifetimes() {
    addLifetime("resident", 1, /*rotates=*/false);
    bool hasInputs =
        llvm::any_of(draft.list.lifetimes, [](const StageLifetime &one) { return one.kind == LifetimeKind::Inputs; });
    uint32_t microBatches = in.trains ? static_cast<uint32_t>(in.plan.microBatches) : 1;
    draft.staged = hasInputs ? addLifetime("staged", microBatches, /*rotates=*/true) : 0;
    auto layers =
        static_cast<uint32_t>(llvm::count_if(stage.calls(), [&](const Call &call) { return draft.isRepeated(call); }));
    bool hasWhole = llvm::any_of(ModuleOp(in.module).getOps<exec::SegmentOp>(), [](exec::SegmentOp one) {
      return one.getWholeGradientBytes() > 0 || one.getWholeStoredBytes() > 0;
    });
    draft.wholeLayers = hasWhole && layers > 0 ? addLifetime("whole", std::min(layers, 2u), /*rotates=*/false) : 0;
    draft.firstLifetime = static_cast<uint32_t>(stage.lifetimes_size());
    for (const StageLifetime &lifetime : draft.list.lifetimes)
      addLifetime(nameOf(lifetime.kind) + suffix(lifetime.chunk), static_cast<uint32_t>(lifetime.slots),
                  /*rotates=*/true);
  }

  /// Adds one chunk per chunk of the schedule, and one chunk for the call `step`.
  void addChunks(int number) {
    uint32_t next = 0;
    for (auto [index, calls] : llvm::enumerate(draft.chunks)) {
      const planner::StagePlan &part = in.plan.stages[planStage(in.plan, number, static_cast<int>(index))];
      Chunk &chunk = *stage.add_chunks();
      chunk.set_name("layers" + suffix(static_cast<int>(index)));
      chunk.set_first_call(next);
      chunk.set_calls(static_cast<uint32_t>(calls.size()));
      if (stage.layers() == 0)
        stage.set_first_layer(static_cast<uint32_t>(part.firstLayer));
      stage.set_layers(stage.layers() + static_cast<uint32_t>(part.layers));
      next += chunk.calls();
      if (draft.wholeLayers)
        chunk.add_lifetimes(draft.wholeLayers);
      if (draft.lifetimeOf(index, LifetimeKind::Inputs))
        chunk.add_lifetimes(draft.staged);
      for (int kind = 0; kind < kLifetimeKinds; ++kind)
        if (uint32_t lifetime = draft.lifetimeOf(index, static_cast<LifetimeKind>(kind)))
          chunk.add_lifetimes(lifetime);
    }
    addStepCall(stage).set_programs(static_cast<int>(Role::Scalars), draft.extents.find("step.scalars"));
    Chunk &last = *stage.add_chunks();
    last.set_name("step");
    last.set_first_call(next);
    last.set_calls(1);
  }

  /// Allocates the counters of layers, which training adds to and the host reads.
  void bindCounters(PlaceBuilder &places) {
    for (Call &call : *stage.mutable_calls())
      if (isLayerCall(call))
        if (auto bytes = in.regions.cacheBytes.find(segmentOf(call, in.module).getKind().str());
            bytes != in.regions.cacheBytes.end())
          PlaceBuilder::bind(call, Region::Cache, places.take(bytes->second, 0, "counters"));
  }

  /// Allocates the inputs. Each chunk has its own ring slots, but the host staging buffer is allocated once.
  void bindInputs(PlaceBuilder &places) {
    std::optional<uint32_t> source;
    for (size_t chunk = 0; chunk < draft.chunks.size(); ++chunk) {
      uint32_t lifetime = draft.lifetimeOf(chunk, LifetimeKind::Inputs);
      if (lifetime == 0)
        continue;
      uint32_t place = places.take(in.regions.inputBytes, lifetime, "inputs");
      int first = draft.firstCall(chunk);
      for (int call = first; call < first + static_cast<int>(draft.chunks[chunk].size()); ++call)
        PlaceBuilder::bind(*stage.mutable_calls(call), Region::Inputs, place);
      if (!source)
        source = places.exchanged(in.regions.inputBytes, draft.staged);
      PlaceBuilder::bind(*stage.mutable_calls(first), Region::Staged, *source);
    }
  }

  /// Allocates the workspace and the scalars, which all calls use.
  void bindCommon(PlaceBuilder &places) {
    uint32_t workspace = places.take(draft.extents.largest(stage, Region::Workspace), 0, "workspace");
    uint32_t scalars = places.take(scalarBytes, 0, "scalars");
    for (Call &call : *stage.mutable_calls()) {
      PlaceBuilder::bind(call, Region::Workspace, workspace);
      PlaceBuilder::bind(call, Region::Scalars, scalars);
    }
  }

  const Transfer &transfer(int64_t number) const { return draft.tables.transfers(static_cast<int>(number)); }

  Exchange &addExchange(const std::string &name, uint32_t call, const Buffer &buffer, bool isFilled) {
    Exchange &exchange = *stage.add_exchanges();
    exchange.set_name(name);
    exchange.set_call(call);
    *exchange.mutable_buffer() = buffer;
    exchange.set_filled_by_host(isFilled);
    for (int entry = 0; entry < draft.tables.entries_size(); ++entry)
      exchange.add_entries(static_cast<uint32_t>(entry));
    return exchange;
  }

  void addExchanges(PlaceBuilder &places) {
    auto takesInputs = [](const Call &call) {
      return llvm::any_of(call.bindings(), [](const Binding &binding) {
        return binding.region() == static_cast<uint32_t>(Region::Staged);
      });
    };
    auto reader = llvm::find_if(stage.calls(), takesInputs);
    for (const Buffer &buffer : transfer(in.transfers.inputs).from()) {
      if (reader == stage.calls().end())
        break;
      Exchange &exchange =
          addExchange(draft.tables.values(static_cast<int>(buffer.value())).name(),
                      static_cast<uint32_t>(reader - stage.calls().begin()), buffer, /*isFilled=*/true);
      exchange.add_split(sampleAxisBits(in.plan));
      exchange.add_split(in.plan.cp > 1 ? exec::axisBit("cp") : 0);
    }
    uint32_t last = stage.calls_size() - 1;
    Call &step = *stage.mutable_calls(static_cast<int>(last));
    PlaceBuilder::bind(step, Region::Settings, places.exchanged(scalarBytes, 0));
    PlaceBuilder::bind(step, Region::Results, places.exchanged(scalarBytes, 0));
    addExchange("scalars", last, transfer(in.transfers.set).from(0), /*isFilled=*/true);
    addExchange("results", last, transfer(in.transfers.metrics).to(0), /*isFilled=*/false);
  }

  StageDraft &draft;
  const StageInputs &in;
  Stage &stage;
};

} // namespace

/// Raises the ring slots of each live range to those that the same live range has in another entry. Instruction streams
/// count slots by the stage's live ranges, so that more slots than a schedule needs do no harm.
static void takeMostSlots(const StageList &from, StageList &to) {
  for (auto [lifetime, other] : llvm::zip_equal(to.lifetimes, from.lifetimes))
    lifetime.slots = std::max(lifetime.slots, other.slots);
}

void buildStages(const StageInputs &in, Plan &out) {
  ProgramExtents extents(out);
  ScheduleExpander::Calls calls;
  for (int stage = 0; stage < in.plan.pp; ++stage)
    calls.push_back(callsOf(in.runs, in.plan, stage));
  ScheduleExpander schedules(in, out, extents, calls);
  std::vector<StageList> evaluation = schedules.evaluation();
  std::vector<StageList> training = in.trains ? schedules.training() : std::vector<StageList>();
  std::vector<std::vector<StageList>> ramp; // by entry, then by stage
  for (int64_t microBatches : in.ramp) {
    ramp.push_back(schedules.training(microBatches));
    for (auto [smaller, whole] : llvm::zip_equal(ramp.back(), training))
      takeMostSlots(smaller, whole);
  }
  std::vector<std::vector<GradientTerm>> terms = gradientTerms(out);
  ListInputs lists{in.transfers, in.buckets, terms, out, planner::placement(in.plan).returns};
  for (int number = 0; number < in.plan.pp; ++number) {
    const StageList &list = in.trains ? training[number] : evaluation[number];
    Stage &stage = *out.add_stages();
    StageDraft draft{in, out, extents, calls[number], list, stage};
    StageBuilder(draft).build(number);
    if (in.trains)
      addTraining(lists, list, stage);
    addEvaluation(lists, evaluation[number], stage);
    for (const std::vector<StageList> &smaller : ramp)
      addTraining(lists, smaller[number], stage);
    for (Actions &actions : *stage.mutable_entries())
      foldRounds(stage, static_cast<uint32_t>(in.plan.pp), actions);
  }
}

} // namespace espalier
