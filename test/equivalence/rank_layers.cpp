#include "test/equivalence/rank_layers.h"

#include "runtime/train/initial_value.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

/// Returns the type of stored parameters.
static Type storedTypeOf(const RunConfig &run, MLIRContext *context) {
  Builder b(context);
  return run.dtypes.parameters == DType::F32    ? Type(b.getF32Type())
         : run.dtypes.parameters == DType::BF16 ? Type(b.getBF16Type())
                                                : Type(b.getF16Type());
}

std::string LayerState::name() const { return call.kind + (call.index < 0 ? "" : "." + std::to_string(call.index)); }

std::string LayerState::globalName(const SegmentParameter &parameter) const {
  return parameter.tiedTo.empty() ? name() + "." + parameter.name : parameter.tiedTo;
}

RankLayers::RankLayers(const PartitionedModel &model, const RunConfig &run, const planner::Plan &plan,
                       const EvalContext &context)
    : run(run), context(context), storedType(storedTypeOf(run, ModuleOp(*model.module).getContext())) {
  auto stage = static_cast<int>(context.coordinate("pp"));
  for (std::vector<LayerCall> &calls : callsOf(run.model.runs, plan, stage)) {
    chunks.emplace_back(layers.size(), calls.size());
    for (LayerCall &call : calls) {
      LayerState &state = layers.emplace_back();
      state.call = std::move(call);
      state.segment = &*llvm::find_if(model.segments, [&](const auto &one) { return one.kind == state.call.kind; });
    }
  }
  if (headStage(plan) == 0)
    layers.back().tiedOwner = &layers.front();
  for (LayerState &layer : layers)
    initialize(layer);
}

llvm::MutableArrayRef<LayerState> RankLayers::ofChunk(int chunk) {
  return MutableArrayRef(layers).slice(chunks[chunk].first, chunks[chunk].second);
}

void RankLayers::clearAccumulators() {
  for (LayerState &layer : layers)
    for (const SegmentBucket &bucket : layer.segment->buckets)
      if (!bucket.isTiedHere)
        std::ranges::fill(layer.stores.at("accumulator/" + bucket.name), 0.0);
}

void RankLayers::forEachElement(const SegmentParameter &parameter,
                                llvm::function_ref<void(int64_t, int64_t)> visit) const {
  size_t rankOfTensor = parameter.paddedShape.size();
  std::vector<int64_t> local(rankOfTensor), begin(rankOfTensor), unpadded(rankOfTensor);
  for (size_t d = 0; d < rankOfTensor; ++d) {
    local[d] = parameter.paddedShape[d];
    for (StringAttr axis : parameter.sharding.dims[d]) {
      local[d] /= context.axisSize(axis);
      begin[d] += context.coordinate(axis) * local[d];
    }
    unpadded[d] = parameter.shape[d];
  }
  std::vector<int64_t> index(rankOfTensor, 0);
  for (int64_t flat = 0; flat < parameter.localElements; ++flat) {
    int64_t global = 0;
    for (size_t d = 0; d < rankOfTensor && global >= 0; ++d) {
      int64_t position = begin[d] + index[d];
      global = position < unpadded[d] ? global * unpadded[d] + position : -1;
    }
    visit(flat, global);
    for (size_t d = rankOfTensor; d-- > 0 && ++index[d] == local[d];)
      index[d] = 0;
  }
}

void RankLayers::initialize(LayerState &layer) const {
  for (const SegmentBucket &bucket : layer.segment->buckets) {
    if (bucket.isTiedHere)
      continue;
    std::vector<double> master(bucket.elements, 0.0);
    for (size_t number : bucket.parameters) {
      const SegmentParameter &parameter = layer.segment->parameters[number];
      const Initializer &initializer = parameter.initializer;
      auto kind = static_cast<rt::InitialKind>(static_cast<int>(initializer.kind));
      std::string global = layer.globalName(parameter);
      forEachElement(parameter, [&](int64_t flat, int64_t index) {
        if (index >= 0)
          master[parameter.first + flat] = rt::initialValue(run.seed, global, kind, initializer.stddev, index);
      });
    }
    std::vector<double> parameters = master;
    for (double &value : parameters)
      value = roundToElement(storedType, value);
    auto [first, end] = ownPart(bucket);
    if (bucket.wholeStoredOffset)
      parameters.assign(parameters.begin() + first, parameters.begin() + end);
    if (bucket.wholeGradientOffset)
      layer.stores["whole accumulator/" + bucket.name].assign(bucket.elements, 0.0);
    layer.stores["state/" + bucket.name + ".master"].assign(master.begin() + first, master.begin() + end);
    for (const char *state : rt::optimizerRow(bucket.optimizer).states)
      layer.stores["state/" + bucket.name + "." + state].assign(bucket.partElements, 0.0);
    layer.stores["parameter/" + bucket.name] = std::move(parameters);
    layer.stores["accumulator/" + bucket.name].assign(bucket.gradientElements(), 0.0);
  }
}

int64_t RankLayers::positionOn(ArrayRef<StringAttr> axes) const {
  int64_t position = 0;
  for (StringAttr axis : axes)
    position = position * context.axisSize(axis) + context.coordinate(axis);
  return position;
}

std::pair<int64_t, int64_t> RankLayers::ownPart(const SegmentBucket &bucket) const {
  int64_t first = positionOn(bucket.shareAxes) * bucket.partElements;
  return {first, first + bucket.partElements};
}

std::pair<std::vector<double> *, int64_t> RankLayers::store(LayerState &layer, const std::string &role,
                                                            const std::string &name) const {
  if (role == "state" || role == "scattered")
    return {&layer.stores.at(role + "/" + name), 0};
  bool isBucket = StringRef(name).contains('.');
  const SegmentParameter *parameter = isBucket ? nullptr : &layer.segment->parameter(name);
  const SegmentBucket &bucket = isBucket ? layer.segment->bucket(name) : layer.segment->bucketOf(*parameter);
  bool isPart = bool(role == "parameter" ? bucket.wholeStoredOffset : bucket.wholeGradientOffset);
  std::string key = (isPart && !isBucket ? "whole " : "") + role + "/" + bucket.name;
  return {&layer.ownerOf(bucket).stores.at(key), !isBucket ? parameter->first : isPart ? 0 : ownPart(bucket).first};
}

void RankLayers::addGradients(TrainingStep &step, double tokens) const {
  for (const LayerState &layer : layers)
    for (const SegmentParameter &parameter : layer.segment->parameters) {
      if (const SegmentBucket &bucket = layer.segment->bucketOf(parameter); bucket.isTiedHere || bucket.isFrozen)
        continue;
      std::vector<double> &whole = step.gradients[layer.globalName(parameter)];
      int64_t elements = 1;
      for (const std::string &dim : parameter.dims)
        elements *= run.model.dims.at(dim);
      whole.resize(elements);
      const SegmentBucket &bucket = layer.segment->bucketOf(parameter);
      const std::vector<double> &local = layer.stores.at("accumulator/" + bucket.name);
      auto [first, end] = ownPart(bucket);
      forEachElement(parameter, [&, first = first, end = end](int64_t flat, int64_t index) {
        int64_t element = parameter.first + flat;
        if (index >= 0 && element >= first && element < end)
          whole[index] = local[element - (bucket.wholeGradientOffset ? first : 0)] / tokens;
      });
    }
}

} // namespace espalier
