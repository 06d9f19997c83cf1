#include "compiler/profile/profile_model.h"

#include "compiler/codegen/target.h"
#include "compiler/profile/apply_system.h"
#include "compiler/profile/describe_problem.h"
#include "compiler/profile/forward_terms.h"
#include "compiler/profile/like_kinds.h"
#include "compiler/profile/profile_context.h"
#include "compiler/profile/profiled_build.h"
#include "compiler/profile/read_terms.h"
#include "dialects/exec/dialect.h"
#include "planner/model/segment.h"
#include "planner/search/parallel.h"

#include <thread>
#include <tuple>

using namespace mlir;

namespace espalier {

namespace {

using planner::Axis;
using planner::Monomial;
using planner::Size;

/// Samples of the micro-batches that terms are read from. With one sample, dimensions of size 1 would be ambiguous.
constexpr int64_t termSamples = 2;
constexpr int profiledReplicas = 2;
using LiveBytes = planner::PerRecompute<std::vector<Size>>; ///< by recompute policy

using Terms = std::vector<std::vector<planner::PatternTerms>>; ///< by kind

/// Reads the terms of all segments at one profile point.
class PointReader {
public:
  /// The first unsplit point and the first tied parameters are described in `problem`.
  PointReader(const RunConfig &run, const std::string &target, bool evaluates, planner::Problem &problem)
      : like(run), run(like.built()), target(target), evaluates(evaluates), problem(problem) {}

  /// Reads the terms of each kind at one point, with the workspaces of one sample and of more.
  std::optional<Terms> readAll(MLIRContext &where, const ProfilePoint &point, bool hasStep) {
    ProfilePoint oneSample = point;
    oneSample.samples = 1;
    Terms read(problem.kinds.size());
    std::vector<SegmentLive> many = profilePoint(where, point, {.step = hasStep, .splitBackward = !evaluates}, &read);
    if (many.empty())
      return std::nullopt;
    // Micro-batches of one sample save the copies of gathered sequences. Programs with separate weight gradients are
    // only built for one sample if the others differ, or are likely to.
    bool isSplit = !evaluates && point.sequenceParallel;
    std::vector<SegmentLive> one = profilePoint(where, oneSample, {.step = false, .splitBackward = isSplit}, nullptr);
    bool differs = !std::ranges::equal(one, many, {}, &SegmentLive::whole, &SegmentLive::whole);
    if (differs && !isSplit && !evaluates)
      one = profilePoint(where, oneSample, {.step = false, .splitBackward = true}, nullptr);
    if (one.empty())
      return std::nullopt;
    for (size_t kind = 0; kind < read.size(); ++kind)
      for (planner::PatternTerms &terms : read[kind]) {
        setWorkspaces(many[kind].whole, one[kind].whole, terms);
        if (terms.weight)
          setWorkspaces(many[kind].split, differs ? one[kind].split : many[kind].split, *terms.weight);
      }
    return read;
  }

  /// Reads the parameters and the work once per step at another ZeRO stage or number of replicas. Micro-batches cost
  /// the same as in `whole`.
  std::optional<Terms> withStepAt(MLIRContext &where, const ProfilePoint &point, const Terms &whole) {
    std::optional<Terms> read = readStep(where, point);
    for (size_t kind = 0; read && kind < read->size(); ++kind)
      for (size_t i = 0; i < (*read)[kind].size(); ++i)
        (*read)[kind][i] = withStep(whole[kind][i], (*read)[kind][i]);
    return read;
  }

  /// Returns the parameters and the work once per step by kind.
  std::optional<Terms> readStep(MLIRContext &where, const ProfilePoint &point) {
    Terms read(problem.kinds.size());
    if (profilePoint(where, point, {.phases = false}, &read).empty())
      return std::nullopt;
    return read;
  }

private:
  /// The workspaces of a segment, and those with separate weight gradients.
  struct SegmentLive {
    LiveBytes whole, split;
  };

  /// Returns `many`, and `one` where it differs.
  static void setWorkspaces(const LiveBytes &many, const LiveBytes &one, auto &terms) {
    terms.workspaceBytes = many;
    for (int policy = 0; policy < 3; ++policy)
      if (one[policy] != many[policy])
        terms.oneSampleWorkspaceBytes[policy] = one[policy];
  }

  /// Builds parts of the model at one point and adds its terms to `terms`, unless that is null. Returns the live bytes
  /// by kind, or an empty vector if the model cannot be built.
  std::vector<SegmentLive> profilePoint(MLIRContext &where, const ProfilePoint &point, const BuiltParts &parts,
                                        Terms *terms) {
    SizeReader sizes(run.model, problem.dimensions, point);
    ProfiledBuild build(where, like, target, sizes, parts);
    if (build.isBroken())
      return {};
    if (terms && parts.phases && point.isUnsplit())
      describeModel(build, sizes);
    if (terms && !addTerms(build, point, *terms))
      return {};
    if (failed(build.lower()))
      return {};
    std::vector<SegmentLive> live;
    for (size_t kind = 0; kind < problem.kinds.size(); ++kind) {
      const std::string &name = like.builtFor(problem.kinds[kind].name);
      live.push_back(
          {build.liveBytes(name, evaluates), parts.splitBackward ? build.splitLiveBytes(name) : LiveBytes()});
      if (terms)
        for (planner::PatternTerms &read : (*terms)[kind]) {
          read.stepPeakBytes = build.stepPeaks(name);
          if (parts.splitBackward)
            read.weight = build.weights(name);
        }
    }
    return live;
  }

  /// Describes the model's properties that do not depend on the split.
  void describeModel(ProfiledBuild &build, const SizeReader &sizes) {
    Monomial contextShare{1, {{static_cast<int>(Axis::Cp), -1}}};
    for (const Monomial &part : readStreamBytes(build.module(), sizes))
      problem.boundaryBytes.push_back(product(part, contextShare));
    problem.inputBytes = {product(readInputBytes(build.module(), sizes), contextShare)};
    const std::vector<SegmentRun> &runs = run.model.runs;
    problem.layersReadInputs = llvm::any_of(ArrayRef(runs).drop_front().drop_back(), [&](const SegmentRun &part) {
      return readsInputs(build.module(), part.kind);
    });
    auto addFlops = [&](int kind, int count) {
      problem.modelFlops +=
          count * build.modelFlops(problem.kinds[kind].name, !evaluates) / static_cast<double>(sizes.at().samples);
    };
    addFlops(problem.embed, 1);
    for (const planner::LayerRun &part : problem.layers)
      addFlops(part.kind, part.count);
    addFlops(problem.head, 1);
  }

  /// Adds the terms of each segment at one point. If parameters are tied, adds separate terms for one stage and for
  /// several stages. Some targets price work by the bytes that programs move.
  bool addTerms(ProfiledBuild &build, const ProfilePoint &point, Terms &terms) {
    SizeReader sizes(run.model, problem.dimensions, point);
    std::optional<EmittedWork> emitted;
    if (codegen::targetOf(build.module()).pricesPrograms() && !(emitted = EmittedWork::read(build.module(), sizes)))
      return false;
    for (auto segment : build.module().getOps<exec::SegmentOp>()) {
      std::string built = segment.getKind().str();
      bool hasTied = llvm::any_of(segment.parameters(), [](exec::ParameterOp p) { return p.getTiedTo().has_value(); });
      like.visit(build.module(), built, [&](const std::string &kind) {
        for (bool manyStages : {false, true}) {
          if (manyStages && !hasTied)
            continue;
          const EmittedWork *work = emitted ? &*emitted : nullptr;
          planner::PatternTerms read = readTerms(build.module(), segment, sizes, manyStages, work);
          if (hasTied)
            read.pattern.pp = manyStages;
          setPattern(point, read.pattern);
          for (planner::ParameterTerm &parameter : read.parameters) {
            parameter.name.replace(0, built.size(), kind); // the bucket's name, such as "block.decayed"
            if (parameter.tied && !problem.tiedEmbedding)
              describeTied(parameter, point);
          }
          terms[kindNamed(problem, kind)].push_back(std::move(read));
        }
      });
    }
    return true;
  }

  /// Sets the axes of a point.
  void setPattern(const ProfilePoint &point, planner::Pattern &pattern) const {
    pattern.tensorRanks = point.tp;
    pattern.cp = point.cp > 1;
    pattern.sequenceParallel = point.sequenceParallel;
    if (run.model.hasExperts()) {
      pattern.ep = point.ep > 1;
      if (point.tp > 1)
        pattern.splitsExperts = point.splitsExperts;
      if (*pattern.cp)
        pattern.expertsOverContext = point.expertsOverContext;
    }
    pattern.vocabParallel = run.pins.vocabParallel.value_or(true);
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

  const LikeKinds like;
  const RunConfig &run; ///< with the kinds that are built
  const std::string target;
  const bool evaluates;
  planner::Problem &problem;
};

class Profiler {
public:
  /// With `evaluates`, the terms of a training run are reduced to those of an evaluation.
  Profiler(MLIRContext &context, const RunConfig &run, const std::string &target, bool evaluates)
      : context(context), run(run), target(target), evaluates(evaluates), problem(describeProblem(run)) {}

  /// With `onlyPinned`, leaves out the terms of other plans than the pinned one.
  std::optional<planner::Problem> profile(bool onlyPinned = false) {
    auto allows = [&](const auto &pin, auto value) { return !onlyPinned || pin.value_or(value) == value; };
    std::vector<Layout> layouts;
    for (int tp : tensorRanks(run))
      for (bool sequenceParallel : {false, true})
        for (bool splitsExperts : expertSplits(run, tp))
          for (int ep : expertRanks(run, tp, splitsExperts)) {
            bool isFirst = layouts.empty(); // describes the model
            bool isWanted = allows(run.pins.tp, tp) && allows(run.pins.sequenceParallel, sequenceParallel) &&
                            (run.pins.ep.value_or(ep) > 1) >= (ep > 1) &&
                            (!onlyPinned || splitsExperts == run.pins.splitsExperts.value_or(true));
            if (isFirst || (isWanted && (!sequenceParallel || (tp > 1 && sequenceOf(run) % tp == 0))))
              layouts.push_back({tp, sequenceParallel, splitsExperts, ep});
          }
    for (std::optional<Terms> &terms : profileLayouts(layouts)) {
      if (!terms)
        return std::nullopt;
      for (size_t kind = 0; kind < terms->size(); ++kind)
        for (planner::PatternTerms &pattern : (*terms)[kind])
          problem.kinds[kind].patterns.push_back(std::move(pattern));
    }
    applySystem(run.system.storage, problem);
    if (!run.matmulFormat.empty())
      keepNarrowInputs(problem);
    if (evaluates)
      leaveForward(problem);
    planner::findLikeKinds(problem);
    return std::move(problem);
  }

  /// Everything besides the model that affects its terms.
  using TermsKey = std::tuple<std::vector<int>, std::vector<std::vector<int>>, std::vector<bool>, int64_t, bool, bool,
                              bool, bool, double, std::vector<std::string>, SystemStorage, bool, std::string>;
  TermsKey termsKey() const {
    std::vector<std::vector<int>> experts;
    for (int tp : tensorRanks(run))
      for (bool splits : expertSplits(run, tp)) {
        experts.push_back(expertRanks(run, tp, splits));
        experts.back().push_back(splits);
      }
    int64_t contextRanks =
        run.pins.cp == 1 ? 1 : std::min<int64_t>(sequenceOf(run), run.cluster.devices() * largestGrowth);
    return {tensorRanks(run),
            experts,
            expertsOverContext(run),
            contextRanks,
            run.pins.vocabParallel.value_or(true),
            run.recompute.mpCommRecompute,
            run.recompute.recomputeSliceActivation,
            evaluates,
            run.model.documentTokens,
            run.unfusedEpilogues,
            run.system.storage,
            run.matmulFormat.empty(),
            target};
  }

  /// Returns `known` with this run's machine, software, batch and pins.
  planner::Problem withRun(const planner::Problem &known) {
    problem = known;
    describeRun(run, problem);
    return std::move(problem);
  }

private:
  /// A choice of tensor ranks, sequence parallelism and expert split. All other axes are symbols. The symbol of cp
  /// starts at 2.
  struct Layout {
    int tp = 1;
    bool sequenceParallel = false, splitsExperts = true;
    int ep = 1; ///< 1, or one number that represents all larger ones
  };

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

  /// Returns whether the kind is a repeated layer.
  bool isLayer(size_t kind) const {
    return static_cast<int>(kind) != problem.embed && static_cast<int>(kind) != problem.head;
  }

  /// Returns the terms of one layout, with and without ZeRO, and with sharded sequences.
  std::optional<Terms> profilePattern(MLIRContext &where, const Layout &layout) {
    ProfilePoint point = pointOf(layout);
    std::optional<Terms> whole = reader.readAll(where, point, /*hasStep=*/true);
    if (!whole)
      return std::nullopt;
    Terms terms(problem.kinds.size());
    auto add = [&](const Terms &read) {
      for (size_t kind = 0; kind < terms.size(); ++kind)
        for (const planner::PatternTerms &pattern : read[kind])
          addZeroPatterns(pattern, point, isLayer(kind), terms[kind]);
    };
    add(*whole);
    point.zero = 1;
    std::optional<Terms> sharded = reader.withStepAt(where, point, *whole);
    if (!sharded)
      return std::nullopt;
    add(*sharded);
    if (layout.ep > 1 && !addWholeExperts(where, point, terms))
      return std::nullopt;
    if (run.pins.cp == 1 || !run.model.splitsSequence())
      return terms;
    Terms folded(problem.kinds.size());
    for (bool over : expertsOverContext(run))
      if (over ? !addFoldedPatterns(where, layout, folded) : !addContextPatterns(where, layout, terms))
        return std::nullopt;
    for (size_t kind = 0; kind < terms.size(); ++kind)
      std::ranges::move(folded[kind], std::back_inserter(terms[kind]));
    return terms;
  }

  static ProfilePoint pointOf(const Layout &layout) {
    return {.samples = termSamples,
            .dp = profiledReplicas,
            .tp = layout.tp,
            .ep = layout.ep,
            .sequenceParallel = layout.sequenceParallel,
            .splitsExperts = layout.splitsExperts};
  }

  /// Adds patterns in which experts have no replicas: ep is the only axis of replicas, or experts are over all others.
  /// ZeRO then does not shard experts, so fewer bytes are live while shards are updated.
  bool addWholeExperts(MLIRContext &where, ProfilePoint point, Terms &terms) {
    point.dp = 1;
    std::optional<Terms> read = reader.readStep(where, point);
    if (!read)
      return false;
    for (size_t kind = 0; kind < terms.size(); ++kind)
      for (size_t i = 0, all = terms[kind].size(); i < all; ++i)
        if (terms[kind][i].pattern.zero > 0) {
          planner::PatternTerms alone = terms[kind][i];
          alone.pattern.dp = false;
          alone.stepPeakBytes = (*read)[kind].front().stepPeakBytes;
          terms[kind][i].pattern.dp = true;
          terms[kind].push_back(std::move(alone));
        }
    return true;
  }

  /// Returns the smallest number of context ranks above 1, which represents all others, or nothing if no plan can have
  /// them. `experts` is the number of experts that context ranks share, or 0 if they do not.
  std::optional<int> contextRanks(const Layout &layout, int64_t experts) const {
    int64_t positions = sequenceOf(run) / (layout.sequenceParallel ? layout.tp : 1);
    int64_t most = std::min<int64_t>(positions, run.cluster.devices() * largestGrowth);
    for (int ranks = 2; ranks <= most; ++ranks)
      if (positions % ranks == 0 && experts % ranks == 0)
        return ranks;
    return std::nullopt;
  }

  /// Adds the same patterns with a sharded sequence, after those without.
  bool addContextPatterns(MLIRContext &where, const Layout &layout, Terms &terms) {
    std::optional<int> ranks = contextRanks(layout, /*experts=*/0);
    if (!ranks)
      return true;
    ProfilePoint point = pointOf(layout);
    point.cp = *ranks;
    std::optional<Terms> split = reader.readAll(where, point, /*hasStep=*/false);
    if (!split)
      return false;
    for (size_t kind = 0; kind < terms.size(); ++kind)
      for (size_t i = 0, wholes = terms[kind].size(); i < wholes; ++i)
        if (terms[kind][i].pattern.dp !=
            false) // step terms come from the unsharded pattern; terms of micro-batches do not depend on dp
          terms[kind].push_back(splitOverContext(terms[kind][i], (*split)[kind].front()));
    return true;
  }

  /// Adds patterns with a sharded sequence and with experts that are spread over the context ranks.
  bool addFoldedPatterns(MLIRContext &where, const Layout &layout, Terms &terms) {
    int64_t holders = layout.ep * (layout.splitsExperts ? 1 : layout.tp), experts = run.model.dims.at("expert");
    std::optional<int> ranks = experts % holders == 0 ? contextRanks(layout, experts / holders) : std::nullopt;
    if (!ranks)
      return true;
    ProfilePoint point = pointOf(layout);
    point.cp = *ranks;
    point.expertsOverContext = true;
    std::optional<Terms> split = reader.readAll(where, point, /*hasStep=*/false);
    if (!split)
      return false;
    for (int zero : {0, 1}) {
      point.zero = zero;
      std::optional<Terms> read = reader.withStepAt(where, point, *split);
      if (!read)
        return false;
      for (size_t kind = 0; kind < terms.size(); ++kind)
        for (const planner::PatternTerms &pattern : (*read)[kind])
          addZeroPatterns(pattern, point, isLayer(kind), terms[kind]);
    }
    return addWholeExperts(where, point, terms);
  }

  MLIRContext &context;
  const RunConfig &run;
  const std::string target;
  const bool evaluates;
  planner::Problem problem;
  PointReader reader{run, target, evaluates, problem};
};

} // namespace

std::optional<planner::Problem> profileModel(MLIRContext &context, const RunConfig &run, const std::string &target,
                                             bool onlyPinned) {
  if (run.runMode != "eval")
    return Profiler(context, run, target, /*evaluates=*/false).profile(onlyPinned);
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

std::optional<planner::Problem> ProfileCache::profile(const RunConfig &run) {
  if (last)
    if (std::optional<planner::Problem> problem = withRun(last->second, last->first, run, target))
      return problem;
  std::optional<planner::Problem> problem = profileModel(context, run, target);
  if (problem)
    last.emplace(run, *problem);
  return problem;
}

} // namespace espalier
