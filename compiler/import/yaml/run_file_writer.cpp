#include "compiler/import/yaml/run_file_writer.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier {

void RunFileWriter::put(const std::string &path, const std::string &value, const std::string &source) {
  Node *node = &root;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    std::string key = path.substr(begin, end - begin);
    auto found =
        std::find_if(node->children.begin(), node->children.end(), [&](const Node &child) { return child.key == key; });
    if (found == node->children.end())
      found = node->children.insert(found, Node{key, "", "", {}});
    node = &*found;
    begin = end + 1;
  }
  node->value = value;
  node->source = source;
}

// The recursion depth is the number of dots of a key.
void RunFileWriter::write(const Node &node, int indent, std::string &text) {
  for (const Node &child : node.children) {
    text += std::string(static_cast<size_t>(indent), ' ') + child.key + ":";
    if (child.children.empty())
      text += " " + child.value + (child.source.empty() ? "" : "  # " + child.source);
    text += "\n";
    write(child, indent + 2, text);
  }
}

std::string RunFileWriter::text() const {
  std::string text;
  write(root, 0, text);
  return text;
}

} // namespace espalier
