// Child processes of this process: the steps between fork and exec, their end, and supervision with signals.
#pragma once

#include <chrono>
#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

namespace espalier::rt {

/// Gives the calling child its own process group, an empty standard input and the signal mask `mask`. The child
/// receives `deathSignal` when its parent ends.
void separateChild(int deathSignal, const sigset_t &mask);

/// Returns the argument list of exec for these arguments, which must stay alive.
std::vector<char *> argumentsOf(std::vector<std::string> &arguments);

/// Reads a descriptor to its end.
std::string readAll(int descriptor);

/// Returns the wait status of a child that has ended, and reaps the child. Returns nothing while the child runs.
std::optional<int> endedStatus(pid_t child);

/// Waits until a child has ended, and returns its wait status.
int waitFor(pid_t child);

/// Returns the exit status in a wait status: 128 + the signal if a signal ended the child.
int exitStatusOf(int waitStatus);

/// Returns `signals` and SIGCHLD as the set of superviseChild().
sigset_t awaitedSignals(std::initializer_list<int> signals);

/// Waits until `child` has ended, and returns its wait status. Passes each signal of `awaited` to `handle`, except
/// SIGCHLD. Calls `poll` after each signal and, if `pollEvery` is given, at these intervals. The calling process must
/// have blocked the signals of `awaited`, of which SIGCHLD is one.
int superviseChild(
    pid_t child, const sigset_t &awaited, const std::function<void(int signal)> &handle,
    std::optional<std::chrono::nanoseconds> pollEvery = std::nullopt, const std::function<void()> &poll = [] {});

} // namespace espalier::rt
