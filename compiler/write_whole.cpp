#include "compiler/write_whole.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace espalier {

bool writeWhole(const std::string &path, const std::string &text, const char *what) {
  std::error_code error;
  std::filesystem::file_status old = std::filesystem::status(path, error);
  if (path.empty() || (exists(old) && !is_regular_file(old))) { // renaming would replace a device by a file
    fmt::print(stderr, "'{}': error: cannot write {}: not the name of a file\n", path, what);
    return false;
  }
  std::string partial = path + ".partial";
  std::ofstream stream(partial, std::ios::binary);
  stream << text;
  stream.close();
  if (stream)
    std::filesystem::rename(partial, path, error);
  if (stream && !error)
    return true;
  std::filesystem::remove(partial, error);
  fmt::print(stderr, "{}: error: cannot write {}; is the folder there and writable?\n", path, what);
  return false;
}

} // namespace espalier
