// The folder of compiled kernels, so that kernels which an earlier compilation had are not compiled again.
#pragma once

#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace espalier::codegen {

/// Returns the code that keepCode() stored under `key` (hexadecimal), or nothing. Entries of another build of the
/// compiler, and entries whose checksum does not match their bytes, are not found. The folder is kernels/ in
/// espalier's cache; without a cache folder, nothing is found.
std::optional<std::string> findCode(llvm::StringRef key);

/// Stores code. Removes the entries that were not used for a month, and the oldest ones beyond 64 MB. Does nothing if
/// the folder cannot be written.
void keepCode(llvm::StringRef key, llvm::StringRef code);

} // namespace espalier::codegen
