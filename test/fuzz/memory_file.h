// Passes bytes in memory to parsers that read files.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace espalier::fuzz {

/// A nameless file in memory with a path(). Aborts if the system has no memory.
class MemoryFile {
public:
  MemoryFile(const uint8_t *data, size_t size) : descriptor(::memfd_create("input", 0)) {
    if (descriptor < 0 || ::write(descriptor, data, size) != static_cast<ssize_t>(size))
      std::abort();
  }
  ~MemoryFile() { ::close(descriptor); }
  MemoryFile(const MemoryFile &) = delete;
  MemoryFile &operator=(const MemoryFile &) = delete;
  std::string path() const { return "/proc/self/fd/" + std::to_string(descriptor); }

private:
  int descriptor;
};

} // namespace espalier::fuzz
