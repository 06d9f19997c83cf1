// The planner's answer as plain data: how the devices are split, who holds which layers, what is
// kept. Written by the search or by hand (a pinned plan); read by the compiler, which needs nothing
// else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::planner {

/// An array that an enumeration indexes: values[Recompute::Full].
template <typename Enum, typename T, size_t entries> struct EnumArray : std::array<T, entries> {
  using std::array<T, entries>::operator[];
  T &operator[](Enum entry) { return (*this)[static_cast<size_t>(entry)]; }
  const T &operator[](Enum entry) const { return (*this)[static_cast<size_t>(entry)]; }
};

/// What a layer keeps from forward to backward.
enum class Recompute {
  None,      ///< every value that backward reads
  Selective, ///< results of matrix products and attention; element-wise work is repeated
  Full,      ///< only the layer's input; the whole forward is repeated
};

inline constexpr Recompute kRecomputes[] = {Recompute::None, Recompute::Selective, Recompute::Full};

template <typename T> using PerRecompute = EnumArray<Recompute, T, 3>;

/// Name as the run file spells it: none, selective, full.
const char *recomputeName(Recompute recompute);
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

/// What the search chooses beside the split of layers: the mesh, micro-batches and techniques, which is all that the
/// cost of a layer depends on. Ranks are numbered with the mesh order pp, dp, cp, ep, tp (tp varies fastest).
struct ParallelConfig {
  int dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int virtualStages = 1;
  int64_t microBatchSize = 1; ///< samples per micro-batch on one replica
  int64_t microBatches = 1;   ///< micro-batches per step on one replica
  int zero = 0;               ///< ZeRO stage, 0..3
  bool sequenceParallel = false;
  bool vocabParallel = true;              ///< shard vocab over tp (padded); otherwise embedding and head are replicated
  bool splitsExperts = true;              ///< each expert is split over tp; otherwise experts are spread over ep and tp
  bool keepTensorParallelResults = false; ///< mp_comm_recompute: false -> keep collectives' results under recompute
  bool sliceRecomputedInputs = false; ///< inputs kept under full recompute are split over tp and gathered in backward
  bool offloadOptimizer = false;      ///< masters and moments live in host memory
  bool offloadActivations = false;    ///< what layers keep waits for backward in host memory
  bool offloadParameters = false;     ///< shares of parameters and gradients live in host memory; ZeRO 3 only
  Schedule schedule = Schedule::OneFOneB;

  bool offloads() const { return offloadOptimizer || offloadActivations || offloadParameters; }
  int ranks() const { return dp * tp * pp * cp * ep; }
  /// Samples are split over dp and ep: what users call data-parallel ranks.
  int replicas() const { return dp * ep; }
  /// Sequence parallelism has split what layers keep already.
  bool slicesInputs() const { return sliceRecomputedInputs && tp > 1 && !sequenceParallel; }
  int64_t globalBatch() const { return microBatchSize * microBatches * replicas(); }
  bool operator==(const ParallelConfig &) const = default;
};

/// A complete plan: also which layers lie on each stage and what they keep.
struct Plan : ParallelConfig {
  std::vector<StagePlan> stages;
};

/// What the user fixed; empty fields are free.
struct Pins {
  std::optional<int> dp, tp, pp, cp, ep, virtualStages, zero;
  std::optional<int64_t> microBatchSize, microBatches;
  std::optional<bool> sequenceParallel, vocabParallel, splitsExperts;
  std::optional<bool> offloadOptimizer, offloadActivations, offloadParameters;
  std::optional<Schedule> schedule;
  std::optional<Recompute> recompute; ///< the same for all layers
  /// Layers per stage, or per chunk in model order; of several chunks of a stage some may have none.
  std::optional<std::vector<int>> stageLayers;
  /// Only those that the terms of a problem may hold for: without them it needs other terms.
  Pins profiled() const {
    Pins pins;
    pins.vocabParallel = vocabParallel;
    pins.splitsExperts = splitsExperts;
    return pins;
  }
  /// Fields as they are pinned; others take their defaults.
  ParallelConfig config() const;
  /// These, and over them those that are set in `other`.
  Pins with(const Pins &other) const;
  /// Whether a plan is as they want it; its layers keep what `recompute` says.
  bool hold(const Plan &plan) const;
};

/// Calls visit(key, name, pin, field) for each pin, from the cheapest to give up on: its key as run files spell it, its
/// name for people, the member of Pins and that of ParallelConfig; null for what is said of stages and layers.
template <typename Visit> void visitFields(Visit visit) {
  visit("recompute", "recompute", &Pins::recompute, nullptr);
  visit("micro_batch_size", "the micro-batch size", &Pins::microBatchSize, &ParallelConfig::microBatchSize);
  visit("micro_batches", "the number of micro-batches", &Pins::microBatches, &ParallelConfig::microBatches);
  visit("zero", "the ZeRO stage", &Pins::zero, &ParallelConfig::zero);
  visit("sequence_parallel", "sequence parallelism", &Pins::sequenceParallel, &ParallelConfig::sequenceParallel);
  visit("stage_layers", "the layers of each stage", &Pins::stageLayers, nullptr);
  visit("schedule", "the schedule", &Pins::schedule, &ParallelConfig::schedule);
  visit("virtual_stages", "virtual stages", &Pins::virtualStages, &ParallelConfig::virtualStages);
  visit("offload_optimizer", "where optimizer state lives", &Pins::offloadOptimizer, &ParallelConfig::offloadOptimizer);
  visit("offload_activations", "where activations wait", &Pins::offloadActivations,
        &ParallelConfig::offloadActivations);
  visit("offload_parameters", "where parameters live", &Pins::offloadParameters, &ParallelConfig::offloadParameters);
  visit("vocab_parallel", "vocab_parallel", &Pins::vocabParallel, &ParallelConfig::vocabParallel);
  visit("expert_tensor_parallel", "expert_tensor_parallel", &Pins::splitsExperts, &ParallelConfig::splitsExperts);
  visit("dp", "dp", &Pins::dp, &ParallelConfig::dp);
  visit("tp", "tp", &Pins::tp, &ParallelConfig::tp);
  visit("pp", "pp", &Pins::pp, &ParallelConfig::pp);
  visit("cp", "cp", &Pins::cp, &ParallelConfig::cp);
  visit("ep", "ep", &Pins::ep, &ParallelConfig::ep);
}

/// What the executor can run; plans beyond it are priced.
struct Capability {
  bool zeroWithWeights = false; ///< ZeRO 2 and 3 where weight gradients are actions of their own
  bool offloads = false;
  bool emptyInnerChunks = false; ///< stages and chunks without layers between others

  /// What of a plan, or of all plans with this config or these pins, cannot be executed yet; null when all can.
  const char *whyNot(const ParallelConfig &config) const;
  const char *whyNot(const Plan &plan) const;
  const char *whyNot(const Pins &pins) const;
  template <typename Asked> bool runs(const Asked &asked) const { return !whyNot(asked); }
};

/// Bytes on one rank of a stage, by class.
struct StageMemory {
  double parameters = 0, gradients = 0, optimizer = 0;
  double activations = 0;   ///< saved for backward, all micro-batches in flight
  double workspace = 0;     ///< transient peak of one segment, logits included
  double communication = 0; ///< boundary and gather buffers, and those that transfers to the host go through
  double reserved = 0;      ///< what the machine's software takes
  /// Offloaded: in host memory, not on the device.
  double hostParameters = 0, hostGradients = 0, hostOptimizer = 0, hostActivations = 0;
  double host() const { return hostParameters + hostGradients + hostOptimizer + hostActivations; }
  /// On the device.
  double total() const {
    return parameters + gradients + optimizer + activations + workspace + communication + reserved;
  }
};

/// Where the time of the devices goes, in the mean over the stages; the entries sum to the step time.
struct TimeBreakdown {
  double compute = 0; ///< forward and backward without recompute
  double recompute = 0;
  double tensorCommunication = 0, contextCommunication = 0, expertCommunication = 0;
  double dataCommunication = 0; ///< gradients, and parameters under ZeRO, where not hidden
  double pipelineCommunication = 0;
  double bubble = 0; ///< idle
  double optimizer = 0;
  double hostTransfer = 0; ///< to and from host memory, where not hidden
  double total() const {
    return hostTransfer + compute + recompute + tensorCommunication + contextCommunication + expertCommunication +
           dataCommunication + pipelineCommunication + bubble + optimizer;
  }
  void scale(double factor) {
    for (double *part : {&compute, &recompute, &tensorCommunication, &contextCommunication, &expertCommunication,
                         &dataCommunication, &pipelineCommunication, &bubble, &optimizer, &hostTransfer})
      *part *= factor;
  }
};

/// What the planner expects of a plan.
struct Prediction {
  double stepSeconds = 0, tokensPerSecond = 0, mfu = 0;
  double timeError = 0;   ///< share of the step by which a measurement may differ; 0: not known
  double bubbleShare = 0; ///< of the time of all devices, idle
  TimeBreakdown time;
  std::vector<StageMemory> memory; ///< per stage
  double peakBytes = 0;            ///< of the fullest stage
  double memoryLimitBytes = 0;
  double marginBytes = 0;                       ///< of the device, beyond the limit: left free
  double hostPeakBytes = 0, hostLimitBytes = 0; ///< of the rank with most in host memory; a rank's share of its host
  bool fits() const { return peakBytes <= memoryLimitBytes && hostPeakBytes <= hostLimitBytes; }
};

} // namespace espalier::planner
