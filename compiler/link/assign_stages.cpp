// Lays out the arenas of a stage. The device arena holds, in order:
//   - parameters, gradients and optimizer state
//   - gathered parameters and gradients: one buffer for the embedding, one for the head, and two ring slots for each
//     kind of layer
//   - input slots
//   - per chunk, the values saved per in-flight micro-batch (each call's incoming stream, then its saved values) and
//     the buffers at the chunk's borders
//   - two cotangent buffers that calls use in turn
//   - the workspace that all subprograms use, and the scalars
// A call writes its stream directly into the next call's saved stream. A stream that the backward pass does not read is
// not saved: the forward pass then uses the two cotangent buffers. If two consecutive chunks are on one stage (the
// middle of a V-shaped schedule), the first writes directly into the buffer that the second reads. The host arena holds
// the double-buffered host staging buffers. A plan that only evaluates has parameters, inputs, streams, workspace and
// scalars.
#include "compiler/link/assign_stages.h"

#include "compiler/layout/stage_calls.h"
#include "compiler/link/fold_rounds.h"
#include "compiler/link/place_builder.h"
#include "compiler/link/stage_lists.h"
#include "dialects/exec/dialect.h"

#include "runtime/abi.h"

#include <array>
#include <map>

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

/// Returns the access extent of a subprogram in each region, in bytes.
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
  uint64_t &workspace = reach[static_cast<size_t>(Region::Workspace)];
  for (const Guard &guard : program.guards())
    workspace = std::max(workspace, guard.offset() + plan.guard_bytes());
  return reach;
}

class StageAssigner {
public:
  StageAssigner(const StageInputs &in, Plan &out) : in(in), out(out), terms(gradientTerms(out)) {
    for (auto [index, subprogram] : llvm::enumerate(out.subprograms())) {
      if (!subprogram.instructions().empty())
        subprograms[subprogram.name()] = index + 1;
      reach.push_back(reachOf(out, subprogram));
    }
    for (const SegmentLayout &segment : in.segments)
      layouts[segment.kind] = &segment;
  }

  void assign() {
    std::vector<StageList> lists = expand(in.trains ? &expandSchedule : &expandEvaluation);
    for (int stage = 0; stage < in.plan.pp; ++stage)
      assign(stage, callsOf(in.run, in.plan, stage), lists[stage]);
  }

  void addLists() {
    std::vector<StageList> training = in.trains ? expand(&expandSchedule) : std::vector<StageList>();
    std::vector<StageList> evaluation = expand(&expandEvaluation);
    for (int number = 0; number < in.plan.pp; ++number) {
      Stage &stage = *out.mutable_stages(number);
      ListInputs inputs{in.transfers, in.buckets, terms, out, isVShaped(in.plan.schedule)};
      if (in.trains)
        addTraining(inputs, training[number], stage);
      addEvaluation(inputs, evaluation[number], stage);
      for (Actions &actions : *stage.mutable_entries())
        foldRounds(stage, static_cast<uint32_t>(in.plan.pp), actions);
    }
  }

private:
  /// Returns the instruction streams of all stages, for a training step or an evaluation.
  std::vector<StageList> expand(std::vector<StageList> (*lists)(const planner::ScheduleTable &, const ListOptions &)) {
    auto table = planner::buildSchedule(in.plan.schedule, in.plan.pp, static_cast<int>(in.plan.microBatches),
                                        in.plan.virtualStages);
    std::vector<std::vector<std::vector<LayerCall>>> calls; // by stage and chunk
    for (int stage = 0; stage < in.plan.pp; ++stage)
      calls.push_back(callsOf(in.run, in.plan, stage));
    ListOptions options;
    options.everyChunkHasInputs = layersReadInputs();
    options.readsStreamAgain = [&](int stage, int chunk) { return readsStreamAgain(calls[stage][chunk].front()); };
    return lists(table, options);
  }

  uint32_t subprogram(const std::string &name) const {
    auto found = subprograms.find(name);
    return found == subprograms.end() ? 0 : found->second;
  }

  uint64_t reached(const Call &call, Role role, Region region) const {
    uint32_t program = call.programs(static_cast<int>(role));
    return program == 0 ? 0 : reach[program - 1][static_cast<size_t>(region)];
  }

  /// Returns whether a repeated layer reads inputs from the host, such as positions.
  bool layersReadInputs() const {
    const std::string &first = in.run.model.runs.front().kind, &last = in.run.model.runs.back().kind;
    for (auto [index, subprogram] : llvm::enumerate(out.subprograms())) {
      StringRef kind = StringRef(subprogram.name()).split('.').first;
      if (kind != first && kind != last && reach[index][static_cast<size_t>(Region::Inputs)] > 0)
        return true;
    }
    return false;
  }

  /// Returns whether the backward pass of a chunk's first call reads the received stream.
  bool readsStreamAgain(const LayerCall &call) const {
    auto reads = [&](const char *phase) {
      uint32_t program = subprogram(call.kind + "." + call.policy + phase);
      return program > 0 && reach[program - 1][static_cast<size_t>(Region::StreamIn)] > 0;
    };
    return subprogram(call.kind + "." + call.policy + ".backward") == 0 || reads(".backward") || reads(".weight");
  }

  void assign(int number, ArrayRef<std::vector<LayerCall>> chunks, const StageList &training) {
    Stage &stage = *out.add_stages();
    for (const std::vector<LayerCall> &calls : chunks)
      for (const LayerCall &call : calls)
        addCall(call, stage);
    addChunks(number, chunks, training, stage);
    PlaceBuilder places(stage, in.regions.guardBytes);
    bindParameters(stage, places);
    bindInputs(training, stage, places);
    bindActivations(chunks, training, stage, places);
    bindCommon(stage, places);
    addExchanges(stage, places);
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
    set(Role::Weight, call.policy + ".weight");
    set(Role::Evaluate, "evaluate");
    set(Role::Add, "add");
    set(Role::Norm, "norm");
    set(Role::Update, "update");
    for (const SegmentBucket &bucket : layouts.at(call.kind)->buckets) {
      BucketUse &use = *entry.add_buckets();
      use.set_bucket(bucket.number);
      use.set_owner(bucket.isTied ? 0 : call.layer); // the first segment owns a tied bucket
      use.set_updates(!bucket.isTiedHere);
    }
  }

  /// Adds one chunk per chunk of `list`, and one chunk for the call that runs once per step.
  void addChunks(int number, ArrayRef<std::vector<LayerCall>> chunks, const StageList &list, Stage &stage) {
    auto suffix = [&](int chunk) { return chunks.size() > 1 ? "." + std::to_string(chunk) : std::string(); };
    auto addLifetime = [&](const std::string &name, uint32_t slots, bool rotates) {
      Lifetime &lifetime = *stage.add_lifetimes();
      lifetime.set_name(name);
      lifetime.set_slots(slots);
      lifetime.set_rotates(rotates);
      return static_cast<uint32_t>(stage.lifetimes_size() - 1);
    };
    addLifetime("resident", 1, /*rotates=*/false);
    bool hasInputs =
        llvm::any_of(list.lifetimes, [](const StageLifetime &one) { return one.kind == LifetimeKind::Inputs; });
    uint32_t microBatches = in.trains ? static_cast<uint32_t>(in.plan.microBatches) : 1;
    staged = hasInputs ? addLifetime("staged", microBatches, /*rotates=*/true) : 0;
    auto layers = static_cast<uint32_t>(llvm::count_if(stage.calls(), [&](const Call &call) { return isLayer(call); }));
    bool hasWhole = llvm::any_of(in.segments, [](const SegmentLayout &one) { return one.wholeGradientBytes > 0; });
    wholeLayers = hasWhole && layers > 0 ? addLifetime("whole", std::min(layers, 2u), /*rotates=*/false) : 0;
    firstLifetime = static_cast<uint32_t>(stage.lifetimes_size());
    for (const StageLifetime &lifetime : list.lifetimes)
      addLifetime(nameOf(lifetime.kind) + suffix(lifetime.chunk), static_cast<uint32_t>(lifetime.slots),
                  /*rotates=*/true);
    uint32_t next = 0;
    for (auto [index, calls] : llvm::enumerate(chunks)) {
      const planner::StagePlan &part = in.plan.stages[planStage(in.plan, number, static_cast<int>(index))];
      Chunk &chunk = *stage.add_chunks();
      chunk.set_name("layers" + suffix(static_cast<int>(index)));
      chunk.set_first_call(next);
      chunk.set_calls(static_cast<uint32_t>(calls.size()));
      if (stage.layers() == 0)
        stage.set_first_layer(static_cast<uint32_t>(part.firstLayer));
      stage.set_layers(stage.layers() + static_cast<uint32_t>(part.layers));
      next += chunk.calls();
      if (wholeLayers)
        chunk.add_lifetimes(wholeLayers);
      if (lifetimeOf(list, index, LifetimeKind::Inputs))
        chunk.add_lifetimes(staged);
      for (int kind = 0; kind < kLifetimeKinds; ++kind)
        if (uint32_t lifetime = lifetimeOf(list, index, static_cast<LifetimeKind>(kind)))
          chunk.add_lifetimes(lifetime);
    }
    Call &step = *stage.add_calls();
    step.set_name("step");
    step.set_layer(-1);
    step.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
    step.set_programs(static_cast<int>(Role::Scalars), subprogram("step.scalars"));
    Chunk &last = *stage.add_chunks();
    last.set_name("step");
    last.set_first_call(next);
    last.set_calls(1);
  }

  /// Returns the stage's live range for one of `list`, or the resident live range if the chunk has none of this kind.
  uint32_t lifetimeOf(const StageList &list, size_t chunk, LifetimeKind kind) const {
    int lifetime = list.lifetimeOf(static_cast<int>(chunk), kind);
    return lifetime < 0 ? 0 : firstLifetime + static_cast<uint32_t>(lifetime);
  }

  /// Returns the segment layout of a call. The call's name starts with its segment kind.
  const SegmentLayout &layoutOf(const Call &call) const {
    return *layouts.at(StringRef(call.name()).split('.').first.str());
  }

  /// Returns whether the call is a repeated layer of the model: neither the first segment nor the last.
  bool isLayer(const Call &call) const {
    StringRef kind = StringRef(call.name()).split('.').first;
    return kind != in.run.model.runs.front().kind && kind != in.run.model.runs.back().kind && call.layer() >= 0;
  }

  /// Allocates the regions of parameters, gradients and state and binds them to calls. The first and the last call use
  /// one allocation if they have tied parameters. Gathered buffers have one allocation per segment kind.
  void bindParameters(Stage &stage, PlaceBuilder &places) {
    int calls = stage.calls_size() - 1;
    bool isShared = llvm::any_of(layoutOf(stage.calls(calls - 1)).buckets,
                                 [](const SegmentBucket &bucket) { return bucket.isTiedHere; });
    struct Class {
      Region region;
      const char *name;
      uint64_t SegmentLayout::*bytes;
      bool isWhole = false;
    };
    constexpr Class classes[] = {{Region::Parameters, "parameters", &SegmentLayout::parameterBytes},
                                 {Region::Gradients, "gradients", &SegmentLayout::gradientBytes},
                                 {Region::State, "optimizer", &SegmentLayout::stateBytes},
                                 {Region::WholeParameters, "whole", &SegmentLayout::wholeStoredBytes, true},
                                 {Region::WholeGradients, "whole", &SegmentLayout::wholeGradientBytes, true}};
    for (const Class &memory : ArrayRef(classes).take_front(in.trains ? std::size(classes) : 1)) {
      uint32_t first = 0;
      std::map<std::string, uint32_t> ofKind;
      for (int index = 0; index < calls; ++index) {
        Call &call = *stage.mutable_calls(index);
        const SegmentLayout &layout = layoutOf(call);
        uint64_t bytes = layout.*memory.bytes;
        if (bytes == 0)
          continue;
        bool sharesFirst = isShared && index + 1 == calls;
        auto known = memory.isWhole ? ofKind.find(layout.kind) : ofKind.end();
        uint32_t lifetime = memory.isWhole && isLayer(call) ? wholeLayers : 0;
        uint32_t place = sharesFirst             ? first
                         : known != ofKind.end() ? known->second
                                                 : places.take(bytes, lifetime, memory.name);
        ofKind[layout.kind] = place;
        if (index == 0)
          first = place;
        PlaceBuilder::bind(call, memory.region, place);
      }
    }
  }

  /// Allocates the inputs. Each chunk has its own ring slots, but the host staging buffer is allocated once.
  void bindInputs(const StageList &list, Stage &stage, PlaceBuilder &places) {
    std::optional<uint32_t> source;
    for (int chunk = 0; chunk + 1 < stage.chunks_size(); ++chunk) {
      uint32_t lifetime = lifetimeOf(list, chunk, LifetimeKind::Inputs);
      if (lifetime == 0)
        continue;
      uint32_t place = places.take(in.regions.inputBytes, lifetime, "inputs");
      int first = static_cast<int>(stage.chunks(chunk).first_call());
      for (int call = first; call < first + static_cast<int>(stage.chunks(chunk).calls()); ++call)
        PlaceBuilder::bind(*stage.mutable_calls(call), Region::Inputs, place);
      if (!source)
        source = places.exchanged(in.regions.inputBytes, staged);
      PlaceBuilder::bind(*stage.mutable_calls(first), Region::Staged, *source);
    }
  }

  uint64_t savedBytes(const LayerCall &call, Region region) const {
    auto found = in.regions.savedBytes.find({call.kind + "." + call.policy, exec::stringifyRegion(region).str()});
    return found == in.regions.savedBytes.end() ? 0 : found->second;
  }

  /// Returns whether the backward pass, or the weight-gradient pass after it, reads the received stream.
  bool keepsStream(const Call &call) const {
    return in.trains && (call.programs(static_cast<int>(Role::Backward)) == 0 ||
                         reached(call, Role::Backward, Region::StreamIn) > 0 || readsStreamLate(call));
  }
  bool readsStreamLate(const Call &call) const { return reached(call, Role::Weight, Region::StreamIn) > 0; }

  /// The values that a chunk saves per micro-batch in one live range: their allocation, and each call's offset in it.
  struct Kept {
    uint32_t place = 0;
    std::vector<uint64_t> offsets;
  };
  struct KeptKind {
    LifetimeKind lifetime;
    Region region;
  };
  static constexpr KeptKind keptKinds[] = {{LifetimeKind::Saved, Region::Saved},
                                           {LifetimeKind::SavedForWeights, Region::SavedForWeights},
                                           {LifetimeKind::SavedByBackward, Region::SavedByBackward}};

  /// The allocations of a chunk's streams, saved values and cotangents.
  struct ChunkPlaces {
    std::array<Kept, std::size(keptKinds)> kept; ///< by keptKinds
    std::vector<std::pair<uint32_t, uint64_t>>
        streams; ///< by call: allocation and offset of the stream that the call reads
    uint32_t received = 0, sent = 0, cotangentIn = 0, cotangentOut = 0; ///< buffers at the two ends of the chunk
  };

  ChunkPlaces takePlaces(size_t number, ArrayRef<LayerCall> calls, const StageList &list, const Stage &stage,
                         std::map<uint32_t, uint32_t> &borders, PlaceBuilder &places) {
    ChunkPlaces taken;
    uint64_t stream = alignUp(in.regions.streamBytes, in.regions.guardBytes);
    int first = static_cast<int>(stage.chunks(static_cast<int>(number)).first_call());
    taken.streams.resize(calls.size());
    for (auto [kind, kept] : llvm::zip_equal(keptKinds, taken.kept)) {
      uint64_t bytes = 0;
      std::vector<size_t> streams; // calls whose streams are in this allocation
      for (auto [i, call] : llvm::enumerate(calls)) {
        const Call &made = stage.calls(first + static_cast<int>(i));
        auto lifetime = readsStreamLate(made) ? LifetimeKind::SavedForWeights : LifetimeKind::Saved;
        if (i > 0 && keepsStream(made) && kind.lifetime == lifetime) { // the first call's stream has its own allocation
          streams.push_back(i);
          taken.streams[i].second = bytes;
          bytes += stream;
        }
        kept.offsets.push_back(bytes);
        bytes += savedBytes(call, kind.region);
      }
      if (bytes)
        kept.place = places.take(bytes, lifetimeOf(list, number, kind.lifetime), "activations");
      for (size_t i : streams)
        taken.streams[i].first = kept.place;
    }
    // Consecutive chunks on one stage use the same live range and allocation for the value that one passes to the next.
    auto border = [&](LifetimeKind kind, const char *memoryClass) {
      uint32_t lifetime = lifetimeOf(list, number, kind);
      if (lifetime == 0)
        return 0u;
      auto [place, isNew] = borders.try_emplace(lifetime, 0);
      if (isNew)
        place->second = places.take(in.regions.streamBytes, lifetime, memoryClass);
      return place->second;
    };
    taken.received = border(LifetimeKind::In, "activations");
    taken.sent = border(LifetimeKind::Out, "boundary");
    taken.cotangentOut = border(LifetimeKind::DOut, "boundary");
    taken.cotangentIn = border(LifetimeKind::DIn, "boundary");
    return taken;
  }

  void bindActivations(ArrayRef<std::vector<LayerCall>> chunks, const StageList &list, Stage &stage,
                       PlaceBuilder &places) {
    std::map<uint32_t, uint32_t> borders; // by live range
    std::vector<ChunkPlaces> taken;
    for (auto [number, calls] : llvm::enumerate(chunks))
      taken.push_back(takePlaces(number, calls, list, stage, borders, places));
    uint64_t bytes = in.regions.streamBytes;
    uint32_t cotangents[2] = {places.take(bytes, 0, "boundary"), places.take(bytes, 0, "boundary")};
    for (auto [number, calls] : llvm::enumerate(chunks))
      bindChunk(calls, static_cast<int>(stage.chunks(static_cast<int>(number)).first_call()), taken[number], cotangents,
                stage);
  }

  void bindChunk(ArrayRef<LayerCall> calls, int first, const ChunkPlaces &at, const uint32_t (&cotangents)[2],
                 Stage &stage) {
    int count = static_cast<int>(calls.size());
    auto bindStream = [&](Call &call, Region region, int i) { // binds the stream that call i reads
      if (i == 0)
        PlaceBuilder::bind(call, region, at.received);
      else if (keepsStream(stage.calls(first + i)))
        PlaceBuilder::bind(call, region, at.streams[i].first, at.streams[i].second);
      else
        PlaceBuilder::bind(call, region, cotangents[i % 2]);
    };
    for (int i = 0; i < count; ++i) {
      Call &call = *stage.mutable_calls(first + i);
      bool hasIn = i > 0 || at.received, hasOut = i + 1 < count || at.sent, isLast = i + 1 == count;
      for (auto [kind, kept] : llvm::zip_equal(keptKinds, at.kept))
        if (savedBytes(calls[i], kind.region))
          PlaceBuilder::bind(call, kind.region, kept.place, kept.offsets[i]);
      if (hasIn) {
        bindStream(call, Region::StreamIn, i);
      }
      if (hasIn && in.trains)
        PlaceBuilder::bind(call, Region::CotangentIn, i == 0 ? at.cotangentIn : cotangents[i % 2]);
      if (hasOut && isLast)
        PlaceBuilder::bind(call, Region::StreamOut, at.sent);
      else if (hasOut)
        bindStream(call, Region::StreamOut, i + 1);
      if (hasOut && in.trains)
        PlaceBuilder::bind(call, Region::CotangentOut, isLast ? at.cotangentOut : cotangents[(i + 1) % 2]);
    }
  }

  /// Allocates the workspace and the scalars, which all calls use.
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
    auto takesInputs = [](const Call &call) {
      return llvm::any_of(call.bindings(), [](const Binding &binding) {
        return binding.region() == static_cast<uint32_t>(Region::Staged);
      });
    };
    auto reader = llvm::find_if(stage.calls(), takesInputs);
    auto add = [&](const std::string &name, uint32_t call, const Buffer &buffer, bool isFilled) -> Exchange & {
      Exchange &exchange = *stage.add_exchanges();
      exchange.set_name(name);
      exchange.set_call(call);
      *exchange.mutable_buffer() = buffer;
      exchange.set_filled_by_host(isFilled);
      for (int entry = 0; entry < out.entries_size(); ++entry)
        exchange.add_entries(static_cast<uint32_t>(entry));
      return exchange;
    };
    for (const Buffer &buffer : inputs.from()) {
      if (reader == stage.calls().end())
        break;
      Exchange &exchange = add(out.values(static_cast<int>(buffer.value())).name(),
                               static_cast<uint32_t>(reader - stage.calls().begin()), buffer, /*isFilled=*/true);
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
  std::vector<std::vector<uint64_t>> reach;     ///< access extent by subprogram and region
  std::vector<std::vector<GradientTerm>> terms; ///< by subprogram
  std::map<std::string, const SegmentLayout *> layouts;
  /// Live ranges of the current stage: the first one of the list, the one of host staging buffers, and the one of
  /// gathered layers.
  uint32_t firstLifetime = 1, staged = 0, wholeLayers = 0;
};

} // namespace

void assignStages(const StageInputs &inputs, Plan &out) { StageAssigner(inputs, out).assign(); }

void expandStages(const StageInputs &inputs, Plan &out) { StageAssigner(inputs, out).addLists(); }

} // namespace espalier
