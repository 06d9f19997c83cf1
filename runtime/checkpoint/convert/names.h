// Maps tensor names of another system to our parameters. The rules are data, the `weights:` section of a model file:
//
//   model.layers.{i}.self_attn.q_proj.weight: attn_q_weight = (kv_heads group head_dim) hidden
//   (transformer.|)h.{i}.attn.bias: derived          not trained: neither read nor written
//   lm_head.weight: tied wte = vocab hidden          a copy of other values
//
// {i} counts layers. {DIM} counts the indices of a dimension (the expert). (a|b) gives spellings: all are read, the
// first is written. If several rules hold the same parameters, any of them is read and the first is written.
#pragma once

#include "format/plan.pb.h"
#include "runtime/checkpoint/convert/layout.h"

#include <functional>
#include <optional>
#include <utility>

namespace espalier::rt {

/// A rule of a model file: the name pattern and its content.
using NameRule = std::pair<std::string, std::string>;

/// A tensor of another system.
struct ForeignTensor {
  std::vector<std::string> names; ///< spellings; the first is written
  std::vector<int64_t> shape;
  std::vector<PlacedPart> parts; ///< empty: derived
  int64_t realRows = -1;         ///< rows after these are padding; -1: no padding
  bool isTied = false;           ///< a copy of values in other tensors
  bool isDerived = false;
  bool isWritten = true; ///< whether this is the first rule of its parameters
};

/// The content of a file or rank: layers [first, first + layers), which it counts from 0, and its shard of each tensor.
struct ForeignShare {
  int64_t firstLayer = 0, layers = 0;
  bool hasFirst = true, hasLast = true; ///< has the parameters before and after the layers
  LayoutSplit split;
};

/// The naming rules of a model for one system.
class NameMap {
public:
  /// Throws PlanError that names `place` (a model file) if a rule does not match the model.
  NameMap(const WeightModel &model, std::span<const NameRule> rules, const std::string &place);

  /// Returns the shape of a tensor in a file, or nothing if it is missing. The shape tells the padding of the
  /// vocabulary.
  using ShapeOf = std::function<std::optional<std::vector<int64_t>>(const std::string &name)>;

  /// Returns the tensors of a share in the order of the rules, layer by layer. `vocab` is the padded number of rows, if
  /// known. Otherwise `shapeOf` gives the shape of each tensor, and missing tensors are left out. Throws PlanError.
  std::vector<ForeignTensor> tensors(const ForeignShare &share, int64_t vocab, const ShapeOf &shapeOf) const;

  const WeightModel &model() const { return theModel; }

private:
  struct Rule {
    std::vector<std::string> patterns;
    std::vector<std::string> locals;
    std::optional<Layout> layout;
    std::string place; ///< for error messages
    bool isTied = false, isDerived = false, isOfLayers = false, isWritten = true;
    bool isOfLast = false;            ///< comes after the layers
    std::vector<std::string> counted; ///< dimensions in braces
  };
  void parse(const NameRule &rule, const std::string &place);
  void resolveTies(Rule &rule) const;
  bool isShared(const std::string &local) const;
  void requireEach(const std::string &place) const;
  void place(const Rule &rule, std::span<const size_t> parameters, const std::optional<std::vector<int64_t>> &listed,
             const std::map<std::string, int64_t> &bound, int64_t vocab, const LayoutSplit &split,
             ForeignTensor &tensor) const;
  void add(const Rule &rule, int64_t layer, const ForeignShare &share, int64_t vocab, const ShapeOf &shapeOf,
           std::vector<ForeignTensor> &tensors) const;
  std::optional<std::vector<size_t>> parametersOf(const Rule &rule, int64_t layer) const;

  const WeightModel &theModel;
  std::vector<Rule> rules;
};

} // namespace espalier::rt
