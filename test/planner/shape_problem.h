// Published systems as data: builds a Problem from the shape of a GPT or Llama model and a description of the training
// system. Used for validation and tests, never by the compiler. Only this file has formulas for a transformer. Search
// and cost evaluate its terms like any others.
#pragma once

#include "planner/problem.h"

#include <string>

namespace espalier::planner {

/// Sizes of a decoder. `gated`: three ffn matrices (Llama) instead of two.
struct ModelShape {
  int layers = 1;
  int64_t hidden = 1, ffn = 4, heads = 1, kvHeads = 1, vocab = 1, seq = 1;
  bool gated = false, rotary = false, dropout = true, tied = true;
};

/// How a published system stores and executes the model.
struct System {
  std::string name;
  bool fusedAttention = true; ///< scores are not stored; false: two batched products and a softmax
  double parameterBytes = 2, gradientBytes = 4, optimizerBytes = 12; ///< per element
  double updateBytes = 0; ///< per element, held only while the optimizer runs
  /// Number of passes over the accumulated gradients per step. The optimizer makes one; scale, norm, clip and clear
  /// add more.
  double gradientPasses = 4;
  double reducedBytes = 0;     ///< per element of a gradient during its reduction; 0: gradientBytes
  bool hidesGradients = false; ///< gradient reduction overlaps with the last backward
  bool hidesTensor = false;    ///< tensor-parallel collectives overlap with their matrix products
  /// The reduction of input gradients overlaps with the weight gradient (Megatron from 2022). The sequence-parallel
  /// all-gather before it overlaps with the input gradient.
  bool hidesInputGradients = false;
  /// Sequence parallelism: gathered inputs are kept for the weight gradient instead of gathered again (DTensor).
  bool keepsGatheredInputs = false;
  bool hidesParameters = true;   ///< ZeRO-3 all-gathers overlap with compute
  double gatheredShare = 1;      ///< share of two layers' parameters and gradients that ZeRO-3 holds unsharded
  bool scattersBoundary = false; ///< Megatron's scatter-gather of activations between stages
  double productInputBytes = 2;  ///< per element of a product's input that is kept for the weight gradient
  double lossBytes = 6;          ///< per logit at the peak of the cross entropy, f32 logits included
  double cachedLossBytes = 0;    ///< per logit, in cached blocks that are free at this peak but too small to be reused
  /// Selective recompute repeats every second matrix product (key, projection, second ffn matrix, as torchtitan does).
  bool repeatsSecondProducts = false;
  /// In addition, without compilation: the last product of a layer is kept as well, though backward does not read it.
  bool keepsLastProduct = false;
  /// Full recompute ends at the last value that backward reads. The last product of a layer and later work are not
  /// repeated (PyTorch's non-reentrant checkpoints, from 2.1).
  bool stopsRecomputeEarly = false;
  /// Inputs kept under full recompute without sequence parallelism are split over tensor ranks and gathered again
  /// (Megatron's --partition-activations).
  bool slicesInputs = false;
  double allocatedShare = 1;   ///< allocated bytes per byte of activations in the caching allocator
  double elementwiseShare = 1; ///< bytes of element-wise work over those of perfect fusion
  /// Bytes per element and micro-batch of the kernel that accumulates a weight gradient. 0: the matrix product
  /// accumulates.
  double accumulationBytes = 0;
};

/// Returns the system as a memory monitor shows it. The allocator keeps blocks of the update and of the loss in
/// addition to activations. A run needs less, because the allocator frees its cached blocks before it fails.
System monitored(System system);
System needed(System system);

/// Returns the problem of a model: compute, collectives, parameters and saved bytes of embedding, layer and head.
/// Saved bytes per layer: Korthikanti 2022, table 2 (s b h (10 + 24/t + 5 a s / (h t))), generalised to grouped heads
/// and gated ffn. With `only`, includes only the terms of this plan.
Problem shapeProblem(const ModelShape &shape, const System &system, const Machine &machine, int64_t globalBatch,
                     const Plan *only = nullptr);

/// Returns the number of parameters of the whole model.
double shapeParameters(const ModelShape &shape);

} // namespace espalier::planner
