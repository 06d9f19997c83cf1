// Writes a YAML tree as text.
#pragma once

#include "compiler/import/yaml/yaml.h"

#include <string>

namespace espalier {

/// Returns a document in block style that parseYaml() reads as an equal tree. Comments and aliases are lost.
std::string yamlText(const YamlNode &root);

/// Returns the text as a scalar that is always a string: in single quotes, or in double quotes if it has control
/// characters.
std::string quotedYaml(const std::string &text);

} // namespace espalier
