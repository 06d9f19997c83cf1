// The temporary file's name contains the process id, so two runs of one command do not write to the same file.
#include "runtime/files/atomic_file.h"

#include "messages/data_error.h"
#include "messages/write_fault.h"
#include "runtime/files/partial_path.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace espalier::rt {
namespace {

/// Flushes a file to the disk, part by part, so that a long flush is seen to go on. Returns whether it succeeded.
bool flushToDisk(int file) {
  constexpr off_t part = off_t{64} << 20;
  struct stat status = {};
  for (off_t at = 0; ::fstat(file, &status) == 0 && at < status.st_size; at += part)
    ::sync_file_range(file, at, part, SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
  return ::fsync(file) == 0; // reports the errors of all parts
}

} // namespace

AtomicFile::AtomicFile(std::string path) : target(std::move(path)) {
  std::filesystem::path name(target);
  if (std::string fault = nameFault(name); !fault.empty())
    throw DataError(target, "cannot write: " + fault);
  neighbour = partialPath(name).string();
  file = std::fopen(neighbour.c_str(), "wbxe");                     // "x": never opens an existing symbolic link
  if (!file && errno == EEXIST && ::unlink(neighbour.c_str()) == 0) // left by a killed process with the same id
    file = std::fopen(neighbour.c_str(), "wbxe");
  if (!file)
    throw DataError(target, fmt::format("cannot write: {}", whyNotWritten(target, errno)));
  ::flock(::fileno(file), LOCK_EX | LOCK_NB); // see sweepPartials()
}

AtomicFile::~AtomicFile() {
  if (!file)
    return;
  std::fclose(file);
  std::remove(neighbour.c_str());
}

void AtomicFile::write(const void *data, size_t bytes) {
  if (bytes != 0 && std::fwrite(data, 1, bytes, file) != bytes)
    throw DataError(target, fmt::format("cannot write {} bytes: {}", bytes, std::strerror(errno)));
}

void AtomicFile::commit(Flush flush) {
  if (std::fflush(file) != 0 || (flush == Flush::ToDisk && !flushToDisk(::fileno(file))))
    throw DataError(target, fmt::format("cannot write: {}", std::strerror(errno)));
  const char *fault = nullptr;
  if (std::fclose(std::exchange(file, nullptr)) != 0)
    fault = "cannot write";
  else if (std::rename(neighbour.c_str(), target.c_str()) != 0)
    fault = "cannot rename into place";
  if (int reason = errno; fault) {
    std::remove(neighbour.c_str());
    throw DataError(target, fmt::format("{}: {}", fault, std::strerror(reason)));
  }
}

void syncFile(const std::filesystem::path &path) {
  int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  bool isWritten = file >= 0 && flushToDisk(file);
  int reason = errno;
  if (file >= 0)
    ::close(file);
  if (!isWritten)
    throw DataError(path.string(), fmt::format("cannot write: {}", std::strerror(reason)));
}

void writeWhole(const std::filesystem::path &path, std::string_view text, Flush flush) {
  AtomicFile file(path.string());
  file.write(text.data(), text.size());
  file.commit(flush);
}

} // namespace espalier::rt
