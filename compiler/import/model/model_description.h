// Describes an architecture as data: the declarations of configs/models/*.yaml with the sizes of a run file filled in.
#pragma once

#include "compiler/import/yaml/source_location.h"
#include "format/plan.pb.h"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace espalier {

/// Floating-point types of storage and computation.
enum class DType { F32, BF16, F16 };

/// Data types of storage and computation.
struct DTypePolicy {
  DType parameters = DType::F32; ///< storage type that the forward pass reads (param_init_type)
  DType compute = DType::F32;    ///< activations and matrix products (compute_dtype)
  DType norm = DType::F32;       ///< layernorm_compute_type
  DType softmax = DType::F32;    ///< softmax_compute_type
  DType gradients = DType::F32;  ///< accumulated and reduced gradients: float32, or `compute`
  bool masterWeights = false;    ///< whether the optimizer state has an f32 copy of the parameters
};

/// The initial values of a parameter. They depend only on its name and the global element index.
struct Initializer {
  rt::pb::Initialization::Kind kind = rt::pb::Initialization::ZEROS;
  double stddev = 0; ///< of NORMAL; of ONES, the value in place of 1, unless 0
};

/// What QK-clip does to the weight of the queries or keys of an attention.
struct ClippedWeight {
  std::string counter; ///< the largest scores of each key-value head, as OpDescription::maxima
  std::string heads;   ///< the weight's dimension of key-value heads
  double exponent = 0; ///< of a head's factor, which is the threshold over the largest score, or 1
};

/// A parameter of a segment kind.
struct ParameterDescription {
  std::string name;              ///< local to the segment kind, such as "attn_q_weight"
  std::vector<std::string> dims; ///< dimension names, outermost first
  Initializer initializer;
  bool decay = true;   ///< whether weight decay applies; false for 1-D weights (norms and biases)
  bool frozen = false; ///< whether training leaves the parameter unchanged
  bool isF32 = false;  ///< whether the parameter is stored in f32 whatever the run's param_init_type is
  /// If above 0, the optimizer Sign updates the parameter: a step moves each element by this rate.
  double signRate = 0;
  std::string tiedTo; ///< "segment.parameter" whose storage this parameter uses, or empty
  /// The matrices A and B of the adapter beside this parameter, or empty.
  std::string adapterA, adapterB;
  bool isAdapter = false; ///< whether the parameter is such a matrix
  SourceLocation location;
  std::optional<ClippedWeight> clip;
};

/// One op of a segment, in terms of value names. configs/README.md lists the kinds and their attributes.
struct OpDescription {
  std::string kind;                ///< "linear", "layer_norm", "attention", ...
  std::vector<std::string> inputs; ///< values, parameters or model inputs ("tokens", "labels", ...)
  std::vector<std::string> outputs;
  std::map<std::string, double> numbers;      ///< attributes with sizes and run-file values filled in
  std::map<std::string, std::string> strings; ///< for example kind -> "gelu_tanh" of an activation
  SourceLocation location;
  std::string maxima; ///< of attention: the counter of the largest scores of each key-value head; empty: none
};

/// Returns whether the op keeps a state from one position to the next: a recurrence or a causal convolution.
bool hasState(const OpDescription &op);

/// One segment kind, such as "embed", "block" or "head": a function over (stream, inputs, parameters).
struct SegmentDescription {
  std::string kind;
  std::string streamIn;  ///< name of the incoming stream value; empty for the first segment
  std::string streamOut; ///< name of the outgoing stream value; for the last segment, name of the loss
  std::vector<ParameterDescription> parameters;
  std::vector<OpDescription> ops;
  SourceLocation location;
};

/// `count` consecutive layers of one segment kind.
struct SegmentRun {
  std::string kind;
  int count = 1; ///< 0 if unknown, in a description with errors
};

/// A model: its dimensions, its distinct segment kinds, and their order.
struct ModelDescription {
  std::string name; ///< for example "gpt2"
  std::map<std::string, int64_t>
      dims; ///< every named dimension except batch: "hidden" -> 768; 0 if unknown because of an error
  std::vector<SegmentDescription> segments; ///< distinct kinds
  std::vector<SegmentRun> runs;             ///< the model in order: embed, block x L, head
  double documentTokens = 0; ///< mean length of the documents that attention is limited to; 0: price whole samples

  /// Returns whether the model is a mixture of experts, which has the dimension `expert`.
  bool hasExperts() const { return dims.count("expert") > 0; }
  /// Returns whether context ranks can split sequences. The tokens of a sequence compete for the slots of experts,
  /// unless there is a slot for each, and a recurrence or a convolution reads the positions of a sequence in turn.
  bool splitsSequence() const;
  /// Returns the segment of this kind, which must exist.
  const SegmentDescription &segment(const std::string &kind) const;
  /// Returns the number of layers between the first segment (embed) and the last (head).
  int layerCount() const;
  /// Returns the dimensions that tp shards and that must be divisible by tp: heads, kv_heads, state_heads, and those
  /// whose name begins with ffn. The vocabulary is padded instead.
  std::vector<std::string> tensorParallelDims() const;
  /// Returns whether a parameter of experts has the dimension.
  bool isOfExperts(const std::string &dim) const;
  /// Returns the exact number of parameters, without padding. Tied parameters count once.
  int64_t parameterCount() const;
  /// Returns the number of these parameters that are not frozen.
  int64_t trainableCount() const;

private:
  int64_t countOf(bool withFrozen) const;
};

} // namespace espalier
