// The planner's answer as plain data: how the devices are split, who holds which layers, what is kept.
// Written by the search or by hand (a pinned plan); read by the compiler, which needs nothing else.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace espalier::planner {

/// What a layer keeps from forward to backward.
enum class Recompute {
  None,      ///< every value that backward reads
  Selective, ///< results of matrix products and attention; element-wise work is repeated
  Full,      ///< only the layer's input; the whole forward is repeated
};

/// Order of forward and backward actions of a pipeline.
enum class Schedule { GPipe, OneFOneB, Interleaved, ZeroBubbleH1, ZeroBubbleV };

/// The layers of one pipeline stage. Stages may be uneven; every layer is on exactly one stage.
struct StagePlan {
  int firstLayer = 0;
  int layers = 0;
  std::vector<Recompute> recompute; ///< one entry per layer of the stage
};

/// A complete plan. Ranks are numbered with the mesh order pp, dp, cp, ep, tp (tp varies fastest).
struct Plan {
  int dp = 1, tp = 1, pp = 1, cp = 1, ep = 1;
  int virtualStages = 1;
  int64_t microBatchSize = 1;  ///< samples per micro-batch on one dp replica
  int64_t microBatches = 1;    ///< micro-batches per step on one dp replica
  int zero = 0;                ///< ZeRO stage, 0..3
  bool sequenceParallel = false;
  bool vocabParallel = true;   ///< shard vocab over tp (padded); otherwise embedding and head are replicated
  bool keepTensorParallelResults = false; ///< mp_comm_recompute: false -> keep collectives' results under recompute
  Schedule schedule = Schedule::OneFOneB;
  std::vector<StagePlan> stages;

  int ranks() const { return dp * tp * pp * cp * ep; }
  int64_t globalBatch() const { return microBatchSize * microBatches * dp; }
};

} // namespace espalier::planner
