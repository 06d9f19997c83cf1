// Which variant of system a row of a table of published runs used, and what such a system does where the row is silent.
#pragma once

#include "tools/published/shape_problem.h"
#include "tools/published/table.h"

namespace espalier::planner {

/// What the TFLOP/s of a system's runs count.
enum class PublishedFlops {
  Model,
  WithRecompute, ///< as was usual until 2022
  Unknown        ///< the formula changed
};

/// What a system keeps in host memory.
struct PublishedOffload {
  bool optimizer = false, parameters = false, activations = false;
};

struct PublishedSystem {
  System system;
  PublishedOffload offload; ///< beside what the row says
  /// With tensor parallelism the sequence is split too, where the row does not say.
  bool impliesSequenceParallel = false;
  int impliedZero = 1;     ///< where the row does not say
  int64_t heads = 0;       ///< where the row does not say; 0: not known
  bool isPyTorch = false;  ///< runs PyTorch's own sharding and attention
  bool hasDropout = false; ///< trained with dropout
  /// Layers that do not divide by the stages fill the first ones, as full as the fullest (DeepSpeed until 2023).
  bool fillsFirstStages = false;
  /// ZeRO 3 gathers parameters once for all micro-batches of a pipeline and reduces gradients behind the last: ZeRO 1.
  bool shardsPerStep = false;
  /// mbs is the batch of a pipeline, which makes as many micro-batches as it has stages. A stage keeps its outputs and
  /// buffers for their gradients, of all micro-batches (torch.distributed.pipelining's `output_chunks`,
  /// `grad_recv_info`).
  bool cutsBatchByStages = false;
  double reservedGiB = 0; ///< that the framework takes, where its machine's was fitted on runs of another; 0: was not
  /// The memory of its rows is what its allocator gave out, without what the framework takes (Machine::reservedBytes).
  bool showsAllocated = false;
  PublishedFlops flops = PublishedFlops::Model;
};

/// Follows from gpu, precision, ZeRO, source, model and notes of a row; systems.cpp has the table.
PublishedSystem systemOf(const PublishedRow &row);

} // namespace espalier::planner
