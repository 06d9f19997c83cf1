// A strict reading of YAML over yaml-cpp's parser: every node knows its place, duplicate keys are
// errors, and the work an input can ask for is bounded (bytes, depth, nodes after alias expansion).
// The tree is shared and immutable, so an alias costs a pointer, whatever it refers to.
#pragma once

#include "compiler/import/diagnostics.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct YamlNode;
using YamlPtr = std::shared_ptr<const YamlNode>;

struct YamlEntry {
  std::string key;
  SourceLocation keyWhere;
  YamlPtr value; ///< never null
};

struct YamlNode {
  enum class Kind { Null, Scalar, Sequence, Map } kind = Kind::Null;
  SourceLocation where;
  std::string text;               ///< Scalar only
  bool quoted = false;            ///< a quoted scalar is a string, whatever it looks like
  std::vector<YamlPtr> items;     ///< Sequence only
  std::vector<YamlEntry> entries; ///< Map only, in file order
  size_t expandedNodes = 1;       ///< size of the subtree with aliases counted as copies
  int depth = 1;

  bool isMap() const { return kind == Kind::Map; }
  bool isSequence() const { return kind == Kind::Sequence; }
  bool isScalar() const { return kind == Kind::Scalar; }
  /// The value of a key of a map, or null.
  const YamlNode *find(std::string_view key) const;
};

struct YamlLimits {
  size_t bytes = 1 << 20;
  size_t expandedNodes = 20000;
  int depth = 32;
};

/// Reads one document. Faults go to `diagnostics`; a null result means that nothing usable was
/// read.
YamlPtr parseYaml(const std::string &file, std::string_view text, Diagnostics &diagnostics,
                  const YamlLimits &limits = {});

/// Reads a whole file, or reports why not.
YamlPtr loadYaml(const std::string &file, Diagnostics &diagnostics, const YamlLimits &limits = {});

/// A copy of `root` in which `path` ("a.b.c", list items by number) holds `value`. Missing maps are
/// made. Null when the path goes through a scalar or past the end of a list.
YamlPtr withValue(const YamlPtr &root, std::string_view path, const YamlPtr &value);

/// One line of text for a node: scalars as written, lists and maps in flow style, cut at 80
/// characters.
std::string flowText(const YamlNode &node);

// Scalars as YAML 1.1 reads them. Quoted scalars are strings only, but for sizes.
std::optional<bool> yamlBool(const YamlNode &node);       ///< true/false, yes/no, on/off
std::optional<int64_t> yamlInteger(const YamlNode &node); ///< decimal, optional sign and underscores
std::optional<double> yamlNumber(const YamlNode &node);   ///< also 1e-8, 3.e-4, .5; finite only
/// The text of a scalar, or of each entry of a list; empty for null and for no node.
std::vector<std::string> yamlTexts(const YamlNode *node);
/// Bytes: "30GB" (binary, as MindSpore counts: 1GB = 2^30), "64KB", "1.5 GB", or a plain number.
std::optional<double> yamlBytes(const YamlNode &node);

} // namespace espalier
