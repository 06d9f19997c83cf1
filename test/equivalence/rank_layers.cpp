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

std::string LayerState::globalName(exec::ParameterOp parameter) const {
  return parameter.getTiedTo() ? parameter.getTiedTo()->str() : name() + "." + parameter.getName().str();
}

RankLayers::RankLayers(ModuleOp module, const RunConfig &run, const planner::Plan &plan, const EvalContext &context)
    : run(run), context(context), storedType(storedTypeOf(run, module.getContext())) {
  auto stage = static_cast<int>(context.coordinate("pp"));
  for (std::vector<LayerCall> &calls : callsOf(run.model.runs, plan, stage)) {
    chunks.emplace_back(layers.size(), calls.size());
    for (LayerCall &call : calls) {
      LayerState &state = layers.emplace_back();
      state.call = std::move(call);
      state.segment = exec::findSegment(module, state.call.kind);
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
    for (exec::BucketOp bucket : layer.segment.buckets())
      if (!bucket.getTiedHere())
        std::ranges::fill(layer.stores.at("accumulator/" + bucket.getName().str()), 0.0);
}

void RankLayers::forEachElement(exec::ParameterOp parameter, llvm::function_ref<void(int64_t, int64_t)> visit) const {
  ArrayRef<int64_t> local = parameter.getLocal().getShape(), unpadded = parameter.getShape();
  size_t rankOfTensor = local.size();
  std::vector<int64_t> begin(rankOfTensor);
  for (auto [d, axes] : llvm::enumerate(parameter.getSharding().getDims())) {
    int64_t size = parameter.getPaddedShape()[d];
    for (auto axis : axes.getAsRange<StringAttr>()) {
      size /= context.axisSize(axis);
      begin[d] += context.coordinate(axis) * size;
    }
  }
  std::vector<int64_t> index(rankOfTensor, 0);
  for (int64_t flat = 0; flat < parameter.localElements(); ++flat) {
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
  for (exec::BucketOp bucket : layer.segment.buckets()) {
    if (bucket.getTiedHere())
      continue;
    std::vector<double> master(bucket.getElements(), 0.0);
    for (exec::ParameterOp parameter : bucket.parameters()) {
      auto kind = static_cast<rt::pb::Initialization::Kind>(
          static_cast<int>(*exec::symbolizeInitializer(parameter.getInitializer())));
      double stddev = parameter.getStddev();
      std::string global = layer.globalName(parameter);
      forEachElement(parameter, [&](int64_t flat, int64_t index) {
        if (index >= 0)
          master[parameter.getFirst() + flat] = rt::initialValue(run.seed, global, kind, stddev, index);
      });
    }
    std::vector<double> parameters = master;
    for (double &value : parameters)
      value = roundToElement(storedType, value);
    auto [first, end] = ownPart(bucket);
    if (bucket.getWholeStoredOffset())
      parameters.assign(parameters.begin() + first, parameters.begin() + end);
    if (bucket.getWholeGradientOffset())
      layer.stores["whole accumulator/" + bucket.getName().str()].assign(bucket.getElements(), 0.0);
    layer.stores["state/" + bucket.getName().str() + ".master"].assign(master.begin() + first, master.begin() + end);
    for (const char *state : bucket.optimizerRow().states)
      layer.stores["state/" + bucket.getName().str() + "." + state].assign(bucket.getPartElements(), 0.0);
    layer.stores["parameter/" + bucket.getName().str()] = std::move(parameters);
    layer.stores["accumulator/" + bucket.getName().str()].assign(bucket.gradientElements(), 0.0);
  }
}

int64_t RankLayers::positionOn(ArrayRef<StringAttr> axes) const {
  int64_t position = 0;
  for (StringAttr axis : axes)
    position = position * context.axisSize(axis) + context.coordinate(axis);
  return position;
}

std::pair<int64_t, int64_t> RankLayers::ownPart(exec::BucketOp bucket) const {
  int64_t first = positionOn(bucket.getShare()) * bucket.getPartElements();
  return {first, first + bucket.getPartElements()};
}

std::pair<std::vector<double> *, int64_t> RankLayers::store(LayerState &layer, const std::string &role,
                                                            const std::string &name) const {
  if (role == "state" || role == "scattered")
    return {&layer.stores.at(role + "/" + name), 0};
  bool isBucket = StringRef(name).contains('.');
  exec::ParameterOp parameter = isBucket ? exec::ParameterOp() : layer.segment.parameter(name);
  exec::BucketOp bucket = isBucket ? layer.segment.bucket(name) : parameter.bucket();
  bool isPart = bool(role == "parameter" ? bucket.getWholeStoredOffset() : bucket.getWholeGradientOffset());
  std::string key = (isPart && !isBucket ? "whole " : "") + role + "/" + bucket.getName().str();
  return {&layer.ownerOf(bucket).stores.at(key), !isBucket ? parameter.getFirst() : isPart ? 0 : ownPart(bucket).first};
}

void RankLayers::addGradients(TrainingStep &step, double tokens) const {
  for (const LayerState &layer : layers)
    for (exec::ParameterOp parameter : layer.segment.parameters()) {
      exec::BucketOp bucket = parameter.bucket();
      if (bucket.getTiedHere() || bucket.getFrozen())
        continue;
      std::vector<double> &whole = step.gradients[layer.globalName(parameter)];
      int64_t elements = 1;
      for (StringAttr dim : dimNames(parameter.getLocal()))
        elements *= run.model.dims.at(dim.str());
      whole.resize(elements);
      const std::vector<double> &local = layer.stores.at("accumulator/" + bucket.getName().str());
      auto [first, end] = ownPart(bucket);
      forEachElement(parameter, [&, first = first, end = end](int64_t flat, int64_t index) {
        int64_t element = parameter.getFirst() + flat;
        if (index >= 0 && element >= first && element < end)
          whole[index] = local[element - (bucket.getWholeGradientOffset() ? first : 0)] / tokens;
      });
    }
}

} // namespace espalier
