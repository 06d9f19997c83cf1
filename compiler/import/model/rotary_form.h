// Translates the attributes that a model file gives the op `rope` to those of the model dialect.
#pragma once

#include "compiler/import/model/model_description.h"

namespace espalier {

/// How positions are scaled, in the terms of `model.rope` (dialects/model/ops.td).
struct RotaryScaling {
  double factor = 1;
  double slow = 0, fast = 0; ///< equal if all frequencies are scaled alike
  double context = 0;        ///< 0: slow and fast are indices of pairs
  double amplitude = 1;
};

/// Returns how many columns of a head the op rotates; 0 if it changes nothing.
int64_t rotaryColumns(const OpDescription &rope, int64_t headDim);

/// Returns why the op's scaling has no meaning; empty if it has one.
std::string scalingFault(const OpDescription &rope);

/// Computes the scaling of an op that rotates `rotary` columns, as transformers does (modeling_rope_utils.py).
RotaryScaling rotaryScaling(const OpDescription &rope, int64_t rotary);

} // namespace espalier
