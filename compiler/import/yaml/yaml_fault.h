// Faults of YAML texts in words: the parser's own messages name its states and not what to write.
#pragma once

#include "compiler/import/yaml/source_location.h"

#include <string>
#include <string_view>
#include <utility>

namespace espalier {

/// Returns where and why a text is not valid YAML. `where` and `message` are the parser's.
std::pair<SourceLocation, std::string> faultOf(std::string_view text, const SourceLocation &where,
                                               const std::string &message);

/// Returns whether a quoted scalar that begins at a location of the text has an end. The parser accepts one without.
bool isClosed(std::string_view text, const SourceLocation &where);

} // namespace espalier
