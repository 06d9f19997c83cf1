// A run file after import: every value typed, defaulted and checked; what the other phases read.
#pragma once

#include "compiler/import/model_description.h"
#include "planner/problem.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

enum class DType { F32, BF16, F16 };

/// Where the tensors of a run are stored and computed.
struct DTypePolicy {
  DType parameters = DType::F32; ///< storage seen by forward (param_init_type)
  DType compute = DType::F32;    ///< activations and matrix products (compute_dtype)
  DType norm = DType::F32;       ///< layernorm_compute_type
  DType softmax = DType::F32;    ///< softmax_compute_type
  bool masterWeights = false;    ///< f32 copy of the parameters lives in the optimizer state
};

struct RecomputeConfig {
  bool mpCommRecompute = true;
  bool recomputeSliceActivation = false;
  /// For each stage, or for each of the first chunks, then of the second ones, and so on, how many layers, from the
  /// first on, recompute the whole block or only element-wise work; the whole block where both say so. Empty unless
  /// listed.
  std::vector<int> fullLayers, selectiveLayers;
};

struct OptimizerConfig {
  double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8, weightDecay = 0.0;
  bool clip = false;
  double maxGradNorm = 1.0;
  int64_t maxSkippedSteps = 20; ///< in a row, then the run ends; 0: any number
};

/// Formulas in FORMATS.md section 5. Steps are optimizer steps.
struct LearningRateSchedule {
  std::string kind = "constant"; ///< constant | linear | cosine | polynomial | inverse_sqrt | wsd
  double peak = 1e-3, end = 0.0, warmupInit = 0.0, power = 1.0, cycles = 0.5;
  int64_t warmupSteps = 0;
  double warmupRatio = -1; ///< of the total steps; wins over warmupSteps when >= 0
  int64_t totalSteps = -1; ///< -1: from --steps
  int64_t decaySteps = -1; ///< wsd only
};

struct LossScaleConfig {
  bool dynamic = false;
  double initial = 1.0, factor = 2.0, minimum = 1.0;
  int64_t window = 1000;
};

/// Algorithms of cuBLASLt that were measured to be the fastest.
struct MatmulAlgorithms {
  std::string library;                         ///< whose they are: "cuBLASLt 13.1.0 on sm_90"
  std::map<std::string, std::string> products; ///< by productName(): its bytes, in hexadecimal digits
};

/// Devices the plan is made for. At most 12 constants of the devices and the links between them (the peak counts once:
/// that of the compute dtype), and up to 3 of the host; each with its source in the YAML file.
struct ClusterConfig {
  std::string name;
  std::string device; ///< class by which the files of configs/systems state errors: a100, h100, cpu; may be empty
  int hosts = 1, devicesPerHost = 1;
  /// Per device, what a plan may take: without the reserved ones and the margin, or context.max_device_memory.
  double memoryBytes = 0;
  double reservedBytes = 0;                  ///< what the driver, libraries and communicators take
  double memoryMargin = 0.04;                ///< share of a device's memory that plans leave free
  double marginBytes = 0;                    ///< the same in bytes; 0 where the run file states its limit
  double peakFlops = 0, memoryBandwidth = 0; ///< FLOP/s at the compute dtype; bytes/s
  double matmulEfficiency = 0;               ///< share of the peak that large matrix products reach
  double attentionEfficiency = 0;            ///< the same for fused attention; 0: as matmulEfficiency
  int multiprocessors = 0;                   ///< tiles of a product come in waves of it; 0: no waves
  double launchSeconds = 0;
  double linkBandwidth = 0, linkLatency = 0;       ///< inside a host, bytes/s per direction and device; s
  double networkBandwidth = 0, networkLatency = 0; ///< between hosts, bytes/s per device; s
  double sendBandwidth = 0;                        ///< of one send between hosts, bytes/s; 0: networkBandwidth
  double ringSlope = 0;                            ///< by how much a doubling of hosts slows collectives
  /// Bytes of a host, and bytes/s per direction of a link to it that `devicesPerHostLink` share; 0 where not known.
  double hostMemoryBytes = 0, hostBandwidth = 0;
  int devicesPerHostLink = 1;
  MatmulAlgorithms matmulAlgorithms; ///< may be empty
  int devices() const { return hosts * devicesPerHost; }
};

/// The software that a plan is priced for (configs/systems): how far the planner's times are from its runs on devices
/// of the cluster's class, and what it runs beside compute.
struct SystemConfig {
  std::string name = "espalier";
  double timeError = 0; ///< share of a predicted step time
  double comparisonError =
      0; ///< share by which the times of two plans of one run differ at least where they are told apart
  planner::Software software; ///< named like this
};

/// What `espalier run` reads when its command line does not say otherwise.
struct DataConfig {
  std::vector<std::string> path;    ///< one, or weight path weight path ...; may be empty
  std::string split = "969, 30, 1"; ///< weights of training, validation and test
  std::optional<uint64_t> seed;     ///< order of samples; unset: the run's
  std::optional<int64_t> eodToken;  ///< the id that ends a document
  bool eodMaskLoss = false;         ///< no loss where the input is that token
  bool resetPositionIds = false;    ///< positions restart behind it
};

/// What another system calls the parameters: patterns of its names and what they hold, as the model file has them.
struct WeightRules {
  std::string system; ///< hf | mcore | legacy
  std::vector<std::pair<std::string, std::string>> rules;
};

struct RunConfig {
  std::string file;                             ///< the run file
  std::map<std::string, SourceLocation> places; ///< of each key given, as "cluster.link", for errors found later
  ModelDescription model;
  std::string modelFile;
  std::vector<WeightRules> weights; ///< of the model file
  DTypePolicy dtypes;
  planner::Pins pins;    ///< what the file fixes of the plan
  bool isPinned = false; ///< parallel_mode 1: everything that is not set takes its default
  RecomputeConfig recompute;
  OptimizerConfig optimizer;
  LearningRateSchedule schedule;
  LossScaleConfig lossScale;
  ClusterConfig cluster;
  SystemConfig system;
  uint64_t seed = 0;
  int64_t globalBatch = 1; ///< samples per optimizer step, over all replicas
  DataConfig data;
  int ignoreToken = -1;                      ///< label that carries no loss, -1 for none
  std::string runMode = "train";             ///< train | finetune | eval
  std::vector<std::string> unfusedEpilogues; ///< of matrix products on GPUs, that stay kernels
  std::string outputDir = "./output";        ///< checkpoints and logs
  std::string loadCheckpoint;                ///< may be empty
  bool resume = false;                       ///< continue loadCheckpoint's run, not only its weights
  int64_t epochs = 1;                        ///< used when --steps is not given
  std::string checkpointPrefix;              ///< may be empty
  int64_t checkpointSteps = 0;               ///< steps between two checkpoints, 0: only at the end
  int64_t keepCheckpoints = 5;               ///< 0: all
  int64_t logSteps = 1;                      ///< steps between two log lines
};

} // namespace espalier
