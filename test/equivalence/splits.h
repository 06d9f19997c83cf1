// The models and splits that the suite trains and that mutants are made of.
#pragma once

#include "test/equivalence/training.h"

namespace espalier {

/// A model of the suite: its file and what is set over it.
struct Model {
  std::string name, file;
  std::vector<std::string> sets;
};

const std::vector<Model> &models();

const std::vector<SplitCase> &splits();

/// Several chunks of layers on each stage. These models have layers enough, which are not spread evenly.
const std::vector<SplitCase> &chunkSplits();
const std::vector<Model> &deepModels();

/// The sequence split over context ranks.
const std::vector<SplitCase> &contextSplits();

/// Gradients in parts, and parameters too: ZeRO 2 and 3.
const std::vector<SplitCase> &shareSplits();

/// Splits of a model whose layers are of two kinds.
const std::vector<SplitCase> &unlikeSplits();

/// Splits of a model with two tied tables, whose head names them in another order than the embedding.
const std::vector<SplitCase> &tiedSplits();

/// Splits of a mixture of experts.
const std::vector<SplitCase> &expertSplits();

} // namespace espalier
