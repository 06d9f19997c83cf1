// A run file after import, with every value typed, defaulted and checked. The other phases read this.
#pragma once

#include "compiler/import/model/adapter_config.h"
#include "compiler/import/model/model_description.h"
#include "format/optimizers.h"
#include "planner/problem.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// Recomputation settings.
struct RecomputeConfig {
  bool mpCommRecompute = true;
  bool recomputeSliceActivation = false;
  /// Number of layers, from the first on, that recompute the whole block or only elementwise work; the whole block
  /// wins. Either one entry per stage, or one entry per chunk: all first chunks, then all second chunks, and so on.
  /// Empty if the file has no list.
  std::vector<int> fullLayers, selectiveLayers;
};

/// Parameters with their own learning rate, and maybe their own weight decay.
struct RateGroup {
  std::vector<std::string> parameters; ///< names such as "embed.wte"; tied parameters have the name of their owner
  rt::pb::LearningRate schedule;
  std::optional<double> weightDecay; ///< of the group's parameters that decay; unset: the optimizer's
};

/// The optimizer and its hyperparameters, gradient clipping, and the limits of skipped steps. An optimizer for matrices
/// leaves all other parameters to AdamW.
struct OptimizerConfig {
  rt::pb::Optimizer type = rt::pb::ADAMW;
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weightDecay = 0.0;
  double momentum = 0;   ///< of SGD and Muon
  bool nesterov = false; ///< of SGD and Muon
  // Of Muon.
  int64_t newtonSchulzSteps = 5;
  std::string scaleMode = "spectral"; ///< spectral | shape_scaling | unit_rms_norm
  double scaleFactor = 0.2;           ///< multiplies the scale of an update
  /// Above 0: QK-clip scales the query and key weights of heads with larger attention scores. The alpha is the share of
  /// the queries.
  double qkClipThreshold = 0, qkClipAlpha = 0.5;
  bool clip = false;
  double maxGradNorm = 1.0;
  int64_t maxSkippedSteps = 20; ///< the run ends after this many skipped steps in a row; 0 means no limit
  /// Above 0: a step is skipped if its gradient norm is above this factor times the median of the last
  /// `skipSpikeWindow` norms of applied steps.
  double skipSpikeFactor = 0;
  int64_t skipSpikeWindow = 128;
  std::vector<RateGroup> rateGroups; ///< at most rt::mostRateGroups
};

/// The most batch sizes of a ramp before the final one. Each has its own instruction streams in the plan.
inline constexpr int64_t mostBatchSizes = 32;

/// A part of a ramp of the batch size.
struct BatchStep {
  int64_t samples = 0; ///< the part ends when so many samples have been consumed
  int64_t globalBatch = 1;
};

/// The loss scale, fixed or dynamic.
struct LossScaleConfig {
  bool dynamic = false;
  double initial = 1.0, factor = 2.0, minimum = 1.0;
  int64_t window = 1000;
};

/// cuBLASLt algorithms that were measured to be the fastest.
struct MatmulAlgorithms {
  std::string library; ///< library and device of the algorithms, such as "cuBLASLt 13.1.0 on sm_90"
  std::map<std::string, std::string> products; ///< by productName(): the algorithm's bytes in hexadecimal
};

/// The devices that the plan is made for: at most 12 constants of the devices and their links, and up to 3 of the host.
/// The peak of the compute dtype counts as one constant. The YAML file gives the source of each constant. `memoryBytes`
/// are those that a plan may use: without reserved bytes and margin, or context.max_device_memory.
struct ClusterConfig : planner::Machine {
  ClusterConfig() { matmulEfficiency = 0; } // not given
  std::string device; ///< device class in configs/systems, which lists errors per class: a100, h100, cpu; may be empty
  std::string measuredOn;     ///< rt::machineName() or the device's name where the rates were measured; empty: nowhere
  double memoryMargin = 0.04; ///< fraction of a device's memory that plans leave free
  double capability = 0;      ///< compute capability of the device class, as 8.0; 0: unknown
  MatmulAlgorithms matmulAlgorithms; ///< may be empty
};

/// The storage, recomputation and products of a system, where they differ from Espalier's. The defaults change nothing.
struct SystemStorage {
  double gradientBytes = 0;       ///< per element, accumulated; 0: as Espalier's
  double reducedBytes = 0;        ///< per element of a gradient reduction; 0: as Espalier's
  double optimizerBytes = 0;      ///< per element, masters and moments; 0: as Espalier's
  double updateBytes = 0;         ///< per element, live only while the optimizer runs
  double flatUpdateBytes = 0;     ///< the same under ZeRO 1 and 2: temporaries of an update of one flat partition
  double unshardedShare = 1;      ///< of the parameters that Espalier holds unsharded under ZeRO 3
  double gradientPasses = 0;      ///< times that the step reads or writes the gradients; 0: as Espalier's
  double accumulationBytes = 0;   ///< traffic per element of a kernel that accumulates weight gradients; 0: no kernel
  double scoreBytes = 0;          ///< kept per attention score; 0: a fused kernel stores no scores
  bool dropsScores = false;       ///< stored scores pass a dropout; scoreBytes includes its mask and result
  double logitBytes = 0;          ///< live per logit at the peak of the loss; 0: as Espalier's
  double expertImbalance = 0;     ///< of dropless experts: slots over an even share; 0: a slot for every token
  bool splitsProducts = false;    ///< transfers over tp run in parts beside the parts of their product
  bool repeatsWholeLayer = false; ///< full recompute repeats the layer's last product, which backward does not read
  /// The work that selective recompute repeats: element-wise work, attention, or every second matrix product.
  enum class Selective { Elementwise, Attention, SecondProducts } selective = Selective::Elementwise;
  bool operator==(const SystemStorage &) const = default;
};

/// The software whose performance is predicted (configs/systems): the error of predicted times on devices of the
/// cluster's class, the work that it overlaps with compute, and what it stores.
struct SystemConfig {
  std::string name = "espalier";
  planner::ModelError error;
  planner::Software software; ///< its name equals `name`
  SystemStorage storage;
  bool scattersBoundary = false; ///< sends of activations between stages are split over the tensor ranks
  double reservedBytes = 0;      ///< memory that its allocator and libraries hold beside the cluster's reserved_bytes
  /// Factors of the cluster's matmul_efficiency, attention_efficiency and memory_bandwidth. The second one is the share
  /// that an attention kernel reaches that was written for an earlier generation of devices.
  double matmulFactor = 1, attentionFactor = 1, memoryFactor = 1;
  /// Speed of a step's matrix products in a narrower format, relative to the compute dtype: {"fp8", 1.65}.
  std::map<std::string, double> formatGains; ///< 0: the cluster's devices have no such products
  /// Returns the speed of products in a format such as fp8 or fp8_hybrid, or 0 if the system does not predict them.
  double formatGain(const std::string &format) const {
    auto found = formatGains.find(format.substr(0, format.find('_')));
    return found == formatGains.end() ? 0 : found->second;
  }
};

/// The parameter names of another system: patterns of names and the parameters that they hold, as in the model file.
struct WeightRules {
  std::string system; ///< hf | mcore | legacy | peft
  std::vector<std::pair<std::string, std::string>> rules;
};

/// All settings of a run.
struct RunConfig {
  std::string file; ///< the run file
  std::map<std::string, SourceLocation>
      places; ///< location of each given key, such as "cluster.link", for errors found later
  ModelDescription model;
  std::string modelFile;
  std::vector<WeightRules> weights; ///< from the model file; in a run with adapters also `peft`
  std::optional<AdapterConfig> adapters;
  DTypePolicy dtypes;
  std::string matmulFormat;   ///< fp8_hybrid, fp8_e4m3 or fp4_e2m1; empty: matrix products are in the compute dtype
  planner::Pins pins;         ///< plan properties that the file fixes
  double preferSimple = 0.03; ///< planner::Problem::preferSimple
  bool isPinned = false;      ///< parallel_mode 1: unset properties use their defaults
  RecomputeConfig recompute;
  OptimizerConfig optimizer;
  /// The kind is constant, linear, cosine, polynomial, inverse_sqrt or wsd. Steps are optimizer steps. total_steps is
  /// -1 if --steps defines it. A warmup_ratio of at least 0 overrides warmup_steps. decay_steps are those of wsd.
  rt::pb::LearningRate schedule;
  LossScaleConfig lossScale;
  ClusterConfig cluster;
  SystemConfig system;
  uint64_t seed = 0;
  int64_t globalBatch = 1;          ///< samples per optimizer step, over all replicas
  std::vector<BatchStep> batchRamp; ///< the smaller batches before `globalBatch`, ascending in samples; may be empty
  rt::pb::Data data;                ///< what `espalier run` uses unless its command line overrides it
  bool resetAttentionMask = false;  ///< whether tokens attend to tokens of their own document only
  int ignoreToken = -1;             ///< label without loss; -1 if there is none
  std::string runMode = "train";    ///< train | finetune | eval | predict
  std::vector<std::string> unfusedEpilogues; ///< epilogues of GPU matrix products that stay separate kernels
  std::string outputDir = "./output";        ///< checkpoints and logs
  std::string loadCheckpoint;                ///< may be empty
  bool resume = false;          ///< whether to continue loadCheckpoint's run instead of loading only its weights
  int64_t epochs = 1;           ///< used when --steps is not given
  std::string checkpointPrefix; ///< may be empty
  int64_t checkpointSteps = 0;  ///< steps between two checkpoints; 0 means only at the end
  int64_t keepCheckpoints = 5;  ///< 0 means all
  int64_t logSteps = 1;         ///< steps between two log lines
};

} // namespace espalier
