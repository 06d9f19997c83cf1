#include "messages/write_fault.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <unistd.h>

namespace espalier::rt {

std::string whyNotWritten(const std::filesystem::path &path, int reason) {
  if (path.string().find("://") != std::string::npos)
    return "is a URL, and nothing is uploaded; give the path of a file";
  std::error_code error;
  std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
  if (reason == ENOENT && !std::filesystem::exists(folder, error))
    return fmt::format("{}: there is no folder {}", std::strerror(reason), folder.string());
  return std::strerror(reason);
}

std::string nameFault(const std::filesystem::path &path) {
  std::error_code error;
  std::filesystem::file_status old = std::filesystem::status(path, error);
  if (!path.has_filename() || is_directory(old))
    return "is a folder, wanted a file";
  // Renaming would replace a device by a file.
  return exists(old) && !is_regular_file(old) ? "is there already and no regular file" : "";
}

std::string writeFault(const std::filesystem::path &path) {
  constexpr off_t probed = 1 << 16; // bytes
  if (std::string fault = nameFault(path); !fault.empty())
    return fault;
  std::filesystem::path probe =
      path.parent_path() / fmt::format(".{}.{}.probe", path.filename().string().substr(0, 200), ::getpid());
  int file = ::open(probe.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0)
    return whyNotWritten(path, errno);
  int reason = ::posix_fallocate(file, 0, probed);
  ::close(file);
  ::unlink(probe.c_str());
  bool isRefused = reason == ENOSPC || reason == EDQUOT || reason == EFBIG || reason == EIO;
  return isRefused ? whyNotWritten(path, reason) : "";
}

std::filesystem::path presentFolder(const std::filesystem::path &path) {
  std::error_code error;
  std::filesystem::path folder = path;
  while (!folder.empty() && !std::filesystem::exists(folder, error))
    folder = folder.has_filename() && folder.has_parent_path() ? folder.parent_path() : ".";
  return folder;
}

uint64_t freeDiskBytes(const std::filesystem::path &folder) {
  struct statvfs status = {};
  bool isKnown = ::statvfs(folder.c_str(), &status) == 0;
  return isKnown ? static_cast<uint64_t>(status.f_bavail) * status.f_frsize : UINT64_MAX;
}

} // namespace espalier::rt
