// Tests that a written tree is read as an equal tree.
#include "compiler/import/yaml/yaml_text.h"

#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>

namespace espalier {
namespace {

YamlPtr parse(const std::string &text) {
  Diagnostics diagnostics;
  YamlPtr root = parseYaml("x.yaml", text, diagnostics);
  EXPECT_FALSE(diagnostics.hasErrors()) << diagnostics.render() << text;
  return root;
}

void expectEqual(const YamlNode &a, const YamlNode &b, const std::string &path) {
  EXPECT_EQ(a.kind, b.kind) << path;
  EXPECT_EQ(a.text, b.text) << path;
  EXPECT_EQ(a.quoted, b.quoted) << path;
  ASSERT_EQ(a.items.size(), b.items.size()) << path;
  ASSERT_EQ(a.entries.size(), b.entries.size()) << path;
  for (size_t i = 0; i < a.items.size(); ++i)
    expectEqual(*a.items[i], *b.items[i], path + "/" + std::to_string(i));
  for (size_t i = 0; i < a.entries.size(); ++i) {
    EXPECT_EQ(a.entries[i].key, b.entries[i].key) << path;
    expectEqual(*a.entries[i].value, *b.entries[i].value, path + "/" + a.entries[i].key);
  }
}

void expectRoundTrip(const std::string &text) {
  YamlPtr root = parse(text);
  ASSERT_TRUE(root);
  std::string written = yamlText(*root);
  YamlPtr again = parse(written);
  ASSERT_TRUE(again) << written;
  expectEqual(*root, *again, written);
  EXPECT_EQ(yamlText(*again), written);
}

TEST(YamlText, ScalarsKeepTheirKindAndText) {
  expectRoundTrip(
      "a: 1\nb: '1'\nc: null\nd: ~\ne: ''\nf: \"two\\nlines\\t'x' \\\"y\\\" \\\\ \\x01\"\ng: it's\nh: True\n"
      "i: a - b\nj: |\n  first\n    second\nk: >-\n  folded\n  text\nl: 'null'\nm: '#no comment'\nn: größe\n");
}

TEST(YamlText, CollectionsNest) {
  expectRoundTrip("a: {}\nb: []\nc: [1, [2, []], {x: 1, y: [a, b]}]\nd:\n- - 1\n  - 2\n- {k: {}}\n- null\n");
  expectRoundTrip("[a, {b: c}]");
  expectRoundTrip("{}");
}

TEST(YamlText, KeysAreQuotedIfNeeded) {
  expectRoundTrip("'a: b': 1\n'{layer}': 2\n'- x': 3\n'': 4\n'12': 5\nmodel.layers.{i}.w: 6\n'it''s': 7\n'*x': 8\n");
}

TEST(YamlText, ShippedFilesAreEqualAfterwards) {
  int count = 0;
  for (const auto &entry : std::filesystem::recursive_directory_iterator(ESPALIER_SOURCE_DIR "/configs"))
    if (entry.path().extension() == ".yaml") {
      std::ifstream stream(entry.path());
      expectRoundTrip({std::istreambuf_iterator<char>(stream), {}});
      ++count;
    }
  EXPECT_GT(count, 40);
}

} // namespace
} // namespace espalier
