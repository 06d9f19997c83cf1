// Broadcasts a start-up failure, so that peers do not block at the rendezvous.
#pragma once

#include "runtime/run/run.h"

#include <exception>
#include <functional>

namespace espalier::rt {

/// Runs the work that precedes the rendezvous with the peers of the run. If the work throws while peers wait for this
/// process, prints the error, sends the error to the peers, and throws ReportedElsewhere with its status. The options
/// `comm`, `topology` and `token` determine where peers wait; `work` may still change them.
void guardStartup(const RunOptions &options, const std::function<void()> &work);

/// Prints a fatal error in the format of the command line, before peers receive the error.
void printAtOnce(const std::exception &error);

} // namespace espalier::rt
