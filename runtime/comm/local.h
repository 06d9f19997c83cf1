// Ranks as threads of one process: they read each other's memory directly, nothing is staged.
#pragma once

#include "runtime/comm/world.h"

namespace espalier::rt {

/// The shared side of `ranks` communicators of this process.
class LocalWorld final : public World {
public:
  explicit LocalWorld(int ranks);
};

} // namespace espalier::rt
