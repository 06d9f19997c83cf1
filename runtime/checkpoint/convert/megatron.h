// Megatron-LM's checkpoints of one file per model-parallel rank:
//
//   DIR/latest_checkpointed_iteration.txt            a number, or `release`
//   DIR/iter_0000010/mp_rank_TT/model_optim_rng.pt   mp_rank_TT_PPP where there are pipeline stages
//
// Only weights are read and written; what an optimizer or a random number generator left there is passed over.
#pragma once

#include "runtime/checkpoint/convert/transfer.h"

namespace espalier::rt {

/// One chunk of the model on one rank.
struct MegatronChunk {
  int64_t tp = 0; ///< rank
  std::unique_ptr<WeightSource> weights;
  int64_t firstLayer = 0, layers = 0;
};

/// An open checkpoint. Chunks are in the model's order, those of one place by tp rank.
struct MegatronFolder {
  int64_t tp = 1, places = 1; ///< places: stages times chunks of a stage
  bool isLegacy = false;      ///< names of the time before Megatron core
  std::vector<MegatronChunk> chunks;
};

/// `path` is DIR or an iteration's folder. Throws PlanError for what is damaged, incomplete or of another form.
MegatronFolder openMegatron(const std::filesystem::path &path);

/// What each chunk holds. `folder` outlives it.
std::vector<HeldTensors> heldTensors(const MegatronFolder &folder, const NameMap &names);

struct MegatronExport {
  int64_t tp = 1, pp = 1, iteration = 1;
};

/// Writes DIR, which must not hold this iteration. Throws PlanError where tp or pp do not fit the model.
void writeMegatron(const std::filesystem::path &folder, const NameMap &names, const NativeSource &source,
                   const MegatronExport &options);

} // namespace espalier::rt
