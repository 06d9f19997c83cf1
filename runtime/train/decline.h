// A process of a run that cannot take part says so to the others, which would wait for it.
#pragma once

#include "runtime/train/run.h"

#include <exception>
#include <functional>

namespace espalier::rt {

/// Does what comes before this process meets the others of its run. What is thrown there ends all of them: where others
/// wait for this process it is printed at once and told to them, and ReportedElsewhere is thrown with its status. Of
/// the options `comm`, `topology` and `token` say where they wait; the work may find out more of these.
void orDecline(const RunOptions &options, const std::function<void()> &work);

/// Prints an error as the command does that ends by it, before others are told.
void printAtOnce(const std::exception &error);

} // namespace espalier::rt
