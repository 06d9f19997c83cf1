// Why a file cannot be written, in the words of the system.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace espalier::rt {

/// Returns why the file `path` cannot be written, where the system says `reason` (an errno): a missing folder by its
/// name, or the system's words alone.
std::string whyNotWritten(const std::filesystem::path &path, int reason);

/// Returns why `path` cannot name a new file, or an empty string: it is a folder, a device or a pipe.
std::string nameFault(const std::filesystem::path &path);

/// Returns why no file can be written at `path`, or an empty string. Creates a file beside it, asks the disk for a
/// block and removes the file again, so that rights, missing folders and a full disk are found before any work.
std::string writeFault(const std::filesystem::path &path);

/// Returns the first folder on the way up from `path` that is there: a run creates missing folders.
std::filesystem::path presentFolder(const std::filesystem::path &path);

/// Returns the bytes that this process may write to the disk of a folder; UINT64_MAX if the system does not say.
uint64_t freeDiskBytes(const std::filesystem::path &folder);

} // namespace espalier::rt
