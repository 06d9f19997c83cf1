#include "runtime/tokenizer/prefix_tree.h"

#include "messages/data_error.h"

#include <fmt/format.h>

namespace espalier::rt {

PrefixTree::PrefixTree(const std::string &file, std::vector<Entry> entries) {
  std::ranges::sort(entries, {}, [](const Entry &entry) { return std::pair(entry.text, entry.value); });
  for (const Entry &entry : entries)
    if (entry.text.size() > longestEntry)
      throw DataError(file, fmt::format("token {} has {} bytes, at most {} are read", entry.value, entry.text.size(),
                                        longestEntry));
  struct Part { // the entries below a node
    size_t begin, end, depth;
  };
  std::vector<Part> parts = {{0, entries.size(), 0}};
  nodes.emplace_back();
  for (size_t at = 0; at < nodes.size(); ++at) {
    auto [begin, end, depth] = parts[at];
    for (; begin < end && entries[begin].text.size() == depth; ++begin)
      nodes[at].value = entries[begin].value;
    nodes[at].firstChild = static_cast<uint32_t>(nodes.size());
    while (begin < end) {
      char byte = entries[begin].text[depth];
      size_t first = begin;
      while (begin < end && entries[begin].text[depth] == byte)
        ++begin;
      nodes.push_back({.byte = static_cast<uint8_t>(byte)});
      parts.push_back({first, begin, depth + 1});
      ++nodes[at].childCount;
    }
  }
}

} // namespace espalier::rt
