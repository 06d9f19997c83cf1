// A line on each of several hosts, by ssh or what takes its place: all end when one ends ill.
#pragma once

#include <string>
#include <vector>

namespace espalier {

struct HostLine {
  std::string address, line;
};

/// A secret that nobody guesses, as text.
std::string makeToken();

/// "ADDRESS:PORT" with a port that another run hardly has.
std::string makeRendezvous(const std::string &address);

/// Runs `command ADDRESS LINE` for each, with the token on standard input, and waits for all. Their output is this
/// process's. A signal that asks for an end is passed on as a line of their input, and so is a second one; the first
/// that ends ill asks all others to end by closing it. Who has not ended a while later is killed. Returns 128 and the
/// first signal, or the status of the first that ended ill, 1 where that is none of a run's, or 0. Throws PlanError
/// where the command cannot be started.
int runHostLines(const std::string &command, const std::vector<HostLine> &lines, const std::string &token);

} // namespace espalier
