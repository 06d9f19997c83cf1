// Reads shape, plan, system and measurements from the columns. A missing or out-of-range value becomes the reason to
// skip.
#include "tools/published/rows.h"

#include "planner/search.h"
#include "planner/search/stage_options.h"
#include "tools/published/machines.h"
#include "tools/published/systems.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace espalier::planner {

namespace {

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

bool containsOneOf(const std::string &text, std::initializer_list<const char *> parts) {
  return std::ranges::any_of(parts, [&](const char *part) { return contains(text, part); });
}

// Returns the batch in samples. A cell may also count tokens (`4M tokens`); M is a million or 2^20, whichever gives
// whole samples. Returns 0 if the result is not a whole number.
double batchOf(const PublishedRow &row) {
  std::string text = lowerCase(row.text("gbs"));
  size_t unit = text.find("tok");
  if (unit == std::string::npos)
    return row.number("gbs");
  double seq = row.number("seq"), tokens = 0;
  text.resize(unit);
  text.resize(text.find_last_not_of(" ") + 1);
  bool millions = text.ends_with("m");
  if (millions)
    text.pop_back();
  for (double factor : {1e6, 1048576.0}) {
    tokens = readNumber(text).value_or(0) * (millions ? factor : 1);
    if (seq > 0 && std::fmod(tokens, seq) == 0)
      return tokens / seq;
  }
  return 0;
}

// Returns why the cells cannot be used: a required cell is missing, not a number, or out of range.
std::string checkCells(const PublishedRow &row, bool withoutPlan) {
  struct Cell {
    const char *column;
    bool needed;
    double most; ///< keeps products of cells and lists of actions small
  };
  const Cell cells[] = {
      {"layers", true, 10000},    {"hidden", true, 1e6}, {"heads", false, 1e5}, {"kv_heads", false, 1e5},
      {"ffn", false, 1e7},        {"vocab", false, 1e8}, {"seq", true, 1e8},    {"n_gpus", true, 1e6},
      {"mbs", !withoutPlan, 1e6}, {"gbs", true, 1e6},    {"tp", false, 1e6},    {"pp", false, 10000},
      {"vpp", false, 10000},      {"cp", false, 1e6},    {"ep", false, 1e6},    {"dp", false, 1e6}};
  for (const Cell &cell : cells) {
    const std::string column = cell.column, &text = row.text(column);
    double value = column == "gbs" ? batchOf(row) : row.number(column, -1);
    if (text.empty() && cell.needed)
      return "no " + column + " published";
    if (!text.empty() && (value < 1 || value > cell.most || value != std::floor(value)))
      return column + " is '" + text + "', wanted a whole number from 1 to " + std::to_string(std::llround(cell.most));
  }
  for (const char *column : {"iter_time_s", "tflops_per_gpu", "mfu_pct", "hfu_pct", "tokens_per_s_per_gpu", "mem_gb"})
    if (!row.text(column).empty() && row.number(column, -1) < 0)
      return std::string(column) + " is '" + row.text(column) + "', wanted a number and at most its unit";
  return "";
}

int64_t whole(const PublishedRow &row, const char *column, int64_t missing) {
  return static_cast<int64_t>(row.number(column, static_cast<double>(missing)));
}

// Returns the number of heads whose size is the divisor of `hidden` nearest to 128.
int64_t assumedHeads(int64_t hidden) {
  for (int64_t distance = 0;; ++distance) // size 1 always divides
    for (int64_t size : {128 - distance, 128 + distance})
      if (size > 0 && hidden % size == 0)
        return hidden / size;
}

// Infers the kind of decoder, which no column gives. A third ffn matrix is assumed if the width is not 4 hidden, or by
// the model's name. Its unpublished width is two thirds of 4 hidden, rounded up to 256 (Touvron et al. 2023).
std::string fillShape(const PublishedRow &row, const PublishedSystem &system, int tp, ModelShape &shape,
                      std::vector<std::string> &assumed) {
  std::string model = lowerCase(row.text("model"));
  auto take = [&](const char *column, int64_t missing, const char *what) {
    if (row.text(column).empty())
      assumed.push_back(what);
    return whole(row, column, missing);
  };
  shape.layers = static_cast<int>(whole(row, "layers", 1));
  shape.hidden = whole(row, "hidden", 1);
  shape.heads = system.heads > 0 && row.text("heads").empty()
                    ? system.heads
                    : take("heads", assumedHeads(shape.hidden), "heads of the size nearest 128 that divides hidden");
  if (shape.hidden % shape.heads != 0)
    return "the heads do not divide hidden as published";
  shape.kvHeads = whole(row, "kv_heads", shape.heads);
  if (shape.heads % shape.kvHeads != 0)
    return "the key and value heads do not divide the heads";
  shape.gated = containsOneOf(model, {"llama", "qwen", "mistral", "baichuan", "internlm", "yi-"});
  shape.ffn = shape.gated ? take("ffn", (8 * shape.hidden / 3 + 255) / 256 * 256, "ffn of two thirds of 4 hidden")
                          : take("ffn", 4 * shape.hidden, "ffn of 4 hidden");
  shape.gated |= shape.ffn != 4 * shape.hidden;
  shape.seq = whole(row, "seq", 1);
  // Megatron pads the vocabulary to 128 tp; some tables print it before padding.
  int64_t unit = 128 * static_cast<int64_t>(tp);
  shape.vocab = (take("vocab", 51200, "a vocabulary of 51,200") + unit - 1) / unit * unit;
  bool untied = containsOneOf(model, {"nemotron", "neox", "pythia"});
  shape.rotary = shape.gated || untied || contains(model, "falcon");
  shape.tied = !shape.gated && !untied;
  shape.dropout = system.hasDropout;
  return "";
}

// Returns the ZeRO stage, or nothing if the cell is empty or names no stage. Sets `fault` if the cell is unsupported.
std::optional<int> zeroOf(const PublishedRow &row, std::string &fault) {
  std::string text = lowerCase(row.text("zero"));
  if (containsOneOf(text, {"infinity", "nvme", "(auto)", "(const)"})) // the policy is not published
    fault = "zero '" + row.text("zero") + "' is not modelled";
  if (text.empty() || !fault.empty())
    return std::nullopt;
  if (containsOneOf(text, {"fsdp", "hsdp"}))
    return 3;
  if (contains(text, "offload") || contains(text, "(section"))
    text.resize(std::min(text.find_first_of(",("), text.find("offload")));
  for (const std::string word : {"deepspeed", "zero", "stage", "-", "_", " "})
    for (size_t place = text.find(word); place != std::string::npos; place = text.find(word))
      text.erase(place, word.size());
  if (text.empty())
    return std::nullopt;
  if (std::optional<double> stage = readNumber(text);
      stage && (*stage == 0 || *stage == 1 || *stage == 2 || *stage == 3))
    return static_cast<int>(*stage);
  if (containsOneOf(text, {"no", "ddp", "false", "off"}))
    return 0;
  if (containsOneOf(text, {"yes", "true", "on", "distributed"}))
    return 1;
  fault = "zero '" + row.text("zero") + "' is not modelled";
  return std::nullopt;
}

// Returns optimizer offloading if the cell says so or if parameters are not sharded; otherwise offloading of all
// state.
PublishedOffload offloadOf(const PublishedRow &row, int zero) {
  std::string text = lowerCase(row.text("zero"));
  PublishedOffload offload;
  offload.optimizer = contains(text, "offload");
  offload.parameters = offload.optimizer && zero == 3 && !contains(text, "optim");
  return offload;
}

// Infers an unpublished axis if it is the only one. If parameters are sharded, a row that names neither tensor ranks
// nor another axis has no tensor ranks.
std::string fillAxes(const PublishedRow &row, Plan &plan) {
  int devices = static_cast<int>(row.number("n_gpus")), known = 1;
  plan.cp = static_cast<int>(whole(row, "cp", 1));
  std::vector<std::pair<const char *, int *>> axes = {{"tp", &plan.tp}, {"pp", &plan.pp}, {"dp", &plan.dp}};
  int64_t product = plan.cp;
  for (auto &[column, size] : axes)
    product *= *size = static_cast<int>(whole(row, column, 1));
  bool isSharded = plan.zero == 3 && row.text("tp").empty() && (row.text("pp").empty() || row.text("dp").empty());
  std::erase_if(axes, [&](const auto &axis) {
    return !row.text(axis.first).empty() || (isSharded && std::string(axis.first) != "dp");
  });
  if (devices % product != 0)
    return "dp * tp * pp * cp does not divide the devices";
  known = static_cast<int>(devices / product);
  if (known == 1)
    return "";
  if (axes.empty())
    return "dp * tp * pp * cp is not the number of devices";
  if (axes.size() > 1)
    return std::string("no ") + axes.front().first + " published";
  *axes.front().second = known;
  return "";
}

// Returns whether the sequence is split over tp, or nothing if the cell is empty. Sets `fault` if the cell is unknown.
std::optional<bool> sequenceParallelOf(const PublishedRow &row, std::string &fault) {
  std::string text = lowerCase(row.text("sp"));
  if (text.empty())
    return std::nullopt;
  if (containsOneOf(text, {"yes", "true", "on"}) || row.number("sp") >= 1)
    return true;
  if (containsOneOf(text, {"no", "false", "off"}) || row.number("sp", -1) == 0)
    return false;
  fault = "sp '" + row.text("sp") + "' is not known";
  return std::nullopt;
}

std::string fillPlan(const PublishedRow &row, const PublishedSystem &system, Plan &plan,
                     std::vector<std::string> &assumed) {
  if (row.number("ep", 1) > 1)
    return "expert parallelism is not modelled for published shapes";
  std::string notes = lowerCase(row.text("notes")), fault;
  if (containsOneOf(notes + lowerCase(row.text("model")), {"lora"}))
    return "fine-tuning of adapters is not modelled";
  bool isSaid = contains(lowerCase(row.text("zero")), "offload");
  if (contains(notes, "paged to the host") || (contains(notes, "cpu offload") && !isSaid))
    return "offloading is not modelled for published shapes";
  std::optional<int> zero = zeroOf(row, fault);
  std::optional<bool> sequenceParallel = sequenceParallelOf(row, fault);
  if (!fault.empty())
    return fault;
  if (!zero && contains(lowerCase(row.text("zero")), "zero")) {
    if (system.impliedZero != 3)
      return "no ZeRO stage published";
    assumed.push_back("ZeRO 3");
  }
  plan.zero = zero.value_or(system.impliedZero);
  PublishedOffload said = offloadOf(row, plan.zero);
  plan.offloadOptimizer = said.optimizer || system.offload.optimizer;
  plan.offloadParameters = said.parameters || system.offload.parameters;
  plan.offloadActivations = system.offload.activations;
  // Megatron-Bridge prints only whether FSDP is used. Its optimizer is always distributed.
  if (contains(row.text("source"), "Megatron-Bridge"))
    plan.zero = std::max(plan.zero, 1);
  if (fault = fillAxes(row, plan); !fault.empty())
    return fault;
  double samples = row.number("mbs") * plan.dp, batches = batchOf(row) / samples;
  if (batches < 1 || batches != std::floor(batches))
    return "the global batch does not divide by dp * micro-batch";
  plan.microBatchSize = whole(row, "mbs", 1);
  plan.microBatches = static_cast<int64_t>(batches);
  plan.sequenceParallel = plan.tp > 1 && sequenceParallel.value_or(system.impliesSequenceParallel);
  if (system.shardsPerStep)
    plan.zero = std::min(plan.zero, 1);
  if (system.cutsBatchByStages) {
    if (plan.microBatchSize % plan.pp != 0)
      return "the micro-batch is not published";
    plan.microBatchSize /= plan.pp;
    plan.microBatches *= plan.pp;
    assumed.push_back("as many micro-batches as stages");
  }
  plan.virtualStages = static_cast<int>(whole(row, "vpp", 1));
  if (plan.virtualStages == 1 && containsOneOf(notes, {"interleaved 1f1b"}))
    return "interleaved, and no vpp published";
  if (plan.virtualStages > 1)
    plan.schedule = Schedule::Interleaved;
  constexpr double mostActions = 1e7;
  if (batches * plan.pp * plan.virtualStages > mostActions)
    return "the schedule has too many actions";
  return "";
}

// Whether the row comes from a planner's table that does not print plans.
bool givesNoPlan(const PublishedRow &row) {
  for (const char *column : {"tp", "pp", "dp", "mbs"})
    if (!row.text(column).empty())
      return false;
  return true;
}

// Returns the recompute class; empty: unknown, and every stage keeps what fits.
std::optional<Recompute> recomputeOf(const std::string &cell, std::string &fault) {
  std::string text = lowerCase(cell);
  if (text.empty())
    return std::nullopt;
  bool selects = contains(text, "sel"), byLayers = contains(text, "layer") || contains(text, "block");
  if (selects && !byLayers)
    return Recompute::Selective;
  if (!selects && (contains(text, "full") || text == "yes" || text == "true" || text == "on"))
    return Recompute::Full;
  if (text == "none" || text == "no" || text == "false" || text == "off")
    return Recompute::None;
  fault = "recompute '" + cell + "' is not modelled"; // only some layers recompute, and the table does not say which
  return std::nullopt;
}

// DeepSpeed assigns the remaining layers to the first stages. If embedding and loss, counted as one layer each, make
// the layers divisible, it spreads them evenly as usual.
void fillFirstStages(Problem &problem, const Plan &plan) {
  int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages), layers = problem.layerCount();
  int most = (layers + chunks - 1) / chunks, last = layers - (chunks - 1) * most;
  if (chunks < 2 || layers % chunks == 0 || (layers + 2) % chunks == 0 || last < 1)
    return;
  std::vector<int> counts(chunks, most);
  counts.back() = last;
  problem.pins.stageLayers = std::move(counts);
}

// If recompute is not published, each stage uses the least recompute that fits, as a user would choose.
void keepWhatFits(const Problem &problem, Plan &plan) {
  PricedPlan even = pricePlan(problem, plan);
  if (even.prediction.fits())
    return;
  StageOptions options(problem, plan);
  std::vector<int> counts;
  for (const StagePlan &part : even.plan.stages)
    counts.push_back(part.layers);
  plan.stages = layStages(options, counts).stages;
}

enum class Outcome { Ran, OutOfMemory, Analytic, Unknown };

Outcome outcomeOf(const std::string &status) {
  std::string text = lowerCase(status);
  if (text.empty() || text.starts_with("ok"))
    return Outcome::Ran;
  if (contains(text, "oom") || contains(text, "out of memory"))
    return Outcome::OutOfMemory;
  return contains(text, "memory-only") ? Outcome::Analytic : Outcome::Unknown;
}

void fillMeasured(const PublishedRow &row, PublishedFlops counted, PublishedCase &result) {
  const Problem &problem = result.problem;
  double samples = static_cast<double>(problem.globalBatch), devices = problem.machine.devices();
  bool repeats = problem.pins.recompute == Recompute::Full;
  double flops = problem.modelFlops * samples / devices, repeated = flops * (repeats ? 4.0 / 3 : 1);
  double tokens = row.number("tokens_per_s_per_gpu"), mfu = row.number("mfu_pct"), rate = row.number("tflops_per_gpu");
  result.seconds = std::max(0.0, row.number("iter_time_s"));
  if (result.seconds == 0 && tokens > 0)
    result.seconds = samples * static_cast<double>(problem.tokensPerSample) / (tokens * devices);
  if (result.seconds == 0 && mfu > 0)
    result.seconds = flops / (problem.machine.peakFlops * mfu / 100);
  if (result.seconds == 0 && rate > 0 && counted != PublishedFlops::Unknown)
    result.seconds = (counted == PublishedFlops::WithRecompute ? repeated : flops) / (rate * 1e12);
  result.gibibytes = std::max(0.0, row.number("mem_gb"));
  result.nullFlops = repeated;
}

} // namespace

PublishedCase caseOf(const PublishedRow &row) {
  PublishedCase result;
  auto refuse = [&](std::string reason) {
    result = {};
    result.reason = std::move(reason);
    return result;
  };
  Outcome outcome = outcomeOf(row.text("status"));
  if (outcome == Outcome::Unknown)
    return refuse("status: " + row.text("status"));
  PublishedSystem used = systemOf(row);
  const System &system = used.system;
  ModelShape shape;
  result.withoutPlan = givesNoPlan(row);
  if (std::string fault = checkCells(row, result.withoutPlan); !fault.empty())
    return refuse(fault);
  if (std::string fault = result.withoutPlan ? "" : fillPlan(row, used, result.plan, result.assumed); !fault.empty())
    return refuse(fault);
  if (std::string fault = fillShape(row, used, result.plan.tp, shape, result.assumed); !fault.empty())
    return refuse(fault);
  Machine machine = publishedMachine(row.text("gpu"), row.text("precision"), static_cast<int>(whole(row, "n_gpus", 1)),
                                     used.isPyTorch);
  if (machine.name.empty())
    return refuse("no machine for gpu '" + row.text("gpu") + "' with precision '" + row.text("precision") + "'");
  if (used.reservedGiB > 0)
    machine.reservedBytes = used.reservedGiB * 1073741824;
  std::string fault;
  std::optional<Recompute> recompute;
  if (!result.withoutPlan)
    recompute = recomputeOf(row.text("recompute"), fault);
  if (!fault.empty())
    return refuse(fault);
  const Plan *only = result.withoutPlan ? nullptr : &result.plan;
  auto batch = static_cast<int64_t>(batchOf(row));
  result.problem = shapeProblem(shape, monitored(system), machine, batch, only);
  if (result.withoutPlan) {
    result.problem.pins.zero = 0;
    result.problem.pins.sequenceParallel = false;
    result.problem.pins.cp = 1;
    result.seconds = std::max(0.0, row.number("iter_time_s"));
    return result.seconds > 0 && outcome == Outcome::Ran ? result : refuse("nothing measured");
  }
  result.problem.pins.recompute = recompute;
  if (used.cutsBatchByStages)
    result.problem.streamBuffers.sends =
        2.0 * static_cast<double>(result.plan.microBatches) * result.plan.virtualStages;
  if (used.fillsFirstStages)
    fillFirstStages(result.problem, result.plan);
  if (std::vector<std::string> faults = violations(result.problem, result.plan); !faults.empty())
    return refuse(faults.front());
  result.outOfMemory = outcome == Outcome::OutOfMemory;
  result.analytic = outcome == Outcome::Analytic;
  if (used.showsAllocated)
    result.unseenBytes = machine.reservedBytes;
  if (result.analytic) // the formula covers only the layers
    result.problem.embed = result.problem.head = -1;
  if (!recompute)
    keepWhatFits(result.problem, result.plan);
  result.needs = result.problem;
  result.needs.kinds = shapeProblem(shape, needed(system), machine, batch, only).kinds;
  fillMeasured(row, used.flops, result);
  if (result.seconds == 0 && result.gibibytes == 0 && !result.outOfMemory)
    return refuse("nothing measured");
  return result;
}

} // namespace espalier::planner
