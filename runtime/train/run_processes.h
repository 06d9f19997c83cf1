// Ranks as processes: forked from this one, or started by mpirun.
#pragma once

#include "runtime/train/run.h"

namespace espalier::rt {

/// Runs the ranks that options.topology gives to this process, or all, as processes of this host which this one starts
/// and watches. Throws as runPlan does; ReportedElsewhere in all but one of several that were started apart.
RunResult runInProcesses(const Program &program, const RunOptions &options);

/// Bytes that all ranks together allocate of what they share: their arenas, unless these lie on devices.
size_t sharedBytesOf(const Program &program);

/// The same for ranks of several hosts, which meet at the topology's rendezvous with a token that all of them know.
/// Their tensors go over NCCL. Throws as runPlan does in the process that speaks; ReportedElsewhere in the others.
RunResult runOverHosts(const Program &program, const RunOptions &options);

/// Runs one rank, this process, among those that mpirun or srun started. Throws as runPlan does in the process that
/// reports; ReportedElsewhere in the others.
RunResult runOverMpi(const Program &program, const RunOptions &options);

} // namespace espalier::rt
