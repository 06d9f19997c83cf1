// Ends a run before its last step if a signal asks for it. Ranks sum the number of signalled ranks in every entry, so
// that all ranks end together.
#pragma once

namespace espalier::rt {

/// Installs handlers for SIGTERM, SIGINT, SIGHUP and SIGUSR1; mpirun passes SIGUSR1 on to its ranks, and Slurm is often
/// configured to send it. The first signal ends the run after the current step. The second ends the process at once
/// with status 128 plus the number of the first. An ignored SIGHUP (nohup) stays ignored. Affects the whole process, so
/// only the command line calls this function.
void stopOnSignals();

/// Makes this process and its future children share one signal record: the first signal that any of them receives.
/// Throws MemoryError.
void shareStopSignal();

/// Returns the recorded signal, or 0.
int stopSignal();

/// Returns the name of a signal, for example "SIGTERM".
const char *signalName(int signal);

} // namespace espalier::rt
