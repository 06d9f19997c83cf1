// Tests the strict YAML reader: source locations, duplicate keys, limits, scalars.
#include "compiler/import/yaml/yaml.h"
#include "test/sanitizer.h"

#include <chrono>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

struct Parsed {
  YamlPtr root;
  Diagnostics diagnostics;
  std::string errors() const { return diagnostics.render(); }
};

Parsed parse(std::string_view text, const YamlLimits &limits = {}) {
  Parsed parsed;
  parsed.root = parseYaml("run.yaml", text, parsed.diagnostics, limits);
  return parsed;
}

YamlNode scalar(const std::string &text, bool quoted = false) {
  YamlNode node;
  node.kind = YamlNode::Kind::Scalar;
  node.text = text;
  node.quoted = quoted;
  return node;
}

TEST(Yaml, NodesHaveTheirLocation) {
  Parsed p = parse("a:\n  b: [1, two]\n");
  ASSERT_TRUE(p.root) << p.errors();
  const YamlNode *b = p.root->find("a")->find("b");
  ASSERT_EQ(b->items.size(), 2u);
  EXPECT_EQ(b->items[1]->text, "two");
  EXPECT_EQ(b->items[1]->where.line, 2);
  EXPECT_EQ(b->items[1]->where.column, 10);
  EXPECT_EQ(p.root->entries[0].keyWhere.column, 1);
}

TEST(Yaml, AllDuplicateKeysAreReportedWithCaret) {
  Parsed p = parse("a: 1\nb: 2\na: 3\nb: 4\n");
  EXPECT_EQ(p.errors(), "run.yaml:3:1: error: duplicate key 'a', first given on line 1\n  a: 3\n  ^\n"
                        "run.yaml:4:1: error: duplicate key 'b', first given on line 2\n  b: 4\n  ^\n");
  EXPECT_EQ(p.root->find("a")->text, "1");
}

TEST(Yaml, SyntaxErrorHasALocation) {
  EXPECT_THAT(parse("a: [1, 2\nb: 3\n").errors(), HasSubstr("error: not valid YAML: "));
  EXPECT_THAT(parse("a: *nowhere\n").errors(), StartsWith("run.yaml:1:4: error: not valid YAML"));
}

struct InWords {
  const char *text, *fault;
};
class YamlFault : public testing::TestWithParam<InWords> {};

// The parser's own messages name its states, such as "end of map not found".
TEST_P(YamlFault, SaysWhatToWrite) {
  Parsed p = parse(GetParam().text);
  EXPECT_FALSE(p.root);
  EXPECT_THAT(p.errors(), StartsWith(std::string("run.yaml:") + GetParam().fault)) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(
    Each, YamlFault,
    testing::Values(
        InWords{"a:\n\tb: 3\n", "2:1: error: not valid YAML: a tab indents this line; YAML takes spaces only"},
        InWords{"a:\n  b:\n \t c: 3\n", "3:2: error: not valid YAML: a tab indents this line"},
        InWords{"a:\n  b:\n     c: d\n   x: 3\n",
                "4:4: error: not valid YAML: this line is indented by 3 spaces; the sections above have 0, 2 or 5"},
        InWords{"a: 1\n b: 2\n",
                "2:2: error: not valid YAML: this line is indented by 1 space; the sections above have 0"},
        InWords{"a: [1, 2\nb: 3\n", "2:"}, InWords{"a: {b: 1\nc: 3\n", "2:2: error: not valid YAML: a list '[...]'"},
        InWords{"a: \"x\nb: 3\n", "1:4: error: a quote begins here and has no end"},
        InWords{"\xC3\xA4: 1\n\xC3\xB6: 'x\nb: 3\n", "2:5: error: a quote begins here and has no end"},
        InWords{"a: b: c\n", "1:5: error: not valid YAML: a second ':' in one line; put the value in quotes"},
        InWords{"a: @x\n",
                "1:4: error: not valid YAML: a value cannot begin with this character; put the value in quotes"},
        InWords{"a 3\nb: 2\n",
                "1:1: error: not valid YAML: this line is no `key: value`; is the ':' with a space missing?"},
        InWords{"b: 1\na:3\nc: 2\n", "2:1: error: not valid YAML: this line is no `key: value`"}));

TEST(Yaml, QuotesHaveAnEnd) {
  for (const char *text : {"a: 'it''s'\n", "a: \"x\\\"y\"\n", "\"a\": 1\n", "a: 'x\n  y'\n"})
    EXPECT_EQ(parse(text).errors(), "") << text;
}

TEST(Yaml, AnchorsAreShared) {
  Parsed p = parse("a: &x {b: 1}\nc: *x\n");
  ASSERT_TRUE(p.root) << p.errors();
  EXPECT_EQ(p.root->find("a"), p.root->find("c"));
}

TEST(Yaml, MergeKeyFillsIn) {
  Parsed p = parse("a: &x {b: 1, c: 2}\nd:\n  <<: *x\n  b: 3\n");
  ASSERT_FALSE(p.diagnostics.hasErrors()) << p.errors();
  EXPECT_EQ(p.root->find("d")->find("b")->text, "3");
  EXPECT_EQ(p.root->find("d")->find("c")->text, "2");
  EXPECT_THAT(parse("d:\n  <<: 3\n").errors(), HasSubstr("'<<' takes a map or a list of maps"));
  EXPECT_THAT(parse("d:\n  <<: [3]\n").errors(), HasSubstr("'<<' takes a map or a list of maps"));
}

TEST(Yaml, CyclicAnchorIsRefused) {
  EXPECT_THAT(parse("a: &x [1, *x]\n").errors(),
              StartsWith("run.yaml:1:11: error: an alias inside the node that it refers to would never end"));
}

TEST(Yaml, AliasBombIsRefusedQuickly) {
  std::string text = "l0: &l0 [x, x, x, x, x, x, x, x, x]\n";
  for (int i = 1; i < 20; ++i) {
    std::string below = "*l" + std::to_string(i - 1);
    text += "l" + std::to_string(i) + ": &l" + std::to_string(i) + " [" + below;
    for (int j = 0; j < 8; ++j)
      text += ", " + below;
    text += "]\n";
  }
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(parse(text).errors(), HasSubstr("more than 20000 nodes after the expansion of aliases"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(slowdown));
}

TEST(Yaml, DeepNestingIsRefused) {
  auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(parse("a: " + std::string(100000, '[')).errors(), HasSubstr("nesting is deeper than 32 levels"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(slowdown));
  // The limit also applies if each level is small and aliases cause the depth.
  std::string text = "a0: &a0 [1]\n";
  for (int i = 1; i < 40; ++i)
    text += "a" + std::to_string(i) + ": &a" + std::to_string(i) + " [*a" + std::to_string(i - 1) + "]\n";
  EXPECT_THAT(parse(text).errors(), HasSubstr("nesting is deeper than 32 levels"));
}

TEST(Yaml, LargeInputAndEmptyInputAreRefused) {
  YamlLimits limits;
  limits.bytes = 10;
  EXPECT_THAT(parse("a: 12345678\n", limits).errors(), HasSubstr("file has more than 10 bytes"));
  EXPECT_THAT(parse("").errors(), HasSubstr("file is empty"));
}

TEST(Yaml, OddDocumentsAreRefused) {
  EXPECT_THAT(parse("a: 1\n---\nb: 2\n").errors(), HasSubstr("a second document in one file"));
  EXPECT_THAT(parse("? [a, b]\n: 1\n").errors(), HasSubstr("a key must be a plain name"));
  EXPECT_THAT(parse("a: !secret x\n").errors(), HasSubstr("tag '!secret' has no meaning here, remove it"));
}

TEST(Yaml, EqualFilesAreParsedOnce) {
  std::string file = testing::TempDir() + "/known.yaml";
  auto load = [&](const std::string &text, bool hasErrors = false) {
    std::ofstream(file) << text;
    Diagnostics diagnostics;
    YamlPtr tree = loadYaml(file, diagnostics);
    EXPECT_EQ(diagnostics.hasErrors(), hasErrors) << text;
    return tree;
  };
  YamlPtr first = load("a: 1");
  ASSERT_TRUE(first);
  EXPECT_EQ(load("a: 1"), first);
  EXPECT_EQ(load("a: 2")->find("a")->text, "2");
  EXPECT_EQ(first->find("a")->text, "1");
  for (int time = 0; time < 2; ++time)
    load("a: 1\na: 2", /*hasErrors=*/true);
}

/// An import reads all model files, more than a hundred, each several times.
TEST(Yaml, ManyFilesStayParsed) {
  std::vector<YamlPtr> trees;
  for (int time = 0; time < 2; ++time)
    for (int i = 0; i < 500; ++i) {
      std::string file = testing::TempDir() + "/known" + std::to_string(i) + ".yaml";
      std::ofstream(file) << "a: " << i;
      Diagnostics diagnostics;
      trees.push_back(loadYaml(file, diagnostics));
      ASSERT_TRUE(trees.back());
    }
  for (size_t i = 0; i < 500; ++i)
    EXPECT_EQ(trees[i], trees[i + 500]) << i;
}

TEST(Yaml, MissingFileIsAnError) {
  Diagnostics diagnostics;
  EXPECT_EQ(loadYaml("/nowhere/run.yaml", diagnostics), nullptr);
  EXPECT_EQ(diagnostics.render(),
            "/nowhere/run.yaml: error: cannot read the file: No such file or directory: there is no folder /nowhere\n");
  Diagnostics folder;
  EXPECT_EQ(loadYaml("/", folder), nullptr);
  EXPECT_THAT(folder.render(), HasSubstr("cannot read the file"));
}

TEST(Yaml, NumbersOfYaml11) {
  EXPECT_EQ(yamlNumber(scalar("1e-8")), 1e-8);
  EXPECT_EQ(yamlNumber(scalar("3.e-4")), 3e-4);
  EXPECT_EQ(yamlNumber(scalar("+.5")), 0.5);
  EXPECT_EQ(yamlNumber(scalar("-2")), -2);
  EXPECT_EQ(yamlNumber(scalar("1e999")), std::nullopt);
  EXPECT_EQ(yamlNumber(scalar("nan")), std::nullopt);
  EXPECT_EQ(yamlNumber(scalar("1e-8", /*quoted=*/true)), std::nullopt);
  EXPECT_EQ(yamlInteger(scalar("1_000")), 1000);
  EXPECT_EQ(yamlInteger(scalar("1.0")), std::nullopt);
  EXPECT_EQ(yamlInteger(scalar("99999999999999999999")), std::nullopt);
}

TEST(Yaml, BoolsOfYaml11) {
  for (const char *yes : {"True", "true", "YES", "on"})
    EXPECT_EQ(yamlBool(scalar(yes)), true) << yes;
  for (const char *no : {"False", "no", "Off"})
    EXPECT_EQ(yamlBool(scalar(no)), false) << no;
  EXPECT_EQ(yamlBool(scalar("1")), std::nullopt);
  EXPECT_EQ(yamlBool(scalar("True", /*quoted=*/true)), std::nullopt);
}

TEST(Yaml, SizesAreBinary) {
  EXPECT_EQ(yamlBytes(scalar("30GB", /*quoted=*/true)), 30 * 0x1p30);
  EXPECT_EQ(yamlBytes(scalar("1.5 MiB")), 1.5 * 0x1p20);
  EXPECT_EQ(yamlBytes(scalar("1e9")), 1e9);
  EXPECT_EQ(yamlBytes(scalar("30 gigs")), std::nullopt);
  EXPECT_EQ(yamlBytes(scalar("-1GB")), std::nullopt);
  EXPECT_EQ(yamlBytes(scalar("GB")), std::nullopt);
}

TEST(Yaml, WithValueReplacesAndMakes) {
  Parsed p = parse("a: {b: 1}\nl: [1, 2]\n");
  YamlPtr value = parse("7").root;
  EXPECT_EQ(withValue(p.root, "a.b", value)->find("a")->find("b")->text, "7");
  EXPECT_EQ(withValue(p.root, "x.y.z", value)->find("x")->find("y")->find("z")->text, "7");
  EXPECT_EQ(withValue(p.root, "l.1", value)->find("l")->items[1]->text, "7");
  EXPECT_EQ(withValue(p.root, "l.2", value), nullptr);
  EXPECT_EQ(withValue(p.root, "a.b.c", value), nullptr);
  EXPECT_EQ(p.root->find("a")->find("b")->text, "1");
}

// Control bytes from a file are not printed, because they could control a terminal.
TEST(Yaml, ControlBytesAreNotShown) {
  std::string text = parse("a: \"\x1b[2J\\q\"\n").errors();
  EXPECT_THAT(text, HasSubstr("  a: \"?[2J"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
}

TEST(Yaml, FlowTextIsCutOnACharacterBorder) {
  EXPECT_EQ(flowText(*parse("a: [1, \"x\"]\nb: ~\n").root), "{a: [1, \"x\"], b: null}");
  std::string text = flowText(*parse("- " + std::string(76, 'a') + "ßßßßß\n").root);
  EXPECT_THAT(text, testing::EndsWith("a..."));
}

} // namespace
} // namespace espalier
