// The planner's result as plain data: the device mesh, the layers of each stage, and what each layer keeps for
// backward. The search or the user (a pinned plan) writes a plan. The compiler reads it and needs no other planner
// output.
#pragma once

#include "format/axes.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::planner {

/// An array that is indexed by an enumeration: values[Recompute::Full].
template <typename Enum, typename T, size_t entries> struct EnumArray : std::array<T, entries> {
  using std::array<T, entries>::operator[];
  T &operator[](Enum entry) { return (*this)[static_cast<size_t>(entry)]; }
  const T &operator[](Enum entry) const { return (*this)[static_cast<size_t>(entry)]; }
};

using espalier::Axis;
inline constexpr int kAxes = meshAxes.size();
/// One value per mesh axis.
template <typename T> using PerAxis = EnumArray<Axis, T, kAxes>;

/// The values that a layer keeps from forward to backward.
enum class Recompute {
  None,      ///< every value that backward reads
  Selective, ///< results of matrix products and attention; element-wise work is repeated
  Full,      ///< only the layer's input; the whole forward is repeated
};

/// All recompute classes, by ascending recompute.
inline constexpr Recompute kRecomputes[] = {Recompute::None, Recompute::Selective, Recompute::Full};

/// One value per recompute class.
template <typename T> using PerRecompute = EnumArray<Recompute, T, 3>;

/// Returns the name that run files use: none, selective or full.
const char *recomputeName(Recompute recompute);
/// Returns the class with this run-file name, or nothing when the name is unknown.
std::optional<Recompute> recomputeNamed(std::string_view name);

/// Order of forward and backward actions of a pipeline.
enum class Schedule { GPipe, OneFOneB, Interleaved, ZeroBubbleH1, ZeroBubbleV, VHalf, VMin };

/// The layers of one pipeline stage. Stages may be uneven; every layer is on exactly one stage.
/// With virtual stages a plan has pp * virtualStages entries, one per chunk in model order: chunk c
/// lies on stage c % pp (interleaved), or on c < pp ? c : 2 pp - 1 - c (zero-bubble V).
struct StagePlan {
  int firstLayer = 0;
  int layers = 0;
  std::vector<Recompute> recompute; ///< one entry per layer of the stage
};

/// The mesh, the micro-batches and the techniques of a plan. The cost of one layer depends on nothing else. Ranks
/// follow the mesh order pp, dp, cp, ep, tp (tp varies fastest).
struct ParallelConfig {
  int dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int virtualStages = 1;
  int64_t microBatchSize = 1; ///< samples per micro-batch on one replica
  int64_t microBatches = 1;   ///< micro-batches per step on one replica
  int zero = 0;               ///< ZeRO stage, 0..3
  int zeroGroup = 0;          ///< data-parallel ranks over which ZeRO shards; they divide dp; 0: all of dp
  bool sequenceParallel = false;
  bool zigzag = false; ///< cp rank r of n holds chunks r and 2 n - 1 - r of a sequence of 2 n chunks; else one run
  bool vocabParallel = true;              ///< shard vocab over tp (padded); otherwise embedding and head are replicated
  bool splitsExperts = true;              ///< each expert is split over tp; otherwise experts are spread over ep and tp
  bool expertsOverContext = false;        ///< experts are spread over cp, too, as in Megatron's folded meshes
  bool keepTensorParallelResults = false; ///< mp_comm_recompute: false -> keep collectives' results under recompute
  bool sliceRecomputedInputs = false;     ///< split inputs kept under full recompute over tp; backward all-gathers them
  bool offloadOptimizer = false;          ///< masters and moments live in host memory
  bool offloadActivations = false;        ///< values that layers keep for backward live in host memory
  bool offloadParameters = false;         ///< parameter and gradient shards live in host memory; requires ZeRO 3
  Schedule schedule = Schedule::OneFOneB;
  std::optional<Recompute> recompute; ///< the class of all layers; empty: layers may differ
  int fullLayers = 0; ///< above 0: this many leading layers of each chunk recompute in full, and the others nothing

  /// Whether the class of a layer does not follow from its place.
  bool choosesRecompute() const { return !recompute && fullLayers == 0; }

  /// Whether any state is offloaded to host memory.
  bool offloads() const { return offloadOptimizer || offloadActivations || offloadParameters; }
  /// Number of devices.
  int ranks() const { return dp * tp * pp * cp * ep; }
  /// Number of ranks over which experts are spread. Example: of 8 experts, each of ep 2 x cp 2 ranks holds 2.
  int expertRanks() const { return ep * (splitsExperts ? 1 : tp) * (expertsOverContext ? cp : 1); }
  /// Number of data-parallel ranks. Samples are sharded over dp and ep.
  int replicas() const { return dp * ep; }
  /// Number of data-parallel ranks of one shard group of ZeRO. Other groups hold replicas of the shards (HSDP).
  int zeroRanks() const { return zero > 0 && zeroGroup > 0 ? zeroGroup : dp; }
  /// Number of shard groups in dp: ranks that hold the same shard.
  int zeroReplicas() const { return dp / zeroRanks(); }
  /// Whether ranks hold two runs of a sequence each.
  bool hasTwoRuns() const { return zigzag && cp > 1; }
  /// Whether kept layer inputs are split over tp. False under sequence parallelism, which has already split them.
  bool slicesInputs() const { return sliceRecomputedInputs && tp > 1 && !sequenceParallel; }
  int64_t globalBatch() const { return microBatchSize * microBatches * replicas(); }
  bool operator==(const ParallelConfig &) const = default;
};

/// A complete plan: the config, the layers of each stage, and what each layer keeps.
struct Plan : ParallelConfig {
  std::vector<StagePlan> stages;
};

/// The fields that the user fixed. Empty fields are free.
struct Pins {
  std::optional<int> dp, tp, pp, cp, ep, virtualStages, zero, zeroGroup;
  std::optional<int64_t> microBatchSize, microBatches;
  std::optional<bool> sequenceParallel, zigzag, vocabParallel, splitsExperts, expertsOverContext;
  std::optional<bool> offloadOptimizer, offloadActivations, offloadParameters;
  std::optional<Schedule> schedule;
  std::optional<Recompute> recompute; ///< the same for all layers
  /// Layers per stage, or per chunk in model order. If a stage has several chunks, some of them may have no layers.
  std::optional<std::vector<int>> stageLayers;
  /// Returns only the pins that choose the profiled terms. A problem without these pins needs other terms.
  Pins profiled() const {
    Pins pins;
    pins.vocabParallel = vocabParallel;
    pins.splitsExperts = splitsExperts;
    pins.expertsOverContext = expertsOverContext;
    return pins;
  }
  /// Returns a config with the pinned fields. Other fields take their defaults.
  ParallelConfig config() const;
  /// Returns these pins, overridden by the pins that are set in `other`.
  Pins with(const Pins &other) const;
  /// Whether `plan` satisfies these pins. `recompute` requires the given class of every layer.
  bool hold(const Plan &plan) const;
};

/// Calls visit(key, name, pin, field) for each pin, cheapest to give up first. `key` is the run-file key and `name` is
/// the display name. `pin` and `field` are members of Pins and ParallelConfig. `field` is null for pins on stages and
/// layers.
template <typename Visit> void visitFields(Visit visit) {
  visit("recompute", "recompute", &Pins::recompute, nullptr);
  visit("micro_batch_size", "the micro-batch size", &Pins::microBatchSize, &ParallelConfig::microBatchSize);
  visit("micro_batches", "the number of micro-batches", &Pins::microBatches, &ParallelConfig::microBatches);
  visit("zero", "the ZeRO stage", &Pins::zero, &ParallelConfig::zero);
  visit("zero_group", "the ranks of a ZeRO group", &Pins::zeroGroup, &ParallelConfig::zeroGroup);
  visit("sequence_parallel", "sequence parallelism", &Pins::sequenceParallel, &ParallelConfig::sequenceParallel);
  visit("zigzag", "the zigzag order", &Pins::zigzag, &ParallelConfig::zigzag);
  visit("stage_layers", "the layers of each stage", &Pins::stageLayers, nullptr);
  visit("schedule", "the schedule", &Pins::schedule, &ParallelConfig::schedule);
  visit("virtual_stages", "virtual stages", &Pins::virtualStages, &ParallelConfig::virtualStages);
  visit("offload_optimizer", "where optimizer state lives", &Pins::offloadOptimizer, &ParallelConfig::offloadOptimizer);
  visit("offload_activations", "where activations wait", &Pins::offloadActivations,
        &ParallelConfig::offloadActivations);
  visit("offload_parameters", "where parameters live", &Pins::offloadParameters, &ParallelConfig::offloadParameters);
  visit("vocab_parallel", "vocab_parallel", &Pins::vocabParallel, &ParallelConfig::vocabParallel);
  visit("expert_tensor_parallel", "expert_tensor_parallel", &Pins::splitsExperts, &ParallelConfig::splitsExperts);
  visit("experts_over_context", "experts_over_context", &Pins::expertsOverContext, &ParallelConfig::expertsOverContext);
  visit("dp", "dp", &Pins::dp, &ParallelConfig::dp);
  visit("tp", "tp", &Pins::tp, &ParallelConfig::tp);
  visit("pp", "pp", &Pins::pp, &ParallelConfig::pp);
  visit("cp", "cp", &Pins::cp, &ParallelConfig::cp);
  visit("ep", "ep", &Pins::ep, &ParallelConfig::ep);
}

/// The features that the executor supports. The planner prices plans with other features but marks them not
/// executable.
struct Capability {
  bool zeroWithWeights = false; ///< ZeRO 2 and 3 with separate weight-gradient actions
  bool offloads = false;
  bool emptyInnerChunks = false; ///< stages and chunks without layers between stages with layers

  /// Returns the feature of the plan, config or pins that the executor does not support. Null when it supports all.
  const char *whyNot(const ParallelConfig &config) const;
  const char *whyNot(const Plan &plan) const;
  const char *whyNot(const Pins &pins) const;
  /// Whether the executor supports a plan, config or pins.
  template <typename Asked> bool runs(const Asked &asked) const { return !whyNot(asked); }
};

/// Bytes on one rank of a stage, by class.
struct StageMemory {
  double parameters = 0, gradients = 0, optimizer = 0;
  double activations = 0;   ///< saved for backward, all micro-batches in flight
  double workspace = 0;     ///< transient peak of one segment, logits included
  double communication = 0; ///< boundary and gather buffers, and host staging buffers
  double reserved = 0;      ///< memory that the driver and libraries take
  /// Offloaded state, in host memory.
  double hostParameters = 0, hostGradients = 0, hostOptimizer = 0, hostActivations = 0;
  /// Bytes in host memory.
  double host() const { return hostParameters + hostGradients + hostOptimizer + hostActivations; }
  /// Bytes on the device.
  double total() const {
    return parameters + gradients + optimizer + activations + workspace + communication + reserved;
  }
};

/// Seconds of one rank by cause. Communication counts its exposed time only. Over dp it is that of gradients, and of
/// parameters under ZeRO.
struct PhaseSeconds {
  double compute = 0;
  PerAxis<double> communication{};
  double hostTransfer = 0; ///< exposed transfers to or from host memory
  /// Returns the communication over all axes.
  double exposed() const { return std::accumulate(communication.begin(), communication.end(), 0.0); }
  /// Returns the sum of all entries.
  double total() const { return std::accumulate(communication.begin(), communication.end(), compute + hostTransfer); }
  /// Adds `times` times the seconds of `other`.
  void add(const PhaseSeconds &other, double times) {
    compute += times * other.compute, hostTransfer += times * other.hostTransfer;
    for (size_t axis = 0; axis < communication.size(); ++axis)
      communication[axis] += times * other.communication[axis];
  }
};

/// Device time by cause, averaged over the stages. `compute` is without recompute. The entries sum to the step time.
struct TimeBreakdown : PhaseSeconds {
  double recompute = 0;
  double bubble = 0; ///< idle
  double optimizer = 0;
  double total() const { return PhaseSeconds::total() + recompute + bubble + optimizer; }
  /// Multiplies every entry by `factor`.
  void scale(double factor) {
    for (double *part : {&compute, &recompute, &bubble, &optimizer, &hostTransfer})
      *part *= factor;
    for (double &seconds : communication)
      seconds *= factor;
  }
};

/// The predicted cost of a plan.
struct Prediction {
  double stepSeconds = 0, tokensPerSecond = 0, mfu = 0;
  double timeError = 0;   ///< relative error of the predicted step; 0: unknown
  double bubbleShare = 0; ///< idle share of the time of all devices
  TimeBreakdown time;
  std::vector<StageMemory> memory; ///< per stage
  double peakBytes = 0;            ///< bytes of the fullest stage
  double memoryLimitBytes = 0;
  double marginBytes = 0;                       ///< device memory beyond the limit, left free
  double hostPeakBytes = 0, hostLimitBytes = 0; ///< host bytes of the largest rank; a rank's share of its host
  /// Returns the step divided and multiplied by one more than its error.
  std::array<double, 2> interval() const { return {stepSeconds / (1 + timeError), stepSeconds * (1 + timeError)}; }
  /// Whether the plan fits into device and host memory.
  bool fits() const { return peakBytes <= memoryLimitBytes && hostPeakBytes <= hostLimitBytes; }
};

} // namespace espalier::planner
