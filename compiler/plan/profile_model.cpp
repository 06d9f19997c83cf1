#include "compiler/plan/profile_model.h"

#include "compiler/driver.h"
#include "compiler/import/run/check_pins.h"
#include "compiler/passes.h"
#include "compiler/plan/apply_plan.h"
#include "compiler/plan/choose_plan.h"
#include "compiler/plan/forward_terms.h"
#include "compiler/plan/profile_context.h"
#include "compiler/plan/read_live_bytes.h"
#include "compiler/plan/read_terms.h"
#include "compiler/plan/run_attributes.h"
#include "dialects/exec/dialect.h"
#include "planner/model/segment.h"
#include "planner/search/parallel.h"

#include "mlir/Pass/PassManager.h"

#include <array>
#include <limits>
#include <map>
#include <numeric>
#include <thread>
#include <tuple>

using namespace mlir;

namespace espalier {

namespace {

using planner::Axis;
using planner::Monomial;
using planner::Size;

/// Largest number of devices that the planner may try, as a multiple of the cluster's devices. Adding devices is a
/// relaxation.
constexpr int64_t largestGrowth = 64;
/// Samples of the micro-batches that terms are read from. With one sample, dimensions of size 1 would be ambiguous.
constexpr int64_t termSamples = 2;
constexpr int profiledReplicas = 2;
constexpr const char *policies[] = {"none", "selective", "full"};
constexpr const char *stepFunctions[] = {".norm", ".update"};

/// Returns a plan whose partition has every feature that a plan of the pattern can have: replicas, several stages, all
/// policies.
planner::Plan planAt(const RunConfig &run, const ProfilePoint &point) {
  planner::Plan plan;
  plan.dp = point.dp;
  plan.tp = point.tp;
  plan.ep = point.ep;
  plan.pp = 2;
  plan.cp = point.cp;
  plan.microBatchSize = point.samples;
  plan.zero = point.zero;
  plan.sequenceParallel = point.sequenceParallel;
  plan.vocabParallel = run.pins.vocabParallel.value_or(true);
  plan.splitsExperts = point.splitsExperts;
  plan.keepTensorParallelResults = !run.recompute.mpCommRecompute;
  plan.sliceRecomputedInputs = run.recompute.recomputeSliceActivation;
  plan.stages = {{0, 3, {planner::Recompute::None, planner::Recompute::Selective, planner::Recompute::Full}}};
  return plan;
}

/// One build of the model: the module with fused kernels, and optionally its programs.
class Build {
public:
  /// Without `hasStep`, omits the functions that run once per step, because fusing and planning them takes time.
  Build(MLIRContext &context, const RunConfig &run, const std::string &target, const ProfilePoint &point, bool hasStep)
      : context(context) {
    model = partitionRun(context, run, planAt(run, point));
    if (!model)
      return;
    if (point.isUnsplit())
      for (const SegmentLayout &segment : model->segments)
        for (int phase = 0; phase < 2; ++phase)
          flops[segment.kind][phase] = readFlops(module(), segment.kind, {phase == 0 ? "forward" : "backward"});
    (*model->module)->setAttr("exec.target", StringAttr::get(&context, target));
    setUnfusedEpilogues(*model->module, run);
    if (!hasStep)
      for (const SegmentLayout &segment : model->segments)
        for (const char *step : stepFunctions)
          if (Operation *function = model->module->lookupSymbol(segment.kind + step))
            function->erase();
    PassManager passes(&context);
    addFusionPasses(passes);
    if (failed(passes.run(*model->module)))
      model.reset();
  }

  bool isBroken() const { return !model; }
  ModuleOp module() const { return *model->module; }
  const std::vector<SegmentLayout> &segments() const { return model->segments; }
  /// Returns the model's operations of one unsharded micro-batch: of the forward pass, plus those of the backward pass
  /// if the model trains.
  double modelFlops(const std::string &kind, bool trains) const {
    return flops.at(kind)[0] + (trains ? flops.at(kind)[1] : 0);
  }

  /// Replaces the module's functions by programs.
  LogicalResult lower() {
    PassManager passes(&context);
    passes.addPass(createLowerToExec());
    return passes.run(module());
  }

private:
  MLIRContext &context;
  std::optional<PartitionedModel> model;
  std::map<std::string, std::array<double, 2>> flops; ///< by kind and phase
};

using LiveBytes = planner::PerRecompute<std::vector<Size>>; ///< by recompute policy

/// Returns the live bytes of a segment's forward, backward and evaluation programs, or of the evaluation alone. A
/// policy that the segment does not have counts as `none`.
LiveBytes readLiveBytes(ModuleOp programs, const std::string &segment, const SizeReader &sizes, bool evaluates) {
  LiveBytes live;
  for (int policy = 0; policy < 3; ++policy) {
    auto read = [&](const std::string &name) {
      auto program = programs.lookupSymbol<exec::ProgramOp>(segment + name);
      if (program)
        addLiveBytes(program, sizes, live[policy]);
      return program != nullptr;
    };
    for (const char *phase : {".forward", ".backward"})
      if (!evaluates && !read(std::string(".") + policies[policy] + phase))
        read(std::string(".none") + phase);
    read(".evaluate");
    keepLargest(live[policy]);
  }
  return live;
}

/// Returns the live bytes of the update of ZeRO shards. Without ZeRO there are none, because parameters are updated in
/// place.
std::vector<Size> readStepPeaks(ModuleOp programs, const std::string &segment, const SizeReader &sizes) {
  std::vector<Size> live;
  for (const char *step : stepFunctions)
    if (auto program = programs.lookupSymbol<exec::ProgramOp>(segment + step); program && sizes.at().zero > 0)
      addLiveBytes(program, sizes, live);
  keepLargest(live);
  // This holds for experts and all other parameters: ZeRO also shards over ep what ep does not split.
  for (Size &size : live)
    for (Monomial &part : size)
      part = product(scaled(part, sizes.at().dp * sizes.at().ep), shareOfReplicas());
  return live;
}

class Profiler {
public:
  /// With `evaluates`, the terms of a training run are reduced to those of an evaluation.
  Profiler(MLIRContext &context, const RunConfig &run, const std::string &target, bool evaluates)
      : context(context), run(run), target(target), evaluates(evaluates) {}

  std::optional<planner::Problem> profile() {
    describe();
    problem.limits = splitLimits(run.model, splitsExperts());
    std::vector<Layout> layouts;
    for (int tp : tensorRanks())
      for (bool sequenceParallel : {false, true})
        for (int ep : expertRanks(tp))
          if (!sequenceParallel || (tp > 1 && sequence() % tp == 0))
            layouts.push_back({tp, sequenceParallel, ep});
    for (std::optional<Terms> &terms : profileLayouts(layouts)) {
      if (!terms)
        return std::nullopt;
      for (size_t kind = 0; kind < terms->size(); ++kind)
        for (planner::PatternTerms &pattern : (*terms)[kind])
          problem.kinds[kind].patterns.push_back(std::move(pattern));
    }
    if (evaluates)
      leaveForward(problem);
    return std::move(problem);
  }

  /// Everything besides the model that affects its terms.
  using TermsKey = std::tuple<std::vector<int>, std::vector<std::vector<int>>, int64_t, bool, bool, bool, bool, bool,
                              std::vector<std::string>, std::string>;
  TermsKey termsKey() const {
    std::vector<std::vector<int>> experts;
    for (int tp : tensorRanks())
      experts.push_back(expertRanks(tp));
    int64_t contextRanks = run.pins.cp == 1 ? 1 : std::min<int64_t>(sequence(), run.cluster.devices() * largestGrowth);
    return {tensorRanks(),
            experts,
            contextRanks,
            run.pins.vocabParallel.value_or(true),
            splitsExperts(),
            run.recompute.mpCommRecompute,
            run.recompute.recomputeSliceActivation,
            evaluates,
            run.unfusedEpilogues,
            target};
  }

  /// Returns `known` with this run's machine, software, batch and pins.
  planner::Problem withRun(const planner::Problem &known) {
    problem = known;
    problem.machine = {};
    describeRun();
    return std::move(problem);
  }

private:
  /// A choice of tensor ranks, sequence parallelism and expert split. All other axes are symbols. The symbol of cp
  /// starts at 2.
  struct Layout {
    int tp = 1;
    bool sequenceParallel = false;
    int ep = 1; ///< 1, or one number that represents all larger ones
  };

  using Terms = std::vector<std::vector<planner::PatternTerms>>; ///< by kind

  /// Profiles all layouts. The first layout, with one tensor rank, also describes the model. The others are independent
  /// of each other: each is built in its own context, on as many threads as there are cores.
  std::vector<std::optional<Terms>> profileLayouts(const std::vector<Layout> &layouts) {
    std::vector<std::optional<Terms>> read(layouts.size());
    read[0] = profilePattern(context, layouts[0]);
    if (!read[0])
      return read;
    auto threads = static_cast<int>(std::thread::hardware_concurrency());
    planner::forEachParallel(layouts.size() - 1, threads, [&](size_t before) {
      MLIRContext own(MLIRContext::Threading::DISABLED);
      own.getDiagEngine().registerHandler([](mlir::Diagnostic &) { return success(); });
      read[before + 1] = profilePattern(own, layouts[before + 1]);
    });
    for (size_t i = 1; i < layouts.size(); ++i)
      if (!read[i]) // repeats the failure in the caller's context, which reports its reason
        read[i] = profilePattern(context, layouts[i]);
    return read;
  }

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
    problem.parameters = static_cast<double>(run.model.parameterCount());
    problem.tokensPerSample = std::max<int64_t>(1, sequence());
    // Matches the allocations of assign_stages: two cotangents, one send buffer per neighbour, and one buffer to
    // receive cotangents. Streams are received directly into their saved buffer.
    problem.streamBuffers = {.always = 2,
                             .receives = 1,
                             .sends = 2,
                             .sendsInFlight = 0,
                             .ahead = 1,
                             .holdsPassedStream = true,
                             .ofEachChunk = true};
    problem.unshardedBuffers = planner::UnshardedBuffers::Separate;
    describeRun();
  }

  /// Describes what does not depend on the model.
  void describeRun() {
    problem.globalBatch = run.globalBatch;
    problem.pins = run.pins;
    describeMachine();
    const SystemConfig &system = run.system;
    problem.software = system.software;
    problem.software.name = system.name;
    problem.error = {system.timeError, system.comparisonError};
  }

  void describeMachine() {
    const ClusterConfig &cluster = run.cluster;
    planner::Machine &machine = problem.machine;
    machine.name = cluster.name;
    machine.hosts = cluster.hosts;
    machine.devicesPerHost = cluster.devicesPerHost;
    machine.memoryBytes = cluster.memoryBytes;
    machine.marginBytes = cluster.marginBytes;
    machine.peakFlops = cluster.peakFlops;
    machine.memoryBytesPerSecond = cluster.memoryBandwidth;
    machine.matmulEfficiency = cluster.matmulEfficiency;
    machine.attentionEfficiency = cluster.attentionEfficiency;
    machine.multiprocessors = cluster.multiprocessors;
    machine.launchSeconds = cluster.launchSeconds;
    machine.link = {cluster.linkBandwidth, cluster.linkLatency};
    machine.network = {cluster.networkBandwidth, cluster.networkLatency};
    machine.sendBytesPerSecond = cluster.sendBandwidth;
    machine.ringSlope = cluster.ringSlope;
    machine.host = {cluster.hostMemoryBytes, cluster.hostBandwidth, cluster.devicesPerHostLink};
  }

  int64_t sequence() const {
    auto found = run.model.dims.find("seq");
    return found == run.model.dims.end() ? 0 : found->second;
  }

  bool splitsExperts() const { return run.pins.splitsExperts.value_or(true); }

  int kindOf(const std::string &kind) const {
    for (size_t i = 0; i < problem.kinds.size(); ++i)
      if (problem.kinds[i].name == kind)
        return static_cast<int>(i);
    llvm_unreachable("a run of a segment that the model does not have");
  }

  std::vector<int> tensorRanks() const {
    int64_t common = 0, devices = static_cast<int64_t>(run.cluster.devices()) * largestGrowth;
    for (const std::string &dim : run.model.tensorParallelDims())
      common = std::gcd(common, run.model.dims.at(dim));
    if (run.model.hasExperts() && !splitsExperts())
      common = std::gcd(common, run.model.dims.at("expert"));
    std::vector<int> ranks;
    for (int64_t tp = 1; tp <= std::max<int64_t>(common, 1) && tp <= devices; ++tp)
      if ((common == 0 ? tp == 1 : common % tp == 0) && devices % tp == 0)
        ranks.push_back(static_cast<int>(tp));
    return ranks;
  }

  /// Returns 1 and, for a model with experts, the smallest number that splits them.
  std::vector<int> expertRanks(int tp) const {
    int64_t experts = run.model.hasExperts() ? run.model.dims.at("expert") / (splitsExperts() ? 1 : tp) : 1;
    int64_t devices = static_cast<int64_t>(run.cluster.devices()) * largestGrowth;
    for (int64_t ep = 2; ep <= std::min(experts, devices); ++ep)
      if (experts % ep == 0)
        return {1, static_cast<int>(ep)};
    return {1};
  }

  /// Returns whether the kind is a repeated layer.
  bool isLayer(size_t kind) const {
    return static_cast<int>(kind) != problem.embed && static_cast<int>(kind) != problem.head;
  }

  /// Returns the terms of one layout, with and without ZeRO, and with sharded sequences.
  std::optional<Terms> profilePattern(MLIRContext &where, const Layout &layout) {
    ProfilePoint point{termSamples, profiledReplicas,        layout.tp, layout.ep,
                       /*zero=*/0,  layout.sequenceParallel, /*cp=*/1,  splitsExperts()};
    std::vector<ProfilePoint> points = {point};
    point.zero = 1;
    points.push_back(point);
    Terms terms(problem.kinds.size());
    if (!profilePoints(where, points, [&](const ProfilePoint &at, size_t kind, planner::PatternTerms read) {
          addPattern(std::move(read), at, isLayer(kind), terms[kind]);
        }))
      return std::nullopt;
    if (layout.ep > 1 && !addWholeExperts(where, point, terms))
      return std::nullopt;
    if (run.pins.cp != 1 && !run.model.hasExperts() && !addContextPatterns(where, layout, terms))
      return std::nullopt;
    return terms;
  }

  /// Adds patterns in which ep is the only axis of replicas. ZeRO then does not shard experts, so fewer bytes are live
  /// while shards are updated.
  bool addWholeExperts(MLIRContext &where, ProfilePoint point, Terms &terms) {
    point.dp = 1;
    Terms read(terms.size());
    if (profilePoint(where, point, &read).empty())
      return false;
    for (size_t kind = 0; kind < terms.size(); ++kind)
      for (size_t i = 0, all = terms[kind].size(); i < all; ++i)
        if (terms[kind][i].pattern.zero > 0) {
          planner::PatternTerms alone = terms[kind][i];
          alone.pattern.dp = false;
          alone.stepPeakBytes = read[kind].front().stepPeakBytes;
          terms[kind][i].pattern.dp = true;
          terms[kind].push_back(std::move(alone));
        }
    return true;
  }

  /// Adds the same patterns with a sharded sequence, after those without.
  bool addContextPatterns(MLIRContext &where, const Layout &layout, Terms &terms) {
    int64_t positions = sequence() / (layout.sequenceParallel ? layout.tp : 1);
    int ranks = 2; // represents all other numbers of context ranks
    while (ranks < positions && positions % ranks != 0)
      ++ranks;
    if (positions < 2 || ranks > run.cluster.devices() * largestGrowth)
      return true;
    ProfilePoint point{termSamples, profiledReplicas,        layout.tp, /*ep=*/1,
                       /*zero=*/0,  layout.sequenceParallel, ranks};
    Terms split(problem.kinds.size());
    if (!profilePoints(where, {point}, [&](const ProfilePoint &, size_t kind, planner::PatternTerms read) {
          split[kind].push_back(std::move(read));
        }))
      return false;
    for (size_t kind = 0; kind < terms.size(); ++kind)
      for (size_t i = 0, wholes = terms[kind].size(); i < wholes; ++i)
        if (terms[kind][i].pattern.dp !=
            false) // step terms come from the unsharded pattern; terms of micro-batches do not depend on dp
          terms[kind].push_back(splitOverContext(terms[kind][i], split[kind].front()));
    return true;
  }

  /// Reads the terms of each kind at points that differ only in ZeRO and replicas, and passes them to `take`.
  bool profilePoints(MLIRContext &where, const std::vector<ProfilePoint> &points,
                     llvm::function_ref<void(const ProfilePoint &, size_t, planner::PatternTerms)> take) {
    ProfilePoint oneSample = points.front();
    oneSample.samples = 1;
    std::vector<LiveBytes> one = profilePoint(where, oneSample, nullptr);
    for (const ProfilePoint &point : points) {
      Terms read(problem.kinds.size());
      if (one.empty() || profilePoint(where, point, &read).empty())
        return false;
      for (size_t kind = 0; kind < read.size(); ++kind)
        for (planner::PatternTerms &terms : read[kind]) {
          for (int policy = 0; policy < 3; ++policy)
            if (one[kind][policy] != terms.workspaceBytes[policy])
              terms.oneSampleWorkspaceBytes[policy] = one[kind][policy];
          take(point, kind, std::move(terms));
        }
    }
    return true;
  }

  /// Builds the model at one point and adds its terms to `terms`, unless that is null. Returns the live bytes by kind,
  /// or an empty vector if the model cannot be built.
  std::vector<LiveBytes> profilePoint(MLIRContext &where, const ProfilePoint &point, Terms *terms) {
    Build build(where, run, target, point, /*hasStep=*/terms && point.cp == 1);
    if (build.isBroken())
      return {};
    SizeReader sizes(run.model, problem.dimensions, point);
    if (terms && point.zero == 0 && point.isUnsplit())
      describeModel(build, sizes);
    if (terms && !addTerms(build, point, *terms))
      return {};
    if (failed(build.lower()))
      return {};
    std::vector<LiveBytes> live;
    for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
      live.push_back(readLiveBytes(build.module(), problem.kinds[kind].name, sizes, evaluates));
      if (terms)
        for (planner::PatternTerms &read : (*terms)[kind]) {
          read.workspaceBytes = live.back();
          read.stepPeakBytes = readStepPeaks(build.module(), problem.kinds[kind].name, sizes);
        }
    }
    return live;
  }

  /// Derives ZeRO 2 and 3 from ZeRO 1. Collectives of the step now run for every micro-batch, beside compute. Gradients
  /// are scattered after the backward pass. Under ZeRO 3, parameters of layers are gathered for the forward and again
  /// for the backward pass. The first and the last segment have their own buffers, so their parameters are gathered
  /// once.
  static planner::PatternTerms movedOften(planner::PatternTerms pattern, int zero, bool isLayer) {
    pattern.pattern.zero = zero;
    std::vector<planner::CollectiveTerm> moved;
    for (planner::CollectiveTerm term : pattern.collectives) {
      bool isGather = term.kind == planner::CollectiveKind::AllGather,
           isMoved = isGather ? zero == 3 && isLayer : term.kind == planner::CollectiveKind::ReduceScatter;
      if (term.phase == planner::Phase::Step && term.axis == Axis::Dp && isMoved) {
        term.besideLastBackward = false;
        term.start = -1; // before the first kernel, for this or another layer
        term.wait = std::numeric_limits<int>::max();
        term.phase = planner::Phase::Backward;
        if (isGather) {
          moved.push_back(term);
          term.phase = planner::Phase::Forward;
        }
      }
      moved.push_back(term);
    }
    pattern.collectives = std::move(moved);
    planner::orderTerms(pattern);
    return pattern;
  }

  /// Adds a pattern for each ZeRO level that it holds for. Without replicas there is nothing to shard, so the terms
  /// without ZeRO hold for every level.
  static void addPattern(planner::PatternTerms pattern, const ProfilePoint &point, bool isLayer,
                         std::vector<planner::PatternTerms> &patterns) {
    pattern.pattern.zero = point.zero;
    bool hasReplicas = point.ep > 1; // for any dp
    if (point.zero > 0) {
      if (!hasReplicas)
        pattern.pattern.dp = true;
      for (int zero : {2, 3})
        patterns.push_back(movedOften(pattern, zero, isLayer));
    } else if (!hasReplicas) {
      for (int zero : {1, 2, 3}) {
        planner::PatternTerms alone = pattern;
        alone.pattern.zero = zero;
        alone.pattern.dp = false;
        patterns.push_back(std::move(alone));
      }
    }
    patterns.push_back(std::move(pattern));
  }

  /// Describes the model's properties that do not depend on the split.
  void describeModel(Build &build, const SizeReader &sizes) {
    Monomial contextShare{1, {{static_cast<int>(Axis::Cp), -1}}};
    for (const Monomial &part : readStreamBytes(build.module(), sizes))
      problem.boundaryBytes.push_back(product(part, contextShare));
    // Inputs are tokens, positions, labels and loss weights.
    problem.inputBytes = {product(scaled(readInputBytes(build.module(), sizes), 4), contextShare)};
    const std::vector<SegmentRun> &runs = run.model.runs;
    problem.layersReadInputs = llvm::any_of(ArrayRef(runs).drop_front().drop_back(), [&](const SegmentRun &part) {
      return readsInputs(build.module(), part.kind);
    });
    for (const SegmentRun &part : runs)
      problem.modelFlops +=
          part.count * build.modelFlops(part.kind, !evaluates) / static_cast<double>(sizes.at().samples);
  }

  /// Adds the terms of each segment at one point. If parameters are tied, adds separate terms for one stage and for
  /// several stages. On GPUs, work is priced by the bytes that programs move.
  bool addTerms(Build &build, const ProfilePoint &point, Terms &terms) {
    SizeReader sizes(run.model, problem.dimensions, point);
    std::optional<EmittedWork> emitted;
    if (exec::isCuda(build.module()) && !(emitted = EmittedWork::read(build.module(), sizes)))
      return false;
    for (const SegmentLayout &segment : build.segments()) {
      bool hasTied = llvm::any_of(segment.parameters, [](const SegmentParameter &p) { return !p.tiedTo.empty(); });
      for (bool manyStages : {false, true}) {
        if (manyStages && !hasTied)
          continue;
        const EmittedWork *work = emitted ? &*emitted : nullptr;
        planner::PatternTerms read = readTerms(build.module(), segment, sizes, manyStages, work);
        if (hasTied)
          read.pattern.pp = manyStages;
        read.pattern.tensorRanks = point.tp;
        read.pattern.cp = point.cp > 1;
        read.pattern.sequenceParallel = point.sequenceParallel;
        if (run.model.hasExperts())
          read.pattern.ep = point.ep > 1;
        read.pattern.vocabParallel = run.pins.vocabParallel.value_or(true);
        for (const planner::ParameterTerm &parameter : read.parameters)
          if (parameter.tied && !problem.tiedEmbedding)
            describeTied(parameter, point);
        terms[kindOf(segment.kind)].push_back(std::move(read));
      }
    }
    return true;
  }

  /// Describes the tied parameters. If read at one tensor rank, the shard size holds for any number of tensor ranks.
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
  const std::string target;
  const bool evaluates;
  planner::Problem problem;
};

} // namespace

std::optional<planner::Problem> profileModel(MLIRContext &context, const RunConfig &run, const std::string &target) {
  if (run.runMode != "eval")
    return Profiler(context, run, target, /*evaluates=*/false).profile();
  RunConfig training = run; // the evaluation's terms are the forward terms of training
  training.runMode = "train";
  return Profiler(context, training, target, /*evaluates=*/true).profile();
}

std::optional<planner::Problem> withRun(const planner::Problem &known, const RunConfig &before, const RunConfig &run,
                                        const std::string &target) {
  mlir::MLIRContext unused;
  Profiler old(unused, before, target, before.runMode == "eval"), wanted(unused, run, target, run.runMode == "eval");
  if (before.file != run.file || old.termsKey() != wanted.termsKey())
    return std::nullopt;
  return wanted.withRun(known);
}

} // namespace espalier
