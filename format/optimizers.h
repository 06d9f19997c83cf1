// The optimizers: one row per optimizer. Buckets, checkpoints and memory estimates take the state tensors from the row.
// compiler/layout/build_optimizer.cpp has the update program of each row.
#pragma once

#include "format/plan.pb.h"

#include <span>
#include <string_view>

namespace espalier::rt {

/// One optimizer.
struct OptimizerRow {
  pb::Optimizer number;
  const char *name; ///< of `optimizer.type`
  /// Names of the state tensors in their order, each f32 with one element per parameter element. An f32 master copy of
  /// 16-bit parameters precedes them.
  std::span<const char *const> states;
  /// Names of the hyperparameters beside learning rate and weight decay, as in `optimizer.NAME`. AdamW's are fields of
  /// Settings.
  std::span<const char *const> hyperparameters;
  /// Updates only the matrices of layers, and needs whole matrices. AdamW updates all other parameters.
  bool isForMatrices = false;
  /// Is not an optimizer of a run. It updates the parameters to which a model file gives a `sign_rate`: they move by
  /// this rate against the sign of their gradient, which has no part in the gradient norm.
  bool isOfParameters = false;
};

namespace optimizer_names {
inline constexpr const char *moments[] = {"moment1", "moment2"};
inline constexpr const char *momentum[] = {"momentum"};
inline constexpr const char *ofSgd[] = {"momentum", "nesterov"};
inline constexpr const char *ofMuon[] = {"momentum", "nesterov", "ns_steps", "scale_mode", "extra_scale_factor"};
} // namespace optimizer_names

/// The kind of an f32 master copy in checkpoints.
inline constexpr const char *masterKind = "master";

/// The table, indexed by the number.
inline constexpr OptimizerRow optimizers[] = {
    {pb::ADAMW, "AdamW", optimizer_names::moments, {}},
    {pb::SGD, "SGD", optimizer_names::momentum, optimizer_names::ofSgd},
    {pb::MUON, "Muon", optimizer_names::momentum, optimizer_names::ofMuon, true},
    {pb::SIGN, "Sign", {}, {}, false, true},
};
static_assert(std::size(optimizers) == pb::Optimizer_ARRAYSIZE);

/// Returns the row of an optimizer. An unknown number of a newer plan has the row of AdamW; the verifier refuses it.
inline const OptimizerRow &optimizerRow(pb::Optimizer number) {
  return optimizers[pb::Optimizer_IsValid(number) ? static_cast<int>(number) : 0];
}

/// Returns the row with this name, or null.
inline const OptimizerRow *findOptimizer(std::string_view name) {
  for (const OptimizerRow &row : optimizers)
    if (name == row.name)
      return &row;
  return nullptr;
}

} // namespace espalier::rt
