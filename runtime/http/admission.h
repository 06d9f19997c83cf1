// The grammar of a request's head, RFC 9112, without what proxies and servers read differently: folded lines, bare line
// feeds, spaces before colons, repeated or combined lengths. Beast's parser accepts some of these.
#pragma once

#include "runtime/http/message.h"

#include <optional>
#include <string_view>

namespace espalier::rt::http {

/// Returns why the head, from the request line to the empty line, is refused.
std::optional<Refusal> whyNotAdmitted(std::string_view head);

/// Returns whether the bytes from `from` on end a line by anything else than CR LF, or contain a NUL byte. A final CR
/// is no violation, because its LF may follow.
bool hasBadLineEnd(std::string_view bytes, size_t from);

/// Returns whether two texts are equal except for the case of ASCII letters.
bool equalsIgnoringCase(std::string_view a, std::string_view b);

} // namespace espalier::rt::http
