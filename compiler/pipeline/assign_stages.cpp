// The device arena of a stage, in order: parameters, gradients, optimizer state, what of parameters and gradients is
// whole for a while (of embedding and head, and of two layers of each kind that calls take turns in), input slots,
// chunk by chunk what is kept per micro-batch in flight (slot by slot: each call's incoming stream, then its saved
// values) and the buffers at its borders, the two cotangents that calls take turns in, the workspace that all
// subprograms share, scalars. A call writes its stream straight into the next call's saved stream. A stream that
// backward does not read is not kept: forward passes it on in the two buffers of the cotangents. Where a stage has
// neighbouring chunks (the turn of a V) the one writes straight into what the other receives. The host arena has what
// is exchanged with the host, twice. A plan that only evaluates has parameters, inputs, streams, workspace and scalars.
#include "compiler/pipeline/assign_stages.h"

#include "compiler/pipeline/fold_rounds.h"
#include "compiler/pipeline/place_builder.h"
#include "compiler/pipeline/stage_calls.h"
#include "compiler/pipeline/stage_lists.h"
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
  /// The lists of all stages, of a training step or of an evaluation.
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

  /// Whether the backward of a chunk's first call reads the stream that came in.
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
      use.set_owner(bucket.isTied ? 0 : call.layer); // the first segment owns what is tied
      use.set_updates(!bucket.isTiedHere);
    }
  }

  /// A chunk for each one of the list, and one for what is once per step.
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

  /// The stage's lifetime for one of the list's; the resident one where the chunk has none.
  uint32_t lifetimeOf(const StageList &list, size_t chunk, LifetimeKind kind) const {
    int lifetime = list.lifetimeOf(static_cast<int>(chunk), kind);
    return lifetime < 0 ? 0 : firstLifetime + static_cast<uint32_t>(lifetime);
  }

  /// The kind of a call, and its segment's layout.
  const SegmentLayout &layoutOf(const Call &call) const {
    return *layouts.at(StringRef(call.name()).split('.').first.str());
  }

  /// Of the model's that repeat: neither the first segment nor the last.
  bool isLayer(const Call &call) const {
    StringRef kind = StringRef(call.name()).split('.').first;
    return kind != in.run.model.runs.front().kind && kind != in.run.model.runs.back().kind && call.layer() >= 0;
  }

  /// Segments that share tied parameters on this stage share one region: the first call's and the last's. What is whole
  /// for a while has one place for all layers of a kind.
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

  /// Each chunk has slots of its own; what the host stages is there once.
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

  /// Whether backward, or the gradients of weights behind it, read the stream that came in.
  bool keepsStream(const Call &call) const {
    return in.trains && (call.programs(static_cast<int>(Role::Backward)) == 0 ||
                         reached(call, Role::Backward, Region::StreamIn) > 0 || readsStreamLate(call));
  }
  bool readsStreamLate(const Call &call) const { return reached(call, Role::Weight, Region::StreamIn) > 0; }

  /// What a chunk keeps of a micro-batch in one lifetime: bytes of a slot, and by call where its values lie.
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

  /// Where the streams, the saved values and the cotangents of a chunk lie.
  struct ChunkPlaces {
    std::array<Kept, std::size(keptKinds)> kept;                        ///< by keptKinds
    std::vector<std::pair<uint32_t, uint64_t>> streams;                 ///< by call: place and offset of what it reads
    uint32_t received = 0, sent = 0, cotangentIn = 0, cotangentOut = 0; ///< of the chunk's both ends
  };

  ChunkPlaces takePlaces(size_t number, ArrayRef<LayerCall> calls, const StageList &list, const Stage &stage,
                         std::map<uint32_t, uint32_t> &borders, PlaceBuilder &places) {
    ChunkPlaces taken;
    uint64_t stream = alignUp(in.regions.streamBytes, in.regions.guardBytes);
    int first = static_cast<int>(stage.chunks(static_cast<int>(number)).first_call());
    taken.streams.resize(calls.size());
    for (auto [kind, kept] : llvm::zip_equal(keptKinds, taken.kept)) {
      uint64_t bytes = 0;
      std::vector<size_t> streams; // calls whose streams lie here
      for (auto [i, call] : llvm::enumerate(calls)) {
        const Call &made = stage.calls(first + static_cast<int>(i));
        auto lifetime = readsStreamLate(made) ? LifetimeKind::SavedForWeights : LifetimeKind::Saved;
        if (i > 0 && keepsStream(made) && kind.lifetime == lifetime) { // the first one's has a place of its own
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
    // Neighbouring chunks share the lifetime of what the one hands to the other, and its place.
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
    std::map<uint32_t, uint32_t> borders; // by lifetime
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
    auto bindStream = [&](Call &call, Region region, int i) { // the stream that call i reads
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
  std::vector<std::vector<uint64_t>> reach;     ///< by subprogram and region
  std::vector<std::vector<GradientTerm>> terms; ///< by subprogram
  std::map<std::string, const SegmentLayout *> layouts;
  /// Of the list's, of what the host stages and of what is whole of a layer for a while, in the stage at hand.
  uint32_t firstLifetime = 1, staged = 0, wholeLayers = 0;
};

} // namespace

void assignStages(const StageInputs &inputs, Plan &out) { StageAssigner(inputs, out).assign(); }

void expandStages(const StageInputs &inputs, Plan &out) { StageAssigner(inputs, out).addLists(); }

} // namespace espalier
