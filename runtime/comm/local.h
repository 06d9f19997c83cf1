// Ranks as threads of one process. They read each other's memory directly, without staging buffers.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared state of `ranks` communicators in this process.
class LocalWorld final : public World {
public:
  explicit LocalWorld(int ranks);
};

} // namespace espalier::rt
