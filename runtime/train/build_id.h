// Identifies the code that computes: this program, and the libraries whose numbers differ between versions.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace espalier::rt {

/// Returns the version of this program and a digest of its own files: "0.1.0 (build 52a0c1...)".
std::string buildText();

/// Returns the loaded libraries that compute numbers: their file names, each with its size and a digest.
std::vector<std::pair<std::string, std::string>> numericLibraries();

} // namespace espalier::rt
