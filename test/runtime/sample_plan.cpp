// Written out region by region, as the compiler would: nothing here is shared with it.
#include "test/runtime/sample_plan_builder.h"

#include "runtime/abi.h"

#include <algorithm>
#include <fmt/format.h>
#include <fstream>
#include <iterator>

namespace espalier::rt {
namespace {

constexpr const char *kernelNames[] = {"toy_embed",          "toy_embed_gradient", "toy_block",
                                       "toy_block_gradient", "toy_shift_gradient", "toy_loss",
                                       "toy_add_loss",       "toy_loss_gradient",  "toy_adam"};

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

} // namespace

void SamplePlanBuilder::addSettings() {
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
  kernels->set_code(std::string(std::istreambuf_iterator<char>(object), std::istreambuf_iterator<char>()));
  for (const char *name : kernelNames)
    plan.add_kernels()->set_symbol(name);
}

uint32_t SamplePlanBuilder::addParameter(const std::string &name, bool isSplit, std::vector<uint32_t> stages) {
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

Part SamplePlanBuilder::part(uint32_t parameter, bool isSplit) const {
  int64_t elements = isSplit ? local() : 1;
  return {parameter, elements, o.zero ? (elements + o.dp - 1) / o.dp : elements, isSplit};
}

void SamplePlanBuilder::addCalls(pb::Stage *stage, int index, int64_t &top) {
  bool isFirst = index == 0, isLast = index == o.pp - 1;
  int64_t stream = aligned(streamBytes()), slots = stage->slots();
  auto take = [&](int64_t bytes) { return std::exchange(top, top + aligned(bytes)); };
  int64_t workspace = take(64);
  int calls = stage->layers() + isFirst + isLast;
  int64_t streams = take(stream * slots * (calls + 1)), cotangents = take(stream * slots * (calls + 1));
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
    place(stage->mutable_receive_backward(), cotangents + calls * stream * slots, stream, streamBytes());
  }
}

/// One forward, one backward, after as many forwards as stages follow.
void SamplePlanBuilder::addSchedule(pb::Stage *stage, int index) {
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
  for (pb::Action::Kind kind :
       {pb::Action::REDUCE_GRADIENTS, pb::Action::SQUARED_NORM, pb::Action::AGREE, pb::Action::OPTIMIZER})
    add(kind, 0);
  forward(0, /*isEvaluation=*/true);
  if (!isLast)
    add(pb::Action::WAIT_SEND_FORWARD, 0, /*isEvaluation=*/true);
}

void SamplePlanBuilder::addStage(int index) {
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

pb::Plan SamplePlanBuilder::build() {
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

namespace {

/// Sample i holds (7 i + 3 k + i k) mod 251 at position k.
class SampleData final : public Dataset {
public:
  SampleData(DatasetOptions options, int64_t samples) : Dataset(std::move(options)), samples(samples) {}
  int64_t sampleCount() const override { return samples; }
  void readTokens(int64_t i, std::span<int32_t> out) const override {
    for (size_t k = 0; k < out.size(); ++k)
      out[k] = static_cast<int32_t>((7 * i + 3 * k + i * k) % 251);
  }

private:
  const int64_t samples;
};

} // namespace

pb::Plan samplePlan(const SampleOptions &options) { return SamplePlanBuilder(options).build(); }

std::shared_ptr<const Dataset> sampleData(int64_t features, int64_t samples) {
  DatasetOptions options;
  options.seqLength = features;
  return std::make_shared<SampleData>(options, samples);
}

} // namespace espalier::rt
