// An architecture as data: what configs/models/*.yaml declares, with the sizes of a run file filled
// in.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace espalier {

/// A place in a YAML file; line and column count from 1, line 0 is "no place".
struct SourceLocation {
  std::string file;
  int line = 0, column = 0;
};

/// Initial values of a parameter, a function of its name and the global element index only.
struct Initializer {
  enum class Kind { Zeros, Ones, Normal } kind = Kind::Zeros;
  double stddev = 0; ///< Normal only
};

struct ParameterDescription {
  std::string name;              ///< local to the segment kind, "attn_q_weight"
  std::vector<std::string> dims; ///< names of its dimensions, outermost first
  Initializer initializer;
  bool decay = true;  ///< weight decay applies (not for 1-D weights: norms and biases)
  std::string tiedTo; ///< "segment.parameter" whose storage it shares, or empty
  SourceLocation location;
};

/// One op of a segment in terms of value names. Kinds and their attributes are listed in
/// configs/README.md.
struct OpDescription {
  std::string kind;                ///< "linear", "layer_norm", "attention", ...
  std::vector<std::string> inputs; ///< values, parameters or model inputs ("tokens", "labels", ...)
  std::vector<std::string> outputs;
  std::map<std::string, double> numbers;      ///< attributes with sizes and run-file values filled in
  std::map<std::string, std::string> strings; ///< for an activation: kind -> "gelu_tanh"
  SourceLocation location;
};

/// One kind of segment: "embed", "block", "head". A function over (stream, inputs, parameters).
struct SegmentDescription {
  std::string kind;
  std::string streamIn;  ///< name of the incoming stream value, empty for the first segment
  std::string streamOut; ///< name of the outgoing stream value or, for the last segment, of the loss
  std::vector<ParameterDescription> parameters;
  std::vector<OpDescription> ops;
  SourceLocation location;
};

/// `count` successive layers of one segment kind.
struct SegmentRun {
  std::string kind;
  int count = 1; ///< 0: unknown, in a description with faults
};

struct ModelDescription {
  std::string name;                         ///< "gpt2"
  std::map<std::string, int64_t> dims;      ///< every named dimension but batch: "hidden" -> 768; 0: unknown, a fault
  std::vector<SegmentDescription> segments; ///< distinct kinds
  std::vector<SegmentRun> runs;             ///< the model, in order: embed, block x L, head

  /// Mixture-of-experts models have the dimension `expert`.
  bool hasExperts() const { return dims.count("expert") > 0; }
  const SegmentDescription &segment(const std::string &kind) const;
  /// Layers are counted over the runs between the first (embed) and the last (head) segment.
  int layerCount() const;
  /// Dimensions that tp splits and that must divide by it: heads, kv_heads and what begins with ffn. The vocabulary is
  /// padded instead.
  std::vector<std::string> tensorParallelDims() const;
  /// Whether a parameter of experts has the dimension.
  bool isOfExperts(const std::string &dim) const;
  /// Exact, unpadded, tied parameters counted once.
  int64_t parameterCount() const;
};

} // namespace espalier
