// zlib also reads uncompressed files, so both kinds use the same code.
#include "runtime/dataset/line_reader.h"

#include "format/path_kind.h"
#include "messages/data_error.h"
#include "runtime/dataset/text_check.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>
#include <zlib.h>

namespace espalier::rt {

namespace {
constexpr size_t blockBytes = 1U << 20;
constexpr size_t longestLine = 1U << 30;

/// Returns whether the descriptor is a named pipe, which may never have a writer. Pipes that a shell passes as
/// /dev/fd/N have a writer.
bool isNamedPipe(int descriptor) {
  struct stat status = {};
  if (::fstat(descriptor, &status) != 0 || !S_ISFIFO(status.st_mode))
    return false;
  std::error_code error;
  std::filesystem::path target = std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", descriptor), error);
  return error || !target.string().starts_with("pipe:");
}

/// Opens a file without waiting for a writer. Reads block as usual.
int openInput(const std::string &path) {
  int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    throw DataError(path, fmt::format("cannot open: {}", whyNotOpened(path, errno)));
  if (isNamedPipe(descriptor)) {
    ::close(descriptor);
    throw DataError(path, fmt::format("is a pipe, want a file; to read from it: cat {} | ... -", path));
  }
  ::fcntl(descriptor, F_SETFL, ::fcntl(descriptor, F_GETFL) & ~O_NONBLOCK);
  return descriptor;
}
} // namespace

LineReader::LineReader(const std::string &path, int64_t begin, int64_t end)
    : name(path == "-" ? standardInput : path), offset(begin), limit(end) {
  int descriptor = path == "-" ? ::dup(STDIN_FILENO) : openInput(path);
  if (descriptor < 0)
    throw DataError(name, fmt::format("cannot open: {}", std::strerror(errno)));
  struct stat status = {};
  if (::fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode)) {
    ::close(descriptor);
    throw DataError(name, folderWay(name));
  }
  // Seeks one byte early and skips to the next line break, so that a line that starts exactly at `begin` belongs to the
  // range.
  if (begin > 0 && ::lseek(descriptor, begin - 1, SEEK_SET) < 0) {
    ::close(descriptor);
    throw DataError(name, fmt::format("cannot seek: {}", std::strerror(errno)));
  }
  file = ::gzdopen(descriptor, "rb");
  if (!file) {
    ::close(descriptor);
    throw DataError(name, "cannot open for reading");
  }
  ::gzbuffer(file, blockBytes);
  buffer.resize(2 * blockBytes);
  if (begin == 0) {
    if (name.ends_with(".gz") && ::gzdirect(file)) {
      ::gzclose_r(file);
      throw DataError(name, "the name ends in .gz, but the content is not gzip; rename the file or compress it");
    }
    return;
  }
  isAtStart = false;
  std::string_view rest;
  --offset;
  next(rest);
  line = 0;
}

LineReader::~LineReader() { ::gzclose_r(file); }

int64_t LineReader::bytesRead() const { return ::gzoffset(file); }

int64_t LineReader::linesBefore(const std::string &path, int64_t byte) {
  if (byte == 0)
    return 0;
  std::ifstream file(path, std::ios::binary);
  std::vector<char> block(blockBytes);
  int64_t lines = 1;
  for (int64_t left = byte - 1; left > 0 && file; left -= file.gcount()) {
    file.read(block.data(), std::min<int64_t>(left, blockBytes));
    lines += std::count(block.begin(), block.begin() + file.gcount(), '\n');
  }
  return lines;
}

bool LineReader::refill() {
  if (isDone)
    return false;
  if (start > 0) {
    std::memmove(buffer.data(), buffer.data() + start, end - start);
    end -= start;
    start = 0;
  }
  if (end > longestLine)
    throw DataError(name, fmt::format("a line of more than {} bytes", longestLine), line + 1);
  if (buffer.size() - end < blockBytes)
    buffer.resize(2 * buffer.size());
  int got = ::gzread(file, buffer.data() + end, blockBytes);
  int fault = Z_OK;
  const char *reason = ::gzerror(file, &fault);
  if (got < 0 || (fault != Z_OK && fault != Z_STREAM_END))
    throw DataError(name,
                    fault == Z_BUF_ERROR ? std::string("the gzip data end too early")
                                         : fmt::format("cannot read: {}", reason),
                    line + 1);
  isDone = got == 0;
  end += static_cast<size_t>(got);
  if (std::exchange(isAtStart, false))
    requireTextFormat(name, std::string_view(buffer).substr(0, end));
  return got > 0;
}

bool LineReader::next(std::string_view &text) {
  if (offset >= limit)
    return false;
  size_t searched = start;
  while (true) {
    const char *from = buffer.data() + searched;
    auto found = static_cast<const char *>(std::memchr(from, '\n', end - searched));
    if (found) {
      text = {buffer.data() + start, static_cast<size_t>(found - buffer.data()) - start};
      start = found - buffer.data() + 1;
      offset += static_cast<int64_t>(text.size()) + 1;
      hadNewline = true;
      ++line;
      return true;
    }
    size_t pending = end - start;
    if (!refill())
      break;
    searched = start + pending;
  }
  if (start == end)
    return false;
  text = {buffer.data() + start, end - start};
  start = end;
  offset += static_cast<int64_t>(text.size());
  hadNewline = false;
  ++line;
  return true;
}

} // namespace espalier::rt
