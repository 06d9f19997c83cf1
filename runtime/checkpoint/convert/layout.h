// Maps the elements of our parameters to a tensor of another system. One layout text per tensor serves both directions.
//
//   (kv_heads* | group head_dim) hidden      of [attn_q_weight, attn_k_weight, attn_v_weight]
//
// This is a tensor of two axes. The first axis iterates over kv_heads. For each kv head it concatenates the parts; each
// part has those of the dimensions after `|` that its parameter has: group * head_dim rows of q, head_dim of k,
// head_dim of v. `*` marks the dimension that tensor parallelism splits.
// `~` marks a dimension whose halves alternate in the other tensor: columns 0, d/2, 1, d/2 + 1, ... of a head.
// The axis `1` has one element.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// One of our parameters: "block.3.attn_q_weight", whose name within its segment is "attn_q_weight".
struct WeightParameter {
  std::string name, local;
  int64_t layer = -1; ///< -1 outside of layers
  std::vector<std::string> dims;
  std::vector<int64_t> sizes;

  uint64_t elements() const;
  /// Returns whether a word of a rule names this parameter: "attn_q_weight" in any segment, "block.attn_q_weight" in
  /// segments of this kind.
  bool isNamed(const std::string &word) const;
};

/// The parameters of a model as conversions see them, without its computation.
struct WeightModel {
  std::string name;
  int64_t layers = 0;
  std::map<std::string, int64_t> dims;
  std::vector<WeightParameter> parameters; ///< in the model's order; tied parameters once
  std::map<std::string, std::string> ties; ///< "lm_head_weight" -> "embed.wte": parameters that share the values of
                                           ///< others

  /// Returns the parameter of a layer that a word of a rule names, or null.
  const WeightParameter *find(const std::string &word, int64_t layer) const;
  uint64_t parameterCount() const;
};

/// A box of a parameter and the location of its elements in the other tensor. Units are elements.
struct PlacedPart {
  size_t parameter = 0;                ///< in WeightModel::parameters
  std::vector<int64_t> offsets, sizes; ///< the box
  uint64_t base = 0;
  std::vector<uint64_t> strides; ///< in the other tensor, one per dimension of our parameter

  bool isEmpty() const;
};

/// The shard of a tensor-parallel rank.
struct LayoutSplit {
  int64_t tp = 1, rank = 0;
};

/// A parsed layout text.
class Layout {
public:
  /// Parses `text`. Throws PlanError, without a file name, if it is not a layout.
  explicit Layout(std::string_view text);
  /// Makes a layout with one axis per dimension.
  explicit Layout(std::span<const std::string> dims);

  /// The dimension sizes of a tensor: those of the model, with an optional padded vocabulary.
  struct Extents {
    const std::map<std::string, int64_t> *dims = nullptr;
    int64_t vocab = 0; ///< rows including padding; 0: as in `dims`
    int64_t of(const std::string &dim) const;
  };

  /// The shape and parts of the tensor that rank `split.rank` holds. A parameter whose halves alternate has two parts.
  struct Placed {
    std::vector<int64_t> shape;
    std::vector<PlacedPart> parts; ///< in the order of `parameters`, then second halves
  };
  /// Places `parameters` in the tensor. `bound` fixes dimensions at an index (an expert). Throws PlanError if the
  /// dimensions of a parameter do not match or a marked dimension is not a multiple of tp.
  Placed place(const WeightModel &model, std::span<const size_t> parameters, const Extents &extents,
               const LayoutSplit &split, const std::map<std::string, int64_t> &bound) const;

  /// Returns the axis of the marked dimension, or -1 if every tp rank holds the whole tensor.
  int splitAxis() const;
  /// Returns whether axis `axis` consists of `dim` alone.
  bool isAxis(size_t axis, const std::string &dim) const;
  size_t axisCount() const { return axes.size(); }

private:
  struct Token {
    std::string dim; ///< empty: the position of the parts
    bool isSplit = false;
    bool alternates = false; ///< the two halves of the dimension alternate
  };
  using Axis = std::vector<Token>;
  void parse(std::string_view text);

  std::vector<Axis> axes;
};

/// Copy a part from the other tensor to our whole parameter, or back. Elements have `bytes` bytes.
void takePart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, std::span<const std::byte> other,
              std::span<std::byte> ours);
void givePart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, std::span<const std::byte> ours,
              std::span<std::byte> other);

} // namespace espalier::rt
