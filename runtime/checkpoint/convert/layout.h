// Where the elements of our parameters lie in a tensor of another system: one text per tensor serves both directions.
//
//   (kv_heads* | group head_dim) hidden      of [attn_q_weight, attn_k_weight, attn_v_weight]
//
// is a tensor of two axes. The first goes over kv_heads; for each of them it holds the parts one after the other, every
// part with those of the dimensions behind `|` that it has: group * head_dim rows of q, head_dim of k, head_dim of v.
// `*` marks the dimension that tensor parallelism splits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// One of our parameters: "block.3.attn_q_weight", which its segment calls "attn_q_weight".
struct WeightParameter {
  std::string name, local;
  int64_t layer = -1; ///< -1: not of a layer
  std::vector<std::string> dims;
  std::vector<int64_t> sizes;

  uint64_t elements() const;
};

/// A model as conversions see it: what it is made of and nothing of what it computes.
struct WeightModel {
  std::string name;
  int64_t layers = 0;
  std::map<std::string, int64_t> dims;
  std::vector<WeightParameter> parameters; ///< in the model's order, tied ones once
  std::map<std::string, std::string> ties; ///< "lm_head_weight" -> "embed.wte": parameters without values of their own

  const WeightParameter *find(const std::string &local, int64_t layer) const;
  uint64_t parameterCount() const;
};

/// A box of a parameter and where in the other tensor its elements lie, in elements.
struct PlacedPart {
  size_t parameter = 0;                ///< in WeightModel::parameters
  std::vector<int64_t> offsets, sizes; ///< the box
  uint64_t base = 0;
  std::vector<uint64_t> strides; ///< in the other tensor, one per dimension of ours

  bool isEmpty() const;
};

struct LayoutSplit {
  int64_t tp = 1, rank = 0;
};

class Layout {
public:
  /// Parses `text`; throws PlanError, without a place, for what is no layout.
  explicit Layout(std::string_view text);
  /// Each dimension an axis of its own.
  explicit Layout(std::span<const std::string> dims);

  /// What of the dimensions' sizes a tensor goes by: the model's, or padded rows of `vocab`.
  struct Extents {
    const std::map<std::string, int64_t> *dims = nullptr;
    int64_t vocab = 0; ///< rows with padding; 0: as in `dims`
    int64_t of(const std::string &dim) const;
  };

  /// Shape and parts of the tensor that rank `split.rank` holds. `bound` fixes dimensions at an index (an expert).
  /// Throws PlanError where a parameter's dimensions do not fit or a marked one does not divide by tp.
  struct Placed {
    std::vector<int64_t> shape;
    std::vector<PlacedPart> parts; ///< one for each of `parameters`
  };
  Placed place(const WeightModel &model, std::span<const size_t> parameters, const Extents &extents,
               const LayoutSplit &split, const std::map<std::string, int64_t> &bound) const;

  /// The axis that holds the marked dimension; -1: every rank of tp has the whole tensor.
  int splitAxis() const;
  /// Whether `dim` alone is axis `axis`.
  bool isAxis(size_t axis, const std::string &dim) const;
  size_t axisCount() const { return axes.size(); }

private:
  struct Token {
    std::string dim; ///< empty: the place of the parts
    bool isSplit = false;
  };
  using Axis = std::vector<Token>;
  void parse(std::string_view text);

  std::vector<Axis> axes;
};

/// Copies a part between a whole parameter of ours and the other tensor, elements of `bytes` bytes.
void takePart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, std::span<const std::byte> other,
              std::span<std::byte> ours);
void givePart(const PlacedPart &part, std::span<const int64_t> sizes, size_t bytes, std::span<const std::byte> ours,
              std::span<std::byte> other);

} // namespace espalier::rt
