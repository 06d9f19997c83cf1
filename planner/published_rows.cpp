// Reads shape, plan, system and what was measured from the columns; what is missing or out of range is a reason.
#include "planner/published_rows.h"

#include "planner/published_machines.h"
#include "planner/search.h"
#include "planner/split_chunks.h"

#include <algorithm>
#include <cctype>
#include <cmath>

namespace espalier::planner {

namespace {

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Which variant of system a row used. Megatron of 2021 and 2022 stored scores and kept f32
// gradients; Jean Zay ran Megatron-DeepSpeed, whose fp16 runs accumulate in fp16; the others use
// flash attention without dropout.
System systemOf(const PublishedRow &row, bool *unfused) {
  System system;
  std::string gpu = lower(row.text("gpu")), precision = lower(row.text("precision")), model = lower(row.text("model"));
  std::string source = lower(row.text("source"));
  *unfused = contains(source, "korthikanti") || contains(source, "narayanan") || contains(gpu, "jean zay") ||
             contains(source, "alpa") || contains(source, "calculon") || contains(source, "superscaler");
  system.fusedAttention = !*unfused;
  if (contains(gpu, "jean zay")) {
    system.name = "megatron-deepspeed";
    system.scattersBoundary = true; // PipelineEngine sends partitioned activations
    // bf16: gradients in both types, and two bytes more as measured; fp16: one f32 copy of the
    // gradients of the own partition at the update.
    bool wide = contains(precision, "fp32 grad") || precision == "bf16";
    system.gradientBytes = wide ? 8 : 2;
    system.allocatedShare = 1.16;
    system.updateBytes = wide ? 0 : 4;
    const std::string &notes = row.text("notes");
    if (contains(notes, "\"BNB\"") && !contains(notes, "same conf"))
      system.optimizerBytes -= 6; // moments in eight bits
    system.reducedBytes = wide ? 4 : 2;
    system.accumulationBytes = wide ? 10 : 6; // reads both, writes one
  } else if (*unfused) {
    system.name = "megatron-2022";
    system.scattersBoundary = true;
    system.gradientPasses = 7; // unscale 2, norm 1, clip 2, update 1, clear 1
    system.hidesInputGradients = contains(source, "korthikanti") || contains(source, "calculon");
    if (contains(source, "narayanan")) { // 2021: 16-bit gradients, summed by a kernel of their own and copied in f32
      system.gradientBytes = 2, system.updateBytes = 4, system.accumulationBytes = 6;
    }
  } else if (contains(source, "llm-foundry")) {
    system.name = "fsdp";
    system.stopsRecomputeEarly = contains(gpu, "h100"); // its A100 runs used PyTorch 1.13
    system.elementwiseShare = 2;                        // kernels of the framework one by one
    bool pure = contains(precision, "pure");
    system.parameterBytes = pure ? 2 : 4, system.gradientBytes = pure ? 2 : 4, system.optimizerBytes = pure ? 4 : 8;
  } else if (contains(source, "torchtitan")) {
    system.name = "torchtitan";
    system.stopsRecomputeEarly = true;
    system.elementwiseShare = contains(row.text("notes"), "compile") ? 1.2 : 2;
    system.parameterBytes = 4, system.gradientBytes = 4, system.optimizerBytes = 8;
    // Backward of the loss: log-softmax, its gradient and that of the logits; split over tp also its exponent.
    system.lossBytes = row.number("tp", 1) > 1 ? 16 : 12;
    system.keepsGatheredInputs = true;
    system.repeatsSecondProducts = true;
  } else {
    system.name = "megatron-core";
    system.hidesGradients = system.hidesTensor = true;
    if (contains(source, "megatron-bridge"))
      system.gradientBytes = 2; // its recipes reduce in 16 bits
    if (contains(precision, "fp8") || contains(precision, "fp4"))
      system.productInputBytes = 1; // kept in eight bits
  }
  return system;
}

// Why the cells cannot be used: a cell that has to be there, is no number or is beyond what a run can have.
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
    double value = row.number(column, -1);
    if (text.empty() && cell.needed)
      return "no " + column + " published";
    if (!text.empty() && (value < 1 || value > cell.most || value != std::floor(value)))
      return column + " is '" + text + "', wanted a whole number from 1 to " + std::to_string(std::llround(cell.most));
  }
  return "";
}

int64_t whole(const PublishedRow &row, const char *column, int64_t missing) {
  return static_cast<int64_t>(row.number(column, static_cast<double>(missing)));
}

// Heads of the size nearest 128 that divides hidden.
int64_t assumedHeads(int64_t hidden) {
  for (int64_t distance = 0;; ++distance) // size 1 always divides
    for (int64_t size : {128 - distance, 128 + distance})
      if (size > 0 && hidden % size == 0)
        return hidden / size;
}

std::string fillShape(const PublishedRow &row, bool unfused, int tp, ModelShape &shape) {
  shape.layers = static_cast<int>(whole(row, "layers", 1));
  shape.hidden = whole(row, "hidden", 1);
  shape.heads = row.text("heads").empty() ? assumedHeads(shape.hidden) : whole(row, "heads", 1);
  if (shape.hidden % shape.heads != 0)
    return "the heads do not divide hidden as published";
  shape.kvHeads = whole(row, "kv_heads", shape.heads);
  shape.ffn = whole(row, "ffn", 4 * shape.hidden);
  shape.seq = whole(row, "seq", 1);
  // Megatron pads the vocabulary to 128 tp; some tables print it before padding.
  int64_t unit = 128 * static_cast<int64_t>(tp);
  shape.vocab = (whole(row, "vocab", 51200) + unit - 1) / unit * unit;
  // No column says which kind of decoder it is; a third ffn matrix comes with another width than 4 hidden.
  bool llama = contains(lower(row.text("model")), "llama") || shape.ffn != 4 * shape.hidden;
  shape.gated = shape.rotary = llama;
  shape.tied = !llama;
  shape.dropout = unfused && !contains(lower(row.text("gpu")), "jean zay");
  return "";
}

// An axis that is not published follows from the others when it is the only one.
std::string fillAxes(const PublishedRow &row, Plan &plan) {
  int devices = static_cast<int>(row.number("n_gpus")), known = 1;
  plan.cp = static_cast<int>(whole(row, "cp", 1));
  std::vector<std::pair<const char *, int *>> axes = {{"tp", &plan.tp}, {"pp", &plan.pp}, {"dp", &plan.dp}};
  int64_t product = plan.cp;
  for (auto &[column, size] : axes)
    product *= *size = static_cast<int>(whole(row, column, 1));
  std::erase_if(axes, [&](const auto &axis) { return !row.text(axis.first).empty(); });
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

std::string fillPlan(const PublishedRow &row, Plan &plan) {
  if (row.number("ep", 1) > 1)
    return "expert parallelism is not modelled for published shapes";
  if (std::string fault = fillAxes(row, plan); !fault.empty())
    return fault;
  double samples = row.number("mbs") * plan.dp, batches = row.number("gbs") / samples;
  if (batches < 1 || batches != std::floor(batches))
    return "the global batch does not divide by dp * micro-batch";
  plan.microBatchSize = whole(row, "mbs", 1);
  plan.microBatches = static_cast<int64_t>(batches);
  plan.zero = static_cast<int>(row.number("zero", 1));
  // Megatron-Bridge prints whether FSDP is used; its optimizer is distributed either way.
  if (contains(row.text("source"), "Megatron-Bridge"))
    plan.zero = std::max(plan.zero, 1);
  if (contains(lower(row.text("notes")), "lora"))
    return "fine-tuning of adapters is not modelled";
  if (contains(lower(row.text("zero")), "deepspeed"))
    return "offloaded ZeRO is not modelled";
  // Megatron-Bridge does not print it and always uses it.
  bool implied = row.text("sp").empty() && contains(row.text("source"), "Megatron-Bridge");
  plan.sequenceParallel = plan.tp > 1 && (row.number("sp") == 1 || implied);
  if (plan.pp > 1 && contains(row.text("source"), "torchtitan"))
    return "the micro-batch is not published";
  plan.virtualStages = static_cast<int>(whole(row, "vpp", 1));
  if (plan.virtualStages > 1)
    plan.schedule = Schedule::Interleaved;
  constexpr double mostActions = 1e7;
  if (batches * plan.pp * plan.virtualStages > mostActions)
    return "the schedule has too many actions";
  return "";
}

// A table of a planner that does not print its plans.
bool givesNoPlan(const PublishedRow &row) {
  for (const char *column : {"tp", "pp", "dp", "mbs"})
    if (!row.text(column).empty())
      return false;
  return true;
}

// Empty: not known; every stage then keeps what fits.
std::optional<Recompute> recomputeOf(const std::string &text, std::string &fault) {
  if (text.empty())
    return std::nullopt;
  if (text == "none")
    return Recompute::None;
  if (contains(text, "full"))
    return Recompute::Full;
  if (contains(text, "sel"))
    return Recompute::Selective;
  fault = "recompute '" + text + "' is not modelled";
  return std::nullopt;
}

// Megatron may count embedding and loss as layers of their own, which then take the place of one in the first and the
// last chunk. Where layers do not divide otherwise, a table that prints no layout must mean that.
void placeEdges(Problem &problem, const Plan &plan) {
  int chunks = plan.pp * chunksOf(plan.schedule, plan.virtualStages), layers = problem.layerCount();
  if (chunks < 2 || layers % chunks == 0 || (layers + 2) % chunks != 0)
    return;
  std::vector<int> counts(chunks, (layers + 2) / chunks);
  --counts.front();
  --counts.back();
  problem.pins.stageLayers = std::move(counts);
}

// Where recompute is not published, the least with which each stage fits, as a user would choose it.
void keepWhatFits(const Problem &problem, Plan &plan) {
  PricedPlan even = pricePlan(problem, plan);
  if (even.prediction.fits())
    return;
  StageOptions options(problem, plan);
  std::vector<int> counts;
  for (const StagePlan &part : even.plan.stages)
    counts.push_back(part.layers);
  plan.stages = layStages(problem, options, counts).stages;
}

enum class Outcome { Ran, OutOfMemory, Analytic, Unknown };

Outcome outcomeOf(const std::string &status) {
  std::string text = lower(status);
  if (text.empty() || text.starts_with("ok"))
    return Outcome::Ran;
  if (contains(text, "oom") || contains(text, "out of memory"))
    return Outcome::OutOfMemory;
  return contains(text, "memory-only") ? Outcome::Analytic : Outcome::Unknown;
}

void fillMeasured(const PublishedRow &row, PublishedCase &result) {
  const Problem &problem = result.problem;
  double samples = static_cast<double>(problem.globalBatch), devices = problem.machine.devices();
  result.seconds = std::max(0.0, row.number("iter_time_s"));
  double tokens = row.number("tokens_per_s_per_gpu"), mfu = row.number("mfu_pct");
  if (result.seconds == 0 && tokens > 0)
    result.seconds = samples * static_cast<double>(problem.tokensPerSample) / (tokens * devices);
  if (result.seconds == 0 && mfu > 0)
    result.seconds = problem.modelFlops * samples / (devices * problem.machine.peakFlops * mfu / 100);
  result.gibibytes = std::max(0.0, row.number("mem_gb"));
  bool repeats = problem.pins.recompute == Recompute::Full;
  result.nullFlops = problem.modelFlops * samples / devices * (repeats ? 4.0 / 3 : 1);
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
  bool unfused = false;
  System system = systemOf(row, &unfused);
  ModelShape shape;
  result.headsAssumed = row.text("heads").empty();
  result.withoutPlan = givesNoPlan(row);
  if (std::string fault = checkCells(row, result.withoutPlan); !fault.empty())
    return refuse(fault);
  if (std::string fault = result.withoutPlan ? "" : fillPlan(row, result.plan); !fault.empty())
    return refuse(fault);
  if (std::string fault = fillShape(row, unfused, result.plan.tp, shape); !fault.empty())
    return refuse(fault);
  Machine machine = publishedMachine(row.text("gpu"), row.text("precision"), static_cast<int>(whole(row, "n_gpus", 1)));
  if (machine.name.empty())
    return refuse("no machine for gpu '" + row.text("gpu") + "' with precision '" + row.text("precision") + "'");
  std::string fault;
  std::optional<Recompute> recompute;
  if (!result.withoutPlan)
    recompute = recomputeOf(row.text("recompute"), fault);
  if (!fault.empty())
    return refuse(fault);
  result.problem = shapeProblem(shape, monitored(system), machine, whole(row, "gbs", 1));
  if (result.withoutPlan) {
    result.problem.pins.zero = 0;
    result.problem.pins.sequenceParallel = false;
    result.seconds = std::max(0.0, row.number("iter_time_s"));
    return result.seconds > 0 && outcome == Outcome::Ran ? result : refuse("nothing measured");
  }
  result.problem.pins.recompute = recompute;
  placeEdges(result.problem, result.plan);
  if (std::vector<std::string> faults = violations(result.problem, result.plan); !faults.empty())
    return refuse(faults.front());
  result.outOfMemory = outcome == Outcome::OutOfMemory;
  result.analytic = outcome == Outcome::Analytic;
  if (result.analytic) // the formula is that of the layers alone
    result.problem.embed = result.problem.head = -1;
  if (!recompute)
    keepWhatFits(result.problem, result.plan);
  result.needs = result.problem;
  result.needs.kinds = shapeProblem(shape, needed(system), machine, whole(row, "gbs", 1)).kinds;
  fillMeasured(row, result);
  if (result.seconds == 0 && result.gibibytes == 0 && !result.outOfMemory)
    return refuse("nothing measured");
  return result;
}

} // namespace espalier::planner
