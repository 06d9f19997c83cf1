// Implements `base_config` of older MindFormers files: other files whose sections are merged below the file's own.
#pragma once

#include "compiler/import/yaml/yaml.h"

#include <string>

namespace espalier {

/// Returns a deep merge: maps are merged key by key, and any other value comes from `over`.
YamlPtr mergedOver(const YamlPtr &base, const YamlPtr &over);

/// How a base is merged over an earlier base of the same file.
enum class BaseMerge {
  Sections, ///< its sections replace those of the earlier base, as in MindFormers
  Keys,     ///< key by key; a null of a model file removes the entry of its base
};

/// Returns `root` of `file` with its bases merged in, in their order. The file itself wins key by key. Paths are
/// relative to the file that names them; a file that is not there is searched in `folders`.
YamlPtr mergeBaseConfigs(const YamlPtr &root, const std::string &file, Diagnostics &diagnostics, BaseMerge merge,
                         const std::vector<std::string> &folders = {});

} // namespace espalier
