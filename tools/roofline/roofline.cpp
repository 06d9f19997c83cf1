// The time of a kernel is the largest of five limits: least memory traffic at the memory rate, instructions of all
// lanes, special functions, FLOP of products, and the time between launches. A buffer counts once, even if a kernel
// reads it several times. Reads of a table that is indexed by ids count per access.
#include "tools/roofline/roofline.h"

#include "tools/roofline/ptx_player.h"

#include "format/mesh.h"
#include "runtime/program.h"
#include "runtime/status.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>
#include <stdexcept>

namespace espalier {
namespace {

namespace pb = rt::pb;

/// The resource use of one instruction of the plan.
struct Work {
  std::string name;
  double bytes = 0, accessed = 0, instructions = 0, special = 0, flops = 0;
  double matrixFlops = 0, f32Products = 0, halfProducts = 0;
  int64_t blocks = 0; ///< 0: as many as fit
};

class Counter {
public:
  Counter(const pb::Plan &plan, const DeviceRates &rates)
      : plan(plan), mesh(plan.mesh()), rates(rates), kernels(readPtx(plan.objects(0).code())) {}

  Roofline count();

private:
  std::vector<int64_t> countRuns(const pb::Stage &stage, int entry) const;
  Roofline countStage(int stage, int entry);
  Work workOf(const pb::Launch &launch, int rank) const;
  Work workOf(const pb::LibraryCall &call) const;
  RooflineRow price(const Work &work) const;
  pb::DataType typeOf(const pb::Buffer &buffer) const { return plan.values(static_cast<int>(buffer.value())).type(); }

  const pb::Plan &plan;
  rt::Mesh mesh;
  const DeviceRates &rates;
  std::map<std::string, PtxKernel, std::less<>> kernels;
};

/// Returns the location: "gpt2.yaml:31:7" from "matmul at configs/gpt2.yaml:31:7".
std::string placeOf(const std::string &location) {
  size_t file = location.find(" at ");
  if (file == std::string::npos)
    return "";
  std::string place = location.substr(file + 4);
  return place.substr(place.rfind('/') + 1);
}

int64_t ceilDivide(int64_t a, int64_t b) { return b > 0 ? (a + b - 1) / b : 1; }

Work Counter::workOf(const pb::Launch &launch, int rank) const {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  const pb::Geometry &geometry = plan.objects(0).geometry(static_cast<int>(launch.kernel()));
  auto found = kernels.find(kernel.symbol());
  if (found == kernels.end())
    throw rt::PlanError(fmt::format("the plan's code has no kernel {}", kernel.symbol()));
  PtxLaunch ptx{.threads = geometry.threads(), .buffers = static_cast<uint32_t>(launch.buffers_size()), .numbers = {}};
  for (const pb::Affine &scalar : launch.scalars())
    ptx.numbers.push_back(scalar.constant() + mesh.affine(rank, scalar));
  ptx.blocksX = std::max<int64_t>(ceilDivide(launch.extent(), geometry.extent_per_block()), 1);
  if (geometry.columns_per_block() > 0 && !ptx.numbers.empty())
    ptx.blocksY = std::max<int64_t>(ceilDivide(ptx.numbers[0], geometry.columns_per_block()), 1);
  ptx.numbers.push_back(launch.extent());
  PtxCounts counts;
  try {
    counts = countLaunch(found->second, ptx);
  } catch (const std::invalid_argument &error) {
    throw rt::PlanError(fmt::format("{}: {}", kernel.symbol(), error.what()));
  }
  Work work{.name = fmt::format("{} [{}]", kernel.symbol(), launch.extent()),
            .instructions = counts.slots,
            .special = counts.special,
            .flops = counts.flops + counts.matrixFlops,
            .matrixFlops = counts.matrixFlops,
            .blocks = ptx.blocksX * ptx.blocksY};
  for (int i = 0; i < launch.buffers_size(); ++i) {
    double size = static_cast<double>(launch.buffers(i).bytes()), read = counts.read[static_cast<size_t>(i)];
    double written = counts.written[static_cast<size_t>(i)];
    work.bytes += std::min(size, read) + std::min(size, written);
    work.accessed += read + written;
  }
  return work;
}

Work Counter::workOf(const pb::LibraryCall &call) const {
  Work work;
  for (const pb::Buffer &buffer : call.buffers())
    work.bytes += static_cast<double>(buffer.bytes());
  if (call.function() != pb::LibraryCall::MATMUL) {
    work.name = fmt::format("{} [{} bytes]", pb::LibraryCall::Function_Name(call.function()), call.buffers(0).bytes());
    work.accessed = work.bytes;
    return work;
  }
  int64_t m = call.sizes(0), n = call.sizes(1), k = call.sizes(2), batch = call.sizes(3);
  if (call.store() != pb::OVERWRITE)
    work.bytes += static_cast<double>(call.buffers(2).bytes());
  work.accessed = work.bytes;
  work.flops = 2 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k * batch);
  pb::DataType type = typeOf(call.buffers(0));
  (type == pb::F32 ? work.f32Products : work.halfProducts) = work.flops;
  std::string_view epilogue = call.epilogue() == pb::LibraryCall::NONE ? "" : ", epilogue";
  work.name = fmt::format("product [{}{}, {}]{} [{}, {}]{} {}{}{}", batch > 1 ? fmt::format("{}, ", batch) : "", m, k,
                          call.transpose_a() ? "'" : "", k, n, call.transpose_b() ? "'" : "", pb::DataType_Name(type),
                          call.store() == pb::OVERWRITE ? "" : " added", epilogue);
  return work;
}

RooflineRow Counter::price(const Work &work) const {
  int64_t blocks = work.blocks == 0 ? rates.multiprocessors : work.blocks;
  double share = std::min<double>(1, static_cast<double>(blocks) / rates.multiprocessors);
  double lanes = rates.laneInstructions * share;
  std::pair<double, const char *> limits[] = {
      {rates.launchSeconds, "launches"},
      {work.bytes / rates.memoryBytes / share, "memory"},
      {work.instructions / lanes, "instructions"},
      {8 * work.special / lanes, "special functions"},
      {work.matrixFlops / rates.matrixFlops / share, "products"},
      {work.f32Products / rates.f32Products + work.halfProducts / rates.halfProducts, "products"}};
  auto most = std::max_element(std::begin(limits), std::end(limits),
                               [](const auto &a, const auto &b) { return a.first < b.first; });
  RooflineRow row;
  row.name = work.name;
  row.bytes = work.bytes;
  row.accessed = work.accessed;
  row.instructions = work.instructions;
  row.flops = work.flops;
  row.seconds = most->first;
  row.limit = most->second;
  return row;
}

/// Returns how often a step runs each subprogram.
std::vector<int64_t> Counter::countRuns(const pb::Stage &stage, int entry) const {
  std::vector<int64_t> runs(static_cast<size_t>(plan.subprograms_size()), 0);
  for (const pb::Block &block : stage.entries(entry).blocks())
    for (const pb::Action &action : block.actions()) {
      if (!action.has_run())
        continue;
      const pb::Run &run = action.run();
      for (uint32_t call = run.first_call(); call < run.first_call() + run.calls(); ++call)
        if (uint32_t program = stage.calls(static_cast<int>(call)).programs(static_cast<int>(run.role())); program > 0)
          runs[program - 1] += block.rounds();
    }
  return runs;
}

Roofline Counter::countStage(int stage, int entry) {
  Roofline result;
  result.stage = stage;
  std::map<std::string, RooflineRow> rows;
  int rank = mesh.peer(0, stage);
  std::vector<int64_t> runs = countRuns(plan.stages(stage), entry);
  for (size_t program = 0; program < runs.size(); ++program) {
    if (runs[program] == 0)
      continue;
    for (const pb::Instruction &instruction : plan.subprograms(static_cast<int>(program)).instructions()) {
      result.hasTransfers |= instruction.has_start();
      if (!instruction.has_launch() && !instruction.has_call())
        continue;
      RooflineRow row =
          price(instruction.has_launch() ? workOf(instruction.launch(), rank) : workOf(instruction.call()));
      RooflineRow &known = rows.try_emplace(fmt::format("{} {}", row.name, row.bytes), row).first->second;
      if (known.launches == 0)
        known.place = placeOf(rt::locationText(plan, instruction.location()));
      known.launches += runs[program];
      result.stepSeconds += static_cast<double>(runs[program]) * row.seconds;
    }
  }
  for (auto &[key, row] : rows)
    result.rows.push_back(std::move(row));
  auto seconds = [](const RooflineRow &row) { return static_cast<double>(row.launches) * row.seconds; };
  std::sort(result.rows.begin(), result.rows.end(), [&](const RooflineRow &a, const RooflineRow &b) {
    return std::pair(seconds(b), a.name) < std::pair(seconds(a), b.name);
  });
  return result;
}

Roofline Counter::count() {
  int entry = static_cast<int>(rt::findEntry(plan, "train_step").value_or(0));
  Roofline slowest;
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    if (Roofline one = countStage(stage, entry); stage == 0 || one.stepSeconds > slowest.stepSeconds)
      slowest = std::move(one);
  slowest.hasTransfers |= mesh.ranks() > 1;
  double tokens = static_cast<double>(plan.settings().global_batch() * plan.settings().sequence());
  slowest.tokensPerSecond = slowest.stepSeconds > 0 ? tokens / slowest.stepSeconds : 0;
  return slowest;
}

} // namespace

Roofline makeRoofline(const pb::Plan &plan, const DeviceRates &rates) {
  if (plan.target() != "cuda" || plan.objects_size() == 0)
    throw rt::PlanError(fmt::format("a roofline is made of kernels for cuda, the plan is for {}; compile it with "
                                    "--target cuda",
                                    plan.target()));
  try {
    return Counter(plan, rates).count();
  } catch (const std::invalid_argument &error) {
    throw rt::PlanError(error.what());
  }
}

} // namespace espalier
