#include "compiler/plan/profile_model.h"

#include "compiler/codegen/emit_subprograms.h"
#include "compiler/driver.h"
#include "compiler/plan/apply_plan.h"
#include "compiler/plan/choose_plan.h"
#include "compiler/plan/read_terms.h"
#include "dialects/exec/dialect.h"

#include "mlir/Pass/PassManager.h"

#include <map>
#include <numeric>

using namespace mlir;

namespace espalier {

namespace {

using planner::Axis;
using planner::Monomial;
using planner::Size;

/// Devices that the planner may ask about, as a multiple of the cluster's: more devices are a relaxation.
constexpr int64_t largestGrowth = 64;
/// Batch sizes at which workspaces are planned. A peak is the largest of several live sets, each affine in the batch:
/// convex, so the lines through neighbouring points meet it at the points and stay above it in between.
constexpr int64_t sampleCounts[] = {1, 2, 4, 16};
constexpr int64_t termSamples = 2; ///< one of them; dimensions of size 1 are harder to tell apart
constexpr int profiledReplicas = 2;
constexpr const char *policies[] = {"none", "selective", "full"};

/// A plan whose partition has everything that any plan of the pattern can have: replicas, several stages, all policies.
planner::Plan planAt(const RunConfig &run, const ProfilePoint &point) {
  planner::Plan plan;
  plan.dp = point.dp;
  plan.tp = point.tp;
  plan.pp = 2;
  plan.microBatchSize = point.samples;
  plan.zero = point.zero;
  plan.sequenceParallel = point.sequenceParallel;
  plan.vocabParallel = run.pins.vocabParallel.value_or(true);
  plan.keepTensorParallelResults = !run.recompute.mpCommRecompute;
  plan.stages = {
      {0, 3, {planner::Recompute::None, planner::Recompute::Selective, planner::Recompute::Full}}};
  return plan;
}

using Workspaces = std::map<std::string, double>; ///< bytes by program

/// One build of the model: the module with fused kernels, and on request the workspaces of its programs.
class Build {
public:
  Build(MLIRContext &context, const RunConfig &run, const ProfilePoint &point) : context(context) {
    model = partitionRun(context, run, planAt(run, point));
    if (!model)
      return;
    PassManager passes(&context);
    addFusionPasses(passes);
    if (failed(passes.run(*model->module)))
      model.reset();
  }

  bool isBroken() const { return !model; }
  ModuleOp module() const { return *model->module; }
  const std::vector<SegmentLayout> &segments() const { return model->segments; }

  /// Makes programs of the module's functions, which are gone afterwards.
  std::optional<Workspaces> planBuffers() {
    PassManager passes(&context);
    addBufferPasses(passes);
    if (failed(passes.run(module())))
      return std::nullopt;
    Workspaces bytes;
    for (auto program : module().getOps<exec::ProgramOp>())
      bytes[program.getSymName().str()] = static_cast<double>(program.getWorkspaceBytes().value_or(0));
    return bytes;
  }

private:
  MLIRContext &context;
  std::optional<PartitionedModel> model;
};

/// The line through the bytes at two numbers of samples.
Size lineThrough(int64_t few, double fewBytes, int64_t many, double manyBytes) {
  double slope = (manyBytes - fewBytes) / static_cast<double>(many - few);
  Size size;
  if (slope != 0)
    size.push_back(scaled(replicaSamples(), slope));
  if (double rest = fewBytes - slope * static_cast<double>(few); rest != 0)
    size.push_back({rest, {}});
  return size;
}

/// Workspaces of a segment's programs at all sample counts; a policy that the segment does not have is as `none`.
void readPeaks(const std::string &segment, const std::vector<Workspaces> &workspaces, planner::PatternTerms &terms) {
  auto addLines = [&](const std::string &program, std::vector<Size> &lines) {
    if (!workspaces.front().count(segment + program))
      return false;
    for (size_t i = 0; i + 1 < workspaces.size(); ++i)
      lines.push_back(lineThrough(sampleCounts[i], workspaces[i].at(segment + program), sampleCounts[i + 1],
                                  workspaces[i + 1].at(segment + program)));
    return true;
  };
  for (int index = 0; index < 3; ++index) {
    std::vector<Size> &lines = terms.peakCandidates[index];
    std::string policy = std::string(".") + policies[index];
    for (const char *phase : {".forward", ".backward"})
      if (!addLines(policy + phase, lines))
        addLines(std::string(".none") + phase, lines);
    for (const char *program : {".evaluate", ".reduce_gradients", ".squared_norm", ".optimizer"})
      addLines(program, lines);
  }
}

class Profiler {
public:
  Profiler(MLIRContext &context, const RunConfig &run) : context(context), run(run) {}

  std::optional<planner::Problem> profile() {
    describe();
    addLimits();
    for (int tp : tensorRanks())
      for (bool sequenceParallel : {false, true}) {
        if (sequenceParallel && (tp == 1 || sequence() % tp != 0))
          continue;
        if (failed(profilePattern(tp, sequenceParallel)))
          return std::nullopt;
      }
    return std::move(problem);
  }

private:
  void describe() {
    problem.name = run.model.name;
    for (const auto &[name, size] : run.model.dims)
      problem.dimensions.push_back({name, size});
    for (const SegmentDescription &segment : run.model.segments)
      problem.kinds.push_back({segment.kind, {}});
    const std::vector<SegmentRun> &runs = run.model.runs;
    problem.embed = kindOf(runs.front().kind);
    problem.head = kindOf(runs.back().kind);
    for (size_t i = 1; i + 1 < runs.size(); ++i)
      problem.layers.push_back({kindOf(runs[i].kind), runs[i].count});
    problem.globalBatch = run.globalBatch;
    problem.parameters = static_cast<double>(run.model.parameterCount());
    problem.tokensPerSample = std::max<int64_t>(1, sequence());
    // As assign_stages lays them out: two cotangents, one buffer for each neighbour, and slots to send from.
    problem.streamBuffers = {.always = 2, .receives = 1, .sends = 1, .sendsInFlight = 1};
    problem.pins = pinsOf(run);
    describeMachine();
  }

  void describeMachine() {
    const ClusterConfig &cluster = run.cluster;
    planner::Machine &machine = problem.machine;
    machine.name = cluster.name;
    machine.hosts = cluster.hosts;
    machine.devicesPerHost = cluster.devicesPerHost;
    machine.memoryBytes = cluster.memoryBytes;
    machine.peakFlops = cluster.peakFlops;
    machine.memoryBytesPerSecond = cluster.memoryBandwidth;
    machine.matmulEfficiency = cluster.matmulEfficiency;
    machine.launchSeconds = cluster.launchSeconds;
    machine.link = {cluster.linkBandwidth, cluster.linkLatency};
    machine.network = {cluster.networkBandwidth, cluster.networkLatency};
  }

  void addLimits() {
    for (const std::string &dim : tensorParallelDims(run.model))
      problem.limits.push_back({dim, run.model.dims.at(dim), Axis::Tp});
    if (sequence() > 0)
      problem.limits.push_back({"seq", sequence(), Axis::Tp, 1, /*onlySequenceParallel=*/true});
  }

  int64_t sequence() const {
    auto found = run.model.dims.find("seq");
    return found == run.model.dims.end() ? 0 : found->second;
  }

  int kindOf(const std::string &kind) const {
    for (size_t i = 0; i < problem.kinds.size(); ++i)
      if (problem.kinds[i].name == kind)
        return static_cast<int>(i);
    llvm_unreachable("a run of a segment that the model does not have");
  }

  std::vector<int> tensorRanks() const {
    int64_t common = 0, devices = static_cast<int64_t>(run.cluster.devices()) * largestGrowth;
    for (const std::string &dim : tensorParallelDims(run.model))
      common = std::gcd(common, run.model.dims.at(dim));
    std::vector<int> ranks;
    for (int64_t tp = 1; tp <= std::max<int64_t>(common, 1) && tp <= devices; ++tp)
      if ((common == 0 ? tp == 1 : common % tp == 0) && devices % tp == 0)
        ranks.push_back(static_cast<int>(tp));
    return ranks;
  }

  LogicalResult profilePattern(int tp, bool sequenceParallel) {
    std::vector<std::vector<planner::PatternTerms>> terms(problem.kinds.size());
    std::vector<Workspaces> workspaces;
    for (int zero : {0, 1})
      for (int64_t samples : sampleCounts) {
        bool readsTerms = samples == termSamples;
        if (zero == 0 && !readsTerms)
          continue; // its workspaces are no larger
        ProfilePoint point{samples, profiledReplicas, tp, zero, sequenceParallel};
        Build build(context, run, point);
        if (build.isBroken())
          return failure();
        if (readsTerms && zero == 0 && tp == 1)
          describeModel(build, SizeReader(run.model, problem.dimensions, point));
        if (readsTerms)
          addTerms(build, point, terms);
        if (zero == 0)
          continue;
        std::optional<Workspaces> planned = build.planBuffers();
        if (!planned)
          return failure();
        workspaces.push_back(std::move(*planned));
      }
    for (size_t kind = 0; kind < terms.size(); ++kind)
      for (planner::PatternTerms &pattern : terms[kind]) {
        readPeaks(problem.kinds[kind].name, workspaces, pattern);
        problem.kinds[kind].patterns.push_back(std::move(pattern));
      }
    return success();
  }

  /// What does not depend on the split.
  void describeModel(Build &build, const SizeReader &sizes) {
    problem.boundaryBytes = readStreamBytes(build.module(), sizes);
    problem.inputBytes = {scaled(readInputBytes(build.module(), sizes), 4)}; // tokens, positions, labels, loss weights
    for (const SegmentRun &part : run.model.runs)
      problem.modelFlops +=
          part.count * readFlops(build.module(), part.kind) / static_cast<double>(sizes.at().samples);
  }

  /// Terms of each segment at one point; where tied parameters exist, those with one stage and those with several.
  void addTerms(Build &build, const ProfilePoint &point, std::vector<std::vector<planner::PatternTerms>> &terms) {
    SizeReader sizes(run.model, problem.dimensions, point);
    for (const SegmentLayout &segment : build.segments()) {
      bool hasTied = llvm::any_of(segment.parameters,
                                  [](const SegmentParameter &p) { return !p.description->tiedTo.empty(); });
      for (bool manyStages : {false, true}) {
        if (manyStages && !hasTied)
          continue;
        planner::PatternTerms read = readTerms(build.module(), segment, sizes, manyStages);
        if (hasTied)
          read.pattern.pp = manyStages;
        read.pattern.tensorRanks = point.tp;
        read.pattern.sequenceParallel = point.sequenceParallel;
        read.pattern.vocabParallel = run.pins.vocabParallel.value_or(true);
        read.pattern.zero = point.zero;
        for (const planner::ParameterTerm &parameter : read.parameters)
          if (parameter.tied && !problem.tiedEmbedding)
            describeTied(parameter, point);
        terms[kindOf(segment.kind)].push_back(std::move(read));
      }
    }
  }

  /// Read where tensor ranks are one, so that the share of each holds for any number of them.
  void describeTied(const planner::ParameterTerm &parameter, const ProfilePoint &point) {
    problem.tiedEmbedding = true;
    bool split = run.pins.vocabParallel.value_or(true) && point.tp == 1;
    for (Monomial part : parameter.elements) {
      part = scaled(part, parameter.gradientBytes);
      problem.tiedBytes.push_back(split ? product(part, {1, {{static_cast<int>(Axis::Tp), -1}}}) : part);
    }
  }

  MLIRContext &context;
  const RunConfig &run;
  planner::Problem problem;
};

} // namespace

std::optional<planner::Problem> profileModel(MLIRContext &context, const RunConfig &run) {
  return Profiler(context, run).profile();
}

planner::Pins pinsOf(const RunConfig &run) {
  const PlanPins &from = run.pins;
  planner::Pins pins;
  pins.dp = from.dp;
  pins.tp = from.tp;
  pins.pp = from.pp;
  pins.cp = from.cp;
  pins.ep = from.ep;
  pins.zero = from.zero;
  pins.microBatchSize = from.microBatchSize;
  pins.microBatches = from.microBatches;
  pins.sequenceParallel = from.sequenceParallel;
  pins.vocabParallel = from.vocabParallel;
  pins.stageLayers = from.stageLayers;
  if (from.recompute)
    pins.recompute = parseRecompute(*from.recompute);
  if (from.schedule)
    pins.schedule = parseSchedule(*from.schedule);
  return pins;
}

} // namespace espalier
