// Maps files with mmap and distinguishes the three common errors: missing, a directory, no permission.
#include "runtime/files/mapped_file.h"

#include "format/path_kind.h"
#include "messages/data_error.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace espalier::rt {

namespace {
/// Closes a descriptor at the end of its scope. The mapping remains valid.
struct Descriptor {
  int number;
  ~Descriptor() {
    if (number >= 0)
      ::close(number);
  }
};
} // namespace

MappedFile::MappedFile(const std::string &path) {
  // O_NONBLOCK: opening a pipe without a writer would block.
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.number < 0)
    throw DataError(path, fmt::format("cannot open: {}", whyNotOpened(path, errno)));
  struct stat status = {};
  if (::fstat(file.number, &status) != 0)
    throw DataError(path, fmt::format("cannot read its size: {}", std::strerror(errno)));
  if (!S_ISREG(status.st_mode))
    throw DataError(path, "not a regular file");
  length = static_cast<size_t>(status.st_size);
  if (length == 0)
    return;
  void *mapped = ::mmap(nullptr, length, PROT_READ, MAP_PRIVATE, file.number, 0);
  if (mapped == MAP_FAILED)
    throw DataError(path, fmt::format("cannot map {} bytes: {}", length, std::strerror(errno)));
  start = static_cast<const uint8_t *>(mapped);
}

MappedFile::~MappedFile() {
  if (start)
    ::munmap(const_cast<uint8_t *>(start), length);
}

MappedFile::MappedFile(MappedFile &&other) noexcept
    : start(std::exchange(other.start, nullptr)), length(std::exchange(other.length, 0)) {}

MappedFile &MappedFile::operator=(MappedFile &&other) noexcept {
  std::swap(start, other.start);
  std::swap(length, other.length);
  return *this;
}

bool isRegularFile(const std::string &path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode);
}

std::string readWholeFile(const std::string &path, uint64_t limitBytes) {
  MappedFile file(path);
  std::span<const uint8_t> bytes = file.bytes();
  if (bytes.size() > limitBytes)
    throw DataError(path, fmt::format("{} bytes, at most {} are read", bytes.size(), limitBytes));
  return std::string(reinterpret_cast<const char *>(bytes.data()), bytes.size());
}

} // namespace espalier::rt
