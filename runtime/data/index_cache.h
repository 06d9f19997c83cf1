// Index arrays kept between runs as .npy files, one set for each description of what they follow
// from. A cached array is checked like any other input, and rebuilt when it is not what the
// description demands.
#pragma once

#include "runtime/data/gpt_index.h"

namespace espalier::rt {

/// The arrays from `folder` when they are there and sound, else built and written there
/// (atomically, under names that start with a digest of the description). Throws DataError when
/// they can be neither built nor written.
std::unique_ptr<GptIndex> loadOrBuildGptIndex(const TokenSource &source, const GptIndexRequest &request,
                                              const std::string &folder);

} // namespace espalier::rt
