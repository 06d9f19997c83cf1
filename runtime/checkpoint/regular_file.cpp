// Opened with O_NONBLOCK and checked with fstat() before the first read.
#include "runtime/checkpoint/regular_file.h"

#include "format/path_kind.h"
#include "runtime/status.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

namespace espalier::rt {
namespace {

constexpr uint64_t partBytes = uint64_t(4) << 20;

} // namespace

RegularFile::RegularFile(const std::filesystem::path &path, Links links) : name(path) {
  int flags = O_RDONLY | O_NONBLOCK | O_CLOEXEC | (links == Links::Refused ? O_NOFOLLOW : 0);
  descriptor = ::open(path.c_str(), flags);
  struct stat status = {};
  if (descriptor < 0 || ::fstat(descriptor, &status) != 0) {
    int reason = errno;
    if (descriptor >= 0)
      ::close(descriptor);
    throw PlanError(fmt::format("{}: {}", path.string(), reason == ELOOP ? "is a link" : whyNotOpened(path, reason)));
  }
  if (!S_ISREG(status.st_mode)) {
    ::close(descriptor);
    throw PlanError(fmt::format("{}: not a regular file", path.string()));
  }
  bytes = static_cast<uint64_t>(status.st_size);
}

RegularFile::~RegularFile() { ::close(descriptor); }

void RegularFile::read(uint64_t offset, std::span<std::byte> to) const {
  while (!to.empty()) {
    ssize_t count = ::pread(descriptor, to.data(), to.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      throw PlanError(fmt::format("{}: cannot be read at byte {}: {}", name.string(), offset,
                                  count == 0 ? "the file ends there" : std::strerror(errno)));
    offset += count;
    to = to.subspan(count);
  }
}

void RegularFile::readParts(uint64_t offset, uint64_t count,
                            const std::function<void(uint64_t, std::span<const std::byte>)> &take) const {
  std::vector<std::byte> part(std::min(count, partBytes));
  for (uint64_t begin = 0; begin < count; begin += partBytes) {
    std::span<std::byte> taken = std::span(part).first(std::min(partBytes, count - begin));
    read(offset + begin, taken);
    take(begin, taken);
  }
}

std::string readText(const std::filesystem::path &path, uint64_t most, Links links) {
  RegularFile file(path, links);
  if (file.size() > most)
    throw PlanError(fmt::format("{}: {} bytes, at most {} are read", path.string(), file.size(), most));
  std::string text(file.size(), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

} // namespace espalier::rt
