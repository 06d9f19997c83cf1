// Memory that the threads of one process share.
#pragma once

#include "runtime/comm/shared_segment.h"

#include <mutex>

namespace espalier::rt {

/// Small allocations are cut from chunks; large allocations get their own mapping.
class ProcessMemory final : public SharedMemory {
public:
  ProcessMemory() = default;
  ~ProcessMemory() override;
  ProcessMemory(const ProcessMemory &) = delete;
  ProcessMemory &operator=(const ProcessMemory &) = delete;

  void *take(size_t bytes) override;

private:
  std::span<std::byte> map(size_t bytes);

  std::mutex mutex; ///< locked only while loading, and when a post needs more room than before
  std::vector<std::span<std::byte>> mapped;
  std::span<std::byte> left; ///< unused bytes of the last chunk
};

} // namespace espalier::rt
