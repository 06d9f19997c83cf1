// A cache of index arrays in .npy files. Each set of files belongs to one description of the inputs. A cached array is
// checked like any other input and rebuilt if it does not match the description.
#pragma once

#include "runtime/dataset/gpt_index.h"

namespace espalier::rt {

/// Returns the arrays from `folder` if they exist and are valid. Otherwise builds the arrays and writes them
/// atomically, under names that start with a digest of the description. Throws DataError if the arrays cannot be built
/// or written.
std::unique_ptr<GptIndex> loadOrBuildGptIndex(const TokenSource &source, const GptIndexRequest &request,
                                              const std::string &folder);

} // namespace espalier::rt
