// The instructions of each call's subprograms.
#include "test/runtime/sample_plan_builder.h"

#include "runtime/abi.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt {

pb::Subprogram *SamplePlanBuilder::subprogram(const std::string &name) {
  pb::Subprogram *program = plan.add_subprograms();
  program->set_name(name);
  return program;
}

pb::Launch *SamplePlanBuilder::launch(pb::Subprogram *to, Kernel kernel, int64_t extent, int64_t grain) {
  pb::Launch *launch = to->add_instructions()->mutable_launch();
  launch->set_kernel(kernel);
  launch->set_extent(extent);
  launch->set_grain(grain);
  return launch;
}

pb::BufferRef SamplePlanBuilder::ref(pb::Region region, int64_t offset, int64_t bytes, int64_t perDp) const {
  pb::BufferRef buffer;
  buffer.set_region(region);
  buffer.set_offset(offset);
  buffer.set_bytes(bytes);
  if (perDp) {
    pb::AxisTerm *term = buffer.add_coordinates();
    term->set_axis("dp");
    term->set_coefficient(perDp);
  }
  return buffer;
}

void SamplePlanBuilder::buffer(pb::Launch *to, pb::Region region, int64_t offset, int64_t bytes, bool written) {
  *to->add_buffers() = ref(region, offset, bytes);
  to->mutable_buffers(to->buffers_size() - 1)->set_written(written);
}

void SamplePlanBuilder::scalar(pb::Launch *to, int64_t constant, int64_t perMicroBatch, int64_t perTp) {
  pb::Scalar *scalar = to->add_scalars();
  scalar->set_constant(constant);
  scalar->set_micro_batch(perMicroBatch);
  if (perTp) {
    pb::AxisTerm *term = scalar->add_coordinates();
    term->set_axis("tp");
    term->set_coefficient(perTp);
  }
}

/// samples, features, first local feature, local features
void SamplePlanBuilder::shape(pb::Launch *to) {
  scalar(to, o.samples);
  scalar(to, o.features);
  scalar(to, 0, 0, local());
  scalar(to, local());
}

/// Declares the bytes that the subprogram touches: the largest over all coordinates.
void SamplePlanBuilder::finish(pb::Subprogram *program, int64_t workspace) {
  std::vector<uint64_t> bytes(pb::Region_ARRAYSIZE, 0);
  auto take = [&](const pb::BufferRef &buffer) {
    uint64_t end = buffer.offset() + buffer.bytes();
    for (const pb::AxisTerm &term : buffer.coordinates())
      end += term.coefficient() * (o.dp - 1);
    bytes[buffer.region()] = std::max(bytes[buffer.region()], end);
  };
  for (const pb::Instruction &instruction : program->instructions()) {
    for (const pb::BufferRef &buffer : instruction.launch().buffers())
      take(buffer);
    for (const pb::BufferRef &buffer : instruction.call().buffers())
      take(buffer);
    for (const pb::BufferRef &buffer : instruction.start().from())
      take(buffer);
    for (const pb::BufferRef &buffer : instruction.start().to())
      take(buffer);
  }
  for (uint64_t size : bytes)
    program->add_region_bytes(size);
  program->set_workspace_bytes(workspace);
}

void SamplePlanBuilder::collective(pb::Subprogram *to, pb::Collective::Kind kind, std::vector<std::string> axes,
                                   pb::BufferRef from, pb::BufferRef dest, int64_t elements,
                                   std::vector<uint32_t> stages) {
  pb::Collective *start = to->add_instructions()->mutable_start();
  start->set_kind(kind);
  for (const std::string &axis : axes)
    start->add_axes(axis);
  for (uint32_t stage : stages)
    start->add_stages(stage);
  *start->add_from() = from;
  *start->add_to() = dest;
  start->add_elements(elements);
  start->set_id(nextId);
  to->add_instructions()->mutable_wait()->set_id(nextId++);
}

void SamplePlanBuilder::embedPrograms() {
  int64_t inputBytes = o.samples * o.features * 4;
  pb::Subprogram *forward = subprogram("embed.forward");
  pb::Launch *embed = launch(forward, Embed, local(), 4);
  buffer(embed, pb::INPUTS, 0, inputBytes, false);
  buffer(embed, pb::PARAMETERS, 0, local() * 4, false);
  buffer(embed, pb::STREAM_OUT, 0, streamBytes(), true);
  shape(embed);
  finish(forward, 0);
  embedForward = plan.subprograms_size();
  pb::Subprogram *backward = subprogram("embed.backward");
  pb::Launch *gradient = launch(backward, EmbedGradient, local(), 4);
  buffer(gradient, pb::INPUTS, 0, inputBytes, false);
  buffer(gradient, pb::COTANGENT_OUT, 0, streamBytes(), false);
  buffer(gradient, pb::GRADIENTS, 0, local() * 4, true);
  shape(gradient);
  // On one stage the head wrote the tied gradient before.
  scalar(gradient, o.pp == 1 ? 1 : 0, 1);
  finish(backward, 0);
  embedBackward = plan.subprograms_size();
}

void SamplePlanBuilder::blockPrograms() {
  int64_t shiftAt = padded(part(0, true));
  pb::Subprogram *forward = subprogram("block.forward");
  pb::Launch *block = launch(forward, Block, local(), 2);
  buffer(block, pb::STREAM_IN, 0, streamBytes(), false);
  buffer(block, pb::PARAMETERS, 0, local() * 4, false);
  buffer(block, pb::PARAMETERS, shiftAt, 4, false);
  buffer(block, pb::STREAM_OUT, 0, streamBytes(), true);
  buffer(block, pb::SAVED, 0, streamBytes(), true);
  scalar(block, o.samples);
  scalar(block, local());
  finish(forward, 0);
  blockForward = plan.subprograms_size();
  pb::Subprogram *backward = subprogram("block.backward");
  pb::Launch *gradient = launch(backward, BlockGradient, local(), 2);
  buffer(gradient, pb::SAVED, 0, streamBytes(), false);
  buffer(gradient, pb::PARAMETERS, 0, local() * 4, false);
  buffer(gradient, pb::COTANGENT_OUT, 0, streamBytes(), false);
  buffer(gradient, pb::COTANGENT_IN, 0, streamBytes(), true);
  buffer(gradient, pb::GRADIENTS, 0, local() * 4, true);
  scalar(gradient, o.samples);
  scalar(gradient, local());
  scalar(gradient, 0, 1);
  pb::Launch *shift = launch(backward, ShiftGradient, 1, 1);
  buffer(shift, pb::COTANGENT_OUT, 0, streamBytes(), false);
  buffer(shift, pb::GRADIENTS, shiftAt, 4, true);
  scalar(shift, o.samples * local());
  scalar(shift, 0, 1);
  finish(backward, 0);
  blockBackward = plan.subprograms_size();
}

void SamplePlanBuilder::headPrograms() {
  int64_t inputBytes = o.samples * o.features * 4;
  pb::Subprogram *forward = subprogram("head.forward");
  pb::Launch *loss = launch(forward, Loss, 1, 1);
  buffer(loss, pb::STREAM_IN, 0, streamBytes(), false);
  buffer(loss, pb::PARAMETERS, 0, local() * 4, false);
  buffer(loss, pb::INPUTS, aligned(inputBytes), inputBytes, false);
  buffer(loss, pb::WORKSPACE, 0, 4, true);
  shape(loss);
  collective(forward, pb::Collective::ALL_REDUCE, {"tp"}, ref(pb::WORKSPACE, 0, 4), ref(pb::WORKSPACE, 0, 4), 1);
  pb::Launch *add = launch(forward, AddLoss, 1, 1);
  buffer(add, pb::WORKSPACE, 0, 4, false);
  buffer(add, pb::SCALARS, 0, 64, true);
  scalar(add, o.samples * o.features);
  scalar(add, o.tp);
  finish(forward, 64);
  headForward = plan.subprograms_size();
  pb::Subprogram *backward = subprogram("head.backward");
  pb::Launch *gradient = launch(backward, LossGradient, local(), 4);
  buffer(gradient, pb::STREAM_IN, 0, streamBytes(), false);
  buffer(gradient, pb::PARAMETERS, 0, local() * 4, false);
  buffer(gradient, pb::INPUTS, aligned(inputBytes), inputBytes, false);
  buffer(gradient, pb::COTANGENT_IN, 0, streamBytes(), true);
  buffer(gradient, pb::GRADIENTS, 0, local() * 4, true);
  buffer(gradient, pb::SCALARS, 0, 64, false);
  shape(gradient);
  scalar(gradient, 0, 1);
  finish(backward, 0);
  headBackward = plan.subprograms_size();
}

/// Reduction, norm and optimizer of a call's parameters.
void SamplePlanBuilder::updatePrograms(pb::Call *call, const std::vector<Part> &parts, bool ownsTied) {
  pb::Subprogram *reduce = subprogram(call->segment() + ".reduce");
  pb::Subprogram norm, optimizer;
  norm.set_name(call->segment() + ".norm");
  optimizer.set_name(call->segment() + ".optimizer");
  int64_t at = 0, stateAt = 0;
  for (const Part &part : parts) {
    int64_t bytes = part.elements * 4, shareBytes = part.share * 4;
    int64_t perDp = o.zero ? shareBytes : 0;
    pb::BufferRef whole = ref(pb::GRADIENTS, at, bytes);
    pb::BufferRef mine = ref(pb::GRADIENTS, at, shareBytes, perDp);
    if (o.zero)
      collective(reduce, pb::Collective::REDUCE_SCATTER, {"dp"}, whole, mine, part.elements);
    else
      collective(reduce, pb::Collective::ALL_REDUCE, {"dp"}, whole, whole, part.elements);
    if (!part.isSplit)
      collective(reduce, pb::Collective::ALL_REDUCE, {"tp"}, mine, mine, part.share);
    bool isAcross = plan.parameters(part.parameter).stages_size() > 1;
    if (isAcross)
      collective(reduce, pb::Collective::ALL_REDUCE, {}, mine, mine, part.share, {0, static_cast<uint32_t>(o.pp - 1)});
    if (!isAcross || ownsTied) {
      pb::LibraryCall *square = norm.add_instructions()->mutable_call();
      square->set_function(pb::LibraryCall::SQUARED_NORM);
      *square->add_buffers() = mine;
      *square->add_buffers() = ref(pb::SCALARS, SquaredNorm * 4, 4);
      square->mutable_buffers(1)->set_written(true);
      square->add_types(pb::F32);
      square->add_types(pb::F32);
      square->add_sizes(part.share);
      double replicas = (o.zero ? 1 : o.dp) * (part.isSplit ? 1 : o.tp);
      square->add_floats(1 / replicas);
    }
    pb::Launch *adam = launch(&optimizer, Adam, part.share, 4);
    *adam->add_buffers() = ref(pb::PARAMETERS, at, shareBytes, perDp);
    adam->mutable_buffers(0)->set_written(true);
    *adam->add_buffers() = mine;
    buffer(adam, pb::STATE, stateAt, 2 * shareBytes, true);
    buffer(adam, pb::SCALARS, 0, 64, false);
    scalar(adam, part.share);
    if (o.zero)
      collective(&optimizer, pb::Collective::ALL_GATHER, {"dp"}, ref(pb::PARAMETERS, at, shareBytes, perDp),
                 ref(pb::PARAMETERS, at, bytes), part.elements);
    pb::ParameterSlot *slot = call->add_parameters();
    slot->set_parameter(part.parameter);
    slot->set_parameter_offset(at);
    slot->set_gradient_offset(at);
    slot->set_state_offset(stateAt);
    slot->set_local_elements(part.elements);
    slot->set_state_elements(part.share);
    at += padded(part);
    stateAt += aligned(2 * shareBytes);
  }
  finish(reduce, 0);
  call->set_reduce_gradients(plan.subprograms_size());
  finish(&norm, 0);
  *plan.add_subprograms() = norm;
  call->set_squared_norm(plan.subprograms_size());
  finish(&optimizer, 0);
  *plan.add_subprograms() = optimizer;
  call->set_optimizer(plan.subprograms_size());
}

} // namespace espalier::rt
