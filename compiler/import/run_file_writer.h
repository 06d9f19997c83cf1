// A run file as text, from dotted keys.
#pragma once

#include <string>
#include <vector>

namespace espalier {

/// As a single-quoted scalar.
std::string quotedYaml(const std::string &text);

/// Keeps sections in the order in which their first keys come. Values are YAML as given.
class RunFileWriter {
public:
  /// Sets `path` ("parallel_config.model_parallel"); `source` becomes the line's comment.
  void put(const std::string &path, const std::string &value, const std::string &source = "");

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
