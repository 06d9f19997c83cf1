#include "compiler/profile/describe_problem.h"

#include "compiler/import/run/split_limits.h"
#include "dialects/exec/dialect.h"

#include "llvm/Support/ErrorHandling.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace espalier {

int64_t sequenceOf(const RunConfig &run) {
  auto found = run.model.dims.find("seq");
  return found == run.model.dims.end() ? 0 : found->second;
}

int kindNamed(const planner::Problem &problem, const std::string &kind) {
  for (size_t i = 0; i < problem.kinds.size(); ++i)
    if (problem.kinds[i].name == kind)
      return static_cast<int>(i);
  llvm_unreachable("a run of a segment that the model does not have");
}

/// Returns whether buckets can hold the slices that `tp` ranks have of matrices, or the run pins this number. An
/// optimizer for matrices needs slices without gaps.
static bool allowsSlices(const RunConfig &run, int64_t tp) {
  bool trains = run.runMode == "train" || run.runMode == "finetune";
  if (tp == 1 || run.pins.tp == tp || run.model.runs.size() < 3 || !trains ||
      !rt::optimizerRow(run.optimizer.type).isForMatrices)
    return true;
  std::vector<std::string> dims = run.model.tensorParallelDims();
  llvm::ArrayRef<SegmentRun> layers = llvm::ArrayRef(run.model.runs).drop_front().drop_back();
  return llvm::all_of(layers, [&](const SegmentRun &part) {
    return llvm::all_of(run.model.segment(part.kind).parameters, [&](const ParameterDescription &parameter) {
      int64_t elements = 1;
      bool isSplit = false;
      for (const std::string &dim : parameter.dims) {
        elements *= dim == "expert" ? 1 : run.model.dims.at(dim);
        isSplit |= llvm::is_contained(dims, dim);
      }
      bool isMatrix = parameter.dims.size() > 1 && parameter.decay && !parameter.frozen;
      return !isMatrix || !isSplit || elements % (tp * exec::bucketAlignment) == 0;
    });
  });
}

std::vector<int> tensorRanks(const RunConfig &run) {
  int64_t common = 0, devices = static_cast<int64_t>(run.cluster.devices()) * largestGrowth;
  for (const std::string &dim : run.model.tensorParallelDims())
    common = std::gcd(common, run.model.dims.at(dim));
  if (run.model.hasExperts() && !run.pins.splitsExperts.value_or(true))
    common = std::gcd(common, run.model.dims.at("expert"));
  std::vector<int> ranks;
  for (int64_t tp = 1; tp <= std::max<int64_t>(common, 1) && tp <= devices; ++tp)
    if ((common == 0 ? tp == 1 : common % tp == 0) && devices % tp == 0 && allowsSlices(run, tp))
      ranks.push_back(static_cast<int>(tp));
  return ranks;
}

std::vector<bool> expertSplits(const RunConfig &run, int tp) {
  bool hasBoth =
      run.model.hasExperts() && run.system.software.hasWholeExperts && tp > 1 && run.model.dims.at("expert") % tp == 0;
  return run.pins.splitsExperts || !hasBoth ? std::vector{run.pins.splitsExperts.value_or(true)}
                                            : std::vector{true, false};
}

std::vector<bool> expertsOverContext(const RunConfig &run) {
  bool hasBoth = run.model.hasExperts() && run.system.software.hasExpertsOverContext;
  return run.pins.expertsOverContext || !hasBoth ? std::vector{run.pins.expertsOverContext.value_or(false)}
                                                 : std::vector{false, true};
}

std::vector<int> expertRanks(const RunConfig &run, int tp, bool splitsExperts) {
  int64_t experts = run.model.hasExperts() ? run.model.dims.at("expert") / (splitsExperts ? 1 : tp) : 1;
  int64_t devices = static_cast<int64_t>(run.cluster.devices()) * largestGrowth;
  for (int64_t ep = 2; ep <= std::min(experts, devices); ++ep)
    if (experts % ep == 0)
      return {1, static_cast<int>(ep)};
  return {1};
}

namespace {

/// Returns whether the model has norms and all of them add 1 to their weight.
bool hasZeroCenteredNorms(const ModelDescription &model) {
  bool isFound = false;
  for (const SegmentDescription &segment : model.segments)
    for (const OpDescription &op : segment.ops) {
      if (op.kind != "layer_norm" && op.kind != "rms_norm")
        continue;
      auto offset = op.numbers.find("offset");
      if (offset == op.numbers.end() || offset->second != 1)
        return false;
      isFound = true;
    }
  return isFound;
}

/// Returns the slots of an expert for one sample. Experts that drop no token have a slot for every token in the
/// program. Software that groups tokens by expert computes only the chosen ones: their even share times a stated
/// imbalance.
int64_t capacityOf(const RunConfig &run) {
  const std::map<std::string, int64_t> &dims = run.model.dims;
  int64_t slots = dims.at("capacity"), tokens = dims.at("seq");
  double imbalance = run.system.storage.expertImbalance;
  if (imbalance <= 0 || slots < tokens)
    return slots;
  double even = static_cast<double>(tokens * dims.at("choice")) / static_cast<double>(dims.at("expert"));
  return std::min(slots, static_cast<int64_t>(std::ceil(imbalance * even)));
}

planner::Routing routingOf(const ModelDescription &model) {
  planner::Routing routing;
  if (auto choices = model.dims.find("choice"); model.hasExperts() && choices != model.dims.end())
    routing.choices = static_cast<int>(choices->second);
  for (const SegmentDescription &segment : model.segments)
    for (const OpDescription &op : segment.ops)
      if (auto groups = op.numbers.find("groups"); op.kind == "route" && groups != op.numbers.end()) {
        routing.groups = static_cast<int>(groups->second);
        if (auto kept = op.numbers.find("kept_groups"); kept != op.numbers.end())
          routing.keptGroups = static_cast<int>(kept->second);
      }
  return routing;
}

void describeModel(const RunConfig &run, planner::Problem &problem) {
  problem.name = run.model.name;
  for (const auto &[name, size] : run.model.dims)
    problem.dimensions.push_back({name, name == "capacity" ? capacityOf(run) : size});
  problem.routing = routingOf(run.model);
  for (const SegmentDescription &segment : run.model.segments)
    problem.kinds.push_back({segment.kind, {}});
  const std::vector<SegmentRun> &runs = run.model.runs;
  problem.embed = kindNamed(problem, runs.front().kind);
  problem.head = kindNamed(problem, runs.back().kind);
  for (size_t i = 1; i + 1 < runs.size(); ++i)
    problem.layers.push_back({kindNamed(problem, runs[i].kind), runs[i].count});
  problem.zeroCenteredNorms = hasZeroCenteredNorms(run.model);
  problem.parameters = static_cast<double>(run.model.parameterCount());
  problem.tokensPerSample = std::max<int64_t>(1, sequenceOf(run));
  // Matches the allocations of compiler/link: two cotangents, one send buffer per neighbour, and one buffer to
  // receive cotangents. Streams are received directly into their saved buffer.
  problem.streamBuffers = {.always = 2,
                           .receives = 1,
                           .sends = 2,
                           .sendsInFlight = 0,
                           .ahead = 1,
                           .holdsPassedStream = true,
                           .ofEachChunk = true};
  problem.unshardedBuffers = planner::UnshardedBuffers::Separate;
}

} // namespace

/// Sets the format of matrix products and their rate. The rate of attention stays that of the compute dtype.
static void useFormat(const planner::MatmulFormat &format, planner::Problem &problem) {
  planner::Machine &machine = problem.machine;
  if (machine.attentionEfficiency <= 0)
    machine.attentionEfficiency = machine.matmulEfficiency;
  machine.matmulEfficiency *= format.gain;
  problem.matmulFormat = format;
}

void describeRun(const RunConfig &run, planner::Problem &problem) {
  problem.globalBatch = run.globalBatch;
  for (const BatchStep &step : run.batchRamp)
    if (step.globalBatch != run.globalBatch)
      problem.smallerBatches.push_back(step.globalBatch);
  problem.pins = run.pins;
  problem.preferSimple = run.preferSimple;
  problem.machine = run.cluster;
  problem.machine.reservedBytes = 0; // memoryBytes leaves them out
  const SystemConfig &system = run.system;
  problem.machine.matmulEfficiency *= system.matmulFactor;
  if (system.attentionFactor != 1)
    problem.machine.attentionEfficiency =
        system.attentionFactor *
        (run.cluster.attentionEfficiency > 0 ? run.cluster.attentionEfficiency : run.cluster.matmulEfficiency);
  problem.machine.memoryBytesPerSecond *= system.memoryFactor;
  problem.machine.memoryBytes -= std::min(problem.machine.memoryBytes, system.reservedBytes);
  problem.qkClip = {run.optimizer.qkClipThreshold, run.optimizer.qkClipAlpha};
  problem.matmulFormat = {};
  if (!run.matmulFormat.empty())
    useFormat({run.matmulFormat, run.system.formatGain(run.matmulFormat)}, problem);
  problem.boundaryScatters = system.scattersBoundary;
  problem.software = system.software;
  problem.software.name = system.name;
  problem.error = system.error;
}

planner::Problem describeProblem(const RunConfig &run) {
  planner::Problem problem;
  describeModel(run, problem);
  problem.limits = splitLimits(run.model);
  describeRun(run, problem);
  return problem;
}

} // namespace espalier
