#include "runtime/files/base64.h"

#include <openssl/evp.h>

namespace espalier::rt {

std::optional<std::string> fromBase64(std::string_view text) {
  constexpr size_t mostBytes = size_t{1} << 30; // the library counts in int
  if (text.size() % 4 != 0 || text.size() > mostBytes)
    return std::nullopt;
  size_t padding = text.ends_with("==") ? 2 : text.ends_with('=') ? 1 : 0;
  std::string bytes(text.size() / 4 * 3, '\0');
  int size = EVP_DecodeBlock(reinterpret_cast<unsigned char *>(bytes.data()),
                             reinterpret_cast<const unsigned char *>(text.data()), static_cast<int>(text.size()));
  if (size < 0)
    return std::nullopt;
  bytes.resize(static_cast<size_t>(size) - padding);
  return bytes;
}

} // namespace espalier::rt
