// The system of a row in a table of published runs, and its defaults for columns that the row leaves empty.
#pragma once

#include "tools/published/shape_problem.h"
#include "tools/published/table.h"

namespace espalier::planner {

/// The operations that the published TFLOP/s of a system count.
enum class PublishedFlops {
  Model,
  WithRecompute, ///< the convention until 2022
  Unknown        ///< the formula changed
};

/// The state that a system keeps in host memory.
struct PublishedOffload {
  bool optimizer = false, parameters = false, activations = false;
};

/// The system of a row, with defaults for empty columns.
struct PublishedSystem {
  System system;
  PublishedOffload offload; ///< in addition to the row's own
  /// Tensor parallelism implies sequence parallelism unless the row says otherwise.
  bool impliesSequenceParallel = false;
  int impliedZero = 1;     ///< default of the row
  int64_t heads = 0;       ///< default of the row; 0: unknown
  bool isPyTorch = false;  ///< runs PyTorch's own sharding and attention
  bool hasDropout = false; ///< trained with dropout
  /// Remaining layers go to the first stages, up to the size of the fullest one (DeepSpeed until 2023).
  bool fillsFirstStages = false;
  /// ZeRO 3 gathers parameters once for all micro-batches of a pipeline and reduces gradients after the last one, as
  /// ZeRO 1 does.
  bool shardsPerStep = false;
  /// `mbs` is the batch of a pipeline, which is cut into as many micro-batches as there are stages. A stage keeps the
  /// outputs of all micro-batches and buffers for their gradients (torch.distributed.pipelining's `output_chunks`,
  /// `grad_recv_info`).
  bool cutsBatchByStages = false;
  double reservedGiB = 0; ///< memory of the framework if the machine was fitted on another framework; 0: same framework
  /// The rows show allocated memory, without the memory that the framework reserves (Machine::reservedBytes).
  bool showsAllocated = false;
  PublishedFlops flops = PublishedFlops::Model;
};

/// Returns the system of a row by its gpu, precision, ZeRO, source, model and notes. The table is in systems.cpp.
PublishedSystem systemOf(const PublishedRow &row);

} // namespace espalier::planner
