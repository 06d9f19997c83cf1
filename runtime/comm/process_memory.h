// Memory of one process, for what its threads share.
#pragma once

#include "runtime/comm/board.h"

#include <mutex>

namespace espalier::rt {

/// Small pieces are cut from chunks; large ones are mapped by themselves.
class ProcessMemory final : public SharedMemory {
public:
  ProcessMemory() = default;
  ~ProcessMemory() override;
  ProcessMemory(const ProcessMemory &) = delete;
  ProcessMemory &operator=(const ProcessMemory &) = delete;

  void *take(size_t bytes) override;

private:
  std::span<std::byte> map(size_t bytes);

  std::mutex mutex; ///< taken while loading only, and where a post needs more room than ever before
  std::vector<std::span<std::byte>> mapped;
  std::span<std::byte> left; ///< of the last chunk
};

} // namespace espalier::rt
