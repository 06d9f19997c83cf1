// The marks that tell what a file or folder of Espalier is.
#pragma once

namespace espalier::rt {

/// The name of the manifest in a checkpoint's folder.
inline constexpr const char *manifestName = "manifest.json";

} // namespace espalier::rt
