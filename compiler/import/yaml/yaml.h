// A strict YAML reader based on yaml-cpp's parser. Every node has a location, duplicate keys are errors, and the size
// of an input is limited (bytes, depth, nodes after alias expansion). The tree is shared and immutable, so an alias
// costs one pointer.
#pragma once

#include "compiler/import/yaml/diagnostics.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace espalier {

struct YamlNode;
using YamlPtr = std::shared_ptr<const YamlNode>;

/// A key of a map with its value.
struct YamlEntry {
  std::string key;
  SourceLocation keyWhere;
  YamlPtr value; ///< never null
};

/// A node of the YAML tree.
struct YamlNode {
  enum class Kind { Null, Scalar, Sequence, Map } kind = Kind::Null;
  SourceLocation where;
  std::string text;               ///< only for Scalar
  bool quoted = false;            ///< a quoted scalar is always a string
  std::vector<YamlPtr> items;     ///< only for Sequence
  std::vector<YamlEntry> entries; ///< only for Map, in file order
  size_t expandedNodes = 1;       ///< size of the subtree, with aliases counted as copies
  int depth = 1;

  bool isMap() const { return kind == Kind::Map; }
  bool isSequence() const { return kind == Kind::Sequence; }
  bool isScalar() const { return kind == Kind::Scalar; }
  /// Returns the value of a map's key, or null.
  const YamlNode *find(std::string_view key) const;
};

/// Limits of a YAML input.
struct YamlLimits {
  size_t bytes = 1 << 20;
  size_t expandedNodes = 20000;
  int depth = 32;
};

/// Reads one document. Reports errors to `diagnostics`. Returns null if nothing usable was read.
YamlPtr parseYaml(const std::string &file, std::string_view text, Diagnostics &diagnostics,
                  const YamlLimits &limits = {});

/// Reads a whole file. Returns null and reports the reason if that fails. A process parses files with equal names and
/// texts once, if they have no faults.
YamlPtr loadYaml(const std::string &file, Diagnostics &diagnostics, const YamlLimits &limits = {});

/// Reads a file that is a map. `what` says what it is, such as "a system is a map of its constants".
YamlPtr loadYamlMap(const std::string &file, const std::string &what, Diagnostics &diagnostics);

/// Returns a copy of `root` in which `path` ("a.b.c", list items by index) holds `value`. Missing maps are added.
/// Returns null if the path passes through a scalar or beyond the end of a list.
YamlPtr withValue(const YamlPtr &root, std::string_view path, const YamlPtr &value);

/// Returns one line of text for a node: scalars as written, lists and maps in flow style, cut at 80 characters.
std::string flowText(const YamlNode &node);

// Convert scalars according to YAML 1.1. Quoted scalars are only strings, except that yamlBytes accepts them.
std::optional<bool> yamlBool(const YamlNode &node);       ///< true/false, yes/no, on/off
std::optional<int64_t> yamlInteger(const YamlNode &node); ///< decimal, optional sign and underscores
std::optional<double> yamlNumber(const YamlNode &node);   ///< also 1e-8, 3.e-4, .5; finite only
/// Returns the text of a scalar, or of each entry of a list. Empty for null and for a null pointer.
std::vector<std::string> yamlTexts(const YamlNode *node);
/// Returns a size in bytes: "30GB" (binary as in MindSpore: 1GB = 2^30), "64KB", "1.5 GB", or a plain number.
std::optional<double> yamlBytes(const YamlNode &node);

} // namespace espalier
