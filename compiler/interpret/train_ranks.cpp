#include "compiler/interpret/train_ranks.h"

#include "compiler/interpret/ranks.h"
#include "compiler/interpret/run_ranks.h"
#include "compiler/pipeline/stage_calls.h"
#include "planner/model/schedule.h"
#include "runtime/train/initial_value.h"

#include <algorithm>
#include <cmath>
#include <mutex>

using namespace mlir;

namespace espalier {

namespace {

/// One layer call of a stage and its stored values. Parameters, accumulators and moments are flat, bucket by bucket, as
/// in the regions of the plan, so that shards are contiguous ranges. Under ZeRO 2 the accumulator is the rank's shard,
/// and one micro-batch accumulates into an unsharded buffer. Under ZeRO 3 parameters are the shard and are gathered
/// while a call reads them.
struct LayerState {
  LayerCall call;
  const SegmentLayout *segment = nullptr;
  std::map<std::string, std::vector<double>> stores;      ///< "parameter/block.plain", "state/block.plain.moment1"
  std::map<int64_t, std::map<std::string, Tensor>> saved; ///< keyed by micro-batch: saved values and the incoming
                                                          ///< stream
  LayerState *tiedOwner = nullptr;                        ///< owner of tied parameters on the same stage

  std::string globalName(const SegmentParameter &parameter) const {
    if (!parameter.tiedTo.empty())
      return parameter.tiedTo;
    return call.kind + "." + (call.index < 0 ? "" : std::to_string(call.index) + ".") + parameter.name;
  }
};

class RankTrainer {
public:
  RankTrainer(const PartitionedModel &model, const RunConfig &run, const planner::Plan &plan,
              const TrainingInputs &inputs, int rank, EvalContext &context, std::vector<TrainingStep> &out,
              std::mutex &mutex)
      : model(model), run(run), plan(plan), inputs(inputs), rank(rank), context(context), out(out), mutex(mutex),
        module(*model.module) {
    context.placeOn(module->getAttrOfType<dist::MeshAttr>("dist.mesh"), rank);
    context.seed = static_cast<uint32_t>(run.seed);
    context.hasClearedSums = true;
    stage = static_cast<int>(context.coordinate("pp"));
    ranksPerStage = plan.ranks() / plan.pp;
  }

  llvm::Error train() {
    makeLayers();
    for (LayerState &layer : layers)
      initialize(layer);
    auto table = planner::buildSchedule(plan.schedule, plan.pp, plan.microBatches, plan.virtualStages);
    for (int64_t step = 0; step < inputs.steps; ++step) {
      context.step = static_cast<uint32_t>(step);
      statistics.clear();
      context.scalars["loss_scale"] = 1;
      for (LayerState &layer : layers)
        for (const SegmentBucket &bucket : layer.segment->buckets)
          if (!bucket.isTiedHere)
            std::ranges::fill(layer.stores.at("accumulator/" + bucket.name), 0.0);
      for (const planner::Action &action : table.stages[stage]) {
        context.microBatch = action.microBatch;
        bool isForward = action.kind == planner::ActionKind::Forward,
             waits = action.kind == planner::ActionKind::Weight;
        if (llvm::Error error = isForward ? forward(action) : waits ? weight(action) : backward(action))
          return error;
        bool isLast =
            action.kind == (table.splitsBackward ? planner::ActionKind::Weight : planner::ActionKind::Backward);
        if (isLast)
          if (llvm::Error error = endMicroBatch(action))
            return error;
      }
      if (llvm::Error error = finishStep(step))
        return error;
    }
    return llvm::Error::success();
  }

private:
  /// Returns the index in the model of a chunk of this stage.
  int modelChunk(int chunk) const { return static_cast<int>(planStage(plan, stage, chunk)); }
  int modelChunks() const { return static_cast<int>(plan.stages.size()); }

  /// Returns the rank that holds a chunk of the model and has this rank's coordinates otherwise.
  int rankOf(int modelChunk) const {
    int there = planner::placement(plan).stageOf(modelChunk);
    return rank + (there - stage) * ranksPerStage;
  }

  /// Returns the tag of the stream from chunk `from` of the model to its neighbour `to`.
  static int64_t tagOf(int from, int to, int64_t microBatch) {
    return ((int64_t(from) << 1 | int64_t(to > from)) << 32) + microBatch;
  }

  /// Returns this rank's position among the ranks that differ on `axes` only.
  int64_t positionOn(ArrayRef<StringAttr> axes) const {
    int64_t position = 0;
    for (StringAttr axis : axes)
      position = position * context.axisSize(axis) + context.coordinate(axis);
    return position;
  }

  void makeLayers() {
    for (std::vector<LayerCall> &calls : callsOf(run, plan, stage)) {
      chunks.emplace_back(layers.size(), calls.size());
      for (LayerCall &call : calls) {
        LayerState &state = layers.emplace_back();
        state.call = std::move(call);
        state.segment = &*llvm::find_if(model.segments, [&](const auto &one) { return one.kind == state.call.kind; });
      }
    }
    if (headStage(plan) == 0)
      layers.back().tiedOwner = &layers.front();
  }

  /// Calls `visit(local flat index, global flat index or -1 for padding)` for each local element of a parameter.
  void forEachElement(const SegmentParameter &parameter, llvm::function_ref<void(int64_t, int64_t)> visit) const {
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

  void initialize(LayerState &layer) {
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
        value = roundToElement(storedType(), value);
      auto [first, end] = ownPart(bucket);
      if (bucket.wholeStoredOffset)
        parameters.assign(parameters.begin() + first, parameters.begin() + end);
      if (bucket.wholeGradientOffset)
        layer.stores["whole accumulator/" + bucket.name].assign(bucket.elements, 0.0);
      layer.stores["state/" + bucket.name + ".master"].assign(master.begin() + first, master.begin() + end);
      layer.stores["state/" + bucket.name + ".moment1"].assign(bucket.partElements, 0.0);
      layer.stores["state/" + bucket.name + ".moment2"].assign(bucket.partElements, 0.0);
      layer.stores["parameter/" + bucket.name] = std::move(parameters);
      layer.stores["accumulator/" + bucket.name].assign(bucket.gradientElements(), 0.0);
    }
  }

  /// Returns the elements of a bucket that this rank updates.
  std::pair<int64_t, int64_t> ownPart(const SegmentBucket &bucket) const {
    int64_t first = positionOn(bucket.shareAxes) * bucket.partElements;
    return {first, first + bucket.partElements};
  }

  Type storedType() {
    Builder b(module.getContext());
    return run.dtypes.parameters == DType::F32    ? Type(b.getF32Type())
           : run.dtypes.parameters == DType::BF16 ? Type(b.getBF16Type())
                                                  : Type(b.getF16Type());
  }

  /// Returns the store of a parameter-like argument and the offset of the argument in it. `name` is the name of a
  /// parameter, of a bucket, or of a part of a bucket's state.
  std::pair<std::vector<double> *, int64_t> store(LayerState &layer, const std::string &role, const std::string &name) {
    if (role == "state" || role == "scattered")
      return {&layer.stores.at(role + "/" + name), 0};
    bool isBucket = StringRef(name).contains('.');
    const SegmentParameter *parameter = isBucket ? nullptr : &layer.segment->parameter(name);
    const SegmentBucket &bucket = isBucket ? layer.segment->bucket(name) : layer.segment->bucketOf(*parameter);
    bool isPart = bool(role == "parameter" ? bucket.wholeStoredOffset : bucket.wholeGradientOffset);
    std::string key = (isPart && !isBucket ? "whole " : "") + role + "/" + bucket.name;
    return {&ownerOf(layer, bucket).stores.at(key), !isBucket ? parameter->first : isPart ? 0 : ownPart(bucket).first};
  }

  /// Returns the layer of this stage that stores a layer's bucket.
  static LayerState &ownerOf(LayerState &layer, const SegmentBucket &bucket) {
    return bucket.isTiedHere ? *layer.tiedOwner : layer;
  }

  /// Runs a phase of a layer with gathered parameters.
  llvm::Error callWhole(LayerState &layer, const std::string &phase, int64_t microBatch, Tensor &stream) {
    for (const SegmentBucket &bucket : layer.segment->buckets) {
      std::map<std::string, std::vector<double>> &stores = ownerOf(layer, bucket).stores;
      if (bucket.wholeStoredOffset)
        if (llvm::Error error =
                gather(bucket, stores.at("parameter/" + bucket.name), stores["whole parameter/" + bucket.name]))
          return error;
    }
    if (llvm::Error error = call(layer, phase, microBatch, stream))
      return error;
    for (const SegmentBucket &bucket : layer.segment->buckets)
      ownerOf(layer, bucket).stores.erase("whole parameter/" + bucket.name);
    return llvm::Error::success();
  }

  /// Runs a phase of a layer. Arguments are found and results are stored by role and name.
  llvm::Error call(LayerState &layer, const std::string &phase, int64_t microBatch, Tensor &stream) {
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

  static std::string text(DictionaryAttr attributes, StringRef name) {
    return cast<StringAttr>(attributes.get(name)).str();
  }

  Tensor read(LayerState &layer, DictionaryAttr attributes, RankedTensorType type, int64_t microBatch,
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
    if (role == "input")
      return input(name, type, microBatch);
    auto [values, first] = store(layer, role, name);
    return Tensor(type, std::vector<double>(values->begin() + first, values->begin() + first + type.getNumElements()));
  }

  void write(LayerState &layer, DictionaryAttr attributes, Tensor value, int64_t microBatch, Tensor &stream) {
    std::string role = text(attributes, "model.role"), name = text(attributes, "model.name");
    if (role == "stream" || role == "cotangent") {
      stream = std::move(value);
    } else if (StringRef(role).starts_with("saved")) {
      layer.saved[microBatch][name] = std::move(value);
    } else if (role == "statistic") {
      statistics[name] = value.values[0];
    } else {
      auto [values, first] = store(layer, role, name);
      std::copy(value.values.begin(), value.values.end(), values->begin() + first);
    }
  }

  /// Returns the samples of the rank's replica, each restricted to this rank's shard of the sequence.
  Tensor input(const std::string &name, RankedTensorType type, int64_t microBatch) const {
    std::vector<double> values;
    int64_t samples = plan.microBatchSize, length = type.getDimSize(1);
    int64_t replica = context.coordinate("dp") * plan.ep + context.coordinate("ep");
    int64_t first =
        static_cast<int64_t>(context.step) * plan.globalBatch() + (microBatch * plan.replicas() + replica) * samples;
    for (int64_t i = 0; i < samples; ++i) {
      TrainingSample sample = inputs.sample(first + i);
      const std::vector<double> &part = name == "tokens"         ? sample.tokens
                                        : name == "labels"       ? sample.labels
                                        : name == "loss_weights" ? sample.lossWeights
                                                                 : sample.positions;
      auto begin = part.begin() + context.coordinate("cp") * length;
      values.insert(values.end(), begin, begin + length);
    }
    return Tensor(type, std::move(values));
  }

  MutableArrayRef<LayerState> layersOf(int chunk) {
    return MutableArrayRef(layers).slice(chunks[chunk].first, chunks[chunk].second);
  }

  llvm::Expected<Tensor> receive(int from, int to, int64_t microBatch) {
    return context.rendezvous->receive(rankOf(from), rank, tagOf(from, to, microBatch));
  }
  void send(int from, int to, int64_t microBatch, Tensor value) {
    context.rendezvous->send(rank, rankOf(to), tagOf(from, to, microBatch), std::move(value));
  }

  llvm::Error forward(const planner::Action &action) {
    int here = modelChunk(action.chunk);
    Tensor stream;
    if (here > 0) {
      llvm::Expected<Tensor> received = receive(here - 1, here, action.microBatch);
      if (!received)
        return received.takeError();
      stream = std::move(*received);
    }
    for (LayerState &layer : layersOf(action.chunk)) {
      layer.saved[action.microBatch]["stream"] = stream;
      if (llvm::Error error = callWhole(layer, layer.call.policy + ".forward", action.microBatch, stream))
        return error;
    }
    if (here + 1 < modelChunks())
      send(here, here + 1, action.microBatch, std::move(stream));
    return llvm::Error::success();
  }

  llvm::Error backward(const planner::Action &action) {
    int here = modelChunk(action.chunk);
    Tensor cotangent;
    if (here + 1 < modelChunks()) {
      llvm::Expected<Tensor> received = receive(here + 1, here, action.microBatch);
      if (!received)
        return received.takeError();
      cotangent = std::move(*received);
    }
    for (LayerState &layer : llvm::reverse(layersOf(action.chunk)))
      if (llvm::Error error = callWhole(layer, layer.call.policy + ".backward", action.microBatch, cotangent))
        return error;
    if (here > 0)
      send(here, here - 1, action.microBatch, std::move(cotangent));
    return llvm::Error::success();
  }

  /// Computes the delayed weight gradients of the chunk's layers.
  llvm::Error weight(const planner::Action &action) {
    Tensor none;
    for (LayerState &layer : llvm::reverse(layersOf(action.chunk)))
      if (std::string phase = layer.call.policy + ".weight"; module.lookupSymbol(layer.call.kind + "." + phase))
        if (llvm::Error error = callWhole(layer, phase, action.microBatch, none))
          return error;
    return llvm::Error::success();
  }

  /// Frees the saved values of a chunk's layers after their last use. Under ZeRO 2, also adds each rank's shard of the
  /// summed gradient.
  llvm::Error endMicroBatch(const planner::Action &action) {
    Tensor none;
    for (LayerState &layer : layersOf(action.chunk)) {
      layer.saved.erase(action.microBatch);
      for (const SegmentBucket &bucket : layer.segment->buckets)
        if (bucket.wholeGradientOffset && !bucket.isTiedHere)
          if (llvm::Error error = scatter(layer, bucket))
            return error;
      if (module.lookupSymbol(layer.call.kind + ".add"))
        if (llvm::Error error = call(layer, "add", action.microBatch, none))
          return error;
    }
    return llvm::Error::success();
  }

  /// Reduce-scatters the gradients of one micro-batch.
  llvm::Error scatter(LayerState &layer, const SegmentBucket &bucket) {
    std::vector<double> &whole = layer.stores.at("whole accumulator/" + bucket.name);
    auto parts = exchange(bucket, bucket.shareAxes, {}, "scatter", whole);
    if (!parts)
      return parts.takeError();
    auto [first, end] = ownPart(bucket);
    std::vector<double> &share = layer.stores["scattered/" + bucket.name];
    share.assign(bucket.partElements, 0.0);
    for (const auto &part : *parts)
      for (int64_t i = first; i < end; ++i)
        share[i - first] += part->values[i];
    for (double &value : share)
      value = roundToElement(Builder(module.getContext()).getF32Type(), value);
    std::ranges::fill(whole, 0.0);
    return llvm::Error::success();
  }

  llvm::Error runAll(const std::string &phase) {
    Tensor none;
    for (LayerState &layer : layers)
      if (llvm::Error error = call(layer, phase, 0, none))
        return error;
    return llvm::Error::success();
  }

  /// Sums the statistics over all ranks.
  llvm::Error agree() {
    Builder b(module.getContext());
    auto type = RankedTensorType::get({3}, b.getF32Type());
    Tensor mine(type, {statistics["loss_sum"], statistics["token_count"], statistics["squared_norm"]});
    auto parts = context.rendezvous->exchange({"all ranks", rank, plan.ranks(), "agree"}, mine);
    if (!parts)
      return parts.takeError();
    size_t index = 0;
    for (const char *name : {"loss_sum", "token_count", "squared_norm"}) {
      statistics[name] = 0;
      for (const auto &part : *parts)
        statistics[name] += part->values[index];
      ++index;
    }
    return llvm::Error::success();
  }

  /// All-gathers values of a bucket among the ranks that differ in `axes`, and among the stages `holders` if given.
  llvm::Expected<Rendezvous::Parts> exchange(const SegmentBucket &bucket, ArrayRef<StringAttr> axes,
                                             ArrayRef<uint32_t> holders, const char *what, std::vector<double> values) {
    ++exchanges[what];
    int stages = std::max<int>(1, static_cast<int>(holders.size())), members = 1;
    for (StringAttr axis : axes)
      members *= static_cast<int>(context.axisSize(axis));
    auto holder = holders.empty() ? 0 : llvm::find(holders, static_cast<uint32_t>(stage)) - holders.begin();
    std::string group = std::string(what) + " " + bucket.name;
    for (const MeshPlace &place : context.mesh) {
      bool isMember = llvm::any_of(axes, [&](StringAttr axis) { return axis == place.axis; });
      if (!isMember && (stages == 1 || place.axis != "pp"))
        group += " " + place.axis + "=" + std::to_string(place.coordinate);
    }
    auto type = RankedTensorType::get({static_cast<int64_t>(values.size())}, Builder(module.getContext()).getF32Type());
    return context.rendezvous->exchange(
        {group, static_cast<int>(holder * members + positionOn(axes)), stages * members, what},
        Tensor(type, std::move(values)));
  }

  /// Sums gradients over the stages that hold the bucket and over its axes, except axes summed per micro-batch. Also
  /// sums shards of other ranks, which nothing reads.
  llvm::Error sumGradients() {
    Type f32 = Builder(module.getContext()).getF32Type();
    for (LayerState &layer : layers)
      for (const SegmentBucket &bucket : layer.segment->buckets) {
        Axes axes = bucket.partialAxes;
        llvm::erase_if(axes, [&](StringAttr axis) {
          return bucket.wholeGradientOffset && llvm::is_contained(bucket.shareAxes, axis);
        });
        if (bucket.isTiedHere || (axes.empty() && bucket.holders.empty()))
          continue;
        std::vector<double> &values = layer.stores.at("accumulator/" + bucket.name);
        auto parts = exchange(bucket, axes, bucket.holders, "sum", values);
        if (!parts)
          return parts.takeError();
        for (size_t i = 0; i < values.size(); ++i) {
          double sum = 0;
          for (const auto &part : *parts)
            sum += part->values[i];
          values[i] = roundToElement(f32, sum);
        }
      }
    return llvm::Error::success();
  }

  /// All-gathers the shards of a bucket.
  llvm::Error gather(const SegmentBucket &bucket, std::vector<double> share, std::vector<double> &whole) {
    auto parts = exchange(bucket, bucket.shareAxes, {}, "gather", std::move(share));
    if (!parts)
      return parts.takeError();
    whole.clear();
    for (const auto &part : *parts)
      whole.insert(whole.end(), part->values.begin(), part->values.end());
    return llvm::Error::success();
  }

  /// All-gathers the updated parameters.
  llvm::Error gatherParameters() {
    for (LayerState &layer : layers)
      for (const SegmentBucket &bucket : layer.segment->buckets) {
        if (bucket.isTiedHere || bucket.shareAxes.empty() || bucket.wholeStoredOffset)
          continue;
        std::vector<double> &values = layer.stores.at("parameter/" + bucket.name);
        auto [first, end] = ownPart(bucket);
        if (llvm::Error error = gather(bucket, {values.begin() + first, values.begin() + end}, values))
          return error;
      }
    return llvm::Error::success();
  }

  llvm::Error finishStep(int64_t step) {
    if (llvm::Error error = sumGradients())
      return error;
    if (llvm::Error error = runAll("norm"))
      return error;
    if (llvm::Error error = agree())
      return error;
    double tokens = statistics["token_count"];
    double norm = std::sqrt(statistics["squared_norm"]) / tokens;
    record(step, statistics["loss_sum"] / tokens, norm, tokens);
    const OptimizerConfig &adam = run.optimizer;
    double clip = adam.clip ? std::min(1.0, adam.maxGradNorm / (norm + 1e-6)) : 1.0;
    context.scalars["gradient_scale"] = clip / tokens;
    context.scalars["learning_rate"] = inputs.learningRate(step);
    context.scalars["bias_correction1"] = 1 / (1 - std::pow(adam.beta1, step + 1));
    context.scalars["bias_correction2"] = 1 / (1 - std::pow(adam.beta2, step + 1));
    context.scalars["apply"] = 1;
    if (llvm::Error error = runAll("update"))
      return error;
    if (llvm::Error error = gatherParameters())
      return error;
    if (rank == 0)
      out[step].exchanges = std::exchange(exchanges, {});
    return llvm::Error::success();
  }

  void record(int64_t step, double loss, double norm, double tokens) {
    std::lock_guard<std::mutex> lock(mutex);
    TrainingStep &entry = out[step];
    entry.loss = loss;
    entry.gradNorm = norm;
    for (const LayerState &layer : layers)
      for (const SegmentParameter &parameter : layer.segment->parameters) {
        if (layer.segment->bucketOf(parameter).isTiedHere)
          continue;
        std::vector<double> &whole = entry.gradients[layer.globalName(parameter)];
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

  const PartitionedModel &model;
  const RunConfig &run;
  const planner::Plan &plan;
  const TrainingInputs &inputs;
  int rank, stage = 0, ranksPerStage = 1;
  EvalContext &context;
  std::vector<TrainingStep> &out;
  std::mutex &mutex;
  ModuleOp module;
  std::vector<LayerState> layers;
  std::vector<std::pair<size_t, size_t>> chunks; ///< of the stage: first index into `layers`, and count
  std::map<std::string, double> statistics;
  std::map<std::string, int64_t> exchanges; ///< number of bucket collectives in this step
};

} // namespace

llvm::Expected<std::vector<TrainingStep>> trainRanks(const PartitionedModel &model, const RunConfig &run,
                                                     const planner::Plan &plan, const TrainingInputs &inputs) {
  std::vector<TrainingStep> steps(inputs.steps);
  std::mutex mutex;
  llvm::Error error = runRanks(plan.ranks(), [&](int rank, EvalContext &context) {
    return RankTrainer(model, run, plan, inputs, rank, context, steps, mutex).train();
  });
  if (error)
    return std::move(error);
  return steps;
}

} // namespace espalier
