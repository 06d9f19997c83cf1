#include "compiler/write_whole.h"
#include "messages/error_line.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

namespace espalier {

bool writeWhole(const std::string &path, const std::string &text, const char *what) {
  std::error_code error;
  std::filesystem::file_status old = std::filesystem::status(path, error);
  if (path.empty() || (exists(old) && !is_regular_file(old))) { // renaming would replace a device by a file
    printError(fmt::format("'{}'", path), fmt::format("cannot write {}: not the name of a file", what));
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
  printError(path, fmt::format("cannot write {}; is the folder there and writable?", what));
  return false;
}

} // namespace espalier
