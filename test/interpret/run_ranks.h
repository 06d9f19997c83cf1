// Runs one function per rank, each in its own thread, with a shared rendezvous.
#pragma once

#include "compiler/interpret/eval.h"
#include "compiler/interpret/ranks.h"

namespace espalier {

/// Calls `body(rank, context)` for each rank. The context has the rank and the rendezvous; the body sets the mesh
/// (EvalContext::placeOn). Returns when all ranks have ended. The error is that of the first rank that failed, prefixed
/// by "rank N: "; the others stop at their next collective or receive.
llvm::Error runRanks(int ranks, const std::function<llvm::Error(int rank, EvalContext &context)> &body);

} // namespace espalier
