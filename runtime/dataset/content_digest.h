// Compares the data of two paths without reading all of it.
#pragma once

#include <string>

namespace espalier::rt {

/// Returns a text that identifies the data that openDataset would read from `path`, independent of the path: "mock", or
/// the number of bytes and a digest. For large files the digest covers blocks spread over the file. Throws DataError.
std::string contentDigest(const std::string &path);

} // namespace espalier::rt
