// The names of inputs are fixed (format/model_inputs.h). Each is [micro_batch_size, sequence / cp]. In zigzag order, a
// rank's part of a sample is two runs of the sample.
#include "runtime/train/batch_loader.h"

#include "format/zigzag.h"
#include "runtime/dataset/further_labels.h"
#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/train/open_data.h"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace espalier::rt {

namespace {

/// Returns the number of samples. Throws PlanError if the dataset is empty, because an empty dataset has no order.
int64_t requireSamples(const Dataset &dataset) {
  if (dataset.sampleCount() <= 0)
    throw PlanError("the data holds no sample of the plan's sequence length");
  return dataset.sampleCount();
}

} // namespace

BatchLoader::BatchLoader(const pb::Plan &plan, const Mesh &mesh, int rank, const Dataset &dataset, SampleOrder order,
                         int64_t end)
    : settings(plan.settings()), dataset(dataset),
      share{static_cast<int64_t>(settings.micro_batch_size()), dataReplica(mesh, rank), dataReplicas(mesh)},
      contextRank(mesh.index(rank, CP)), contextRanks(mesh.count(CP)),
      length(static_cast<int64_t>(settings.sequence()) / mesh.count(CP)), end(end),
      hasWeights(hasInput(plan, "loss_weights")),
      sampler(order, requireSamples(dataset), static_cast<int64_t>(settings.global_batch())),
      text(settings.sequence() + 1) {
  sample.tokens.resize(settings.sequence());
  sample.labels.resize(settings.sequence());
  sample.lossWeights.resize(settings.sequence());
  sample.positions.resize(settings.sequence());
  sample.visibleFrom.resize(settings.sequence());
  uint64_t bytes = settings.micro_batch_size() * length * 4;
  const pb::Stage &stage = plan.stages(mesh.stage(rank));
  for (int i = 0; i < stage.exchanges_size(); ++i) {
    const pb::Exchange &exchange = stage.exchanges(i);
    if (!exchange.filled_by_host() || exchange.name() == "scalars")
      continue;
    const ModelInput *input = modelInput(exchange.name());
    if (!input)
      throw PlanError(fmt::format("the plan reads input '{}', which samples do not have", exchange.name()));
    const pb::Value &value = plan.values(exchange.buffer().value());
    pb::DataType type = value.type(), wanted = input->isNumber ? pb::F32 : pb::I32;
    if (exchange.buffer().bytes() != bytes || type != wanted)
      throw PlanError(fmt::format("the plan's input '{}' has {} bytes of {}, samples give {} of {}", exchange.name(),
                                  exchange.buffer().bytes(), pb::DataType_Name(type), bytes,
                                  pb::DataType_Name(wanted)));
    inputs.push_back({static_cast<uint32_t>(i), static_cast<const char *>(sampleField(*input)), value.zigzag()});
  }
}

/// Returns the field of the sample that an input receives. Allocates the fields of modules for further tokens.
const void *BatchLoader::sampleField(const ModelInput &input) {
  if (input.further > 0) {
    Further &module = further[input.further];
    module.labels.resize(settings.sequence());
    module.weights.resize(settings.sequence());
    return input.isNumber ? static_cast<const void *>(module.weights.data()) : module.labels.data();
  }
  return input.isNumber                 ? static_cast<const void *>(sample.lossWeights.data())
         : input.name == "tokens"       ? sample.tokens.data()
         : input.name == "labels"       ? sample.labels.data()
         : input.name == "visible_from" ? sample.visibleFrom.data()
                                        : sample.positions.data();
}

void BatchLoader::load(int64_t consumed, int64_t microBatch, const Memory &memory) {
  int64_t begin = share.firstPlace(consumed, microBatch);
  for (int64_t i = 0; i < static_cast<int64_t>(settings.micro_batch_size()); ++i) {
    dataset.read(sampler.at(begin + i),
                 {sample.tokens, sample.labels, sample.lossWeights, sample.positions, sample.visibleFrom}, text);
    for (size_t k = 0; settings.ignore_token() >= 0 && k < sample.labels.size(); ++k)
      if (sample.labels[k] == settings.ignore_token())
        sample.lossWeights[k] = 0;
    if (begin + i >= end)
      std::ranges::fill(sample.lossWeights, 0.0f);
    for (auto &[tokens, module] : further)
      fillFurther<int32_t, float, int32_t>(tokens, sample.labels, sample.lossWeights, sample.visibleFrom, module.labels,
                                           module.weights);
    write(i * length, memory);
  }
}

std::optional<PackedStep> BatchLoader::describePacking(int64_t consumed, int64_t samples) const {
  if (!dataset.packedRows())
    return std::nullopt;
  bool isZigzag = std::ranges::any_of(inputs, &Input::isZigzag);
  return describeStep(*dataset.packedRows(), consumed, samples,
                      {share.microBatch, share.dpSize, contextRanks, isZigzag});
}

void BatchLoader::write(int64_t begin, const Memory &memory) const {
  for (const Input &input : inputs) {
    auto *to = memory(input.exchange) + begin * 4;
    if (!input.isZigzag) {
      std::memcpy(to, input.from + contextRank * length * 4, length * 4);
      continue;
    }
    int64_t run = length / 2;
    for (int64_t half : {0, 1})
      std::memcpy(to + half * run * 4, input.from + zigzagChunk(contextRank, half, contextRanks) * run * 4, run * 4);
  }
}

} // namespace espalier::rt
