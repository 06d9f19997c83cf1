// Hidden names for files and folders that are being written, and the removal of those that killed processes have left.
#pragma once

#include <filesystem>

namespace espalier::rt {

/// Returns the hidden name of this process for what becomes `target`, beside it: ".NAME.PID.part".
std::filesystem::path partialPath(const std::filesystem::path &target);

/// Removes what killed processes of this machine have left under their partialPath() of `target`. Spares what a process
/// of another machine holds with holdPartial().
void sweepPartials(const std::filesystem::path &target);

/// Marks a file or folder as being written, until the returned descriptor is closed; -1 if the system refuses it.
int holdPartial(const std::filesystem::path &partial);

} // namespace espalier::rt
