// Names of the counters of a layer. The compiler makes the counters, and a training run reads them.
#pragma once

#include <string_view>

namespace espalier::rt {

/// The choices of each expert, and the choices beyond its capacity. A number tells the routers of a layer apart.
inline constexpr std::string_view chosenCounter = "chosen", droppedCounter = "dropped";

/// The largest attention scores of each key-value head in a step, for QK-clip. Between steps, the counter has the
/// negated maxima of the last step, or 0 for those below 0. A number tells the attentions of a layer apart.
inline constexpr std::string_view largestCounter = "largest";

} // namespace espalier::rt
