// Writes a run file as text, from dotted keys.
#pragma once

#include "compiler/import/yaml/yaml_text.h"

#include <string>
#include <vector>

namespace espalier {

/// Collects keys and values. Sections keep the order of their first keys. Values are YAML text.
class RunFileWriter {
public:
  /// Sets `path` ("parallel_config.model_parallel"). `source` becomes the line's comment.
  void put(const std::string &path, const std::string &value, const std::string &source = "");

  /// Returns the run file.
  std::string text() const;

private:
  struct Node {
    std::string key, value, source;
    std::vector<Node> children;
  };
  static void write(const Node &node, int indent, std::string &text);

  Node root;
};

} // namespace espalier
