// Finds all entries of a vocabulary that a text starts with. Each byte of the text costs one step in a tree, whatever
// the number of entries.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// A tree of texts with a value each.
class PrefixTree {
public:
  /// The longest permitted entry in bytes. It bounds the time per position of a text.
  static constexpr size_t longestEntry = 1024;

  struct Entry {
    std::string_view text;
    int32_t value = 0; // not negative
  };
  /// Builds the tree. The largest value of equal texts counts. Entries without text are dropped. Throws DataError
  /// naming `file` for an entry above longestEntry.
  explicit PrefixTree(const std::string &file = "", std::vector<Entry> entries = {});

  /// Calls visit(bytes, value) for each entry that `text` starts with, the shortest first.
  template <typename Visit> void visitPrefixes(std::string_view text, Visit visit) const {
    const Node *node = nodes.data();
    for (size_t at = 0; at < text.size() && node->childCount > 0; ++at) {
      std::span children(nodes.data() + node->firstChild, node->childCount);
      auto found = std::ranges::lower_bound(children, static_cast<uint8_t>(text[at]), {}, &Node::byte);
      if (found == children.end() || found->byte != static_cast<uint8_t>(text[at]))
        return;
      node = &*found;
      if (node->value >= 0)
        visit(at + 1, node->value);
    }
  }
  /// Returns the longest entry that `text` starts with: its bytes and value, or 0 bytes and -1.
  std::pair<size_t, int32_t> longest(std::string_view text) const {
    std::pair<size_t, int32_t> found = {0, -1};
    visitPrefixes(text, [&](size_t bytes, int32_t value) { found = {bytes, value}; });
    return found;
  }

private:
  struct Node {
    uint32_t firstChild = 0;
    int32_t value = -1; // -1: no entry ends here
    uint16_t childCount = 0;
    uint8_t byte = 0;
  };
  std::vector<Node> nodes; // the children of a node are neighbours, sorted by byte
};

} // namespace espalier::rt
