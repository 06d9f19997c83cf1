// Reads model, plan, cluster, system and measurements from the columns. A missing or out-of-range value becomes the
// reason to skip. Import and planner check everything else.
#include "tools/published/run_of_row.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>

namespace espalier {

namespace {

bool holdsOneOf(const std::string &text, std::initializer_list<const char *> parts) {
  return std::ranges::any_of(parts, [&](const char *part) { return text.find(part) != std::string::npos; });
}

/// A name in a column, in lower case without spaces, and the file of configs/clusters that it means. The first match
/// counts, so that longer names come first.
struct ClusterName {
  const char *gpu, *site, *file;
  int devicesPerHost;
};
constexpr ClusterName clusters[] = {
    {"a100", "jeanzay", "a100_jeanzay", 8},
    {"a100", "40g", "a100_40g", 8},
    {"a100", "pcie", "", 8},
    {"a100", "", "a100_80g_selene", 8},
    {"v100", "jeanzay", "v100_32g_x4", 4},
    {"v100", "16g", "v100_16g", 8},
    {"v100", "dgx-2", "v100_32g", 16},
    {"v100", "", "v100_32g", 8},
    {"h100", "96gb", "h100_96g", 8},
    {"h100", "pcie", "", 8},
    {"gh200", "", "gh200", 1},
    {"h800", "", "h800", 8},
    {"h200", "", "h200", 8},
    {"h20", "", "h20", 8},
    {"mi300x", "", "mi300x", 8},
    {"mi325x", "", "mi325x", 8},
    {"mi355x", "", "mi355x", 8},
    {"5090", "", "rtx5090_x4", 4},
    {"l40s", "", "l40s_x8", 8},
    {"a6000", "", "a6000_x4", 4},
    {"h100", "", "h100_dgx", 8},
    {"gb200", "", "gb200_nvl72", 64},
    {"gb300", "", "gb300_nvl72", 64},
    {"b200", "", "b200", 8},
    {"b300", "", "b300", 8},
    {"4090", "", "rtx4090_x4", 4},
    {"910b", "", "ascend_910b_64g", 8},
    {"ascend910", "", "ascend_910_32g", 8},
};

/// Returns the matmul_format of a precision, or an empty text if products have 16 or 32 bits. Sets `fault` if the
/// precision is unknown. 32-bit formats keep and send twice the bytes.
std::string formatOf(const std::string &precision, std::string &fault) {
  if (holdsOneOf(precision, {"rowwise"})) // one scale per row, which yields no gain in torchtitan's tables
    return "";
  for (const char *format : {"fp4", "fp8", "float8"})
    if (holdsOneOf(precision, {format}))
      return std::string(format) == "fp4" ? "fp4_e2m1" : "fp8_hybrid";
  if (!precision.empty() && !holdsOneOf(precision, {"16", "mixed", "amp", "half"}))
    fault = "precision '" + precision + "' is not modelled";
  return "";
}

/// Returns whether a run stored its attention scores. Flash attention appeared in May 2022 and needs Turing.
bool isBeforeFlashAttention(const std::string &gpu, const std::string &precision, const std::string &source,
                            const std::string &model) {
  return holdsOneOf(source, {"narayanan", "turing-nlg", "images/tables.tex"}) || holdsOneOf(gpu, {"v100"}) ||
         holdsOneOf(model, {"mt-nlg", "neox", "opt-", "glm-130"}) ||
         (holdsOneOf(gpu, {"a100", "a800"}) && holdsOneOf(precision, {"fp16", "float16"}) &&
          !holdsOneOf(precision, {"bf16", "bfloat16"}));
}

/// Returns the file of configs/systems by the row's source, gpu, precision and sharding.
std::string systemOf(const PublishedRow &row) {
  std::string source = row.lower("source"), gpu = row.lower("gpu"), zero = row.lower("zero"),
              precision = row.lower("precision"), notes = row.lower("notes");
  if (holdsOneOf(gpu, {"jean zay"})) {
    if (holdsOneOf(zero, {"deepspeed zero"}))
      return "deepspeed_zero";
    bool isWide = holdsOneOf(precision, {"fp32 grad"}) || precision == "bf16";
    return isWide ? "megatron_deepspeed" : "megatron_deepspeed_fp16";
  }
  if (holdsOneOf(source, {"llm-foundry"}))
    return "llm_foundry";
  if (holdsOneOf(source, {"torchtitan"}))
    return holdsOneOf(notes, {"compile"}) ? "torchtitan_compiled" : "torchtitan";
  if (holdsOneOf(source, {"megatron-bridge", "nemo", "dgxc-benchmarking"}) && !holdsOneOf(notes, {"paxml"}))
    return "nemo";
  if (holdsOneOf(source, {"korthikanti", "calculon", "alpa-projects", "superscaler"}))
    return "megatron_2022";
  if (isBeforeFlashAttention(gpu, precision, source, row.lower("model")))
    return "megatron_2021";
  if (holdsOneOf(source + notes + zero, {"fsdp", "hsdp"}))
    return "llm_foundry";
  return holdsOneOf(zero, {"3"}) && !holdsOneOf(source + notes, {"megatron"}) ? "deepspeed_zero" : "megatron_core";
}

/// Returns the batch in samples. A cell may also count tokens (`4M tokens`); M is a million or 2^20, whichever gives
/// whole samples. Returns 0 if the result is not a whole number.
double batchOf(const PublishedRow &row) {
  std::string text = row.lower("gbs");
  size_t unit = text.find("tok");
  if (unit == std::string::npos)
    return row.number("gbs");
  text.resize(unit);
  text.resize(text.find_last_not_of(" ") + 1);
  bool millions = text.ends_with("m");
  if (millions)
    text.pop_back();
  double seq = row.number("seq");
  for (double factor : {1e6, 1048576.0})
    if (double tokens = readNumber(text).value_or(0) * (millions ? factor : 1); seq > 0 && std::fmod(tokens, seq) == 0)
      return tokens / seq;
  return 0;
}

/// Returns why the cells cannot be used: a required cell is missing, not a number, or out of range.
std::string checkCells(const PublishedRow &row, bool isNamedModel) {
  struct Cell {
    const char *column;
    bool needed;
    double most; ///< keeps products of cells and lists of actions small
  };
  const Cell cells[] = {{"layers", !isNamedModel, 10000},
                        {"hidden", !isNamedModel, 1e6},
                        {"heads", false, 1e5},
                        {"kv_heads", false, 1e5},
                        {"ffn", false, 1e7},
                        {"vocab", false, 1e8},
                        {"seq", true, 1e8},
                        {"n_gpus", true, 1e6},
                        {"mbs", false, 1e6},
                        {"gbs", true, 1e6},
                        {"tp", false, 1e6},
                        {"pp", false, 10000},
                        {"vpp", false, 10000},
                        {"cp", false, 1e6},
                        {"ep", false, 1e6},
                        {"dp", false, 1e6}};
  for (const auto &[column, needed, most] : cells) {
    const std::string &text = row.text(column);
    double value = std::string(column) == "gbs" ? batchOf(row) : row.number(column, -1);
    if (text.empty() && needed)
      return std::string("no ") + column + " published";
    if (!text.empty() && (value < 1 || value > most || value != std::floor(value)))
      return fmt::format("{} is '{}', wanted a whole number from 1 to {:.0f}", column, text, most);
  }
  for (const char *column : {"iter_time_s", "tflops_per_gpu", "mfu_pct", "hfu_pct", "tokens_per_s_per_gpu", "mem_gb"})
    if (!row.text(column).empty() && row.number(column, -1) < 0)
      return std::string(column) + " is '" + row.text(column) + "', wanted a number and at most its unit";
  return "";
}

int64_t whole(const PublishedRow &row, const char *column, int64_t missing) {
  return static_cast<int64_t>(row.number(column, static_cast<double>(missing)));
}

/// Returns the number of heads whose size is the divisor of `hidden` nearest to 128.
int64_t assumedHeads(int64_t hidden) {
  for (int64_t distance = 0;; ++distance) // size 1 always divides
    for (int64_t size : {128 - distance, 128 + distance})
      if (size > 0 && hidden % size == 0)
        return hidden / size;
}

/// Returns the run file of a model whose row has no sizes, or an empty text.
std::string namedModel(const PublishedRow &row) {
  std::string model = row.lower("model");
  for (char &letter : model)
    if (!std::isalnum(static_cast<unsigned char>(letter)))
      letter = '_';
  if (!row.text("layers").empty())
    return "";
  for (const char *file : {"qwen3_30b_a3b", "qwen3_235b_a22b", "mixtral_8x7b"})
    if (holdsOneOf(model, {file}))
      return file;
  return "";
}

/// Returns features of a row that are not modelled.
std::string unmodelledFeature(const PublishedRow &row) {
  std::string notes = row.lower("notes"), zero = row.lower("zero");
  if (holdsOneOf(notes + row.lower("model"), {"lora"}))
    return "fine-tuning of adapters is not modelled";
  if (holdsOneOf(notes, {"paged to the host"}) ||
      (holdsOneOf(notes, {"cpu offload"}) && !holdsOneOf(zero, {"offload"})))
    return "offloading is not modelled for published shapes";
  if (holdsOneOf(zero, {"infinity", "nvme", "(auto)", "(const)"}))
    return "zero '" + row.text("zero") + "' is not modelled";
  return holdsOneOf(notes, {"interleaved 1f1b"}) && row.number("vpp", 1) == 1 ? "interleaved, and no vpp published"
                                                                              : "";
}

/// Returns the ZeRO stage. Sets `fault` if the cell is unsupported.
int zeroOf(const PublishedRow &row, const std::string &system, std::string &fault) {
  std::string text = row.lower("zero");
  bool isSharded = system == "deepspeed_zero";
  if (holdsOneOf(text, {"fsdp", "hsdp"}) ||
      (isSharded && holdsOneOf(text, {"zero"}) && text.find_first_of("012") == std::string::npos))
    return 3;
  if (text.empty())
    return isSharded || system == "llm_foundry" ? 3 : 1;
  text.resize(std::min({text.find_first_of(",("), text.find("offload"), text.size()}));
  if (size_t digit = text.find_first_of("0123456789"); digit != std::string::npos)
    if (std::optional<double> stage = readNumber(text.substr(digit));
        stage && (*stage == 0 || *stage == 1 || *stage == 2 || *stage == 3))
      return static_cast<int>(*stage);
  if (holdsOneOf(text, {"no", "ddp", "false", "off"}))
    return 0;
  if (holdsOneOf(text, {"yes", "true", "on", "distributed"}))
    return 1;
  fault = holdsOneOf(text, {"zero"}) ? "no ZeRO stage published" : "zero '" + row.text("zero") + "' is not modelled";
  return 0;
}

/// Returns whether the sequence is split over tp. Sets `fault` if the cell is unknown.
bool splitsSequence(const PublishedRow &row, const std::string &system, std::string &fault) {
  std::string sequence = row.lower("sp");
  bool implies = holdsOneOf(system, {"nemo", "megatron_core", "torchtitan"});
  bool isSaid = holdsOneOf(sequence, {"yes", "true", "on"}) || row.number("sp") >= 1;
  bool isDenied = holdsOneOf(sequence, {"no", "false", "off"}) || row.number("sp", -1) == 0;
  if (!sequence.empty() && !isSaid && !isDenied)
    fault = "sp '" + row.text("sp") + "' is not known";
  return sequence.empty() ? implies : isSaid;
}

PublishedRun refused(const std::string &reason) {
  PublishedRun none;
  none.reason = reason;
  return none;
}

class RowReader {
public:
  explicit RowReader(const PublishedRow &row) : row(row) {}

  PublishedRun read() {
    std::string named = namedModel(row);
    for (const std::string &fault :
         {checkCells(row, !named.empty()), readOutcome(), readCluster(), unmodelledFeature(row)})
      if (!fault.empty())
        return refused(fault);
    run.withoutPlan = std::ranges::all_of(std::initializer_list<const char *>{"tp", "pp", "dp", "mbs"},
                                          [&](const char *column) { return row.text(column).empty(); });
    std::string fault = run.withoutPlan ? "" : readPlan();
    if (!fault.empty())
      return refused(fault);
    named.empty() ? readShape() : readNamed(named);
    readMeasured();
    return run;
  }

private:
  void set(const std::string &key, auto value) { run.sets.push_back(fmt::format("{}={}", key, value)); }
  void size(const char *key, auto value) { set(std::string("model.model_config.") + key, value); }
  void pin(const char *key, auto value) { run.pin += fmt::format("{}{}={}", run.pin.empty() ? "" : ",", key, value); }

  std::string readOutcome() {
    std::string status = row.lower("status");
    run.outOfMemory = holdsOneOf(status, {"oom", "out of memory"});
    run.isAnalytic = holdsOneOf(status, {"memory-only"});
    bool ran = status.empty() || status.starts_with("ok");
    return ran || run.outOfMemory || run.isAnalytic ? "" : "status: " + row.text("status");
  }

  std::string readCluster() {
    std::string gpu = row.lower("gpu"), fault;
    std::erase(gpu, ' ');
    const auto *found = std::ranges::find_if(
        clusters, [&](const ClusterName &name) { return holdsOneOf(gpu, {name.gpu}) && holdsOneOf(gpu, {name.site}); });
    if (found == std::end(clusters) || !*found->file)
      return "no cluster file for gpu '" + row.text("gpu") + "'";
    int devices = static_cast<int>(whole(row, "n_gpus", 1)), perHost = std::gcd(devices, found->devicesPerHost);
    if (devices < found->devicesPerHost)
      perHost = devices;
    run.cluster = fmt::format("{}:{}x{}", found->file, devices / perHost, perHost);
    run.system = systemOf(row);
    if (std::string format = formatOf(row.lower("precision"), fault); !format.empty())
      set("model.model_config.matmul_format", format);
    return fault;
  }

  /// Infers an unpublished axis if it is the only one. A run that shards parameters and names no tensor ranks has none.
  std::string readAxes(int zero) {
    int devices = static_cast<int>(row.number("n_gpus"));
    std::vector<std::pair<const char *, int *>> axes = {{"tp", &tp}, {"pp", &pp}, {"dp", &dp}};
    int64_t product = cp = static_cast<int>(whole(row, "cp", 1));
    for (auto &[column, size] : axes)
      product *= *size = static_cast<int>(whole(row, column, 1));
    bool isSharded = zero == 3 && row.text("tp").empty() && (row.text("pp").empty() || row.text("dp").empty());
    std::erase_if(axes, [&](const auto &axis) {
      return !row.text(axis.first).empty() || (isSharded && std::string(axis.first) != "dp");
    });
    if (devices % product != 0)
      return "dp * tp * pp * cp does not divide the devices";
    if (devices != product && axes.empty())
      return "dp * tp * pp * cp is not the number of devices";
    if (devices != product && axes.size() > 1)
      return std::string("no ") + axes.front().first + " published";
    if (!axes.empty())
      *axes.front().second = static_cast<int>(devices / product);
    return splitExperts();
  }

  /// Published dp includes the ranks of ep. If these are more, experts also lie on tensor ranks, as whole ones.
  std::string splitExperts() {
    ep = static_cast<int>(whole(row, "ep", 1));
    if (ep > 1 && dp % ep != 0 && ep % dp == 0 && ep / dp == tp) {
      ep = dp;
      pin("expert_tensor_parallel", "False");
    }
    if (dp % ep != 0)
      return "ep does not divide dp";
    dp /= ep;
    return "";
  }

  std::string readPlan() {
    std::string fault;
    int zero = zeroOf(row, run.system, fault);
    if (fault.empty())
      fault = readAxes(zero);
    if (!fault.empty())
      return fault;
    // Megatron-Bridge prints only whether FSDP is used. torchtitan's pipelines shard once per step.
    if (holdsOneOf(row.text("source"), {"Megatron-Bridge"}))
      zero = std::max(zero, 1);
    if (run.system.starts_with("torchtitan") && pp > 1)
      zero = std::min(zero, 1);
    run.replicas = dp * ep;
    run.globalBatch = static_cast<int64_t>(batchOf(row));
    if (fault = readMicroBatch(); !fault.empty())
      return fault;
    bool isSplit = splitsSequence(row, run.system, fault);
    if (!fault.empty())
      return fault;
    int virtualStages = static_cast<int>(whole(row, "vpp", 1));
    for (auto [key, value] : {std::pair("dp", dp), {"tp", tp}, {"pp", pp}, {"cp", cp}, {"ep", ep}, {"zero", zero}})
      pin(key, value);
    pin("sp", tp > 1 && isSplit);
    pin("schedule", virtualStages > 1 ? "interleaved" : "1f1b");
    if (virtualStages > 1)
      pin("vpp", virtualStages);
    readOffload(zero);
    run.fillsFirstStages = run.system.starts_with("megatron_deepspeed");
    constexpr double mostActions = 1e7;
    double actions = static_cast<double>(run.globalBatch) / run.replicas * pp * virtualStages;
    return actions > mostActions ? "the schedule has too many actions" : readRecompute();
  }

  std::string readMicroBatch() {
    int64_t perReplica = run.globalBatch / run.replicas, given = whole(row, "mbs", 0);
    bool isCut = run.system.starts_with("torchtitan") && pp > 1; // the batch of a rank, cut by the stages
    if (isCut) {
      if (given % pp != 0)
        return "the micro-batch is not published";
      given /= pp;
      run.assumed.emplace_back("as many micro-batches as stages");
    }
    if (perReplica < 1 || run.globalBatch % run.replicas != 0 || (given > 0 && perReplica % given != 0))
      return "the global batch does not divide by dp * micro-batch";
    constexpr int64_t most = 16;
    for (int64_t size = 1; size <= std::min(perReplica, most) && given == 0; ++size)
      if (perReplica % size == 0)
        run.microBatchSizes.push_back(size);
    if (given > 0)
      run.microBatchSizes = {given};
    return "";
  }

  /// Sets what stays in host memory: the optimizer state, and the parameters if they are sharded.
  void readOffload(int zero) {
    std::string text = row.lower("zero");
    bool said = holdsOneOf(text, {"offload"}), all = holdsOneOf(text, {"max model size"});
    if (said || all)
      pin("offload_optimizer", true);
    if ((said && zero == 3 && !holdsOneOf(text, {"optim"})) || all)
      pin("offload_parameters", true);
    // Megatron's runs under DeepSpeed's ZeRO 3 kept the inputs of layers in host memory (--checkpoint-in-cpu).
    if (run.system == "deepspeed_zero" && holdsOneOf(text, {"deepspeed zero"}) &&
        !(row.text("tp") + row.text("dp")).empty()) {
      pin("offload_activations", true);
      set("recompute_config.recompute_slice_activation", "True"); // --partition-activations
    }
  }

  /// An empty cell leaves recompute open: every stage keeps what fits.
  std::string readRecompute() {
    std::string text = row.lower("recompute");
    bool selects = holdsOneOf(text, {"sel"}), byLayers = holdsOneOf(text, {"layer", "block"});
    auto isOneOf = [&](auto... words) { return ((text == words) || ...); };
    if (selects && !byLayers)
      pin("recompute", "selective");
    else if (!selects && (holdsOneOf(text, {"full"}) || isOneOf("yes", "true", "on")))
      pin("recompute", "full");
    else if (isOneOf("none", "no", "false", "off"))
      pin("recompute", "none");
    else if (!text.empty()) // only some layers recompute, and the table does not say which
      return "recompute '" + row.text("recompute") + "' is not modelled";
    return "";
  }

  int64_t take(const char *column, int64_t missing, const char *what) {
    if (row.text(column).empty())
      run.assumed.emplace_back(what);
    return whole(row, column, missing);
  }

  /// Infers the model file. A third ffn matrix is assumed if the width is not a multiple of hidden, or by the model's
  /// name. Its unpublished width is two thirds of 4 hidden, rounded up to 256 (Touvron et al. 2023).
  void readShape() {
    std::string model = row.lower("model");
    int64_t hidden = whole(row, "hidden", 1), seq = whole(row, "seq", 1);
    int64_t heads = run.system == "deepspeed_zero" && row.text("heads").empty() // scripts beside the page
                        ? 32
                        : take("heads", assumedHeads(hidden), "heads of the size nearest 128 that divides hidden");
    bool isGated = holdsOneOf(model, {"llama", "qwen", "mistral", "baichuan", "internlm", "yi-"});
    int64_t ffn = isGated ? take("ffn", (8 * hidden / 3 + 255) / 256 * 256, "ffn of two thirds of 4 hidden")
                          : take("ffn", 4 * hidden, "ffn of 4 hidden");
    int64_t kvHeads = whole(row, "kv_heads", heads);
    if (!isGated && kvHeads != heads) { // only Llama's file has fewer key and value heads
      isGated = true;
      ffn = 2 * ffn / 3 / 64 * 64; // three matrices have the parameters and the products of two wider ones
      run.assumed.emplace_back("a gated ffn of as many parameters");
    }
    isGated |= ffn % hidden != 0;
    run.base = isGated ? "llama2_7b" : "gpt3_175b";
    size("num_layers", whole(row, "layers", 1));
    size("hidden_size", hidden);
    size("num_heads", heads);
    size("seq_length", seq);
    size("vocab_size", take("vocab", 51200, "a vocabulary of 51,200"));
    if (isGated) {
      size("intermediate_size", ffn);
      size("n_kv_heads", kvHeads);
    } else {
      size("expand_ratio", ffn / hidden);
      bool hasDropout = run.system.starts_with("megatron_202") || run.system == "deepspeed_zero";
      for (const char *rate : {"hidden_dropout_rate", "attention_dropout_rate", "embedding_dropout_prob"})
        size(rate, hasDropout ? 0.1 : 0.0);
    }
    readTypes();
  }

  void readTypes() {
    std::string precision = row.lower("precision");
    bool isFloat16 = holdsOneOf(precision, {"fp16", "float16"}) || holdsOneOf(row.lower("gpu"), {"v100"});
    const char *compute = isFloat16 ? "float16" : "bfloat16";
    bool isWide = holdsOneOf(run.system, {"llm_foundry", "torchtitan"}) && pp == 1 && !holdsOneOf(precision, {"pure"});
    size("compute_dtype", compute);
    size("param_init_type", isWide ? "float32" : compute);
    set("optimizer", fmt::format("{{type: AdamW, master_weights: {}}}", isWide ? "False" : "True"));
  }

  void readNamed(const std::string &file) {
    run.base = file;
    size("seq_length", whole(row, "seq", 1));
    set("moe_config.capacity_factor", 1); // experts were force-balanced
    run.assumed.emplace_back("the sizes of " + file);
  }

  void readMeasured() {
    set("planner.global_batch", run.globalBatch = static_cast<int64_t>(batchOf(row)));
    for (const char *plain :
         {"context.max_device_memory=null", "parallel.parallel_mode=2", "use_parallel=True", "planner.pin={}"})
      run.sets.emplace_back(plain);
    run.seconds = std::max(0.0, row.number("iter_time_s"));
    run.tokensPerSecond = std::max(0.0, row.number("tokens_per_s_per_gpu"));
    run.mfu = std::max(0.0, row.number("mfu_pct")) / 100;
    // The formula of Megatron-DeepSpeed changed during its table. Until 2022 rates counted recomputed work.
    run.countsRecompute = run.system.starts_with("megatron_202") || run.system == "deepspeed_zero";
    run.teraflops = run.system.starts_with("megatron_deepspeed") ? 0 : std::max(0.0, row.number("tflops_per_gpu"));
    run.gibibytes = std::max(0.0, row.number("mem_gb"));
    if (run.seconds + run.tokensPerSecond + run.mfu + run.teraflops + run.gibibytes == 0 && !run.outOfMemory)
      run = refused("nothing measured");
  }

  const PublishedRow &row;
  PublishedRun run;
  int tp = 1, pp = 1, dp = 1, cp = 1, ep = 1;
};

} // namespace

PublishedRun runOf(const PublishedRow &row) { return RowReader(row).read(); }

} // namespace espalier
