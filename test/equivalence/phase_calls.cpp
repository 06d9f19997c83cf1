#include "test/equivalence/phase_calls.h"

#include "format/axes.h"
#include "format/model_inputs.h"
#include "runtime/dataset/further_labels.h"

using namespace mlir;

namespace espalier {

static std::string text(DictionaryAttr attributes, StringRef name) {
  return cast<StringAttr>(attributes.get(name)).str();
}

bool PhaseCalls::has(const LayerState &layer, const std::string &phase) {
  return static_cast<bool>(module.lookupSymbol(layer.call.kind + "." + phase));
}

llvm::Error PhaseCalls::callWhole(LayerState &layer, const std::string &phase, int64_t microBatch, Tensor &stream) {
  for (exec::BucketOp bucket : layer.segment.buckets()) {
    std::map<std::string, std::vector<double>> &stores = layer.ownerOf(bucket).stores;
    if (bucket.getWholeStoredOffset())
      if (llvm::Error error = collectives.gather(bucket, stores.at("parameter/" + bucket.getName().str()),
                                                 stores["whole parameter/" + bucket.getName().str()]))
        return error;
  }
  if (llvm::Error error = call(layer, phase, microBatch, stream))
    return error;
  for (exec::BucketOp bucket : layer.segment.buckets())
    layer.ownerOf(bucket).stores.erase("whole parameter/" + bucket.getName().str());
  return llvm::Error::success();
}

llvm::Error PhaseCalls::call(LayerState &layer, const std::string &phase, int64_t microBatch, Tensor &stream) {
  auto function = module.lookupSymbol<func::FuncOp>(layer.call.kind + "." + phase);
  if (!function)
    return llvm::createStringError("no function %s.%s", layer.call.kind.c_str(), phase.c_str());
  context.layer = layer.call.layer;
  std::vector<Tensor> arguments;
  for (BlockArgument argument : function.getArguments()) {
    DictionaryAttr attributes = function.getArgAttrDict(argument.getArgNumber());
    arguments.push_back(read(layer, attributes, cast<RankedTensorType>(argument.getType()), microBatch, stream));
  }
  llvm::Expected<std::vector<Tensor>> results = evaluate(function, arguments, context);
  if (!results)
    return results.takeError();
  for (auto [index, result] : llvm::enumerate(*results))
    write(layer, function.getResultAttrDict(index), std::move(result), microBatch, stream);
  return llvm::Error::success();
}

PhaseCalls::Counter &PhaseCalls::counter(const LayerState &layer, DictionaryAttr attributes, RankedTensorType type) {
  auto [entry, isNew] = counters.try_emplace(layer.name() + "." + text(attributes, "model.name"));
  Counter &counter = entry->second;
  if (!isNew)
    return counter;
  counter.values.assign(type.getNumElements(), 0.0);
  auto partial = cast<dist::ShardingAttr>(attributes.get("dist.sharding")).getPartial();
  auto mesh = module->getAttrOfType<dist::MeshAttr>("dist.mesh");
  for (StringAttr axis : mesh.getAxes())
    if (axis != "pp" && !llvm::is_contained(partial, axis) && context.coordinate(axis) != 0)
      counter.isOwn = false;
  return counter;
}

Tensor PhaseCalls::read(LayerState &layer, DictionaryAttr attributes, RankedTensorType type, int64_t microBatch,
                        const Tensor &stream) {
  std::string role = text(attributes, "model.role"), name = text(attributes, "model.name");
  if (role == "stream")
    return layer.saved[microBatch]["stream"];
  if (role == "cotangent")
    return stream;
  if (StringRef(role).starts_with("saved"))
    return layer.saved[microBatch].at(name);
  if (role == "statistic")
    return Tensor(type, {statistics[name]});
  if (role == "counter")
    return Tensor(type, counter(layer, attributes, type).values);
  if (role == "input")
    return input(name, type, microBatch);
  auto [values, first] = layers.store(layer, role, name);
  return Tensor(type, std::vector<double>(values->begin() + first, values->begin() + first + type.getNumElements()));
}

void PhaseCalls::write(LayerState &layer, DictionaryAttr attributes, Tensor value, int64_t microBatch, Tensor &stream) {
  std::string role = text(attributes, "model.role"), name = text(attributes, "model.name");
  if (role == "stream" || role == "cotangent") {
    stream = std::move(value);
  } else if (StringRef(role).starts_with("saved")) {
    layer.saved[microBatch][name] = std::move(value);
  } else if (role == "statistic") {
    statistics[name] = value.values[0];
  } else if (role == "counter") {
    counters.at(layer.name() + "." + name).values = value.values;
  } else {
    auto [values, first] = layers.store(layer, role, name);
    std::copy(value.values.begin(), value.values.end(), values->begin() + first);
  }
}

Tensor PhaseCalls::input(const std::string &name, RankedTensorType type, int64_t microBatch) const {
  std::vector<double> values;
  int64_t samples = plan.microBatchSize, length = type.getDimSize(1);
  int64_t group = context.coordinate(replicateAxis) * plan.zeroRanks() + context.coordinate("dp");
  int64_t replica = group * plan.ep + context.coordinate("ep");
  int64_t first =
      static_cast<int64_t>(context.step) * plan.globalBatch() + (microBatch * plan.replicas() + replica) * samples;
  for (int64_t i = 0; i < samples; ++i) {
    TrainingSample sample = inputs.sample(first + i);
    const rt::ModelInput &input = *rt::modelInput(name);
    if (input.further > 0) {
      std::vector<double> labels(sample.labels.size()), weights(sample.labels.size());
      rt::fillFurther<double, double, double>(input.further, sample.labels, sample.lossWeights, sample.visibleFrom,
                                              labels, weights);
      sample.labels = std::move(labels);
      sample.lossWeights = std::move(weights);
    }
    const std::vector<double> &part = input.isNumber           ? sample.lossWeights
                                      : name == "tokens"       ? sample.tokens
                                      : name == "visible_from" ? sample.visibleFrom
                                      : name == "positions"    ? sample.positions
                                                               : sample.labels;
    int64_t rank = context.coordinate("cp"), chunk = plan.hasTwoRuns() ? length / 2 : length;
    values.insert(values.end(), part.begin() + rank * chunk, part.begin() + (rank + 1) * chunk);
    if (plan.hasTwoRuns())
      values.insert(values.end(), part.end() - (rank + 1) * chunk, part.end() - rank * chunk);
  }
  return Tensor(type, std::move(values));
}

} // namespace espalier
