// Readers of files, fed from memory.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace espalier::fuzz {

/// A file without a name, reachable as path(); aborts where the system has no more memory.
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
