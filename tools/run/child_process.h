// Steps of a child process between fork and exec.
#pragma once

#include <csignal>
#include <string>
#include <vector>

namespace espalier {

/// Gives the calling child its own process group, an empty standard input and the signal mask `mask`. The child
/// receives `deathSignal` when its parent ends.
void separateChild(int deathSignal, const sigset_t &mask);

/// Returns the argument list of exec for these words, which must stay alive.
std::vector<char *> argumentsOf(std::vector<std::string> &words);

} // namespace espalier
