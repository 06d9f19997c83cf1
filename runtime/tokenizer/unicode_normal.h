// Unicode normal forms and lower case, equal to the normalizers of published tokenizers. Additional memory depends on
// the longest run of combining marks, not on the text.
#pragma once

#include <string>
#include <string_view>

namespace espalier::rt {

/// Unicode's normal forms.
enum class NormalForm { nfc, nfd, nfkc, nfkd };

/// Returns `text` in a normal form. Bytes that are not UTF-8 stay unchanged. Example: "e\u0301" in nfc is "\u00e9",
/// "\ufb01" in nfkd is "fi". The result has at most 11 times the bytes (U+FDFA in nfkd).
std::string toNormalForm(std::string_view text, NormalForm form);

/// Returns the text with each character in lower case. The result of a character does not depend on its neighbours.
std::string toLowerCase(std::string_view text);

} // namespace espalier::rt
