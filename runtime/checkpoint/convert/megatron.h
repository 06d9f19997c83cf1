// Megatron-LM's checkpoints with one file per model-parallel rank:
//
//   DIR/latest_checkpointed_iteration.txt            a number, or `release`
//   DIR/iter_0000010/mp_rank_TT/model_optim_rng.pt   mp_rank_TT_PPP with pipeline stages
//
// Only weights are read and written; the state of optimizers and random number generators is ignored.
#pragma once

#include "runtime/checkpoint/convert/transfer.h"

namespace espalier::rt {

/// One chunk of the model on one rank.
struct MegatronChunk {
  int64_t tp = 0; ///< tp rank
  std::unique_ptr<WeightSource> weights;
  int64_t firstLayer = 0, layers = 0;
};

/// An open checkpoint. Chunks are in the model's order; chunks at one position are ordered by tp rank.
struct MegatronFolder {
  int64_t tp = 1, places = 1; ///< places: number of stages times chunks per stage
  bool isLegacy = false;      ///< names from before Megatron core
  std::vector<MegatronChunk> chunks;
};

/// Opens DIR or an iteration's folder. Throws PlanError if it is damaged, incomplete or of another format.
MegatronFolder openMegatron(const std::filesystem::path &path);

/// Returns the tensors of each chunk. `folder` must outlive them.
std::vector<HeldTensors> heldTensors(const MegatronFolder &folder, const NameMap &names);

/// The parallelism and iteration number of an export.
struct MegatronExport {
  int64_t tp = 1, pp = 1, iteration = 1;
};

/// Writes DIR, which must not contain this iteration yet. Throws PlanError if the model cannot be split by tp or pp.
void writeMegatron(const std::filesystem::path &folder, const NameMap &names, const NativeSource &source,
                   const MegatronExport &options);

} // namespace espalier::rt
