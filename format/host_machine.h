// This machine: its processor, its memory, and where Espalier stores what it has measured here.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace espalier::rt {

/// Returns the processor's name as the system reports it.
std::string processorName();

/// Returns the number of cores, at least 1.
int machineCores();

/// Returns the processor's name with the number of cores, by which measurements of machines differ.
std::string machineName();

/// Begins the name of the input of a plan that is priced with measured rates; the machineName() or the name of the
/// device follows.
inline constexpr std::string_view measuredRates = "rates measured on ";

/// Returns the bytes of physical memory.
double machineMemory();

/// Returns Espalier's folder in XDG_CACHE_HOME or ~/.cache. Returns an empty path if neither is set to an absolute
/// path.
std::filesystem::path cacheFolder();

/// Returns the path of the cluster file in which `espalier calibrate` stores the rates of this machine, for run files
/// without a cluster. Returns an empty path without a cacheFolder.
std::filesystem::path measuredMachineFile();

} // namespace espalier::rt
