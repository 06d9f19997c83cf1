#include "format/file_marks.h"

#include <fstream>
#include <string>

namespace espalier::rt {

bool hasSeal(std::string_view bytes) {
  return bytes.size() >= sealBytes && bytes.substr(bytes.size() - sealBytes, sealTag.size()) == sealTag;
}

bool isSealed(const std::filesystem::path &file) {
  std::error_code error;
  uint64_t size = std::filesystem::file_size(file, error);
  if (error || size < sealBytes)
    return false;
  std::ifstream stream(file, std::ios::binary);
  std::string tail(sealBytes, '\0');
  stream.seekg(static_cast<std::streamoff>(size - sealBytes));
  return stream.read(tail.data(), static_cast<std::streamsize>(tail.size())) && hasSeal(tail);
}

} // namespace espalier::rt
