// Compares the data of two paths without reading all of it.
#pragma once

#include "runtime/dataset/dataset.h"

#include <string>

namespace espalier::rt {

/// Returns a text that identifies the data that openDataset would read from `path`, independent of the path: "mock", or
/// the number of bytes and a digest. For large files the digest covers blocks spread over the file. Throws DataError.
std::string contentDigest(const std::string &path);

/// Returns the number of bytes of a file and a digest, of 65 blocks if the file is large. Throws DataError.
std::string fileDigest(const std::string &path);

/// Returns a digest of the whole index that belongs to `path`. Returns an empty string if contentDigest covers all of
/// it, or if there is none. Throws DataError.
std::string indexDigest(const std::string &path);

/// Returns the number of samples and a digest of the tokens of 64 of them, spread over the dataset.
std::string sampleDigest(const Dataset &data);

} // namespace espalier::rt
