// Published systems as data: builds a Problem from the shape of a GPT or Llama model and a
// description of the system that trained it. For validation against measurements and for tests; the
// compiler never uses it. The formulas for "a transformer" live here only: search and cost evaluate
// the terms like any others.
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

/// How a published system stores and runs it.
struct System {
  std::string name;
  bool fusedAttention = true; ///< scores never stored; false: two batched products and a softmax
  double parameterBytes = 2, gradientBytes = 4, optimizerBytes = 12; ///< per element
  double updateBytes = 0; ///< per element, held only while the optimizer runs
  /// How often the step reads or writes the accumulated gradients: the optimizer once; scale, norm, clip and clear add.
  double gradientPasses = 4;
  double reducedBytes = 0;     ///< per element of a gradient as it is reduced; 0: gradientBytes
  bool hidesGradients = false; ///< gradient reduction beside the last backward
  bool hidesTensor = false;    ///< collectives of tensor parallelism beside their matrix products
  /// The sum of input gradients runs beside the weight's gradient (Megatron from 2022), the sequence-parallel
  /// gather that comes before it beside the input's.
  bool hidesInputGradients = false;
  /// Sequence parallelism: gathered inputs are kept for the weight's gradient, not gathered again (DTensor).
  bool keepsGatheredInputs = false;
  bool hidesParameters = true;   ///< ZeRO-3 gathers beside compute
  double gatheredShare = 1;      ///< of two layers' parameters and gradients, what ZeRO-3 has whole at once
  bool scattersBoundary = false; ///< Megatron's scatter-gather of the stream between stages
  double productInputBytes = 2;  ///< an input of a matrix product as it is kept for its weight's gradient
  double lossBytes = 6;          ///< per logit at the peak of the cross entropy, f32 logits included
  double cachedLossBytes = 0;    ///< per logit, in blocks that are free at that peak and too small for what it needs
  /// Selective recompute repeats every second matrix product (key, projection, second ffn matrix, as torchtitan does).
  bool repeatsSecondProducts = false;
  /// Beside it, kernels one by one: the last product of a layer is kept as well, though backward does not read it.
  bool keepsLastProduct = false;
  /// Full recompute ends at the last value that backward reads: the last product of a layer and what follows are not
  /// repeated (PyTorch's checkpoints without re-entrance, from 2.1).
  bool stopsRecomputeEarly = false;
  /// What is kept under full recompute without sequence parallelism is split over tensor ranks and gathered again
  /// (Megatron's --partition-activations).
  bool slicesInputs = false;
  double allocatedShare = 1;   ///< bytes that the caching allocator holds for a byte of activations
  double elementwiseShare = 1; ///< bytes of element-wise work over the fused minimum
  /// Bytes per element and micro-batch of the kernel that adds a weight's gradient to the accumulator; 0: the matrix
  /// product adds.
  double accumulationBytes = 0;
};

/// What a monitor shows of a system: the allocator keeps what the update held beside activations, its share of them and
/// blocks that the loss has left. What a run needs is less, as the allocator gives back what it keeps before it fails.
System monitored(System system);
System needed(System system);

/// Terms of forward, backward and weight phases, collectives, parameters and saved bytes of
/// embedding, layer and head. Saved bytes per layer: Korthikanti 2022, table 2 (s b h (10 + 24/t +
/// 5 a s / (h t))), generalised to grouped heads and gated ffn. `only`: with the terms of this plan alone.
Problem shapeProblem(const ModelShape &shape, const System &system, const Machine &machine, int64_t globalBatch,
                     const Plan *only = nullptr);

/// Elements of the whole model.
double shapeParameters(const ModelShape &shape);

} // namespace espalier::planner
