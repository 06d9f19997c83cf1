// A plan with the data that all simulations of its stages share.
#pragma once

#include "runtime/verify/summary.h"
#include "runtime/verify/values.h"

namespace espalier::rt::verify {

/// The plan, and the values, summaries and operands that the front end has derived from it.
struct ProgramView {
  const pb::Plan &plan;
  const Mesh &mesh;
  const Values &values;
  std::vector<Summary> summaries;              ///< by subprogram
  std::vector<std::vector<Operand>> transfers; ///< by transfer: sources, then targets

  /// Returns the summary of a call's subprogram for a role, or null if the call has no such subprogram.
  const Summary *summaryOf(const pb::Call &call, uint32_t role) const {
    bool isThere = role < static_cast<uint32_t>(call.programs_size()) && call.programs(static_cast<int>(role)) > 0;
    return isThere ? &summaries[call.programs(static_cast<int>(role)) - 1] : nullptr;
  }
};

/// Simulates the instruction stream of a stage in an entry. Checks rules C, F and J.
void playEntry(const ProgramView &view, int stage, int entry, PlanErrors &errors);

} // namespace espalier::rt::verify
