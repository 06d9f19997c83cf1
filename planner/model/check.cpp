// One function per constraint.
#include "planner/check.h"

#include "planner/model/schedule.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <numeric>
#include <string_view>
#include <type_traits>
#include <utility>

namespace espalier::planner {

namespace {

const char *axisName(Axis axis) { return meshAxes[static_cast<int>(axis)]; }

/// Returns the multiples of `number` next to `value`, such as "8 or 16".
std::string nearestMultiples(double of, double value) {
  double below = std::floor(value / of) * of;
  return below > 0 ? fmt::format("{:.0f} or {:.0f}", below, below + of) : fmt::format("{:.0f}", of);
}

/// Why context ranks cannot split a mixture with a capacity.
constexpr const char *capacityOverContext =
    "experts with a capacity are chosen over whole sequences, which cp splits; with moe_config.capacity_factor 0 no "
    "token is dropped, and cp may split them";

class Checker {
public:
  Checker(Pins given, const PlanLimits &limits) : pins(std::move(given)), limits(limits) {}

  std::vector<Finding> run() {
    checkPositive();
    if (!findings.empty())
      return std::move(findings);
    checkDevices();
    completePins(pins, limits);
    checkAxes();
    checkDivisibility();
    checkTensorRanks();
    checkPipeline();
    checkStageLayers();
    checkBatch();
    checkZero();
    checkSchedule();
    checkOffloading();
    return std::move(findings);
  }

private:
  void add(Finding finding) { findings.push_back(std::move(finding)); }
  int axis(Axis which) const {
    const std::optional<int> *pinned[] = {&pins.pp, &pins.dp, &pins.cp, &pins.ep, &pins.tp};
    return pinned[static_cast<int>(which)]->value_or(1);
  }
  /// A dense model has no ep axis.
  int experts() const { return limits.hasExperts() ? pins.ep.value_or(1) : 1; }
  bool knowsExperts() const { return pins.ep || !limits.hasExperts(); }
  std::string timesEp() const { return experts() > 1 ? fmt::format(" · ep {}", experts()) : ""; }
  /// Returns the stated number of chunks of a stage, or that of the schedule.
  int chunks() const {
    int stated = std::max(1, pins.virtualStages.value_or(1));
    return stated == 1 && pins.schedule ? chunksOf(*pins.schedule, stated) : stated;
  }

  void checkPositive() {
    visitFields([&](const char *key, const char *, auto pin, auto) {
      if constexpr (std::is_same_v<decltype(pin), std::optional<int> Pins::*> ||
                    std::is_same_v<decltype(pin), std::optional<int64_t> Pins::*>) {
        int least = std::string_view(key).starts_with("zero") ? 0 : 1;
        if (pins.*pin && *(pins.*pin) < least)
          add({.field = key, .reason = fmt::format("{} must be at least {}, got {}", key, least, *(pins.*pin))});
      }
    });
  }

  void checkDevices() {
    if (limits.devices == 0)
      return;
    double rest = static_cast<double>(pins.tp.value_or(1)) * pins.pp.value_or(1) * pins.cp.value_or(1) * experts();
    double wanted = rest * pins.dp.value_or(1);
    bool allSet = pins.dp && pins.tp && pins.pp && pins.cp && knowsExperts();
    if (allSet ? wanted == limits.devices : std::fmod(limits.devices, wanted) == 0)
      return;
    bool canChange = pins.dp && std::fmod(limits.devices, rest) == 0;
    add({.field = "dp",
         .reason =
             fmt::format("dp {} · tp {} · pp {} · cp {}{} needs {}{:.0f} devices, cluster {} has {}{}", axis(Axis::Dp),
                         axis(Axis::Tp), axis(Axis::Pp), axis(Axis::Cp), timesEp(), allSet ? "" : "a multiple of ",
                         wanted, limits.cluster, limits.devices, canChange ? "" : "; choose a cluster of that size"),
         .got = axis(Axis::Dp),
         .wanted = canChange ? static_cast<int64_t>(limits.devices / rest) : 0});
  }

  /// An axis above 1 splits something.
  void checkAxes() {
    bool hasExperts = limits.hasExperts();
    if (!pins.splitsExperts.value_or(true) && !hasExperts)
      add({.field = "expert_tensor_parallel",
           .reason = "expert_tensor_parallel splits experts, but the model has none",
           .change = "False → True"});
    if (pins.expertsOverContext.value_or(false) && !hasExperts)
      add({.field = "experts_over_context",
           .reason = "experts_over_context spreads experts, but the model has none",
           .change = "True → False"});
    if (!limits.knowsModel)
      return;
    for (Axis which : {Axis::Cp, Axis::Ep, Axis::Tp})
      if (axis(which) > 1 && std::ranges::count(limits.divisibility, which, &Divisibility::axis) == 0)
        add({.field = axisName(which),
             .reason = which == Axis::Ep                 ? "expert parallelism needs experts, the model is dense"
                       : which == Axis::Cp && hasExperts ? capacityOverContext
                       : which == Axis::Cp               ? "layers with a state read whole sequences, which cp splits"
                                           : fmt::format("nothing in the model can be split over {}", axisName(which)),
             .got = axis(which),
             .wanted = 1});
  }

  /// Returns the greatest divisor of `common` and of every size on an axis.
  int64_t commonSize(Axis which, int64_t common) const {
    for (const Divisibility &limit : limits.divisibility)
      if (limit.axis == which && !limit.onlySequenceParallel)
        common = std::gcd(common, limit.value);
    return common;
  }

  /// Returns the axes with several ranks that split a dimension together, outermost first.
  std::vector<Axis> axesOf(const Divisibility &limit) const {
    std::vector<Axis> axes;
    auto addIf = [&](bool isSplit, Axis which) {
      if (isSplit && axis(which) > 1)
        axes.push_back(which);
    };
    addIf(limit.ofExperts && !pins.splitsExperts.value_or(true), Axis::Tp);
    addIf(limit.onlySequenceParallel || (limit.ofExperts && pins.expertsOverContext.value_or(false)), Axis::Cp);
    addIf(true, limit.axis);
    return axes;
  }

  void checkDivisibility() {
    std::vector<std::string_view> reported; // one finding for each dimension
    for (const Divisibility &limit : limits.divisibility) {
      std::vector<Axis> axes = axesOf(limit);
      bool isFree = axes.empty() ||
                    (limit.onlySequenceParallel && (axis(limit.axis) == 1 || !pins.sequenceParallel.value_or(false)));
      int64_t factor = limit.factor * (limit.axis == Axis::Cp && pins.zigzag.value_or(false) ? 2 : 1), size = factor;
      std::string product = factor > 1 ? fmt::format("{} · ", factor) : "";
      for (Axis which : axes) {
        size *= axis(which);
        product += fmt::format("{}{} {}", which == axes.front() ? "" : " · ", axisName(which), axis(which));
      }
      if (isFree || limit.value % size == 0 || std::ranges::count(reported, limit.name) > 0)
        continue;
      reported.push_back(limit.name);
      add({.field = limit.onlySequenceParallel ? "seq_length" : axisName(axes.back()),
           .reason = fmt::format("{} {} is not a multiple of {}{}", limit.name, limit.value, product,
                                 limit.onlySequenceParallel ? ", over which sequence parallelism splits it" : ""),
           .got = axis(axes.back()),
           .divides =
               limit.onlySequenceParallel || axes.size() > 1 ? 0 : commonSize(axes.back(), limit.value) / factor});
    }
  }

  void checkTensorRanks() {
    if (pins.sequenceParallel.value_or(false) && pins.tp == 1)
      add({.field = "sequence_parallel",
           .reason = "sequence parallelism splits over tensor ranks, tp is 1",
           .change = "True → False, or tp above 1"});
  }

  /// Every stage needs a layer. Of several chunks, those of the embedding and the head do not, and pinned chunks may be
  /// without layers.
  void checkPipeline() {
    int64_t pp = axis(Axis::Pp), least = pp * chunks() - limits.freeEnds;
    if (limits.layers > 0 && pp > limits.layers)
      add({.field = "pp",
           .reason = fmt::format("{} pipeline stages need as many layers, the model has {}", pp, limits.layers),
           .got = pp,
           .divides = limits.layers});
    else if (limits.layers > 0 && chunks() > 1 && !pins.stageLayers && least > limits.layers)
      add({.field = "virtual_stages",
           .reason = fmt::format("{} stages with {} chunks each need {} layers, the model has {}", pp, chunks(), least,
                                 limits.layers)});
  }

  void checkStageLayers() {
    if (!pins.stageLayers)
      return;
    const std::vector<int> &layers = *pins.stageLayers;
    auto size = static_cast<int64_t>(layers.size());
    // The length gives the number of chunks if no pin does.
    bool isStated = pins.virtualStages || (pins.schedule && pins.schedule != Schedule::Interleaved);
    int64_t each = isStated ? chunks() : std::max<int64_t>(1, size / axis(Axis::Pp));
    int64_t pp = pins.pp ? axis(Axis::Pp) : size / each, least = each > 1 ? 0 : 1;
    int64_t total = std::accumulate(layers.begin(), layers.end(), int64_t(0));
    if (size != pp * each)
      add({.field = "stage_layers",
           .reason =
               fmt::format("{} {} have layers, the pipeline has {}", size, each > 1 ? "chunks" : "stages", pp * each)});
    if (!layers.empty() && *std::ranges::min_element(layers) < least)
      add({.field = "stage_layers",
           .reason = fmt::format("every {}, got {}", each > 1 ? "chunk needs 0 layers or more" : "stage needs a layer",
                                 layers)});
    if (limits.layers > 0 && total != limits.layers)
      add({.field = "stage_layers",
           .reason = fmt::format("stages have {} layers together, the model has {}", total, limits.layers)});
  }

  void checkBatch() {
    if (limits.globalBatch == 0)
      return;
    int64_t size = pins.microBatchSize.value_or(1), count = pins.microBatches.value_or(1);
    // Floating point, so that extreme pins cannot overflow. Exact below 2^53.
    double share =
        static_cast<double>(axis(Axis::Dp)) * experts() * static_cast<double>(size) * static_cast<double>(count);
    bool allSet = pins.dp && knowsExperts() && pins.microBatchSize && pins.microBatches;
    auto batch = static_cast<double>(limits.globalBatch);
    if (allSet ? batch == share : std::fmod(batch, share) == 0)
      return;
    add({.field = "global_batch",
         .reason =
             fmt::format("global batch {} is not {}dp {}{} · micro-batch size {} · micro-batches {}",
                         limits.globalBatch, allSet ? "" : "a multiple of ", axis(Axis::Dp), timesEp(), size, count),
         .change = fmt::format("{} → {}", limits.globalBatch,
                               allSet ? fmt::format("{:.0f}", share) : nearestMultiples(share, batch))});
  }

  void checkZero() {
    if (pins.zero.value_or(0) > 3)
      add({.field = "zero", .reason = fmt::format("there are ZeRO stages 0 to 3, got {}", *pins.zero)});
    int group = pins.zeroGroup.value_or(0);
    if (group > 0 && pins.zero == 0)
      add({.field = "zero_group",
           .reason = fmt::format("ZeRO groups of {} ranks shard nothing under ZeRO 0; planner.pin.zero: 1", group)});
    if (group > 0 && pins.dp && *pins.dp % group != 0)
      add({.field = "zero_group",
           .reason = fmt::format("ZeRO groups of {} ranks do not divide dp {}", group, *pins.dp),
           .got = group,
           .divides = *pins.dp});
  }

  /// Checks a schedule with the smallest number of micro-batches that fills the stages, if that number is free.
  void checkSchedule() {
    if (pins.schedule && pins.virtualStages) {
      int stages = pins.pp.value_or(2);
      int64_t batches = std::min<int64_t>(pins.microBatches.value_or(stages), 1 << 30);
      std::string reason = whyNotSchedulable(*pins.schedule, stages, static_cast<int>(batches), *pins.virtualStages);
      if (!reason.empty())
        add({.field = "schedule", .reason = reason});
    }
    if (chunks() > 1 && !pins.schedule && pins.pp == 1)
      add({.field = "schedule", .reason = "virtual stages need at least 2 stages"});
  }

  /// All kinds of offloading without a host link are one finding.
  void checkOffloading() {
    bool optimizer = pins.offloadOptimizer.value_or(false), parameters = pins.offloadParameters.value_or(false);
    if (parameters && pins.zero.value_or(3) != 3)
      add({.field = "offload_parameters",
           .reason = fmt::format(
               "parameters are offloaded under ZeRO 3 only, the ZeRO stage is {}; planner.pin.zero: 3", *pins.zero)});
    if (parameters && !pins.offloadOptimizer.value_or(true))
      add({.field = "offload_parameters",
           .reason = "parameters are offloaded with the optimizer only; planner.pin.offload_optimizer: True"});
    if ((optimizer || parameters || pins.offloadActivations.value_or(false)) && !limits.hasHostLink)
      add({.field = optimizer    ? "offload_optimizer"
                    : parameters ? "offload_parameters"
                                 : "offload_activations",
           .reason = fmt::format("nothing can be offloaded, cluster {} has no link to host memory (host.bandwidth)",
                                 limits.cluster),
           .change = "True → False"});
  }

  Pins pins; ///< including those that follow from others
  const PlanLimits &limits;
  std::vector<Finding> findings;
};

} // namespace

bool PlanLimits::hasExperts() const { return std::ranges::count(divisibility, Axis::Ep, &Divisibility::axis) > 0; }

std::string nearestDivisors(int64_t number, int64_t value) {
  int64_t below = 0, above = 0;
  for (int64_t i = 1; i * i <= number; ++i)
    for (int64_t divisor : {i, number / i}) {
      if (number % i != 0)
        break;
      if (divisor < value)
        below = std::max(below, divisor);
      else if (divisor > value && (above == 0 || divisor < above))
        above = divisor;
    }
  return below && above ? fmt::format("{} or {}", below, above) : std::to_string(below ? below : above);
}

std::string Finding::wayOut(int64_t factor) const {
  if (!change.empty())
    return change;
  if (wanted > 0)
    return fmt::format("{} → {}", got * factor, wanted * factor);
  return divides > 0 ? fmt::format("{} → {}", got, nearestDivisors(divides, got)) : "";
}

void completePins(Pins &pins, const PlanLimits &limits) {
  bool knowsExperts = pins.ep || !limits.hasExperts();
  int64_t experts = limits.hasExperts() ? pins.ep.value_or(1) : 1, known = experts;
  int open = knowsExperts ? 0 : 1;
  std::optional<int> *last = nullptr;
  for (std::optional<int> *axis : {&pins.dp, &pins.tp, &pins.pp, &pins.cp}) {
    known = std::min<int64_t>(known * axis->value_or(1), int64_t(1) << 30);
    open += !*axis;
    last = *axis ? last : axis;
  }
  if (open == 1 && last && limits.devices > 0 && limits.devices % known == 0)
    *last = static_cast<int>(limits.devices / known);
  auto batch = static_cast<double>(limits.globalBatch);
  double share = static_cast<double>(pins.dp.value_or(1)) * static_cast<double>(experts) *
                 static_cast<double>(pins.microBatchSize.value_or(1));
  if (pins.dp && knowsExperts && pins.microBatchSize && !pins.microBatches && batch > 0 && std::fmod(batch, share) == 0)
    pins.microBatches = static_cast<int64_t>(batch / share);
}

std::vector<Finding> check(Pins pins, const PlanLimits &limits) { return Checker(std::move(pins), limits).run(); }

PlanLimits limitsOf(const Problem &problem) {
  return {.cluster = problem.machine.name,
          .devices = problem.machine.devices(),
          .hasHostLink = problem.machine.canOffload(),
          .layers = problem.layerCount(),
          .freeEnds = (problem.embed >= 0) + (problem.head >= 0),
          .globalBatch = problem.globalBatch,
          .divisibility = problem.limits};
}

} // namespace espalier::planner
