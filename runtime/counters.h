// Names of the counters of a layer with experts. The compiler makes the counters, and a training run reads them.
#pragma once

#include <string_view>

namespace espalier::rt {

/// The choices of each expert, and the choices beyond its capacity. A number tells the routers of a layer apart.
inline constexpr std::string_view chosenCounter = "chosen", droppedCounter = "dropped";

} // namespace espalier::rt
