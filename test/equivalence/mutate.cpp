#include "test/equivalence/mutate.h"

#include <algorithm>

namespace espalier {
namespace {

namespace pb = rt::pb;

class Mutation {
public:
  Mutation(pb::Plan &plan, std::mt19937 &random) : plan(plan), random(random) {}

  std::string apply();

private:
  size_t below(size_t bound) { return bound ? random() % bound : 0; }
  template <typename List> auto *any(List *list) { return list->Mutable(static_cast<int>(below(list->size()))); }

  /// Drops, doubles or swaps an entry with its neighbour.
  template <typename List> std::string shuffle(List *list, const std::string &name) {
    if (list->empty())
      return "";
    int i = static_cast<int>(below(list->size()));
    switch (below(3)) {
    case 0:
      list->DeleteSubrange(i, 1);
      return name + ".drop";
    case 1:
      *list->Add() = list->Get(i);
      for (int j = list->size() - 1; j > i + 1; --j)
        list->SwapElements(j, j - 1);
      return name + ".double";
    default:
      if (i + 1 == list->size())
        return "";
      list->SwapElements(i, i + 1);
      return name + ".swap";
    }
  }

  std::string action();
  std::string instruction();
  std::string buffer();
  std::string collective();
  std::string launch();
  std::string libraryCall();
  std::string place();
  std::string slot();
  std::string parameter();
  std::string call();

  pb::Subprogram *anySubprogram() { return any(plan.mutable_subprograms()); }
  template <typename Has> pb::Instruction *anyInstruction(Has has);
  pb::BufferRef *anyBuffer(pb::Instruction *instruction);

  pb::Plan &plan;
  std::mt19937 &random;
};

std::string Mutation::apply() {
  switch (below(14)) {
  case 0:
  case 1:
    return action();
  case 2:
    return instruction();
  case 3:
  case 4:
  case 5:
    return buffer();
  case 6:
  case 7:
    return collective();
  case 8:
    return launch();
  case 9:
    return libraryCall();
  case 10:
    return place();
  case 11:
    return slot();
  case 12:
    return parameter();
  default:
    return call();
  }
}

std::string Mutation::action() {
  pb::Stage *stage = any(plan.mutable_stages());
  if (below(2))
    return shuffle(stage->mutable_schedule(), "action");
  pb::Action *action = any(stage->mutable_schedule());
  uint32_t microBatches = static_cast<uint32_t>(plan.settings().micro_batches());
  switch (below(3)) {
  case 0:
    action->set_micro_batch((action->micro_batch() + 1) % microBatches);
    return "action.micro_batch";
  case 1:
    action->set_slot((action->slot() + 1) % stage->slots());
    return "action.slot";
  default:
    action->set_kind(static_cast<pb::Action::Kind>(below(pb::Action::Kind_ARRAYSIZE)));
    return "action.kind";
  }
}

std::string Mutation::instruction() { return shuffle(anySubprogram()->mutable_instructions(), "instruction"); }

template <typename Has> pb::Instruction *Mutation::anyInstruction(Has has) {
  std::vector<pb::Instruction *> found;
  for (pb::Subprogram &subprogram : *plan.mutable_subprograms())
    for (pb::Instruction &instruction : *subprogram.mutable_instructions())
      if (has(instruction))
        found.push_back(&instruction);
  return found.empty() ? nullptr : found[below(found.size())];
}

pb::BufferRef *Mutation::anyBuffer(pb::Instruction *instruction) {
  if (instruction->has_start())
    return any(below(2) ? instruction->mutable_start()->mutable_from() : instruction->mutable_start()->mutable_to());
  return any(instruction->has_launch() ? instruction->mutable_launch()->mutable_buffers()
                                       : instruction->mutable_call()->mutable_buffers());
}

std::string Mutation::buffer() {
  pb::Instruction *instruction = anyInstruction([](const pb::Instruction &i) {
    return i.has_start() || i.launch().buffers_size() > 0 || i.call().buffers_size() > 0;
  });
  pb::BufferRef *buffer = anyBuffer(instruction);
  std::string name = instruction->has_start()  ? "start.buffer"
                     : instruction->has_call() ? "call.buffer"
                                               : "launch.buffer";
  switch (below(7)) {
  case 0:
    buffer->set_offset(buffer->offset() + 4);
    return name + ".offset";
  case 1:
    buffer->set_offset(buffer->offset() - std::min<uint64_t>(buffer->offset(), 64));
    return name + ".offset";
  case 2:
    buffer->set_offset(buffer->offset() + buffer->bytes());
    return name + ".offset";
  case 3:
    buffer->set_bytes(buffer->bytes() + (below(2) ? 4 : -4));
    return name + ".bytes";
  case 4:
    buffer->set_region(static_cast<pb::Region>(below(pb::Region_ARRAYSIZE)));
    return name + ".region";
  case 5:
    buffer->set_written(!buffer->written());
    return name + ".written";
  default:
    if (buffer->coordinates().empty())
      return "";
    any(buffer->mutable_coordinates())->set_coefficient(buffer->bytes() * below(2));
    return name + ".coordinates";
  }
}

std::string Mutation::collective() {
  pb::Instruction *instruction = anyInstruction([](const pb::Instruction &i) { return i.has_start(); });
  if (!instruction)
    return "";
  pb::Collective *collective = instruction->mutable_start();
  switch (below(7)) {
  case 0:
    collective->set_kind(static_cast<pb::Collective::Kind>(below(pb::Collective::Kind_ARRAYSIZE)));
    return "collective.kind";
  case 1:
    collective->set_reduction(collective->reduction() == pb::Collective::SUM ? pb::Collective::MAX
                                                                             : pb::Collective::SUM);
    return "collective.reduction";
  case 2: {
    static constexpr const char *axes[] = {"dp", "cp", "tp"};
    collective->clear_axes();
    collective->add_axes(axes[below(3)]);
    return "collective.axes";
  }
  case 3:
    collective->add_axes(below(2) ? "cp" : "dp");
    return "collective.axes";
  case 4:
    collective->set_elements(0, collective->elements(0) + (below(2) ? 1 : -1));
    return "collective.elements";
  case 5:
    collective->set_type(static_cast<pb::DataType>(below(4)));
    return "collective.type";
  default:
    collective->clear_stages();
    return "collective.stages";
  }
}

std::string Mutation::launch() {
  pb::Launch *launch = anyInstruction([](const pb::Instruction &i) { return i.has_launch(); })->mutable_launch();
  switch (below(4)) {
  case 0:
    launch->set_kernel(static_cast<uint32_t>(below(plan.kernels_size())));
    return "launch.kernel";
  case 1:
    launch->set_extent(launch->extent() + (below(2) ? 1 : -1));
    return "launch.extent";
  case 2:
    return shuffle(launch->mutable_scalars(), "launch.scalars");
  default:
    return shuffle(launch->mutable_buffers(), "launch.buffers");
  }
}

std::string Mutation::libraryCall() {
  pb::LibraryCall *call = anyInstruction([](const pb::Instruction &i) { return i.has_call(); })->mutable_call();
  switch (below(6)) {
  case 0: {
    int size = static_cast<int>(below(call->sizes_size()));
    if (call->sizes().empty())
      return "";
    call->set_sizes(size, call->sizes(size) + (below(2) ? 1 : -1));
    return "call.sizes";
  }
  case 1:
    call->set_accumulate(!call->accumulate());
    return "call.accumulate";
  case 2:
    call->set_always_adds(!call->always_adds());
    return "call.always_adds";
  case 3:
    call->set_transpose_a(!call->transpose_a());
    return "call.transpose_a";
  case 4:
    call->set_function(static_cast<pb::LibraryCall::Function>(below(pb::LibraryCall::Function_ARRAYSIZE)));
    return "call.function";
  default:
    return shuffle(call->mutable_buffers(), "call.buffers");
  }
}

std::string Mutation::place() {
  pb::Stage *stage = any(plan.mutable_stages());
  pb::Binding *stagePlaces[] = {stage->mutable_inputs_binding(),   stage->mutable_scalars_binding(),
                                stage->mutable_receive_forward(),  stage->mutable_send_forward(),
                                stage->mutable_receive_backward(), stage->mutable_send_backward()};
  pb::Binding *binding =
      below(2) ? any(any(stage->mutable_calls())->mutable_bindings()) : stagePlaces[below(std::size(stagePlaces))];
  switch (below(3)) {
  case 0:
    binding->set_base(below(2) ? binding->base() + 64 : binding->base() - std::min<uint64_t>(binding->base(), 64));
    return "binding.base";
  case 1:
    binding->set_slot_stride(below(2) ? 0 : binding->slot_stride() + 64);
    return "binding.slot_stride";
  default:
    binding->set_bytes(binding->bytes() + 64);
    return "binding.bytes";
  }
}

std::string Mutation::slot() {
  pb::Call *call = any(any(plan.mutable_stages())->mutable_calls());
  if (call->parameters().empty())
    return "";
  pb::ParameterSlot *slot = any(call->mutable_parameters());
  switch (below(6)) {
  case 0:
    slot->set_parameter(static_cast<uint32_t>(below(plan.parameters_size())));
    return "slot.parameter";
  case 1:
    slot->set_parameter_offset(slot->parameter_offset() + 4);
    return "slot.parameter_offset";
  case 2:
    slot->set_gradient_offset(slot->gradient_offset() + 4);
    return "slot.gradient_offset";
  case 3:
    slot->set_state_offset(slot->state_offset() + 4);
    return "slot.state_offset";
  case 4:
    slot->set_master(!slot->master());
    return "slot.master";
  default:
    return shuffle(call->mutable_parameters(), "slot");
  }
}

std::string Mutation::parameter() {
  pb::Parameter *parameter = any(plan.mutable_parameters());
  switch (below(4)) {
  case 0:
    if (parameter->partial_axes().empty())
      return "";
    parameter->mutable_partial_axes()->RemoveLast();
    return "parameter.partial_axes";
  case 1:
    parameter->add_partial_axes("cp");
    return "parameter.partial_axes";
  case 2:
    parameter->add_stages(static_cast<uint32_t>(plan.stages_size() - 1));
    return "parameter.stages";
  default:
    parameter->clear_dims();
    for (int i = 0; i < parameter->shape_size(); ++i)
      parameter->add_dims();
    return "parameter.dims";
  }
}

std::string Mutation::call() {
  pb::Stage *stage = any(plan.mutable_stages());
  pb::Call *call = any(stage->mutable_calls());
  uint32_t number = static_cast<uint32_t>(below(plan.subprograms_size() + 1));
  switch (below(7)) {
  case 0:
    call->set_forward(number);
    return "call.forward";
  case 1:
    call->set_backward(number);
    return "call.backward";
  case 2:
    call->set_reduce_gradients(number);
    return "call.reduce_gradients";
  case 3:
    call->set_squared_norm(number);
    return "call.squared_norm";
  case 4:
    call->set_optimizer(number);
    return "call.optimizer";
  case 5:
    call->set_layer(call->layer() + 1);
    return "call.layer";
  default:
    return shuffle(stage->mutable_calls(), "calls");
  }
}

} // namespace

std::string mutate(rt::pb::Plan &plan, std::mt19937 &random) { return Mutation(plan, random).apply(); }

} // namespace espalier
