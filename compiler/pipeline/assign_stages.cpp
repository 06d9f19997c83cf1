// The arena of a stage, in order: parameters, gradients, optimizer state, input slots, what is kept per micro-batch in
// flight (slot by slot: each call's incoming stream, then its saved values), the buffers at the stage's borders, the
// workspace that all subprograms share, scalars. A call writes its stream straight into the next call's saved stream. A
// stream that backward does not read is not kept: forward passes it on in the two buffers that the cotangents take
// turns in later.
#include "compiler/pipeline/assign_stages.h"

#include "compiler/pipeline/expand_schedule.h"
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

/// Hands out places of the arena and sums them by memory class.
class ArenaBuilder {
public:
  ArenaBuilder(Stage &stage, uint64_t guard) : stage(stage), guard(guard) {}

  uint64_t take(uint64_t bytes, const char *memoryClass) {
    uint64_t base = size;
    uint64_t taken = alignUp(bytes, guard);
    size += taken;
    for (MemoryClass &entry : *stage.mutable_memory())
      if (entry.name() == memoryClass) {
        entry.set_bytes(entry.bytes() + taken);
        return base;
      }
    MemoryClass *entry = stage.add_memory();
    entry->set_name(memoryClass);
    entry->set_bytes(taken);
    return base;
  }

  uint64_t size = 0;

private:
  Stage &stage;
  uint64_t guard;
};

Binding binding(Region region, uint64_t base, uint64_t stride, uint64_t bytes) {
  Binding result;
  result.set_region(region);
  result.set_base(base);
  result.set_slot_stride(stride);
  result.set_bytes(bytes);
  return result;
}

class StageAssigner {
public:
  StageAssigner(const StageInputs &in, Plan &out) : in(in), out(out) {
    for (auto [index, subprogram] : llvm::enumerate(out.subprograms()))
      subprograms[subprogram.name()] = index + 1;
    for (const SegmentLayout &segment : in.segments)
      layouts[segment.kind] = &segment;
    table = planner::buildSchedule(in.plan.schedule, in.plan.pp, in.plan.microBatches, in.plan.virtualStages);
  }

  void run() {
    for (int stage = 0; stage < in.plan.pp; ++stage)
      assign(stage);
  }

private:
  uint32_t subprogram(const std::string &name) const {
    auto found = subprograms.find(name);
    return found == subprograms.end() ? 0 : found->second;
  }

  void assign(int number) {
    Stage &stage = *out.add_stages();
    stage.set_first_layer(in.plan.stages[number].firstLayer);
    stage.set_layers(in.plan.stages[number].layers);
    uint32_t slots = std::max(1, planner::peakInFlight(table, number));
    stage.set_slots(slots);
    std::vector<LayerCall> calls = callsOf(in.run, in.plan, number);
    for (const LayerCall &call : calls)
      addCall(call, number, stage);
    ArenaBuilder arena(stage, in.regions.guardBytes);
    bindParameters(calls, stage, arena);
    bindInputs(stage, slots, arena);
    bindActivations(calls, number, stage, slots, arena);
    bindWorkspace(stage, arena);
    stage.set_arena_bytes(arena.size);
    expandSchedule(table, number, slots, stage);
  }

  void addCall(const LayerCall &call, int number, Stage &stage) {
    Call &entry = *stage.add_calls();
    entry.set_segment(call.kind);
    entry.set_layer(call.layer);
    entry.set_forward(subprogram(call.kind + "." + call.policy + ".forward"));
    entry.set_backward(subprogram(call.kind + "." + call.policy + ".backward"));
    entry.set_evaluate(subprogram(call.kind + ".evaluate"));
    entry.set_reduce_gradients(subprogram(call.kind + ".reduce_gradients"));
    entry.set_squared_norm(subprogram(call.kind + ".squared_norm"));
    entry.set_optimizer(subprogram(call.kind + ".optimizer"));
    const SegmentLayout &layout = *layouts.at(call.kind);
    for (const SegmentParameter &parameter : layout.parameters) {
      ParameterSlot &slot = *entry.add_parameters();
      slot.set_parameter(parameterIndex(call, parameter, number));
      slot.set_parameter_offset(parameter.parameterOffset);
      slot.set_gradient_offset(parameter.gradientOffset);
      slot.set_state_offset(parameter.stateOffset);
      slot.set_local_elements(parameter.localElements);
      slot.set_state_elements(parameter.isTiedHere ? 0 : parameter.stateElements);
      slot.set_master(layout.master);
    }
  }

  /// Index in the parameter table; enters the parameter, or this stage as one more holder of a tied one.
  uint32_t parameterIndex(const LayerCall &call, const SegmentParameter &parameter, int stage) {
    const ParameterDescription &description = *parameter.description;
    std::string layer = call.index < 0 ? "" : std::to_string(call.index) + ".";
    std::string name = description.tiedTo.empty() ? call.kind + "." + layer + description.name : description.tiedTo;
    auto [found, isNew] = parameters.try_emplace(name, out.parameters_size());
    if (isNew)
      describe(name, parameter, *out.add_parameters());
    Parameter &entry = *out.mutable_parameters(found->second);
    if (!llvm::is_contained(entry.stages(), static_cast<uint32_t>(stage)))
      entry.add_stages(stage);
    return found->second;
  }

  void describe(const std::string &name, const SegmentParameter &parameter, Parameter &entry) const {
    const ParameterDescription &description = *parameter.description;
    entry.set_name(name);
    for (const std::string &dim : description.dims)
      entry.add_shape(in.run.model.dims.at(dim));
    for (int64_t size : parameter.paddedShape)
      entry.add_padded_shape(size);
    for (const Axes &axes : parameter.sharding.dims) {
      ShardedDim &dim = *entry.add_dims();
      for (StringAttr axis : axes)
        dim.add_axes(axis.str());
    }
    DType type = in.run.dtypes.parameters;
    entry.set_type(type == DType::F32 ? F32 : type == DType::BF16 ? BF16 : F16);
    entry.mutable_initialization()->set_kind(
        static_cast<Initialization::Kind>(static_cast<int>(description.initializer.kind)));
    entry.mutable_initialization()->set_stddev(description.initializer.stddev);
    entry.set_decay(description.decay);
    for (StringAttr axis : parameter.partialAxes)
      entry.add_partial_axes(axis.str());
    entry.set_norm_weight(1.0 / parameter.replicas);
  }

  /// Segments that share tied parameters on this stage share one region.
  void bindParameters(ArrayRef<LayerCall> calls, Stage &stage, ArenaBuilder &arena) {
    bool isShared = in.plan.pp == 1 && llvm::any_of(layouts.at(calls.back().kind)->parameters,
                                                    [](const SegmentParameter &p) { return p.isTiedHere; });
    struct Class {
      Region region;
      const char *name;
      uint64_t SegmentLayout::*bytes;
    };
    for (Class memory : {Class{PARAMETERS, "parameters", &SegmentLayout::parameterBytes},
                         Class{GRADIENTS, "gradients", &SegmentLayout::gradientBytes},
                         Class{STATE, "optimizer", &SegmentLayout::stateBytes}}) {
      uint64_t first = 0;
      for (auto [index, call] : llvm::enumerate(calls)) {
        uint64_t bytes = layouts.at(call.kind)->*memory.bytes;
        bool sharesFirst = isShared && index + 1 == calls.size();
        uint64_t base = sharesFirst ? first : arena.take(bytes, memory.name);
        if (index == 0)
          first = base;
        *stage.mutable_calls(index)->add_bindings() = binding(memory.region, base, 0, bytes);
      }
    }
  }

  void bindInputs(Stage &stage, uint32_t slots, ArenaBuilder &arena) {
    for (const char *name : {"tokens", "positions", "labels", "loss_weights"}) {
      InputBuffer &input = *stage.add_inputs();
      input.set_name(name);
      input.set_offset(in.regions.inputOffsets.at(name));
      input.set_bytes(in.regions.oneInputBytes);
      input.set_type(StringRef(name) == "loss_weights" ? F32 : I32);
    }
    uint64_t bytes = in.regions.inputBytes;
    *stage.mutable_inputs_binding() = binding(INPUTS, arena.take(bytes * slots, "inputs"), bytes, bytes);
  }

  uint64_t savedBytes(const LayerCall &call) const {
    auto found = in.regions.savedBytes.find(call.kind + "." + call.policy);
    return found == in.regions.savedBytes.end() ? 0 : found->second;
  }

  /// Whether backward reads the stream that came in.
  bool keepsStream(const Call &call) const {
    return call.backward() == 0 || out.subprograms(call.backward() - 1).region_bytes(STREAM_IN) > 0;
  }

  void bindActivations(ArrayRef<LayerCall> calls, int number, Stage &stage, uint32_t slots, ArenaBuilder &arena) {
    uint64_t stream = alignUp(in.regions.streamBytes, in.regions.guardBytes), bytes = in.regions.streamBytes;
    bool isFirst = number == 0, isLast = number + 1 == in.plan.pp;
    uint64_t slotBytes = 0;
    std::vector<uint64_t> streamOffset, savedOffset;
    for (auto [index, call] : llvm::enumerate(calls)) {
      streamOffset.push_back(slotBytes);
      bool hasNone = isFirst && index == 0; // embed
      slotBytes += hasNone || !keepsStream(stage.calls(index)) ? 0 : stream;
      savedOffset.push_back(slotBytes);
      slotBytes += savedBytes(call);
    }
    uint64_t kept = arena.take(slotBytes * slots, "activations");
    uint64_t send = isLast ? 0 : arena.take(stream * slots, "boundary");
    uint64_t receiveBackward = isLast ? 0 : arena.take(stream, "boundary");
    uint64_t sendBackward = isFirst ? 0 : arena.take(stream, "boundary");
    uint64_t cotangents[2] = {arena.take(stream, "boundary"), arena.take(stream, "boundary")};

    auto streamIn = [&](size_t i) {
      return keepsStream(stage.calls(i)) ? binding(STREAM_IN, kept + streamOffset[i], slotBytes, bytes)
                                         : binding(STREAM_IN, cotangents[i % 2], 0, bytes);
    };
    size_t count = calls.size();
    for (size_t i = 0; i < count; ++i) {
      Call &call = *stage.mutable_calls(i);
      bool hasIn = !(isFirst && i == 0), hasOut = !(isLast && i + 1 == count);
      if (savedBytes(calls[i]))
        *call.add_bindings() = binding(SAVED, kept + savedOffset[i], slotBytes, savedBytes(calls[i]));
      if (hasIn) {
        *call.add_bindings() = streamIn(i);
        *call.add_bindings() = binding(COTANGENT_IN, i == 0 ? sendBackward : cotangents[i % 2], 0, bytes);
      }
      if (hasOut) {
        bool sends = i + 1 == count;
        Binding next = sends ? binding(STREAM_OUT, send, stream, bytes) : streamIn(i + 1);
        next.set_region(STREAM_OUT);
        *call.add_bindings() = next;
        *call.add_bindings() = binding(COTANGENT_OUT, sends ? receiveBackward : cotangents[(i + 1) % 2], 0, bytes);
      }
    }
    if (!isFirst) {
      *stage.mutable_receive_forward() = streamIn(0);
      *stage.mutable_send_backward() = binding(COTANGENT_IN, sendBackward, 0, bytes);
    }
    if (!isLast) {
      *stage.mutable_send_forward() = binding(STREAM_OUT, send, stream, bytes);
      *stage.mutable_receive_backward() = binding(COTANGENT_OUT, receiveBackward, 0, bytes);
    }
  }

  void bindWorkspace(Stage &stage, ArenaBuilder &arena) {
    uint64_t bytes = 0;
    for (const Call &call : stage.calls())
      for (uint32_t index : {call.forward(), call.backward(), call.evaluate(), call.reduce_gradients(),
                             call.squared_norm(), call.optimizer()})
        if (index)
          bytes = std::max(bytes, out.subprograms(index - 1).workspace_bytes());
    uint64_t base = arena.take(bytes, "workspace");
    for (Call &call : *stage.mutable_calls())
      *call.add_bindings() = binding(WORKSPACE, base, 0, bytes);
    uint64_t scalars = rt::ScalarSlotCount * 4;
    *stage.mutable_scalars_binding() = binding(SCALARS, arena.take(scalars, "scalars"), 0, scalars);
  }

  const StageInputs &in;
  Plan &out;
  std::map<std::string, uint32_t> subprograms;
  std::map<std::string, const SegmentLayout *> layouts;
  std::map<std::string, uint32_t> parameters;
  planner::ScheduleTable table;
};

} // namespace

void assignStages(const StageInputs &inputs, Plan &out) { StageAssigner(inputs, out).run(); }

} // namespace espalier
