// Tells whether two paths hold the same data without reading all of it.
#pragma once

#include <string>

namespace espalier::rt {

/// What openDataset would read of `path`, in words that do not name it: "mock", or bytes and a digest of its files, of
/// blocks spread over them where they are large. Throws DataError.
std::string contentDigest(const std::string &path);

} // namespace espalier::rt
