// Plans of the suite as the emulated device runs them.
#pragma once

#include "test/equivalence/splits.h"

namespace espalier {

/// A model of the suite with heads of 8, the least that attention on GPUs takes, and one plan of it.
struct EmulatedRow {
  std::string name, file;
  std::vector<std::string> sets;
  SplitCase split;
};

RunConfig runOf(const EmulatedRow &row);

/// Run file settings: dropout at each place; parameters and arithmetic in a 16-bit type.
std::vector<std::string> dropoutSets();
std::vector<std::string> storageSets(const std::string &type);

/// Of one rank; of several, each technique and some together.
const std::vector<EmulatedRow> &planRows();
const std::vector<EmulatedRow> &splitRows();

/// Every model of the suite by every split. The first of them have several chunks on a stage.
std::vector<EmulatedRow> allRows();

} // namespace espalier
