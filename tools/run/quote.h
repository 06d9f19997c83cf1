// Quotes arguments for a shell.
#pragma once

#include <span>
#include <string>

namespace espalier {

/// Joins the words to a line that a POSIX shell splits into the same words: it's -> 'it'\''s'.
std::string quote(std::span<const std::string> words);

} // namespace espalier
