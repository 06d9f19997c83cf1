// Runs one body per rank, each in its thread, on a shared rendezvous.
#pragma once

#include "compiler/interpret/eval.h"
#include "compiler/interpret/ranks.h"

namespace espalier {

/// Calls `body(rank, context)` for each rank; the context has the rank and the rendezvous, the body places it on a mesh
/// (EvalContext::placeOn). Returns when all have ended. The error is that of the rank that failed first, after
/// "rank N: "; the others stop at their next collective or receive.
llvm::Error runRanks(int ranks, const std::function<llvm::Error(int rank, EvalContext &context)> &body);

} // namespace espalier
