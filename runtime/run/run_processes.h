// Runs ranks as processes that this process forks or that mpirun has started.
#pragma once

#include "runtime/run/run.h"

namespace espalier::rt {

/// Runs the ranks that options.topology assigns to this process, or all, as child processes of this host, and
/// supervises them. Throws as runPlan does. If several processes were started, all but one throw ReportedElsewhere.
RunResult runInProcesses(const Program &program, const RunOptions &options);

/// Returns the bytes of shared memory that all ranks together allocate. This includes the arenas unless they are in
/// device memory.
size_t sharedBytesOf(const Program &program);

/// Runs ranks on several hosts, which connect at the topology's rendezvous with a shared token. Tensors go over NCCL.
/// Throws as runPlan does in the process that reports, and ReportedElsewhere in the others.
RunResult runOverHosts(const Program &program, const RunOptions &options);

/// Runs the rank of this process in an mpirun or srun job. Throws as runPlan does in the process that reports, and
/// ReportedElsewhere in the others.
RunResult runOverMpi(const Program &program, const RunOptions &options);

} // namespace espalier::rt
