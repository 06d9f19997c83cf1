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

/// The sequence split over context ranks.
const std::vector<SplitCase> &contextSplits();

/// Splits of a model whose layers are of two kinds.
const std::vector<SplitCase> &unlikeSplits();

} // namespace espalier
