// Builds the instructions of each call's forward and backward.
#include "test/runtime/sample_plan_builder.h"

#include "format/abi.h"

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

/// Lists the values that each kernel operand takes in the launches of the plan.
void SamplePlanBuilder::addUses() {
  for (const pb::Subprogram &subprogram : plan.subprograms())
    for (const pb::Instruction &instruction : subprogram.instructions())
      for (int i = 0; i < instruction.launch().buffers_size(); ++i)
        plan.mutable_kernels(static_cast<int>(instruction.launch().kernel()))
            ->mutable_operands(i)
            ->add_values(instruction.launch().buffers(i).value());
}

void SamplePlanBuilder::scalar(pb::Launch *to, int64_t constant, int64_t perTp) {
  pb::Affine *scalar = to->add_scalars();
  scalar->set_constant(constant);
  scalar->set_tp(perTp);
}

/// Adds the scalar that tells whether the gradient is overwritten (beta = 0).
void SamplePlanBuilder::isFirst(pb::Launch *to, const ToyBucket &bucket) {
  to->add_scalars()->set_first(bucket.number + 1);
}

/// Adds the scalars samples, features, first local feature, local features.
void SamplePlanBuilder::shape(pb::Launch *to) {
  scalar(to, o.samples);
  scalar(to, o.features);
  scalar(to, 0, local());
  scalar(to, local());
}

pb::Buffer SamplePlanBuilder::slot(uint32_t number) const { return at(ScalarSlots, number * 4, 4, firstSlot + number); }

/// Returns a buffer of a sum after the all-reduce.
pb::Buffer SamplePlanBuilder::agreed(uint32_t number) const {
  return at(ScalarSlots, number * 4, 4, firstAgreed + number);
}

pb::Buffer SamplePlanBuilder::parameter(const ToyBucket &bucket, size_t index) const {
  const pb::Value &value = plan.values(bucket.parameters[index]);
  uint64_t offset = plan.buckets(bucket.number).stored().offset() + value.first() * 4;
  return at(Parameters, offset, value.elements() * 4, bucket.parameters[index]);
}

pb::Buffer SamplePlanBuilder::gradient(const ToyBucket &bucket, size_t index) const {
  const pb::Value &value = plan.values(bucket.gradients[index]);
  uint64_t offset = plan.buckets(bucket.number).gradient().offset() + value.first() * 4;
  return at(Gradients, offset, value.elements() * 4, bucket.gradients[index]);
}

void SamplePlanBuilder::embedPrograms() {
  pb::Launch *embed = launch(subprogram("embed.forward"), Embed, local(), 4);
  *embed->add_buffers() = at(Inputs, 0, inputBytes(), tokens);
  *embed->add_buffers() = parameter(table.buckets[0], 0);
  *embed->add_buffers() = at(StreamOut, 0, streamBytes(), stream, 1);
  shape(embed);
  embedForward = plan.subprograms_size();
  pb::Launch *back = launch(subprogram("embed.backward"), EmbedGradient, local(), 4);
  *back->add_buffers() = at(Inputs, 0, inputBytes(), tokens);
  *back->add_buffers() = at(CotangentOut, 0, streamBytes(), cotangent, 1);
  *back->add_buffers() = gradient(table.buckets[0], 0);
  shape(back);
  isFirst(back, table.buckets[0]);
  embedBackward = plan.subprograms_size();
}

void SamplePlanBuilder::blockPrograms() {
  // The block has one bucket, or two if tp shards only the weight.
  const ToyBucket &weights = block.buckets.front(), &shifts = block.buckets.back();
  size_t shift = shifts.parameters.size() - 1;
  pb::Launch *forward = launch(subprogram("block.forward"), Block, local(), 2);
  *forward->add_buffers() = at(StreamIn, 0, streamBytes(), stream);
  *forward->add_buffers() = parameter(weights, 0);
  *forward->add_buffers() = parameter(shifts, shift);
  *forward->add_buffers() = at(StreamOut, 0, streamBytes(), stream, 1);
  *forward->add_buffers() = at(Saved, 0, streamBytes(), saved);
  scalar(forward, o.samples);
  scalar(forward, local());
  blockForward = plan.subprograms_size();
  pb::Subprogram *backward = subprogram("block.backward");
  pb::Launch *back = launch(backward, BlockGradient, local(), 2);
  *back->add_buffers() = at(Saved, 0, streamBytes(), saved);
  *back->add_buffers() = parameter(weights, 0);
  *back->add_buffers() = at(CotangentOut, 0, streamBytes(), cotangent, 1);
  *back->add_buffers() = at(CotangentIn, 0, streamBytes(), cotangent);
  *back->add_buffers() = gradient(weights, 0);
  scalar(back, o.samples);
  scalar(back, local());
  isFirst(back, weights);
  pb::Launch *sum = launch(backward, ShiftGradient, 1, 1);
  *sum->add_buffers() = at(CotangentOut, 0, streamBytes(), cotangent, 1);
  *sum->add_buffers() = gradient(shifts, shift);
  scalar(sum, o.samples * local());
  isFirst(sum, shifts);
  blockBackward = plan.subprograms_size();
}

void SamplePlanBuilder::headPrograms() {
  pb::Subprogram *forward = subprogram("head.forward");
  uint32_t split = mesh.divided(TP);
  loss = value("head.loss", pb::F32, 1, {.partial = split});
  pb::Launch *compute = launch(forward, Loss, 1, 1);
  *compute->add_buffers() = at(StreamIn, 0, streamBytes(), stream);
  *compute->add_buffers() = parameter(table.buckets[0], 0);
  *compute->add_buffers() = at(Inputs, alignedInput(), inputBytes(), labels);
  *compute->add_buffers() = at(Workspace, 0, 4, loss);
  shape(compute);
  lossSum = loss;
  if (split) {
    lossSum = value("head.loss.sum", pb::F32, 1);
    uint32_t sum = collective("head.forward.0", pb::Transfer::ALL_REDUCE, "collectives", group(split),
                              at(Workspace, 0, 4, loss), at(Workspace, 0, 4, lossSum));
    forward->add_instructions()->set_start(sum);
    forward->add_instructions()->set_wait(sum);
  }
  pb::Launch *add = launch(forward, AddLoss, 1, 1);
  *add->add_buffers() = at(Workspace, 0, 4, lossSum);
  *add->add_buffers() = slot(LossSum);
  *add->add_buffers() = slot(TokenCount);
  scalar(add, o.samples * o.features);
  scalar(add, o.tp);
  headForward = plan.subprograms_size();
  pb::Launch *back = launch(subprogram("head.backward"), LossGradient, local(), 4);
  *back->add_buffers() = at(StreamIn, 0, streamBytes(), stream);
  *back->add_buffers() = parameter(table.buckets[0], 0);
  *back->add_buffers() = at(Inputs, alignedInput(), inputBytes(), labels);
  *back->add_buffers() = at(CotangentIn, 0, streamBytes(), cotangent);
  *back->add_buffers() = gradient(table.buckets[0], 0);
  *back->add_buffers() = slot(LossScale);
  shape(back);
  isFirst(back, table.buckets[0]);
  headBackward = plan.subprograms_size();
}

void SamplePlanBuilder::stepProgram() {
  pb::LibraryCall *call = subprogram("step.scalars")->add_instructions()->mutable_call();
  call->set_function(pb::LibraryCall::UPDATE_SCALARS);
  for (uint32_t number : {LossSum, TokenCount, SquaredNorm})
    *call->add_buffers() = agreed(number);
  for (uint32_t number : {LossScale, GradientScale, Apply})
    *call->add_buffers() = slot(number);
  call->add_floats(o.maxGradNorm);
  step = plan.subprograms_size();
}

} // namespace espalier::rt
