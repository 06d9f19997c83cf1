// Written out region by region, as the compiler would: nothing here is shared with it.
#include "test/runtime/sample_plan.h"

#include "runtime/abi.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

namespace espalier::rt {
namespace {

enum Kernel {
  Embed,
  EmbedGradient,
  Block,
  BlockGradient,
  ShiftGradient,
  Loss,
  AddLoss,
  LossGradient,
  Adam
};
constexpr const char *kernelNames[] = {"toy_embed",          "toy_embed_gradient", "toy_block",
                                       "toy_block_gradient", "toy_shift_gradient", "toy_loss",
                                       "toy_add_loss",       "toy_loss_gradient",  "toy_adam"};

int64_t aligned(int64_t bytes) { return (bytes + 63) / 64 * 64; }

/// A parameter's place in its call's regions.
struct Part {
  uint32_t parameter;
  int64_t elements, share;
  bool isSplit; ///< over tp
};

class Builder {
public:
  explicit Builder(const SampleOptions &options) : o(options) {}
  pb::Plan build();

private:
  int64_t local() const { return o.features / o.tp; }
  int64_t streamBytes() const { return o.samples * local() * 4; }
  int64_t padded(const Part &part) const { return aligned(part.share * (o.zero ? o.dp : 1) * 4); }
  void addSettings();
  uint32_t addParameter(const std::string &name, bool isSplit, std::vector<uint32_t> stages);
  Part part(uint32_t parameter, bool isSplit) const;

  pb::Subprogram *subprogram(const std::string &name);
  pb::Launch *launch(pb::Subprogram *to, Kernel kernel, int64_t extent, int64_t grain);
  void buffer(pb::Launch *to, pb::Region region, int64_t offset, int64_t bytes, bool written);
  void scalar(pb::Launch *to, int64_t constant, int64_t perMicroBatch = 0, int64_t perTp = 0);
  void shape(pb::Launch *to);
  void finish(pb::Subprogram *program, int64_t workspace);
  void collective(pb::Subprogram *to, pb::Collective::Kind kind, std::vector<std::string> axes,
                  pb::BufferRef from, pb::BufferRef dest, int64_t elements,
                  std::vector<uint32_t> stages = {});
  pb::BufferRef ref(pb::Region region, int64_t offset, int64_t bytes, int64_t perDp = 0) const;

  void embedPrograms();
  void blockPrograms();
  void headPrograms();
  void updatePrograms(pb::Call *call, const std::vector<Part> &parts, bool ownsTied);
  void addStage(int index);
  void addCalls(pb::Stage *stage, int index, int64_t &top);
  void addSchedule(pb::Stage *stage, int index);

  const SampleOptions o;
  pb::Plan plan;
  uint32_t embedForward = 0, embedBackward = 0, blockForward = 0, blockBackward = 0,
           headForward = 0, headBackward = 0, tied = 0;
  uint32_t nextId = 1;
};

void Builder::addSettings() {
  plan.set_version(1);
  plan.set_model("toy");
  plan.set_target("cpu");
  for (auto [name, size] : {std::pair("pp", o.pp), {"dp", o.dp}, {"tp", o.tp}}) {
    pb::Axis *axis = plan.add_mesh();
    axis->set_name(name);
    axis->set_size(size);
  }
  pb::Settings *settings = plan.mutable_settings();
  settings->set_seed(7);
  settings->set_micro_batch_size(o.samples);
  settings->set_micro_batches(o.microBatches);
  settings->set_global_batch(o.samples * o.microBatches * o.dp);
  settings->set_sequence(o.features);
  settings->set_vocabulary(256);
  settings->set_zero(o.zero);
  settings->set_recompute("none");
  settings->set_schedule("1f1b");
  settings->set_beta1(0.9);
  settings->set_beta2(0.99);
  settings->set_epsilon(1e-8);
  settings->set_max_grad_norm(o.maxGradNorm);
  settings->set_ignore_token(-1);
  settings->mutable_learning_rate()->set_kind("constant");
  settings->mutable_learning_rate()->set_peak(o.peakRate);
  settings->set_dynamic_loss_scale(o.dynamicScale);
  settings->set_initial_loss_scale(o.dynamicScale ? 0x1p120 : 1);
  settings->set_loss_scale_factor(o.dynamicScale ? 0x1p60 : 2);
  settings->set_loss_scale_window(100);
  settings->set_minimum_loss_scale(1);
  pb::Location *location = plan.add_locations();
  location->set_file("toy.yaml");
  location->set_line(3);
  location->set_column(5);
  location->set_op("scale");
  std::ifstream object(ESPALIER_TOY_KERNELS, std::ios::binary);
  pb::KernelObject *kernels = plan.add_objects();
  kernels->set_level("x86-64");
  kernels->set_shared_object(
      std::string(std::istreambuf_iterator<char>(object), std::istreambuf_iterator<char>()));
  for (const char *name : kernelNames)
    plan.add_kernels()->set_symbol(name);
}

uint32_t Builder::addParameter(const std::string &name, bool isSplit,
                               std::vector<uint32_t> stages) {
  pb::Parameter *parameter = plan.add_parameters();
  parameter->set_name(name);
  parameter->add_shape(isSplit ? o.features : 1);
  parameter->add_padded_shape(isSplit ? o.features : 1);
  pb::ShardedDim *dim = parameter->add_dims();
  if (isSplit)
    dim->add_axes("tp");
  parameter->mutable_initialization()->set_kind(pb::Initialization::NORMAL);
  parameter->mutable_initialization()->set_stddev(isSplit ? 1.0 : 0.1);
  parameter->add_partial_axes("dp");
  if (!isSplit)
    parameter->add_partial_axes("tp");
  for (uint32_t stage : stages)
    parameter->add_stages(stage);
  parameter->set_norm_weight(1.0 / (o.dp * (isSplit ? 1 : o.tp)));
  return plan.parameters_size() - 1;
}

Part Builder::part(uint32_t parameter, bool isSplit) const {
  int64_t elements = isSplit ? local() : 1;
  return {parameter, elements, o.zero ? (elements + o.dp - 1) / o.dp : elements, isSplit};
}

pb::Subprogram *Builder::subprogram(const std::string &name) {
  pb::Subprogram *program = plan.add_subprograms();
  program->set_name(name);
  return program;
}

pb::Launch *Builder::launch(pb::Subprogram *to, Kernel kernel, int64_t extent, int64_t grain) {
  pb::Launch *launch = to->add_instructions()->mutable_launch();
  launch->set_kernel(kernel);
  launch->set_extent(extent);
  launch->set_grain(grain);
  return launch;
}

pb::BufferRef Builder::ref(pb::Region region, int64_t offset, int64_t bytes, int64_t perDp) const {
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

void Builder::buffer(pb::Launch *to, pb::Region region, int64_t offset, int64_t bytes,
                     bool written) {
  *to->add_buffers() = ref(region, offset, bytes);
  to->mutable_buffers(to->buffers_size() - 1)->set_written(written);
}

void Builder::scalar(pb::Launch *to, int64_t constant, int64_t perMicroBatch, int64_t perTp) {
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
void Builder::shape(pb::Launch *to) {
  scalar(to, o.samples);
  scalar(to, o.features);
  scalar(to, 0, 0, local());
  scalar(to, local());
}

/// Declares the bytes that the subprogram touches: the largest over all coordinates.
void Builder::finish(pb::Subprogram *program, int64_t workspace) {
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

void Builder::collective(pb::Subprogram *to, pb::Collective::Kind kind,
                         std::vector<std::string> axes, pb::BufferRef from, pb::BufferRef dest,
                         int64_t elements, std::vector<uint32_t> stages) {
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

void Builder::embedPrograms() {
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

void Builder::blockPrograms() {
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

void Builder::headPrograms() {
  int64_t inputBytes = o.samples * o.features * 4;
  pb::Subprogram *forward = subprogram("head.forward");
  pb::Launch *loss = launch(forward, Loss, 1, 1);
  buffer(loss, pb::STREAM_IN, 0, streamBytes(), false);
  buffer(loss, pb::PARAMETERS, 0, local() * 4, false);
  buffer(loss, pb::INPUTS, aligned(inputBytes), inputBytes, false);
  buffer(loss, pb::WORKSPACE, 0, 4, true);
  shape(loss);
  collective(forward, pb::Collective::ALL_REDUCE, {"tp"}, ref(pb::WORKSPACE, 0, 4),
             ref(pb::WORKSPACE, 0, 4), 1);
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
void Builder::updatePrograms(pb::Call *call, const std::vector<Part> &parts, bool ownsTied) {
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
      collective(reduce, pb::Collective::ALL_REDUCE, {}, mine, mine, part.share,
                 {0, static_cast<uint32_t>(o.pp - 1)});
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
      collective(&optimizer, pb::Collective::ALL_GATHER, {"dp"},
                 ref(pb::PARAMETERS, at, shareBytes, perDp), ref(pb::PARAMETERS, at, bytes),
                 part.elements);
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

void bind(pb::Call *call, pb::Region region, int64_t base, int64_t stride, int64_t bytes) {
  pb::Binding *binding = call->add_bindings();
  binding->set_region(region);
  binding->set_base(base);
  binding->set_slot_stride(stride);
  binding->set_bytes(bytes);
}

void place(pb::Binding *binding, int64_t base, int64_t stride, int64_t bytes) {
  binding->set_base(base);
  binding->set_slot_stride(stride);
  binding->set_bytes(bytes);
}

void Builder::addCalls(pb::Stage *stage, int index, int64_t &top) {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  int64_t stream = aligned(streamBytes()), slots = stage->slots();
  auto take = [&](int64_t bytes) { return std::exchange(top, top + aligned(bytes)); };
  int64_t workspace = take(64);
  int calls = stage->layers() + isFirst + isLast;
  int64_t streams = take(stream * slots * (calls + 1)),
          cotangents = take(stream * slots * (calls + 1));
  int64_t tiedBase[3] = {};
  for (int i = 0; i < calls; ++i) {
    pb::Call *call = stage->add_calls();
    bool isEmbed = isFirst && i == 0, isHead = isLast && i == calls - 1;
    call->set_segment(isEmbed ? "embed" : isHead ? "head" : "block");
    call->set_layer(isEmbed ? 0 : isHead ? o.layers + 1 : stage->first_layer() + i + !isFirst);
    std::vector<Part> parts = {part(tied, true)};
    if (isEmbed) {
      call->set_forward(embedForward);
      call->set_backward(embedBackward);
    } else if (isHead) {
      call->set_forward(headForward);
      call->set_backward(headBackward);
    } else {
      call->set_forward(blockForward);
      call->set_backward(blockBackward);
      std::string name = fmt::format("block.{}", call->layer() - 1);
      parts = {part(addParameter(name + ".weight", true, {uint32_t(index)}), true),
               part(addParameter(name + ".shift", false, {uint32_t(index)}), false)};
    }
    call->set_evaluate(call->forward());
    int64_t bytes = 0, stateBytes = 0;
    for (const Part &each : parts) {
      bytes += padded(each);
      stateBytes += aligned(2 * each.share * 4);
    }
    bool isSecondUse = isHead && isFirst;
    int64_t bases[3] = {tiedBase[0], tiedBase[1], tiedBase[2]};
    if (!isSecondUse) {
      bases[0] = take(bytes);
      bases[1] = take(bytes);
      bases[2] = take(stateBytes);
      updatePrograms(call, parts, isEmbed);
      if (isEmbed)
        std::copy(bases, bases + 3, tiedBase);
    } else {
      pb::ParameterSlot *slot = call->add_parameters();
      slot->set_parameter(tied);
      slot->set_local_elements(local());
    }
    bind(call, pb::PARAMETERS, bases[0], 0, bytes);
    bind(call, pb::GRADIENTS, bases[1], 0, bytes);
    bind(call, pb::STATE, bases[2], 0, stateBytes);
    bind(call, pb::SAVED, take(stream * slots), stream, stream);
    bind(call, pb::STREAM_IN, streams + i * stream * slots, stream, stream);
    bind(call, pb::STREAM_OUT, streams + (i + 1) * stream * slots, stream, stream);
    bind(call, pb::COTANGENT_IN, cotangents + i * stream * slots, stream, stream);
    bind(call, pb::COTANGENT_OUT, cotangents + (i + 1) * stream * slots, stream, stream);
    bind(call, pb::WORKSPACE, workspace, 0, 64);
  }
  if (!isFirst) {
    place(stage->mutable_receive_forward(), streams, stream, streamBytes());
    place(stage->mutable_send_backward(), cotangents, stream, streamBytes());
  }
  if (!isLast) {
    place(stage->mutable_send_forward(), streams + calls * stream * slots, stream, streamBytes());
    place(stage->mutable_receive_backward(), cotangents + calls * stream * slots, stream,
          streamBytes());
  }
}

/// One forward, one backward, after as many forwards as stages follow.
void Builder::addSchedule(pb::Stage *stage, int index) {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  auto add = [&](pb::Action::Kind kind, int64_t microBatch, bool isEvaluation = false) {
    pb::Action *action = isEvaluation ? stage->add_evaluation() : stage->add_schedule();
    action->set_kind(kind);
    action->set_micro_batch(microBatch);
    action->set_slot(microBatch % stage->slots());
  };
  auto forward = [&](int64_t m, bool isEvaluation = false) {
    add(pb::Action::LOAD_INPUTS, m, isEvaluation);
    if (!isFirst) {
      add(pb::Action::START_RECEIVE_FORWARD, m, isEvaluation);
      add(pb::Action::WAIT_RECEIVE_FORWARD, m, isEvaluation);
    }
    add(pb::Action::FORWARD, m, isEvaluation);
    if (!isLast)
      add(pb::Action::START_SEND_FORWARD, m, isEvaluation);
  };
  auto backward = [&](int64_t m) {
    if (!isLast) {
      add(pb::Action::WAIT_SEND_FORWARD, m);
      add(pb::Action::START_RECEIVE_BACKWARD, m);
      add(pb::Action::WAIT_RECEIVE_BACKWARD, m);
    }
    if (!isFirst && m > 0)
      add(pb::Action::WAIT_SEND_BACKWARD, m - 1);
    add(pb::Action::BACKWARD, m);
    if (!isFirst)
      add(pb::Action::START_SEND_BACKWARD, m);
  };
  int64_t ahead = std::min<int64_t>(o.pp - 1 - index, o.microBatches);
  for (int64_t m = 0; m < ahead; ++m)
    forward(m);
  for (int64_t m = 0; m < o.microBatches; ++m) {
    if (m + ahead < o.microBatches)
      forward(m + ahead);
    backward(m);
  }
  if (!isFirst)
    add(pb::Action::WAIT_SEND_BACKWARD, o.microBatches - 1);
  for (pb::Action::Kind kind : {pb::Action::REDUCE_GRADIENTS, pb::Action::SQUARED_NORM,
                                pb::Action::AGREE, pb::Action::OPTIMIZER})
    add(kind, 0);
  forward(0, /*isEvaluation=*/true);
  if (!isLast)
    add(pb::Action::WAIT_SEND_FORWARD, 0, /*isEvaluation=*/true);
}

void Builder::addStage(int index) {
  pb::Stage *stage = plan.add_stages();
  // Uneven on purpose: the first stages get the layers left over.
  int first = 0, count = 0;
  for (int i = 0; i <= index; ++i) {
    first += count;
    count = o.layers / o.pp + (i < o.layers % o.pp);
  }
  stage->set_first_layer(first);
  stage->set_layers(count);
  stage->set_slots(std::min<int64_t>(o.pp - index + 1, o.microBatches));
  int64_t top = 0, inputBytes = o.samples * o.features * 4;
  auto take = [&](int64_t bytes) { return std::exchange(top, top + aligned(bytes)); };
  place(stage->mutable_scalars_binding(), take(64), 0, 64);
  stage->mutable_scalars_binding()->set_region(pb::SCALARS);
  int64_t stride = 2 * aligned(inputBytes);
  place(stage->mutable_inputs_binding(), take(stride * stage->slots()), stride, stride);
  stage->mutable_inputs_binding()->set_region(pb::INPUTS);
  int64_t offset = 0;
  for (const char *name : {"tokens", "labels"}) {
    pb::InputBuffer *input = stage->add_inputs();
    input->set_name(name);
    input->set_offset(std::exchange(offset, aligned(inputBytes)));
    input->set_bytes(inputBytes);
    input->set_type(pb::I32);
  }
  addCalls(stage, index, top);
  stage->set_arena_bytes(top);
  pb::MemoryClass *memory = stage->add_memory();
  memory->set_name("all");
  memory->set_bytes(top);
  addSchedule(stage, index);
}

pb::Plan Builder::build() {
  addSettings();
  std::vector<uint32_t> ends = {0};
  if (o.pp > 1)
    ends.push_back(o.pp - 1);
  tied = addParameter("embed.weight", true, ends);
  embedPrograms();
  blockPrograms();
  headPrograms();
  for (int i = 0; i < o.pp; ++i)
    addStage(i);
  plan.set_parameter_count(o.features + o.layers * (o.features + 1));
  return plan;
}

/// Sample i holds (7 i + 3 k + i k) mod 251 at position k.
class SampleData final : public Dataset {
public:
  SampleData(DatasetOptions options, int64_t samples)
      : Dataset(std::move(options)), samples(samples) {}
  int64_t sampleCount() const override { return samples; }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = static_cast<int32_t>((7 * i + 3 * k + i * k) % 251);
  }

private:
  const int64_t samples;
};

} // namespace

pb::Plan samplePlan(const SampleOptions &options) { return Builder(options).build(); }

std::shared_ptr<const Dataset> sampleData(int64_t features, int64_t samples) {
  DatasetOptions options;
  options.seqLength = features;
  return std::make_shared<SampleData>(options, samples);
}

} // namespace espalier::rt
