// Builds the stages of a generation plan: arenas, calls and schedules. Every value is resident or dies with its entry,
// so each allocation has one slot.
#include "compiler/layout/stage_calls.h"
#include "compiler/link/generation.h"
#include "compiler/link/place_builder.h"
#include "dialects/exec/dialect.h"

#include <map>

using namespace mlir;

namespace espalier {

using namespace rt::pb;
using exec::Region;
using exec::Role;

namespace {

constexpr Role roles[] = {Role::Prefill, Role::Decode};
constexpr uint32_t resident = 0; ///< live range of all allocations

/// Builds one stage without its schedules.
class StageBuilder {
public:
  StageBuilder(const GenerationInputs &in, int number, const Plan &plan, Stage &stage)
      : in(in), plan(plan), stage(stage), places(stage, in.regions.guardBytes), isFirst(number == 0),
        isLast(number + 1 == in.plan.pp), layers(callsOf(in.run, in.plan, number).front()) {
    stage.set_first_layer(in.plan.stages[number].firstLayer);
    stage.set_layers(in.plan.stages[number].layers);
    Lifetime &lifetime = *stage.add_lifetimes();
    lifetime.set_name("resident");
    lifetime.set_slots(1);
    for (const SegmentLayout &segment : in.segments)
      layouts[segment.kind] = &segment;
    for (auto [index, subprogram] : llvm::enumerate(plan.subprograms()))
      if (!subprogram.instructions().empty())
        subprograms[subprogram.name()] = index + 1;
  }

  void build() {
    for (const LayerCall &layer : layers)
      addCall(layer);
    Chunk &chunk = *stage.add_chunks();
    chunk.set_name("layers");
    chunk.set_calls(static_cast<uint32_t>(layers.size()));
    bindParameters();
    bindCaches();
    bindStreams();
    bindShared();
    addExchanges();
  }

private:
  Call &call(size_t index) { return *stage.mutable_calls(static_cast<int>(index)); }
  size_t last() const { return layers.size() - 1; }

  void addCall(const LayerCall &layer) {
    Call &made = *stage.add_calls();
    made.set_name(layer.kind + (layer.index < 0 ? "" : "." + std::to_string(layer.index)));
    made.set_layer(static_cast<int32_t>(layer.layer));
    made.mutable_programs()->Resize(static_cast<int>(exec::getMaxEnumValForRole()) + 1, 0);
    for (Role role : roles)
      if (auto found = subprograms.find(layer.kind + "." + exec::stringifyRole(role).str()); found != subprograms.end())
        made.set_programs(static_cast<int>(role), found->second);
    for (const SegmentBucket &bucket : layouts.at(layer.kind)->buckets) {
      BucketUse &use = *made.add_buckets();
      use.set_bucket(bucket.number);
      use.set_owner(bucket.isTied ? 0 : layer.layer); // the first segment owns a tied bucket
      use.set_updates(!bucket.isTiedHere);
    }
  }

  uint32_t take(uint64_t bytes, const char *memoryClass) { return places.take(bytes, resident, memoryClass); }

  static void bind(Call &call, Region region, uint32_t place) { PlaceBuilder::bind(call, region, place); }

  /// Allocates parameters. The first and the last call use one allocation if they have tied parameters.
  void bindParameters() {
    bool isShared = llvm::any_of(layouts.at(layers.back().kind)->buckets,
                                 [](const SegmentBucket &bucket) { return bucket.isTiedHere; });
    uint32_t first = 0;
    for (auto [index, layer] : llvm::enumerate(layers)) {
      uint64_t bytes = layouts.at(layer.kind)->parameterBytes;
      if (bytes == 0)
        continue;
      uint32_t place = isShared && index == last() ? first : take(bytes, "parameters");
      if (index == 0)
        first = place;
      bind(call(index), Region::Parameters, place);
    }
  }

  void bindCaches() {
    for (auto [index, layer] : llvm::enumerate(layers))
      if (auto bytes = in.regions.cacheBytes.find(layer.kind); bytes != in.regions.cacheBytes.end())
        bind(call(index), Region::Cache, take(bytes->second, "cache"));
  }

  /// Allocates the streams. Calls inside the stage alternate between two buffers.
  void bindStreams() {
    uint64_t bytes = in.regions.streamBytes;
    uint32_t inside[2] = {take(bytes, "activations"), take(bytes, "activations")};
    for (size_t i = 0; i < layers.size(); ++i) {
      if (i > 0)
        bind(call(i), Region::StreamIn, inside[i % 2]);
      else if (!isFirst)
        bind(call(i), Region::StreamIn, take(bytes, "boundary"));
      if (i < last())
        bind(call(i), Region::StreamOut, inside[(i + 1) % 2]);
      else if (!isLast)
        bind(call(i), Region::StreamOut, take(bytes, "boundary"));
    }
  }

  /// Returns a subprogram's access extent in the workspace, in bytes.
  uint64_t workspaceBytes(const Subprogram &program) const {
    uint64_t bytes = 0;
    auto visit = [&](const auto &buffers) {
      for (const Buffer &buffer : buffers)
        if (buffer.region() == static_cast<uint32_t>(Region::Workspace))
          bytes = std::max(bytes, buffer.offset() + buffer.bytes());
    };
    for (const Instruction &instruction : program.instructions()) {
      visit(instruction.launch().buffers());
      visit(instruction.call().buffers());
      if (!instruction.has_start())
        continue;
      visit(plan.transfers(static_cast<int>(instruction.start())).from());
      visit(plan.transfers(static_cast<int>(instruction.start())).to());
    }
    for (const Guard &guard : program.guards())
      bytes = std::max(bytes, guard.offset() + plan.guard_bytes());
    return bytes;
  }

  /// Allocates workspace, inputs and results, which all calls use.
  void bindShared() {
    uint64_t bytes = 0;
    for (const Call &made : stage.calls())
      for (uint32_t program : made.programs())
        if (program > 0)
          bytes = std::max(bytes, workspaceBytes(plan.subprograms(static_cast<int>(program) - 1)));
    uint32_t workspace = take(bytes, "workspace"), inputs = take(in.regions.inputBytes, "inputs");
    for (Call &made : *stage.mutable_calls()) {
      bind(made, Region::Workspace, workspace);
      bind(made, Region::Inputs, inputs);
    }
    bind(call(0), Region::Staged, places.exchanged(in.regions.inputBytes, resident));
    if (!isLast)
      return;
    bind(call(last()), Region::Logits, take(in.regions.logitsBytes, "logits"));
    bind(call(last()), Region::Results, places.exchanged(in.regions.logitsBytes, resident));
  }

  const Transfer &transfer(int64_t number) const { return plan.transfers(static_cast<int>(number)); }

  void addExchanges() {
    for (size_t entry = 0; isLast && entry < in.transfers.size(); ++entry)
      addExchange("logits", last(), transfer(in.transfers[entry].logits).to(0), entry);
    for (auto [entry, transfers] : llvm::enumerate(in.transfers))
      for (const Buffer &buffer : transfer(transfers.inputs).from())
        addExchange(plan.values(static_cast<int>(buffer.value())).name(), 0, buffer, entry);
  }

  /// Adds a host staging buffer, or adds an entry to it if it already exists.
  void addExchange(const std::string &name, size_t index, const Buffer &buffer, size_t entry) {
    auto known = llvm::find_if(*stage.mutable_exchanges(), [&](const Exchange &e) { return e.name() == name; });
    Exchange &exchange = known == stage.mutable_exchanges()->end() ? *stage.add_exchanges() : *known;
    exchange.set_name(name);
    exchange.set_call(static_cast<uint32_t>(index));
    *exchange.mutable_buffer() = buffer;
    exchange.set_filled_by_host(buffer.region() == static_cast<uint32_t>(Region::Staged));
    if (uint32_t replicas = (in.plan.dp > 1 ? exec::axisBit("dp") : 0) | (in.plan.ep > 1 ? exec::axisBit("ep") : 0);
        replicas != 0 && exchange.split().empty())
      exchange.add_split(replicas);
    exchange.add_entries(static_cast<uint32_t>(entry));
  }

  const GenerationInputs &in;
  const Plan &plan;
  Stage &stage;
  PlaceBuilder places;
  const bool isFirst, isLast;
  const std::vector<LayerCall> layers;
  std::map<std::string, const SegmentLayout *> layouts;
  std::map<std::string, uint32_t> subprograms;
};

/// Adds the schedule of one entry: receive inputs and stream, RUN, then send the stream or the logits. Each transfer is
/// waited for immediately after its START.
void addList(const PhaseTransfers &transfers, Role role, bool isFirst, bool isLast, Stage &stage) {
  uint32_t calls = stage.chunks(0).calls();
  Block &block = *stage.add_entries()->add_blocks();
  block.set_rounds(1);
  auto move = [&](std::initializer_list<std::pair<int64_t, uint32_t>> flights) {
    Start &start = *block.add_actions()->mutable_start();
    for (auto [number, call] : flights) {
      Flight &flight = *start.add_flights();
      flight.set_transfer(static_cast<uint32_t>(number));
      flight.set_call(call);
    }
    *block.add_actions()->mutable_wait()->mutable_flights() = start.flights();
  };
  if (isFirst)
    move({{transfers.inputs, 0}});
  else
    move({{transfers.inputs, 0}, {transfers.in, 0}});
  Run &run = *block.add_actions()->mutable_run();
  run.set_role(static_cast<uint32_t>(role));
  run.set_calls(calls);
  move({{isLast ? transfers.logits : transfers.out, calls - 1}});
}

} // namespace

void assignGeneration(const GenerationInputs &inputs, Plan &out) {
  for (int stage = 0; stage < inputs.plan.pp; ++stage)
    StageBuilder(inputs, stage, out, *out.add_stages()).build();
}

void expandGeneration(const GenerationInputs &inputs, Plan &out) {
  for (int stage = 0; stage < inputs.plan.pp; ++stage)
    for (auto [transfers, role] : llvm::zip_equal(inputs.transfers, roles))
      addList(transfers, role, stage == 0, stage + 1 == inputs.plan.pp, *out.mutable_stages(stage));
}

} // namespace espalier
