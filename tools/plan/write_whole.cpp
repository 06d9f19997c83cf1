#include "tools/plan/write_whole.h"
#include "messages/error_line.h"
#include "messages/write_fault.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>

namespace espalier {

bool writeWhole(const std::string &path, const std::string &text, const char *what) {
  if (std::string fault = rt::nameFault(path); !fault.empty()) {
    printError(path, fmt::format("cannot write {}: {}", what, fault));
    return false;
  }
  std::error_code error;
  std::string partial = path + ".partial";
  std::ofstream stream(partial, std::ios::binary);
  stream << text;
  stream.close();
  int reason = errno;
  if (stream)
    std::filesystem::rename(partial, path, error);
  if (stream && !error)
    return true;
  if (stream)
    reason = error.value();
  std::filesystem::remove(partial, error);
  printError(path, fmt::format("cannot write {}: {}", what, rt::whyNotWritten(path, reason)));
  return false;
}

bool canWrite(const std::string &path, const char *what) {
  std::string fault = path.empty() ? "" : rt::writeFault(path);
  if (!fault.empty())
    printError(path, fmt::format("cannot write {}: {}", what, fault));
  return fault.empty();
}

bool canWriteInto(const std::string &folder, const char *option) {
  if (folder.empty())
    return true;
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  std::string fault = error ? error.message() : rt::writeFault(folder + "/file");
  if (!fault.empty())
    printError(folder, fmt::format("{}: cannot write there: {}", option, fault));
  return fault.empty();
}

} // namespace espalier
