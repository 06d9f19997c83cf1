// Runs one command line on each of several hosts, over ssh or a replacement. A failure on one host ends all of them.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace espalier {

/// A host and the shell line to run on it.
struct HostLine {
  std::string address, line;
};

/// Returns a random secret as text.
std::string makeToken();

/// Returns "ADDRESS:PORT" with a random port, so that concurrent runs rarely collide.
std::string makeRendezvous(const std::string &address);

/// Runs `command ADDRESS LINE` for each line, with the token on standard input, and waits for all. The children share
/// this process's standard output. A termination signal is forwarded as one line on each child's standard input, and
/// so is a second signal. If a child fails, the others are asked to end by closing their standard input. A child that
/// does not end in time is killed. Returns 128 + the first signal; else the status of the first failed child, or 1 if
/// that is not a status of a run; else 0. Throws PlanError if the command cannot be started.
int runHostLines(const std::string &command, const std::vector<HostLine> &lines, const std::string &token);

/// Runs `command ADDRESS LINE` for each line at the same time, without input and output, and returns the addresses of
/// the lines that end with status 0 within `patience`. The others are killed.
std::vector<std::string> hostsThatRun(const std::string &command, const std::vector<HostLine> &lines,
                                      std::chrono::milliseconds patience);

} // namespace espalier
