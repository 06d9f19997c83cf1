// Builds the stages of a generation plan: arenas, layer calls and instruction streams. Every value is resident or dies
// with its entry, so each allocation has one slot.
#include "compiler/layout/stage_calls.h"
#include "compiler/link/add_transfers.h"
#include "compiler/link/bind_parameters.h"
#include "compiler/link/generation.h"
#include "compiler/link/program_extents.h"
#include "dialects/exec/dialect.h"

using namespace mlir;

namespace espalier {

using namespace rt::pb;
using exec::Region;
using exec::Role;

namespace {

constexpr Role roles[] = {Role::Prefill, Role::Decode};
constexpr uint32_t resident = 0; ///< live range of all allocations

/// Builds one stage without its instruction streams.
class StageBuilder {
public:
  StageBuilder(const GenerationInputs &in, int number, const Plan &plan, const ProgramExtents &extents, Stage &stage)
      : in(in), plan(plan), extents(extents), stage(stage), places(stage, in.regions.guardBytes), isFirst(number == 0),
        isLast(number + 1 == in.plan.pp), layers(callsOf(in.runs, in.plan, number).front()) {
    stage.set_first_layer(in.plan.stages[number].firstLayer);
    stage.set_layers(in.plan.stages[number].layers);
    Lifetime &lifetime = *stage.add_lifetimes();
    lifetime.set_name("resident");
    lifetime.set_slots(1);
  }

  void build() {
    for (const LayerCall &layer : layers)
      addCall(layer);
    Chunk &chunk = *stage.add_chunks();
    chunk.set_name("layers");
    chunk.set_calls(static_cast<uint32_t>(layers.size()));
    bindParameters(in.module, /*trains=*/false, [](const Call &) { return resident; }, stage, places);
    bindCaches();
    bindStreams();
    bindShared();
    addExchanges();
  }

private:
  Call &call(size_t index) { return *stage.mutable_calls(static_cast<int>(index)); }
  size_t last() const { return layers.size() - 1; }

  void addCall(const LayerCall &layer) {
    Call &made = addLayerCall(layer, in.module, stage);
    for (Role role : roles)
      made.set_programs(static_cast<int>(role), extents.find(layer.kind + "." + exec::stringifyRole(role).str()));
  }

  uint32_t take(uint64_t bytes, const char *memoryClass) { return places.take(bytes, resident, memoryClass); }

  static void bind(Call &call, Region region, uint32_t place) { PlaceBuilder::bind(call, region, place); }

  void bindCaches() {
    for (auto [index, layer] : llvm::enumerate(layers))
      if (auto bytes = in.regions.cacheBytes.find(layer.kind); bytes != in.regions.cacheBytes.end())
        bind(call(index), Region::Cache, take(bytes->second, "cache"));
  }

  /// Allocates the streams. Layer calls inside the stage alternate between two buffers.
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

  /// Allocates workspace, inputs and results, which all calls use.
  void bindShared() {
    uint32_t workspace = take(extents.largest(stage, Region::Workspace), "workspace");
    uint32_t inputs = take(in.regions.inputBytes, "inputs");
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
    if (uint32_t replicas = sampleAxisBits(in.plan); replicas != 0 && exchange.split().empty())
      exchange.add_split(replicas);
    exchange.add_entries(static_cast<uint32_t>(entry));
  }

  const GenerationInputs &in;
  const Plan &plan;
  const ProgramExtents &extents;
  Stage &stage;
  PlaceBuilder places;
  const bool isFirst, isLast;
  const std::vector<LayerCall> layers;
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

void buildGenerationStages(const GenerationInputs &inputs, Plan &out) {
  ProgramExtents extents(out);
  for (int number = 0; number < inputs.plan.pp; ++number) {
    Stage &stage = *out.add_stages();
    StageBuilder(inputs, number, out, extents, stage).build();
    for (auto [transfers, role] : llvm::zip_equal(inputs.transfers, roles))
      addList(transfers, role, number == 0, number + 1 == inputs.plan.pp, stage);
  }
}

} // namespace espalier
