// The plans of the suite that run on the emulated device.
#pragma once

#include "test/equivalence/splits.h"

namespace espalier {

/// A model of the suite with heads of width 8, the minimum of GPU attention, and one plan for it.
struct EmulatedRow {
  std::string name, file;
  std::vector<std::string> sets;
  SplitCase split;
};

/// Returns the run configuration of a row.
RunConfig runOf(const EmulatedRow &row);

/// Returns run-file settings: dropout at each location, or a 16-bit type for parameters and arithmetic.
std::vector<std::string> dropoutSets();
std::vector<std::string> storageSets(const std::string &type);

/// Returns plans of one rank and of several, with each technique alone or with others.
const std::vector<EmulatedRow> &planRows();
const std::vector<EmulatedRow> &splitRows();

/// Returns every model of the suite with every split. The first rows have several chunks per stage.
std::vector<EmulatedRow> allRows();

} // namespace espalier
