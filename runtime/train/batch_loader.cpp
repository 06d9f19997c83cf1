// Inputs are known by name: tokens, labels, loss_weights, positions; each [micro_batch_size,
// sequence].
#include "runtime/train/batch_loader.h"

#include "runtime/status.h"

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

BatchLoader::BatchLoader(const pb::Plan &plan, int stage, const Dataset &dataset, SampleOrder order, int replica,
                         int replicas)
    : settings(plan.settings()), stage(plan.stages(stage)), dataset(dataset),
      share{static_cast<int64_t>(settings.micro_batch_size()), replica, replicas},
      sampler(order, requireSamples(dataset), static_cast<int64_t>(settings.global_batch())),
      text(settings.sequence() + 1) {
  uint64_t bytes = settings.micro_batch_size() * settings.sequence() * 4;
  for (const pb::InputBuffer &input : this->stage.inputs()) {
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
  int64_t samples = settings.micro_batch_size(), length = settings.sequence();
  int64_t begin = share.firstPlace(consumed, microBatch);
  for (int64_t i = 0; i < samples; ++i) {
    SampleView view;
    for (const pb::InputBuffer &input : stage.inputs()) {
      std::byte *place = inputs + input.offset() + i * length * 4;
      std::span<int32_t> numbers(reinterpret_cast<int32_t *>(place), length);
      if (input.name() == "tokens")
        view.tokens = numbers;
      else if (input.name() == "labels")
        view.labels = numbers;
      else if (input.name() == "positions")
        view.positions = numbers;
      else
        view.lossWeights = {reinterpret_cast<float *>(place), static_cast<size_t>(length)};
    }
    dataset.read(sampler.at(begin + i), view, text);
    for (size_t k = 0; settings.ignore_token() >= 0 && k < view.labels.size(); ++k)
      if (view.labels[k] == settings.ignore_token() && !view.lossWeights.empty())
        view.lossWeights[k] = 0;
  }
}

} // namespace espalier::rt
