// Implements `base_config` of older MindFormers files: other files whose sections are merged below the file's own.
#pragma once

#include "compiler/import/yaml/yaml.h"

#include <string>

namespace espalier {

/// Returns a deep merge: maps are merged key by key, and any other value comes from `over`.
YamlPtr mergedOver(const YamlPtr &base, const YamlPtr &over);

/// Returns `root` of `file` with its bases merged in, as MindFormers does. Later bases replace whole sections of
/// earlier ones. The file itself wins key by key. Paths are relative to the file that names them; a file that is not
/// there is searched in `folders`.
YamlPtr mergeBaseConfigs(const YamlPtr &root, const std::string &file, Diagnostics &diagnostics,
                         const std::vector<std::string> &folders = {});

} // namespace espalier
