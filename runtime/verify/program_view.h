// A plan as the play of its stages reads it: what is said once is prepared once.
#pragma once

#include "runtime/verify/summary.h"
#include "runtime/verify/values.h"

namespace espalier::rt::verify {

struct ProgramView {
  const pb::Plan &plan;
  const Mesh &mesh;
  const Values &values;
  std::vector<Summary> summaries;              ///< by subprogram
  std::vector<std::vector<Operand>> transfers; ///< by transfer: sources, then targets

  /// The summary of a call's subprogram for a role, or null.
  const Summary *summaryOf(const pb::Call &call, uint32_t role) const {
    bool isThere = role < static_cast<uint32_t>(call.programs_size()) && call.programs(static_cast<int>(role)) > 0;
    return isThere ? &summaries[call.programs(static_cast<int>(role)) - 1] : nullptr;
  }
};

/// Plays an entry's list of a stage: rules C, F and J.
void playEntry(const ProgramView &view, int stage, int entry, PlanErrors &errors);

} // namespace espalier::rt::verify
