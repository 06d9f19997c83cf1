// The command line that resumes a run.
#pragma once

#include "runtime/launch/topology.h"

#include <string>

namespace espalier {

/// Environment variable that passes the command line of `espalier launch` to the processes that it starts.
inline constexpr const char *launchedBy = "ESPALIER_RESUME";

/// Returns the command line of this process with --resume.
std::string ownLine();

/// Returns the command line that resumes the run: the launcher's, if a launcher started this process. For a launcher
/// on another host, only the number of ranks is known.
std::string resumeLine(const rt::launch::Topology &topology);

} // namespace espalier
