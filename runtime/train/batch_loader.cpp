// Inputs are known by name: tokens, labels, loss_weights, positions; each [micro_batch_size, sequence / cp].
#include "runtime/train/batch_loader.h"

#include "runtime/program.h"
#include "runtime/status.h"

#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

/// The number of samples, which an order needs to be above zero.
int64_t requireSamples(const Dataset &dataset) {
  if (dataset.sampleCount() <= 0)
    throw PlanError("the data holds no sample of the plan's sequence length");
  return dataset.sampleCount();
}

} // namespace

BatchLoader::BatchLoader(const pb::Plan &plan, const Mesh &mesh, int rank, const Dataset &dataset, SampleOrder order)
    : settings(plan.settings()), stage(plan.stages(mesh.stage(rank))),
      dataset(dataset), share{static_cast<int64_t>(settings.micro_batch_size()), dataReplica(mesh, rank),
                              dataReplicas(mesh)},
      first(mesh.coordinate(rank, "cp") * static_cast<int64_t>(settings.sequence()) / mesh.axisSize("cp")),
      length(static_cast<int64_t>(settings.sequence()) / mesh.axisSize("cp")),
      sampler(order, requireSamples(dataset), static_cast<int64_t>(settings.global_batch())),
      text(settings.sequence() + 1) {
  sample.tokens.resize(settings.sequence());
  sample.labels.resize(settings.sequence());
  sample.lossWeights.resize(settings.sequence());
  sample.positions.resize(settings.sequence());
  uint64_t bytes = settings.micro_batch_size() * length * 4;
  for (const pb::InputBuffer &input : stage.inputs()) {
    bool isWeights = input.name() == "loss_weights";
    if (!isWeights && input.name() != "tokens" && input.name() != "labels" && input.name() != "positions")
      throw PlanError(fmt::format("the plan wants input '{}'; samples have tokens, labels, "
                                  "loss_weights, positions",
                                  input.name()));
    if (input.bytes() != bytes || input.type() != (isWeights ? pb::F32 : pb::I32))
      throw PlanError(fmt::format("the plan's input '{}' has {} bytes, samples give {} of {}", input.name(),
                                  input.bytes(), bytes, isWeights ? "f32" : "i32"));
  }
}

void BatchLoader::load(int64_t consumed, int64_t microBatch, std::byte *inputs) {
  int64_t begin = share.firstPlace(consumed, microBatch);
  for (int64_t i = 0; i < static_cast<int64_t>(settings.micro_batch_size()); ++i) {
    dataset.read(sampler.at(begin + i), {sample.tokens, sample.labels, sample.lossWeights, sample.positions, {}}, text);
    for (size_t k = 0; settings.ignore_token() >= 0 && k < sample.labels.size(); ++k)
      if (sample.labels[k] == settings.ignore_token())
        sample.lossWeights[k] = 0;
    write(i * length, inputs);
  }
}

void BatchLoader::write(int64_t begin, std::byte *inputs) const {
  for (const pb::InputBuffer &input : stage.inputs()) {
    const void *from = input.name() == "tokens"      ? static_cast<const void *>(sample.tokens.data() + first)
                       : input.name() == "labels"    ? sample.labels.data() + first
                       : input.name() == "positions" ? sample.positions.data() + first
                                                     : static_cast<const void *>(sample.lossWeights.data() + first);
    std::memcpy(inputs + input.offset() + begin * 4, from, length * 4);
  }
}

} // namespace espalier::rt
