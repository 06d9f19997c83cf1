// `base_config` of older MindFormers files: other files whose sections are merged below the file's
// own.
#pragma once

#include "compiler/import/yaml.h"

#include <string>

namespace espalier {

/// Deep merge: maps key by key, anything else from `over`.
YamlPtr mergedOver(const YamlPtr &base, const YamlPtr &over);

/// `root` of `file` with its bases merged in: later bases replace whole sections of earlier ones,
/// and the file itself wins key by key, as MindFormers does. Paths are relative to the file that
/// names them.
YamlPtr mergeBaseConfigs(const YamlPtr &root, const std::string &file, Diagnostics &diagnostics);

} // namespace espalier
