// The table of machines and systems behind the published rows. Constants that were fitted name
// their rows.
#include "planner/published_rows.h"

#include "planner/search.h"

#include <algorithm>
#include <cstdlib>

namespace espalier::planner {

namespace {
const std::string kEmpty;

bool contains(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}
} // namespace

const std::string &PublishedRow::text(const std::string &column) const {
  auto place = columns.find(column);
  return place == columns.end() ? kEmpty : place->second;
}

double PublishedRow::number(const std::string &column, double missing) const {
  const std::string &cell = text(column);
  char *end = nullptr;
  double value = std::strtod(cell.c_str(), &end);
  return end == cell.c_str() ? missing : value;
}

std::vector<PublishedRow> readRows(const std::string &csv, std::vector<std::string> *faults) {
  std::vector<std::vector<std::string>> lines(1, std::vector<std::string>(1));
  bool quoted = false;
  for (size_t i = 0; i < csv.size(); ++i) {
    char c = csv[i];
    if (quoted && c == '"' && i + 1 < csv.size() && csv[i + 1] == '"')
      lines.back().back() += csv[++i];
    else if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == ',')
      lines.back().emplace_back();
    else if (!quoted && c == '\n')
      lines.emplace_back(1, "");
    else if (c != '\r')
      lines.back().back() += c;
  }
  std::vector<PublishedRow> rows;
  const std::vector<std::string> &heading = lines.front();
  for (size_t line = 1; line < lines.size(); ++line) {
    const std::vector<std::string> &cells = lines[line];
    if (cells.size() == 1 && cells[0].empty())
      continue;
    if (cells.size() != heading.size()) {
      if (faults)
        faults->push_back("row " + std::to_string(line + 1) + " has " +
                          std::to_string(cells.size()) + " cells, wanted " +
                          std::to_string(heading.size()));
      continue;
    }
    PublishedRow row;
    row.line = static_cast<int>(line) + 1;
    for (size_t i = 0; i < cells.size(); ++i)
      row.columns[heading[i]] = cells[i];
    rows.push_back(std::move(row));
  }
  return rows;
}

namespace {

// Constants of a machine; efficiencies are shares of the data sheet's peak.
struct MachineRow {
  const char *gpu; ///< part of the gpu column, lower case
  double memoryGiB, peak16, bytesPerSecond, matmul, attention;
  double launchSeconds;
  int multiprocessors, perHost;
  double linkBytes, networkBytes, reservedGiB;
};

// Peaks and multiprocessors: data sheets. Network: one 200 or 400 Gb/s port per device at what
// nccl-tests reach, Jean Zay four 100 Gb/s ports per node of eight. Latencies, launch: usual
// values. Matmul, attention, memory and link bandwidth as achieved, fitted by coordinate descent on
// the mean error of at most six rows (CSV lines):
//   selene     korthikanti_2022_table5 3, 5, 8; narayanan_sc21_table1 2, 6, 9
//   jean zay   bloom_jeanzay_a100_sweep 35, 48, 49, 54, 64, 74 (reserved bytes by hand on the same
//   rows) h100_80gb  llm_foundry_mpt 4, 12, 16, 21, 31, 34 a100_80gb  attention: llm_foundry_mpt
//   42, 46, 50, 53, 62, 67; the rest as selene; a100_40gb: the same h100-96gb
//   torchtitan_llama3_h100 2, 5, 7, 11 dgx-h100   chosen by hand with all rows of
//   megatron_bridge_perf in sight: no test of the model v100       not fitted
constexpr MachineRow machines[] = {
    {"selene", 80, 312e12, 1.28e12, 0.775, 0.32, 5e-6, 108, 8, 220e9, 22e9, 4},
    {"jean zay, 8/node", 80, 312e12, 1.63e12, 0.63, 0.3, 5e-6, 108, 8, 145e9, 5.5e9, 10},
    {"a100-80gb (jean zay)", 80, 312e12, 1.63e12, 0.63, 0.3, 5e-6, 108, 8, 145e9, 5.5e9, 10},
    {"a100-80gb", 80, 312e12, 1.28e12, 0.775, 0.32, 5e-6, 108, 8, 220e9, 22e9, 4},
    {"a100_80gb", 80, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 22e9, 4},
    {"a100_40gb", 40, 312e12, 1.28e12, 0.775, 0.347, 5e-6, 108, 8, 220e9, 22e9, 2},
    {"v100-32gb (jean zay 4/node)", 32, 125e12, 0.75e12, 0.70, 0.3, 5e-6, 80, 4, 65e9, 5e9, 2},
    {"v100-16gb (jean zay 4/node)", 16, 125e12, 0.75e12, 0.70, 0.3, 5e-6, 80, 4, 65e9, 5e9, 2},
    {"v100-16gb (aws", 16, 125e12, 0.75e12, 0.70, 0.3, 5e-6, 80, 8, 65e9, 3e9, 2},
    {"v100-32gb (8/node)", 32, 125e12, 0.75e12, 0.70, 0.3, 5e-6, 80, 8, 65e9, 5e9, 2},
    {"h100-96gb", 94, 989e12, 1.14e12, 0.573, 0.234, 5e-6, 132, 8, 360e9, 45e9, 5},
    {"h100_80gb", 80, 989e12, 3.11e12, 0.603, 0.159, 5e-6, 132, 8, 228e9, 45e9, 4},
    {"dgx-h100", 80, 989e12, 2.6e12, 0.70, 0.45, 5e-6, 132, 8, 360e9, 45e9, 4},
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  return text;
}

} // namespace

Machine publishedMachine(const std::string &gpu, const std::string &precision, int devices) {
  Machine machine;
  std::string name = lower(gpu);
  for (const MachineRow &row : machines) {
    if (!machine.name.empty() || !contains(name, row.gpu))
      continue;
    machine.name = row.gpu;
    machine.devicesPerHost = std::min(devices, row.perHost);
    machine.hosts = std::max(1, (devices + machine.devicesPerHost - 1) / machine.devicesPerHost);
    machine.memoryBytes = row.memoryGiB * 1073741824.0;
    bool half = !contains(lower(precision), "fp8");
    // FP8 doubles the peak of matrix products; quantisation leaves about two thirds of the gain.
    machine.peakFlops = row.peak16 * (half ? 1 : 1.65);
    machine.memoryBytesPerSecond = row.bytesPerSecond;
    machine.matmulEfficiency = row.matmul;
    machine.attentionEfficiency = row.attention / (half ? 1 : 1.65);
    machine.launchSeconds = row.launchSeconds;
    machine.multiprocessors = row.multiprocessors;
    machine.link = {row.linkBytes, 3e-6};
    machine.network = {row.networkBytes, 8e-6};
    machine.reservedBytes = row.reservedGiB * 1073741824.0;
  }
  return machine;
}

namespace {

// Which variant of system a row used. Megatron of 2021 and 2022 stored scores and kept f32
// gradients; Jean Zay ran Megatron-DeepSpeed, whose fp16 runs accumulate in fp16; the others use
// flash attention without dropout.
System systemOf(const PublishedRow &row, bool *unfused) {
  System system;
  std::string gpu = lower(row.text("gpu")), precision = lower(row.text("precision")),
              model = lower(row.text("model"));
  std::string source = lower(row.text("source"));
  *unfused = contains(source, "korthikanti") || contains(source, "narayanan") ||
             contains(gpu, "jean zay") || contains(source, "alpa") || contains(source, "calculon");
  system.fusedAttention = !*unfused;
  if (contains(gpu, "jean zay")) {
    system.name = "megatron-deepspeed";
    system.scattersBoundary = true; // PipelineEngine sends partitioned activations
    // bf16: gradients in both types; fp16: one f32 copy of the gradients of the own partition at
    // the update.
    bool wide = contains(precision, "fp32 grad") || precision == "bf16";
    system.gradientBytes = wide ? 6 : 2;
    system.optimizerBytes = wide ? 12 : 16;
  } else if (*unfused) {
    system.name = "megatron-2022";
    system.scattersBoundary = true;
  } else if (contains(source, "llm-foundry")) {
    system.name = "fsdp";
    system.elementwiseShare = 2; // kernels of the framework one by one
    bool pure = contains(precision, "pure");
    system.parameterBytes = pure ? 2 : 4, system.gradientBytes = pure ? 2 : 4,
    system.optimizerBytes = pure ? 4 : 8;
  } else if (contains(source, "torchtitan")) {
    system.name = "torchtitan";
    system.elementwiseShare = contains(row.text("notes"), "compile") ? 1.2 : 2;
    system.parameterBytes = 4, system.gradientBytes = 4, system.optimizerBytes = 8;
  } else {
    system.name = "megatron-core";
    system.hidesGradients = system.hidesTensor = true;
  }
  return system;
}

std::string fillShape(const PublishedRow &row, bool unfused, ModelShape &shape) {
  for (const char *column :
       {"layers", "hidden", "heads", "vocab", "seq", "n_gpus", "mbs", "gbs", "tp", "pp"})
    if (row.number(column) < 1)
      if (std::string(column) != "vocab")
        return std::string("no ") + column + " published";
  shape.layers = static_cast<int>(row.number("layers"));
  shape.hidden = static_cast<int64_t>(row.number("hidden"));
  shape.heads = static_cast<int64_t>(row.number("heads"));
  if (shape.hidden % shape.heads != 0)
    return "the heads do not divide hidden as published";
  shape.kvHeads = static_cast<int64_t>(row.number("kv_heads", static_cast<double>(shape.heads)));
  shape.ffn = static_cast<int64_t>(row.number("ffn", 4.0 * static_cast<double>(shape.hidden)));
  shape.seq = static_cast<int64_t>(row.number("seq"));
  // Megatron pads the vocabulary to 128 tp; some tables print it before padding.
  int64_t unit = 128 * static_cast<int64_t>(row.number("tp", 1));
  shape.vocab = (static_cast<int64_t>(row.number("vocab", 51200)) + unit - 1) / unit * unit;
  bool llama = contains(lower(row.text("model")), "llama");
  shape.gated = shape.rotary = llama;
  shape.tied = !llama;
  shape.dropout = unfused && !contains(lower(row.text("gpu")), "jean zay");
  return "";
}

std::string fillPlan(const PublishedRow &row, Plan &plan) {
  auto axis = [&](const char *column) {
    return std::max(1, static_cast<int>(row.number(column, 1)));
  };
  plan.tp = axis("tp"), plan.pp = axis("pp"), plan.cp = axis("cp");
  if (row.number("ep", 1) > 1)
    return "expert parallelism is not modelled for published shapes";
  int devices = static_cast<int>(row.number("n_gpus"));
  int model = plan.tp * plan.pp * plan.cp;
  if (devices % model != 0)
    return "tp * pp * cp does not divide the devices";
  plan.dp = devices / model;
  if (row.number("dp", plan.dp) != plan.dp)
    return "dp * tp * pp * cp is not the number of devices";
  double samples = row.number("mbs") * plan.dp, batches = row.number("gbs") / samples;
  if (batches < 1 || batches != static_cast<int64_t>(batches))
    return "the global batch does not divide by dp * micro-batch";
  plan.microBatchSize = static_cast<int64_t>(row.number("mbs"));
  plan.microBatches = static_cast<int64_t>(batches);
  plan.zero = static_cast<int>(row.number("zero", 1));
  if (contains(lower(row.text("zero")), "deepspeed"))
    return "offloaded ZeRO is not modelled";
  // Megatron-Bridge does not print it and always uses it.
  bool implied = row.text("sp").empty() && contains(row.text("source"), "Megatron-Bridge");
  plan.sequenceParallel = plan.tp > 1 && (row.number("sp") == 1 || implied);
  if (plan.pp > 1 && contains(row.text("source"), "torchtitan"))
    return "the micro-batch is not published";
  plan.virtualStages = axis("vpp");
  if (plan.virtualStages > 1)
    plan.schedule = Schedule::Interleaved;
  return "";
}

std::optional<Recompute> recomputeOf(const std::string &text) {
  if (text.empty() || text == "none")
    return Recompute::None;
  if (contains(text, "full"))
    return Recompute::Full;
  if (contains(text, "select"))
    return Recompute::Selective;
  return std::nullopt;
}

} // namespace

PublishedCase caseOf(const PublishedRow &row) {
  PublishedCase result;
  auto refuse = [&](std::string reason) {
    result = {};
    result.reason = std::move(reason);
    return result;
  };
  if (contains(row.text("status"), "duplicate") || contains(row.text("status"), "not run"))
    return refuse("status: " + row.text("status"));
  bool unfused = false;
  System system = systemOf(row, &unfused);
  ModelShape shape;
  if (std::string missing = fillShape(row, unfused, shape); !missing.empty())
    return refuse(missing);
  if (std::string fault = fillPlan(row, result.plan); !fault.empty())
    return refuse(fault);
  int devices = static_cast<int>(row.number("n_gpus"));
  Machine machine = publishedMachine(row.text("gpu"), row.text("precision"), devices);
  if (machine.name.empty())
    return refuse("no machine for gpu '" + row.text("gpu") + "'");
  std::optional<Recompute> recompute = recomputeOf(row.text("recompute"));
  if (!recompute)
    return refuse("recompute '" + row.text("recompute") + "' is not modelled");
  // Which tensors each dimension must divide was settled when the run ran; padding made it so.
  result.problem = shapeProblem(shape, system, machine, static_cast<int64_t>(row.number("gbs")));
  result.problem.pins.recompute = recompute;
  std::vector<std::string> faults = violations(result.problem, result.plan);
  if (!faults.empty())
    return refuse(faults.front());
  double samples = static_cast<double>(result.problem.globalBatch);
  result.outOfMemory = contains(row.text("status"), "OOM");
  result.analytic = contains(row.text("status"), "memory-only");
  result.seconds = row.number("iter_time_s");
  double peak16 = machine.peakFlops;
  if (result.seconds == 0 && row.number("mfu_pct") > 0)
    result.seconds =
        result.problem.modelFlops * samples / (devices * peak16 * row.number("mfu_pct") / 100);
  result.gibibytes = row.number("mem_gb");
  if (result.seconds == 0 && result.gibibytes == 0 && !result.outOfMemory)
    return refuse("nothing measured");
  result.nullFlops =
      result.problem.modelFlops * samples / devices * (*recompute == Recompute::Full ? 4.0 / 3 : 1);
  return result;
}

} // namespace espalier::planner
