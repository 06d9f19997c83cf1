// Words for a shell to read.
#pragma once

#include <span>
#include <string>

namespace espalier {

/// The words as a line that a POSIX shell takes apart into the same words: it's -> 'it'\''s'.
std::string quote(std::span<const std::string> words);

} // namespace espalier
