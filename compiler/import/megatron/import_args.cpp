// Each part of the run file reads its own flags.
#include "compiler/import/megatron/import_args.h"

#include "compiler/import/megatron/expert_flags.h"
#include "compiler/import/megatron/given_flags.h"
#include "compiler/import/megatron/stage_layout.h"
#include "compiler/import/megatron/start_flags.h"
#include "compiler/import/megatron/unbuilt_flags.h"
#include "compiler/import/run/run_file_writer.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

namespace espalier {

namespace {

class ArgsImporter {
public:
  ArgsImporter(const std::string &file, const ArgsOptions &options, ImportedArgs &result)
      : file(file), options(options), result(result), given(file, result) {}

  void run(const std::string &text) {
    given.read(text);
    given.ignore(options.ignoredFlags);
    if (!options.base.empty())
      put("base_config", quotedYaml(options.base));
    refuseUnbuilt(given);
    writeGeneral();
    writeStart(given, yaml);
    writeParallel();
    writeModel();
    writeData(given, yaml, endOfDocument());
    writeOptimizer();
    std::string line = startLine(given, globalBatch, microBatches);
    given.reportRest();
    result.yaml = yaml.text();
    if (!line.empty())
      result.yaml =
          fmt::format("# The script's run, once this file is compiled to RUN.plan; --resume goes on with it:\n"
                      "#   {}\n{}",
                      line, result.yaml);
  }

private:
  void put(const std::string &key, const std::string &value, const std::string &source = "") {
    yaml.put(key, value, given.isGiven(source) ? source : "");
  }
  void putNumber(const std::string &key, const std::string &flag) {
    if (std::optional<std::string> text = given.number(flag, key))
      put(key, *text, flag);
  }
  std::optional<int64_t> putCount(const std::string &key, const std::string &flag) {
    std::optional<int64_t> number = given.count(flag, key);
    if (number)
      put(key, fmt::format("{}", *number), flag);
    return number;
  }
  /// Returns a size of the parallel split. Limited, so that a product of two sizes cannot overflow.
  int64_t size(const std::string &flag, const std::string &effect) {
    return std::min<int64_t>(given.count(flag, effect).value_or(1), 1000000);
  }

  void writeGeneral() {
    if (given.isGiven("--seed") || options.base.empty())
      put("seed", given.number("--seed", "seed").value_or("1234"), "--seed");
    put("use_parallel", "True");
    devices = readDevices();
    bool isHalf = given.isSet("--fp16", "model.model_config.compute_dtype");
    bool isBrain = given.isSet("--bf16", "model.model_config.compute_dtype");
    if (isHalf && isBrain)
      given.error("--bf16", "--fp16 and --bf16 contradict each other");
    dtype = isHalf ? "float16" : isBrain ? "bfloat16" : "float32";
    statesDType = isHalf || isBrain || options.base.empty();
  }

  /// Returns the number of devices from --cluster, the launcher or the base, and writes `cluster` to the run file.
  int64_t readDevices() {
    // Without counts, torch's launchers use one process on one host, and DeepSpeed's launcher uses one host. Under
    // srun, torch's counts take precedence. -1 means not given, 0 means that only the shell knows the value.
    bool isTorch = given.isStartedByTorchOrPython();
    int64_t perNode = given.launcherCount({"--nproc_per_node", "--nproc-per-node", "--num_gpus"}, -1);
    if (perNode < 0 && isTorch)
      perNode = 1;
    int64_t nodes = given.launcherCount({"--nnodes", "--num_nodes", "--nodes", "-N"}, perNode > 0 ? 1 : 0);
    if (perNode <= 0)
      perNode = given.launcherCount({"--ntasks-per-node"});
    int64_t stated = perNode * nodes;
    size_t colon = options.cluster.rfind(':');
    int hosts = 0, perHost = 0, consumed = 0;
    if (colon != std::string::npos &&
        std::sscanf(options.cluster.c_str() + colon, ":%6dx%6d%n", &hosts, &perHost, &consumed) == 2 &&
        colon + consumed == options.cluster.size()) {
      put("cluster", quotedYaml(options.cluster));
      return int64_t(hosts) * perHost;
    }
    if (!options.cluster.empty() && stated > 0) {
      put("cluster", quotedYaml(fmt::format("{}:{}x{}", options.cluster, nodes, perNode)));
      return stated;
    }
    if (options.baseDevices > 0)
      return options.baseDevices;
    if (stated > 0) {
      result.diagnostics.error({file, 0, 0},
                               "a script does not say on which devices it runs; give --cluster NAME, such "
                               "as h100_dgx, a100_80g_selene or ascend_910b_64g");
      return stated;
    }
    result.diagnostics.error(
        {file, 0, 0}, "the number of devices is not stated: no torchrun with --nproc_per_node and "
                      "--nnodes, nor srun with --ntasks-per-node and --nodes; give --cluster NAME:HOSTSxDEVICES");
    return 0;
  }

  void writeParallel() {
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
    globalBatch = batch;
    microBatches = batches;
    put("runner_config.batch_size", fmt::format("{}", micro), "--micro-batch-size");
    put("runner_config.gradient_accumulation_steps", fmt::format("{}", pp == 1 ? batches : 1), "--global-batch-size");
    put("parallel.parallel_mode", "1");
    writeSharding();
    put(section + "data_parallel", fmt::format("{}", dp));
    put(section + "model_parallel", fmt::format("{}", tp), "--tensor-model-parallel-size");
    put(section + "pipeline_stage", fmt::format("{}", pp), "--pipeline-model-parallel-size");
    if (cp > 1)
      put(section + "context_parallel", fmt::format("{}", cp), "--context-parallel-size");
    writeExpertSplit(given, yaml, tp, dp);
    put(section + "micro_batch_num", fmt::format("{}", pp > 1 ? batches : 1), "--global-batch-size");
    if (batches < pp) // MindFormers' key needs at least one per stage; Megatron does not
      put("planner.pin.micro_batches", fmt::format("{}", batches), "--global-batch-size");
    put(section + "use_seq_parallel", flagText("--sequence-parallel", section + "use_seq_parallel"),
        "--sequence-parallel");
    put(section + "vocab_emb_dp", "False"); // Megatron shards the vocabulary over tp
    layers = given.count("--num-layers", "model.model_config.num_layers").value_or(options.baseLayers);
    if (layers == 0 && !given.isGiven("--num-layers"))
      given.error("--num-layers", "--num-layers is missing");
    writeStages(pp);
    writeRecompute(pp);
    writeOffloading();
  }

  std::string flagText(const std::string &flag, const std::string &effect) {
    return given.isSet(flag, effect) ? "True" : "False";
  }

  void writeSharding() {
    const std::string key = "parallel.enable_parallel_optimizer";
    bool sharded = given.isSet("--use-distributed-optimizer", key);
    std::optional<std::string> strategy = given.value("--data-parallel-sharding-strategy", key);
    static const std::vector<std::string> strategies = {"no_shard", "optim", "optim_grads", "optim_grads_params"};
    auto place = std::find(strategies.begin(), strategies.end(), strategy.value_or(sharded ? "optim" : "no_shard"));
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
    isFullySharded = zero == 3;
  }

  /// Writes the layers of every chunk from a layout.
  void writeLayout(const std::string &text, int64_t pp) {
    const char *flag = "--pipeline-model-parallel-layout";
    StageLayout layout = readStageLayout(text);
    int64_t places = static_cast<int64_t>(layout.layers.size());
    int64_t total = std::accumulate(layout.layers.begin(), layout.layers.end(), int64_t(0));
    if (!layout.fault.empty())
      return given.error(flag, fmt::format("{}: {}", flag, layout.fault));
    if (places % pp != 0)
      return given.error(flag, fmt::format("the layout has {} stages, not a multiple of pp {}", places, pp));
    if (layers > 0 && total != layers)
      return given.error(flag, fmt::format("the layout has {} layers, the model has {}", total, layers));
    chunks = places / pp;
    if (chunks > 1) {
      put("parallel.pipeline_config.pipeline_interleave", "True", flag);
      put("planner.pin.virtual_stages", fmt::format("{}", chunks), flag);
    }
    put("planner.pin.stage_layers", fmt::format("[{}]", fmt::join(layout.layers, ", ")), flag);
  }

  /// Writes the chunks of each stage, and separate sizes of the first and the last stage.
  void writeStages(int64_t pp) {
    if (std::optional<std::string> layout = given.value("--pipeline-model-parallel-layout", "planner.pin.stage_layers"))
      return writeLayout(*layout, pp);
    const std::string chunksKey = "planner.pin.virtual_stages", offsetKey = "model.model_config.offset";
    std::optional<int64_t> perChunk = given.count("--num-layers-per-virtual-pipeline-stage", chunksKey);
    std::optional<int64_t> stated = given.count("--num-virtual-stages-per-pipeline-rank", chunksKey);
    chunks = std::min<int64_t>(stated.value_or(1), 100000);
    if (perChunk && layers % (pp * *perChunk) != 0)
      given.error("--num-layers-per-virtual-pipeline-stage",
                  fmt::format("{} layers are not a multiple of pp {} · {} layers of a chunk", layers, pp, *perChunk));
    else if (perChunk)
      chunks = layers / (pp * *perChunk);
    if (chunks > 1) {
      put("parallel.pipeline_config.pipeline_interleave", "True", "--num-layers-per-virtual-pipeline-stage");
      put(chunksKey, fmt::format("{}", chunks), "--num-layers-per-virtual-pipeline-stage");
    }
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
    put("recompute_config.parallel_optimizer_comm_recompute", isFullySharded ? "True" : "False");
  }

  void writeOffloading() {
    const std::string optimizerKey = "planner.pin.offload_optimizer", layersKey = "planner.pin.offload_activations";
    if (given.isSet("--offload-optimizer-states", optimizerKey))
      put(optimizerKey, "True", "--offload-optimizer-states");
    const char *flag = "--cpu-offloading-num-layers";
    std::optional<int64_t> offloaded = given.count(flag, layersKey);
    if (offloaded && *offloaded != layers &&
        *offloaded != layers - 1) // the last layer's backward pass follows immediately
      given.error(flag, fmt::format("all {} layers are offloaded or none, got {}; {}: {} → {}", layers, *offloaded,
                                    flag, *offloaded, layers - 1));
    else if (offloaded)
      put(layersKey, "True", flag);
  }

  void writeModel() {
    const std::string section = "model.model_config.";
    bool isGated = given.isSet("--swiglu", section + "type");
    std::string norm = given.value("--normalization", section + "type").value_or("LayerNorm");
    bool isRms = norm == "RMSNorm" || norm == "rmsnorm"; // Megatron-DeepSpeed's spelling
    bool isRotary = given.isSet("--use-rotary-position-embeddings", section + "type");
    isRotary = given.value("--position-embedding-type", section + "type").value_or("") == "rope" || isRotary;
    if (given.isSet("--no-position-embedding", section + "type") && !isRotary)
      given.error("--no-position-embedding", "gpt2 has learned positions, llama --position-embedding-type rope");
    bool isUntied = given.isSet("--untie-embeddings-and-output-weights", section + "type");
    bool isBare = given.isSet("--disable-bias-linear", section + "type");
    int marks = isGated + isRms + isRotary + isBare;
    if ((marks != 0 && marks != 4) || (marks == 0 && isUntied))
      given.error(isGated    ? "--swiglu"
                  : isRms    ? "--normalization"
                  : isRotary ? "--position-embedding-type"
                  : isBare   ? "--disable-bias-linear"
                             : "--untie-embeddings-and-output-weights",
                  "no architecture of configs/models has this mix: llama is --swiglu, --normalization RMSNorm, "
                  "--position-embedding-type rope and --disable-bias-linear, with or without "
                  "--untie-embeddings-and-output-weights; gpt2 none of them");
    bool isLlama = marks == 4;
    hasExperts = given.isGiven("--num-experts");
    bool statesModel = given.isGiven("--num-layers") || options.base.empty();
    writeRouting(given, yaml, layers, statesModel);
    if (!statesModel && !statesDType)
      return;
    if (statesModel) {
      hasHeadNorms = given.isSet("--qk-layernorm", section + "type");
      bool hasBiases = given.isSet("--add-qkv-bias", section + "type");
      if (hasExperts && marks == 0)
        given.error("--num-experts", "gpt2 has no experts, mixtral and qwen3_moe have llama's flags beside them");
      if (hasHeadNorms && !isLlama)
        given.error("--qk-layernorm",
                    "gpt2 has no norms of q and k, qwen3 and qwen3_moe have llama's flags beside them");
      if (hasBiases && (!isLlama || hasExperts || hasHeadNorms))
        given.error("--add-qkv-bias", "only qwen2 has biases of q, k and v alone: llama's flags without --num-experts "
                                      "and --qk-layernorm");
      if (hasExperts && isLlama && !isUntied)
        given.error("--num-experts", "mixtral and qwen3_moe have a head of their own; add "
                                     "--untie-embeddings-and-output-weights");
      const char *name = !isLlama     ? "GPT2"
                         : hasExperts ? (hasHeadNorms ? "Qwen3Moe" : "Mixtral")
                         : hasBiases  ? "Qwen2"
                                      : (hasHeadNorms ? "Qwen3" : "Llama");
      put("model.arch.type", fmt::format("{}{}", name, isLlama ? "ForCausalLM" : "LMHeadModel"));
      put(section + "type", fmt::format("{}Config", name));
      if (isLlama && !isUntied)
        put(section + "tie_word_embeddings", "True");
      writeSizes(section, isLlama);
      writeHeads(section, /*hasOwnWidth=*/isLlama && (hasHeadNorms || !hasExperts));
    }
    if (statesDType) {
      put(section + "param_init_type", dtype, dtype == "float16" ? "--fp16" : dtype == "bfloat16" ? "--bf16" : "");
      put(section + "compute_dtype", dtype);
    }
  }

  /// Writes the sizes of heads. Their width is hidden / heads, unless the model file has a separate size for it.
  void writeHeads(const std::string &section, bool hasOwnWidth) {
    int64_t hidden = given.count("--hidden-size", section + "hidden_size").value_or(1);
    int64_t heads = given.count("--num-attention-heads", section + "num_heads").value_or(1);
    std::optional<int64_t> width = given.count("--kv-channels", section + (hasOwnWidth ? "head_dim" : "num_heads"));
    if (hasOwnWidth && (width || hasHeadNorms))
      put(section + "head_dim", fmt::format("{}", width.value_or(hidden / heads)), "--kv-channels");
    else if (width && *width * heads != hidden)
      given.error("--kv-channels",
                  fmt::format("heads are hidden {} / heads {} wide, got {}; gpt2 and mixtral have no other width",
                              hidden, heads, *width));
  }

  void writeSizes(const std::string &section, bool isLlama) {
    put(section + "num_layers", fmt::format("{}", layers), "--num-layers");
    std::optional<int64_t> hidden = putCount(section + "hidden_size", "--hidden-size");
    std::optional<int64_t> heads = putCount(section + "num_heads", "--num-attention-heads");
    std::optional<int64_t> seq = putCount(section + "seq_length", "--seq-length");
    for (auto [isGiven, flag] : {std::pair(hidden.has_value(), "--hidden-size"),
                                 {heads.has_value(), "--num-attention-heads"},
                                 {seq.has_value(), "--seq-length"}})
      if (!isGiven && !given.isGiven(flag))
        given.error(flag, fmt::format("{} is missing", flag));
    putCount(section + "max_position_embeddings", "--max-position-embeddings");
    put(section + "vocab_size", fmt::format("{}", vocabulary()), "--vocab-size");
    putNumber(section + "initializer_range", "--init-method-std");
    const std::string epsilon = isLlama ? "rms_norm_eps" : "layernorm_epsilon";
    const char *epsilonFlag = given.isGiven("--norm-epsilon") ? "--norm-epsilon" : "--layernorm-epsilon";
    put(section + epsilon, given.number(epsilonFlag, section + epsilon).value_or("1e-05"), epsilonFlag);
    given.isSet("--group-query-attention", section + "n_kv_heads");
    std::optional<int64_t> ffn =
        given.count("--ffn-hidden-size", section + (isLlama ? "intermediate_size" : "expand_ratio"));
    std::optional<int64_t> groups = given.count("--num-query-groups", section + "n_kv_heads");
    if (!groups)
      groups = given.count("--num-key-value-heads", section + "n_kv_heads"); // of Megatron-DeepSpeed
    std::optional<std::string> base = given.number("--rotary-base", section + "theta");
    if (given.number("--rotary-percent", section + "theta").value_or("1") != "1")
      given.error("--rotary-percent", "rotary positions turn the whole of a head; --rotary-percent → 1");
    std::string hiddenDropout = given.number("--hidden-dropout", section + "hidden_dropout_rate").value_or("0.1");
    std::string attentionDropout =
        given.number("--attention-dropout", section + "attention_dropout_rate").value_or("0.1");
    if (isLlama) {
      // Megatron's own default. An expert is as wide as a dense MLP would be.
      int64_t otherwise = hidden.value_or(1) * 8 / 3 / 64 * 64;
      const char *flag = "--ffn-hidden-size", *expertFlag = "--moe-ffn-hidden-size";
      const std::string key = section + (hasHeadNorms && hasExperts ? "moe_intermediate_size" : "intermediate_size");
      std::optional<int64_t> expertFfn = hasExperts ? given.count(expertFlag, key) : std::nullopt;
      put(key, fmt::format("{}", expertFfn.value_or(ffn.value_or(otherwise))), expertFfn ? expertFlag : flag);
      put(section + "n_kv_heads", fmt::format("{}", groups.value_or(heads.value_or(1))), "--num-query-groups");
      put(section + "theta", base.value_or("10000"), "--rotary-base");
      for (auto [flag, rate] :
           {std::pair("--hidden-dropout", hiddenDropout), {"--attention-dropout", attentionDropout}})
        if (rate != "0")
          given.error(flag, fmt::format("llama has no dropout, {} is {}{}; say {} 0", flag, rate,
                                        given.isGiven(flag) ? "" : " unless it is given", flag));
      return;
    }
    if (ffn && hidden && *ffn % *hidden != 0)
      given.error("--ffn-hidden-size", fmt::format("gpt2 wants a multiple of --hidden-size {}, got {}", *hidden, *ffn));
    else if (ffn && hidden)
      put(section + "expand_ratio", fmt::format("{}", *ffn / *hidden), "--ffn-hidden-size");
    if (groups && heads && *groups != *heads)
      given.error("--num-query-groups",
                  fmt::format("gpt2 has a key for each of its {} heads, got {} groups", *heads, *groups));
    put(section + "hidden_act", "gelu_new");
    put(section + "embedding_dropout_prob", hiddenDropout, "--hidden-dropout");
    put(section + "hidden_dropout_rate", hiddenDropout, "--hidden-dropout");
    put(section + "attention_dropout_rate", attentionDropout, "--attention-dropout");
  }

  /// Returns the number of token ids: --vocab-size, or the tokenizer's if it has a fixed number.
  int64_t vocabulary() {
    const std::string key = "model.model_config.vocab_size";
    std::optional<std::string> tokenizer = given.value("--tokenizer-type", key);
    std::optional<int64_t> stated = given.count("--vocab-size", key);
    if (stated)
      return *stated + (tokenizer == "NullTokenizer" ? 1 : 0); // plus the end-of-document token
    if (!tokenizer || tokenizer == "GPT2BPETokenizer")
      return vocabularyFile() ? vocabularyFile()->ids : 50257;
    if (tokenizer == "Llama2Tokenizer")
      return 32000;
    given.error("--tokenizer-type",
                fmt::format("how many ids {} has stands in its files; give --vocab-size", *tokenizer));
    return 1;
  }

  /// Returns the contents of the script's vocab.json for GPT-2's tokenizer, or nothing if the file does not exist.
  const std::optional<ScriptVocabulary> &vocabularyFile() {
    if (std::exchange(looksForVocabulary, false) && options.readVocabulary && given.isKnown("--vocab-file")) {
      std::vector<std::string> files = given.values("--vocab-file", "model.model_config.vocab_size");
      if (files.size() == 1)
        ownVocabulary = options.readVocabulary(files[0]);
      if (ownVocabulary && ownVocabulary->ids == 0)
        given.error("--vocab-file", fmt::format("{} is no vocab.json: an object of tokens and their ids", files[0]));
    }
    return ownVocabulary;
  }

  /// Returns the token that ends a document, or nothing if the tokenizer does not define it.
  std::optional<int64_t> endOfDocument() {
    std::string tokenizer =
        given.value("--tokenizer-type", "model.model_config.vocab_size").value_or("GPT2BPETokenizer");
    if (tokenizer == "GPT2BPETokenizer")
      return vocabularyFile() ? vocabularyFile()->endOfDocument : 50256;
    if (tokenizer == "NullTokenizer" && given.isGiven("--vocab-size"))
      return vocabulary() - 1;
    return tokenizer == "Llama2Tokenizer" ? std::optional<int64_t>(2) : std::nullopt;
  }

  void writeOptimizer() {
    putNumber("lr_schedule.learning_rate", "--lr");
    if (given.isGiven("--lr") || given.isGiven("--lr-decay-style"))
      writeSchedule();
    if (options.base.empty() || given.isGiven("--weight-decay") || given.isGiven("--adam-beta1"))
      put("optimizer.type", "AdamW");
    putNumber("optimizer.beta1", "--adam-beta1");
    putNumber("optimizer.beta2", "--adam-beta2");
    putNumber("optimizer.eps", "--adam-eps");
    putNumber("optimizer.weight_decay", "--weight-decay");
    if (statesDType && dtype != "float32")
      put("optimizer.master_weights", "True");
    writeWrapper();
  }

  void writeSchedule() {
    const std::string section = "lr_schedule.";
    std::string style = given.value("--lr-decay-style", section + "type").value_or("linear");
    static const std::map<std::string, std::string> kinds = {{"cosine", "cosine"},
                                                             {"linear", "linear"},
                                                             {"constant", "constant"},
                                                             {"inverse-square-root", "inverse_sqrt"},
                                                             {"WSD", "wsd"}};
    auto kind = kinds.find(style);
    if (kind == kinds.end())
      given.error(
          "--lr-decay-style",
          fmt::format("no decay '{}' here, there are constant, cosine, inverse-square-root, linear, WSD", style));
    else
      put(section + "type", kind->second, "--lr-decay-style");
    putNumber(section + "lr_end", "--min-lr");
    // Converts samples to steps of the global batch.
    for (auto [key, steps, samples] : {std::tuple("warmup_steps", "--lr-warmup-iters", "--lr-warmup-samples"),
                                       std::tuple("total_steps", "--lr-decay-iters", "--lr-decay-samples"),
                                       std::tuple("decay_steps", "--lr-wsd-decay-iters", "--lr-wsd-decay-samples")}) {
      std::optional<int64_t> wanted = given.count(steps, section + key);
      if (std::optional<int64_t> many = given.count(samples, section + key))
        wanted = *many / globalBatch;
      if (wanted)
        put(section + key, fmt::format("{}", *wanted), steps);
    }
    putNumber(section + "warmup_ratio", "--lr-warmup-fraction");
    const char *fallFlag = "--lr-wsd-decay-style";
    if (std::string fall = given.value(fallFlag, section + "type").value_or("exponential"); fall != "exponential")
      given.error(fallFlag, fmt::format("the rate of WSD falls exponentially here, got {}; {}: {} → exponential", fall,
                                        fallFlag, fall));
    if (style == "WSD" && !given.isGiven("--lr-wsd-decay-iters") && !given.isGiven("--lr-wsd-decay-samples"))
      given.error("--lr-decay-style", "WSD needs --lr-wsd-decay-iters or --lr-wsd-decay-samples");
  }

  void writeWrapper() {
    given.isSet("--calculate-per-token-loss", "the loss of a step is a mean over its tokens, in all micro-batches");
    if (given.isSet("--grad-reduce-in-bf16", "gradients are summed in float32"))
      given.warning("--grad-reduce-in-bf16",
                    "gradients are kept and summed in float32, which takes four bytes of each parameter and not two");
    const std::string section = "runner_wrapper.", key = section + "scale_sense";
    if (std::optional<std::string> clip = given.number("--clip-grad", section + "max_grad_norm");
        clip && *clip != "0") {
      put(section + "use_clip_grad", "True", "--clip-grad");
      put(section + "max_grad_norm", *clip, "--clip-grad");
    }
    std::optional<std::string> fixed = given.number("--loss-scale", key);
    std::optional<std::string> initial = given.number("--initial-loss-scale", key + ".loss_scale_value");
    std::optional<int64_t> window = given.count("--loss-scale-window", key + ".scale_window");
    std::optional<int64_t> hysteresis = given.count("--hysteresis", "one overflow halves the loss scale");
    if (dtype != "float16")
      return;
    if (fixed) {
      put(key, *fixed, "--loss-scale");
      return;
    }
    if (hysteresis.value_or(1) != 1)
      given.warning("--hysteresis", fmt::format("one overflow halves the loss scale here, and not the {} that "
                                                "--hysteresis waits for",
                                                *hysteresis));
    put(key + ".type", "DynamicLossScaleUpdateCell");
    put(key + ".loss_scale_value", initial.value_or("4294967296"), "--initial-loss-scale");
    put(key + ".scale_factor", "2");
    put(key + ".scale_window", fmt::format("{}", window.value_or(1000)), "--loss-scale-window");
  }

  const std::string &file;
  const ArgsOptions &options;
  ImportedArgs &result;
  RunFileWriter yaml;
  GivenFlags given;
  int64_t devices = 0, layers = 0, globalBatch = 1, microBatches = 1;
  int64_t chunks = 1; ///< chunks per stage
  std::string dtype;
  bool statesDType = true, isFullySharded = false, hasExperts = false, hasHeadNorms = false;
  bool looksForVocabulary = true;
  std::optional<ScriptVocabulary> ownVocabulary;
};

} // namespace

ImportedArgs importArgs(const std::string &file, const std::string &text, const ArgsOptions &options) {
  ImportedArgs result;
  ArgsImporter(file, options, result).run(text);
  return result;
}

} // namespace espalier
