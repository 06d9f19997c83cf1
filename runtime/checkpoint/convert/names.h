// Which tensor of another system holds which of our parameters. The rules are data, `weights:` of a model file:
//
//   model.layers.{i}.self_attn.q_proj.weight: attn_q_weight = (kv_heads group head_dim) hidden
//   (transformer.|)h.{i}.attn.bias: derived          computed from nothing that is trained: not read, not written
//   lm_head.weight: tied wte = vocab hidden          the same values once more
//
// {i} counts layers, {DIM} counts the indices of a dimension (the expert), (a|b) are spellings: the first is written,
// all are read. Where several rules hold the same parameters, the first is written and any one of them is read.
#pragma once

#include "runtime/checkpoint/convert/layout.h"
#include "runtime/plan.pb.h"

#include <functional>
#include <optional>
#include <utility>

namespace espalier::rt {

/// A rule as it stands in a model file: the name's pattern and what it holds.
using NameRule = std::pair<std::string, std::string>;

/// A tensor of another system.
struct ForeignTensor {
  std::vector<std::string> names; ///< spellings, the one that is written first
  std::vector<int64_t> shape;
  std::vector<PlacedPart> parts; ///< empty: derived
  int64_t realRows = -1;         ///< rows behind these are padding; -1: there is none
  bool isTied = false;           ///< holds again what others hold
  bool isDerived = false;
  bool isWritten = true; ///< the first rule of its parameters
};

/// What a file or a rank holds: layers [first, first + layers), which it counts from 0, and a share of each tensor.
struct ForeignShare {
  int64_t firstLayer = 0, layers = 0;
  bool hasFirst = true, hasLast = true; ///< what stands before and behind the layers
  LayoutSplit split;
};

class NameMap {
public:
  /// Throws PlanError that names `place` (a model file) for rules that do not fit the model.
  NameMap(const WeightModel &model, std::span<const NameRule> rules, const std::string &place);

  /// Shape of a tensor of a file, none where the file has not got it: tells how far the vocabulary is padded.
  using ShapeOf = std::function<std::optional<std::vector<int64_t>>(const std::string &name)>;

  /// The tensors of a share in the order of the rules, layer by layer. `vocab` is the number of rows with padding where
  /// it is known, else `shapeOf` tells it for each tensor, and tensors that it does not know are left out. Throws
  /// PlanError.
  std::vector<ForeignTensor> tensors(const ForeignShare &share, int64_t vocab, const ShapeOf &shapeOf) const;

  const WeightModel &model() const { return theModel; }

private:
  struct Rule {
    std::vector<std::string> patterns;
    std::vector<std::string> locals;
    std::optional<Layout> layout;
    std::string place; ///< for errors
    bool isTied = false, isDerived = false, isOfLayers = false, isWritten = true;
    bool isOfLast = false;            ///< of what stands behind the layers
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
