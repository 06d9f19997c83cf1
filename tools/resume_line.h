// The command that goes on with a run.
#pragma once

#include "runtime/launch/topology.h"

#include <string>

namespace espalier {

/// The words of `espalier launch`, told to the processes that it starts.
inline constexpr const char *launchedBy = "ESPALIER_RESUME";

/// The line that started this process, with --resume.
std::string ownLine();

/// The line that started the run, with --resume: that of the launcher where this process was started by one. Of a
/// launcher on another host no more is known than how many ranks it started.
std::string resumeLine(const rt::launch::Topology &topology);

} // namespace espalier
