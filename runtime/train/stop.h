// How a run ends before its last step: a signal asks for it. Ranks sum in every entry how many were asked, and so end
// together.
#pragma once

namespace espalier::rt {

/// From now on SIGTERM, SIGINT, SIGHUP and SIGUSR1 (which mpirun passes on to its ranks, and Slurm is often told to
/// send) ask the run to end after the step at hand, and a second one ends the process at once with the status of the
/// first, 128 and its number. A SIGHUP that was ignored stays so: that is nohup. For the
/// whole process, hence called by the command alone.
void stopOnSignals();

/// From now on this process and those that it forks have one signal in common: the first that came to any of them.
/// Throws MemoryError.
void shareStopSignal();

/// The signal that came, 0 before.
int stopSignal();

/// "SIGTERM".
const char *signalName(int signal);

} // namespace espalier::rt
