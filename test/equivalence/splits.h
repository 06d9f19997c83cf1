// The models and splits that the suite trains and mutates.
#pragma once

#include "test/equivalence/training.h"

namespace espalier {

/// A model of the suite: its file and its overrides.
struct Model {
  std::string name, file;
  std::vector<std::string> sets;
};

/// The models of the suite.
const std::vector<Model> &models();

/// The splits that the suite runs with models().
const std::vector<SplitCase> &splits();

/// Splits with several chunks of layers per stage. The models have enough layers, spread unevenly.
const std::vector<SplitCase> &chunkSplits();
/// The models of chunkSplits().
const std::vector<Model> &deepModels();

/// Splits of the sequence over context ranks.
const std::vector<SplitCase> &contextSplits();

/// Splits with sharded gradients and parameters: ZeRO 2 and 3.
const std::vector<SplitCase> &shareSplits();

/// Splits whose ZeRO shards have replicas (HSDP): with tensor and context ranks, stages, and accumulation.
const std::vector<SplitCase> &hybridSplits();

/// Splits of a model whose layers are of two kinds.
const std::vector<SplitCase> &unlikeSplits();

/// Splits of a model with two tied tables, whose head and embedding name them in different orders.
const std::vector<SplitCase> &tiedSplits();

/// Models with frozen parameters: of which every segment has some, and with low-rank adapters.
const std::vector<Model> &frozenModels();
/// Splits of models with frozen parameters.
const std::vector<SplitCase> &frozenSplits();

/// Models with each optimizer beside AdamW.
const std::vector<Model> &optimizerModels();
/// Models with QK-clip, which scales some heads in every step: Muon, and AdamW with grouped queries.
const std::vector<Model> &clipModels();
const std::vector<SplitCase> &clipSplits();
/// Splits that keep matrices whole.
const std::vector<SplitCase> &matrixSplits();
/// Splits that split matrices into slices.
const std::vector<SplitCase> &sliceSplits();

/// Returns run-file settings: attention, positions and losses within documents, which end with a space.
std::vector<std::string> documentSets();

/// Models whose ops have options: latent attention, windows, documents, capped scores, scaled rotary positions, norms
/// over split dimensions.
const std::vector<Model> &optionModels();
/// The splits of optionModels(): one of each axis, and several together.
const std::vector<SplitCase> &optionSplits();

/// Models with modules that predict further tokens. The last one has experts.
const std::vector<Model> &furtherModels();

/// Models whose layers have a state: recurrences and causal convolutions.
const std::vector<Model> &stateModels();
/// The splits of stateModels(), which do not split sequences.
const std::vector<SplitCase> &stateSplits();

/// Splits of a mixture of experts.
const std::vector<SplitCase> &expertSplits();

/// Splits of a mixture of experts whose experts are spread over context ranks, too.
const std::vector<SplitCase> &foldedSplits();

/// Returns the settings of a mixture that can have these splits: no token is dropped.
std::vector<std::string> foldedSets();

} // namespace espalier
