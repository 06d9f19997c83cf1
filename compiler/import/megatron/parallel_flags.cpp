#include "compiler/import/megatron/section_flags.h"
#include "compiler/import/megatron/stage_layout.h"
#include "planner/check.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier {

namespace {

/// Writes the ramp of the batch size and returns it. The run file refuses wrong values.
std::vector<BatchStep> writeRamp(GivenFlags &given, RunFileWriter &yaml, int64_t batch) {
  const char *linear = "--rampup-batch-size", *stepped = "--step-batch-size-schedule";
  const std::string section = "runner_config.";
  std::vector<std::string> words;
  if (given.isGiven(linear)) {
    words = given.values(linear, section + "rampup_batch_size");
    yaml.put(section + "rampup_batch_size", fmt::format("[{}]", fmt::join(words, ", ")), linear);
  }
  if (!given.isGiven(stepped))
    return linearRamp(words, batch).steps;
  std::string text = fmt::format("{}", fmt::join(given.values(stepped, section + "step_batch_size_schedule"), " "));
  std::erase(text, '"');
  yaml.put(section + "step_batch_size_schedule", quotedYaml(text), stepped);
  return steppedRamp(text, given.count("--seq-length", "model.model_config.seq_length").value_or(1), batch).steps;
}

/// Writes the layers of the stages of one script.
class StageWriter : FlagWriter {
public:
  /// `pattern` has no chunks if the script has none.
  StageWriter(GivenFlags &given, RunFileWriter &yaml, int64_t layers, const HybridPattern &pattern)
      : FlagWriter(given, yaml), layers(layers), pattern(pattern) {}

  /// Writes the chunks of each stage, and separate sizes of the first and the last stage. Returns the number of chunks
  /// of a stage.
  int64_t write(int64_t pp) {
    writeStages(pp);
    return chunks;
  }

private:
  void writeStages(int64_t pp) {
    if (pattern.chunkSizes.size() > 1)
      return writeBorders(pp);
    if (std::optional<std::string> layout = given.value("--pipeline-model-parallel-layout", "planner.pin.stage_layers"))
      return writeLayout(*layout, pp);
    const std::string chunksKey = "planner.pin.virtual_stages", offsetKey = "model.model_config.offset";
    std::optional<int64_t> perChunk = given.count("--num-layers-per-virtual-pipeline-stage", chunksKey);
    std::optional<int64_t> stated = given.count("--num-virtual-stages-per-pipeline-rank", chunksKey);
    chunks = std::min<int64_t>(stated.value_or(1), 100000);
    bool countsFirst = given.isSet(countsEmbedding, "planner.pin.stage_layers"),
         countsLast = given.isSet(countsLoss, "planner.pin.stage_layers");
    int64_t counted = layers + countsFirst + countsLast;
    if (perChunk && counted % (pp * *perChunk) != 0)
      given.error("--num-layers-per-virtual-pipeline-stage",
                  fmt::format("{} layers are not a multiple of pp {} · {} layers of a chunk", counted, pp, *perChunk));
    else if (perChunk)
      chunks = counted / (pp * *perChunk);
    if (chunks > 1) {
      put("parallel.pipeline_config.pipeline_interleave", "True", "--num-layers-per-virtual-pipeline-stage");
      put(chunksKey, fmt::format("{}", chunks), "--num-layers-per-virtual-pipeline-stage");
    }
    if (countsFirst || countsLast)
      return writeCounted(pp, countsFirst, countsLast);
    std::optional<int64_t> first = given.count("--decoder-first-pipeline-num-layers", offsetKey);
    std::optional<int64_t> last = given.count("--decoder-last-pipeline-num-layers", offsetKey);
    if (!first && !last)
      return;
    int64_t inner = pp - (first ? 1 : 0) - (last ? 1 : 0), rest = layers - first.value_or(0) - last.value_or(0);
    if (inner < 0 || rest < 0 || (inner == 0 ? rest != 0 : rest % inner != 0)) {
      given.error(first ? "--decoder-first-pipeline-num-layers" : "--decoder-last-pipeline-num-layers",
                  fmt::format("{} layers are left for {} other stages, which does not divide", rest, inner));
      return;
    }
    // Megatron distributes a stage's layers evenly over its chunks, so one list of offsets applies to each chunk.
    for (int64_t count : {first.value_or(0), last.value_or(0), inner > 0 ? rest / inner : 0})
      if (count % chunks != 0)
        return given.error(first ? "--decoder-first-pipeline-num-layers" : "--decoder-last-pipeline-num-layers",
                           fmt::format("{} layers of a stage are not a multiple of its {} chunks", count, chunks));
    std::vector<int64_t> offsets(static_cast<size_t>(std::min<int64_t>(pp, 100000)), inner > 0 ? rest / inner : 0);
    offsets.front() = first.value_or(offsets.front());
    offsets.back() = last.value_or(offsets.back());
    for (int64_t &entry : offsets)
      entry = entry / chunks - layers / (pp * chunks);
    put(offsetKey, fmt::format("[{}]", fmt::join(offsets, ", ")), "--decoder-first-pipeline-num-layers");
  }

  /// Writes the layers of every chunk from a layout.
  void writeLayout(const std::string &text, int64_t pp) {
    const char *flag = "--pipeline-model-parallel-layout";
    StageLayout layout = readStageLayout(text);
    int64_t total = std::accumulate(layout.layers.begin(), layout.layers.end(), int64_t(0));
    if (!layout.fault.empty())
      return given.error(flag, fmt::format("{}: {}", flag, layout.fault));
    if (layers > 0 && total != layers && static_cast<int64_t>(layout.layers.size()) % pp == 0)
      return given.error(flag, fmt::format("the layout has {} layers, the model has {}", total, layers));
    writeChunks(flag, layout.layers, pp);
  }

  /// Writes the layers of every chunk.
  void writeChunks(const char *flag, const std::vector<int> &sizes, int64_t pp) {
    int64_t places = static_cast<int64_t>(sizes.size());
    if (places % pp != 0)
      return given.error(flag, fmt::format("the layout has {} stages, not a multiple of pp {}", places, pp));
    chunks = places / pp;
    if (chunks > 1) {
      put("parallel.pipeline_config.pipeline_interleave", "True", flag);
      put("planner.pin.virtual_stages", fmt::format("{}", chunks), flag);
    }
    put("planner.pin.stage_layers", fmt::format("[{}]", fmt::join(sizes, ", ")), flag);
  }

  /// Writes the stages between the borders of a pattern, which no other flag may contradict.
  void writeBorders(int64_t pp) {
    for (const char *flag : {"--pipeline-model-parallel-layout", "--num-layers-per-virtual-pipeline-stage",
                             "--num-virtual-stages-per-pipeline-rank", "--decoder-first-pipeline-num-layers",
                             "--decoder-last-pipeline-num-layers", countsEmbedding, countsLoss})
      if (given.isGiven(flag))
        given.error(flag, fmt::format("the borders (|) of {} say the stages; leave out {}", hybridPatternFlag, flag));
    writeChunks(hybridPatternFlag, pattern.chunkSizes, pp);
  }

  /// Writes the layers of every chunk if the embedding or the loss counts as a layer of its chunk.
  void writeCounted(int64_t pp, bool countsFirst, bool countsLast) {
    const char *flag = countsFirst ? countsEmbedding : countsLoss;
    int64_t counted = layers + countsFirst + countsLast, places = std::min<int64_t>(pp * chunks, 100000);
    if (counted % places != 0 || counted < places + (places == 1 ? countsLast : 0))
      return given.error(flag, fmt::format("{} layers, with the embedding and the loss that count as layers, are not a "
                                           "multiple of {} chunks of stages",
                                           counted, places));
    std::vector<int64_t> each(static_cast<size_t>(places), counted / places);
    each.front() -= countsFirst;
    each.back() -= countsLast;
    put("planner.pin.stage_layers", fmt::format("[{}]", fmt::join(each, ", ")), flag);
  }

  static constexpr const char *countsEmbedding = "--account-for-embedding-in-pipeline-split",
                              *countsLoss = "--account-for-loss-in-pipeline-split";
  int64_t layers;
  const HybridPattern &pattern;
  int64_t chunks = 1; ///< chunks per stage
};

/// Writes the split of one script.
class ParallelWriter : FlagWriter {
public:
  using FlagWriter::FlagWriter;

  ScriptSizes write(int64_t devices, int64_t baseLayers) {
    const std::string section = "parallel_config.";
    int64_t tp = size("--tensor-model-parallel-size", section + "model_parallel");
    int64_t pp = size("--pipeline-model-parallel-size", section + "pipeline_stage");
    int64_t cp = size("--context-parallel-size", section + "context_parallel");
    double product = static_cast<double>(tp) * static_cast<double>(pp) * static_cast<double>(cp);
    if (devices > 0 && std::fmod(static_cast<double>(devices), product) != 0) {
      given.error(
          "--tensor-model-parallel-size",
          fmt::format("tp {} · pp {} · cp {} does not divide the {} devices; change --nproc_per_node or --nnodes, or "
                      "give --cluster NAME:HOSTSxDEVICES",
                      tp, pp, cp, devices));
      devices = 0;
    }
    int64_t dp = devices > 0 ? devices / static_cast<int64_t>(product) : 1;
    int64_t micro = size("--micro-batch-size", "runner_config.batch_size");
    int64_t batch = given.count("--global-batch-size", "micro-batches of a step").value_or(micro * dp);
    if (devices > 0 && batch % (micro * dp) != 0)
      given.error("--global-batch-size",
                  fmt::format("global batch {} is not a multiple of micro-batch size {} · dp {}", batch, micro, dp));
    int64_t batches = std::max<int64_t>(1, batch / (micro * dp));
    put("runner_config.batch_size", fmt::format("{}", micro), "--micro-batch-size");
    put("runner_config.gradient_accumulation_steps", fmt::format("{}", pp == 1 ? batches : 1), "--global-batch-size");
    put("parallel.parallel_mode", "1");
    writeSharding();
    put(section + "data_parallel", fmt::format("{}", dp));
    put(section + "model_parallel", fmt::format("{}", tp), "--tensor-model-parallel-size");
    put(section + "pipeline_stage", fmt::format("{}", pp), "--pipeline-model-parallel-size");
    if (cp > 1) {
      put(section + "context_parallel", fmt::format("{}", cp), "--context-parallel-size");
      put("planner.pin.zigzag", "True", "--context-parallel-size"); // Megatron's only order
    }
    writeInstances(dp / writeExpertSplit(given, yaml, tp, cp, dp));
    put(section + "micro_batch_num", fmt::format("{}", pp > 1 ? batches : 1), "--global-batch-size");
    if (batches < pp) // MindFormers' key needs at least one per stage; Megatron does not
      put("planner.pin.micro_batches", fmt::format("{}", batches), "--global-batch-size");
    put(section + "use_seq_parallel", flagText("--sequence-parallel", section + "use_seq_parallel"),
        "--sequence-parallel");
    put(section + "vocab_emb_dp", "False"); // Megatron shards the vocabulary over tp
    HybridPattern pattern = readLayers(baseLayers);
    chunks = StageWriter(given, yaml, layers, pattern).write(pp);
    writeRecompute(pp);
    writeOffloading();
    return {layers, batch, batches, tp, writeRamp(given, yaml, batch)};
  }

private:
  /// Returns a size of the parallel split. Limited, so that a product of two sizes cannot overflow.
  int64_t size(const std::string &flag, const std::string &effect) {
    return std::min<int64_t>(given.count(flag, effect).value_or(1), 1000000);
  }

  std::string flagText(const std::string &flag, const std::string &effect) {
    return given.isSet(flag, effect) ? "True" : "False";
  }

  /// Reads the number of layers. Returns the kind of each layer if the script has a pattern.
  HybridPattern readLayers(int64_t baseLayers) {
    const char *flag = "--num-layers";
    std::optional<int64_t> stated = given.count(flag, "model.model_config.num_layers");
    layers = stated.value_or(baseLayers);
    if (!hasHybridPattern(given)) {
      if (layers == 0 && !given.isGiven(flag))
        given.error(flag, "--num-layers is missing");
      return {};
    }
    HybridPattern pattern = hybridPattern(given);
    if (!pattern.fault.empty())
      given.error(hybridPatternFlag, fmt::format("{}: {}", hybridPatternFlag, pattern.fault));
    layers = static_cast<int64_t>(pattern.letters.size());
    if (stated && *stated != layers)
      given.error(flag, fmt::format("the pattern has {} layers; {}: {} → {}", layers, flag, *stated, layers));
    return pattern;
  }

  void writeSharding() {
    const std::string key = "parallel.enable_parallel_optimizer";
    bool sharded = given.isSet("--use-distributed-optimizer", key);
    bool isFull = given.isSet("--use-megatron-fsdp", key);
    isFull |= given.isSet("--use-torch-fsdp2", key);
    std::optional<std::string> strategy = given.value("--data-parallel-sharding-strategy", key);
    static const std::vector<std::string> strategies = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    auto place = std::find(strategies.begin(), strategies.end(),
                           strategy.value_or(isFull    ? "optim_grads_params"
                                             : sharded ? "optim"
                                                       : "no_shard"));
    if (place == strategies.end())
      given.error("--data-parallel-sharding-strategy",
                  fmt::format("no strategy '{}', there are {}{}", *strategy, fmt::join(strategies, ", "),
                              didYouMean(*strategy, strategies)));
    long zero = place == strategies.end() ? 0 : place - strategies.begin();
    const std::string stage =
        given.value("--zero-stage", key).value_or(fmt::format("{}", zero)); // of Megatron-DeepSpeed
    if (stage.size() == 1 && stage[0] >= '0' && stage[0] <= '3')
      zero = stage[0] - '0';
    else
      given.error("--zero-stage", fmt::format("there are ZeRO stages 0 to 3, got {}", stage));
    put(key, zero > 0 ? "True" : "False", "--use-distributed-optimizer");
    if (zero == 2)
      put("parallel.parallel_optimizer_config.gradient_accumulation_shard", "True",
          "--data-parallel-sharding-strategy");
    zeroStage = zero;
  }

  /// Writes the ranks of one instance of the distributed optimizer. Each instance shards over its own part of dp.
  /// `dp` counts no ranks of the ep axis.
  void writeInstances(int64_t dp) {
    const char *flag = "--num-distributed-optimizer-instances";
    const std::string key = "planner.pin.zero_group";
    int64_t instances = given.count(flag, key).value_or(1);
    std::optional<std::string> outer = given.value("--outer-dp-sharding-strategy", key);
    if (outer && *outer != "no_shard")
      given.error("--outer-dp-sharding-strategy",
                  fmt::format("replicas of shards are not sharded again; --outer-dp-sharding-strategy: {} → no_shard, "
                              "or --num-distributed-optimizer-instances: {} → 1",
                              *outer, instances));
    if (instances <= 1)
      return;
    if (dp % instances != 0)
      return given.error(flag, fmt::format("{} instances do not divide dp {}; {}: {} → {}", instances, dp, flag,
                                           instances, planner::nearestDivisors(dp, instances)));
    if (zeroStage == 0)
      return given.error(flag, fmt::format("{} needs a distributed optimizer; add --use-distributed-optimizer", flag));
    put(key, fmt::format("{}", dp / instances), flag);
  }

  void writeRecompute(int64_t pp) {
    const std::string key = "recompute_config.recompute", selectKey = "recompute_config.select_recompute";
    std::string granularity = given.value("--recompute-granularity", key).value_or("");
    if (given.isSet("--recompute-activations", selectKey))
      granularity = "selective";
    if (given.isSet("--checkpoint-activations", key))
      granularity = "full";
    // Flag names before core_r0.3. Their method implies that whole layers are recomputed.
    std::optional<std::string> oldMethod = given.value("--activations-checkpoint-method", key);
    std::optional<int64_t> number = given.count("--activations-checkpoint-num-layers", key);
    if (oldMethod)
      granularity = "full";
    std::string method = given.value("--recompute-method", key).value_or(oldMethod.value_or("uniform"));
    if (std::optional<int64_t> stated = given.count("--recompute-num-layers", key))
      number = stated;
    if (granularity != "" && granularity != "full" && granularity != "selective")
      given.error("--recompute-granularity",
                  fmt::format("no granularity '{}', there are full, selective", granularity));
    if (method != "uniform" && method != "block")
      given.error(oldMethod ? "--activations-checkpoint-method" : "--recompute-method",
                  fmt::format("no method '{}', there are uniform, block", method));
    std::string full = granularity == "full" ? "True" : "False";
    if (granularity == "full" && method == "block") {
      std::vector<int64_t> each(static_cast<size_t>(std::min<int64_t>(pp, 100000)),
                                std::min(number.value_or(1), layers));
      full = fmt::format("[{}]", fmt::join(each, ", "));
      if (chunks > 1 && chunks * pp <= 100000) // the number counts per chunk
        full = fmt::format("[{}]", fmt::join(std::vector<std::string>(static_cast<size_t>(chunks), full), ", "));
    }
    put(key, full, "--recompute-granularity");
    put(selectKey, granularity == "selective" ? "True" : "False", "--recompute-granularity");
    put("recompute_config.parallel_optimizer_comm_recompute", zeroStage == 3 ? "True" : "False");
  }

  void writeOffloading() {
    const std::string optimizerKey = "planner.pin.offload_optimizer", layersKey = "planner.pin.offload_activations";
    for (const char *flag : {"--offload-optimizer-states", "--optimizer-cpu-offload"})
      if (given.isSet(flag, optimizerKey))
        put(optimizerKey, "True", flag);
    const char *flag = "--cpu-offloading-num-layers";
    std::optional<int64_t> offloaded = given.count(flag, layersKey);
    if (offloaded && *offloaded != layers &&
        *offloaded != layers - 1) // the last layer's backward pass follows immediately
      given.error(flag, fmt::format("all {} layers are offloaded or none, got {}; {}: {} → {}", layers, *offloaded,
                                    flag, *offloaded, layers - 1));
    else if (offloaded)
      put(layersKey, "True", flag);
  }

  int64_t layers = 0;
  int64_t chunks = 1; ///< chunks per stage
  long zeroStage = 0;
};

} // namespace

ScriptSizes writeParallel(GivenFlags &given, RunFileWriter &yaml, int64_t devices, int64_t baseLayers) {
  return ParallelWriter(given, yaml).write(devices, baseLayers);
}

} // namespace espalier
