// Tests the order and format of diagnostics, and suggestions for misspelt names.
#include "compiler/import/yaml/diagnostics.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Diagnostics, AreSortedByLocationAndUnique) {
  Diagnostics d;
  d.addSource("a.yaml", "x: 1\n\ty: 2\n");
  d.error({"a.yaml", 2, 2}, "second");
  d.warning({"a.yaml", 1, 1}, "first");
  d.error({"a.yaml", 2, 2}, "second");
  d.error({"a.yaml", 0, 0}, "whole file");
  EXPECT_EQ(d.render(), "a.yaml: error: whole file\n"
                        "a.yaml:1:1: warning: first\n  x: 1\n  ^\n"
                        "a.yaml:2:2: error: second\n  \ty: 2\n  \t^\n");
}

TEST(Diagnostics, WarningsAreNoErrors) {
  Diagnostics d;
  d.warning({"a.yaml", 1, 1}, "only this");
  EXPECT_FALSE(d.hasErrors());
  d.error({"a.yaml", 9, 1}, "a line that the text does not have");
  EXPECT_TRUE(d.hasErrors());
}

TEST(Diagnostics, LongLinesAndLongListsAreTruncated) {
  Diagnostics d;
  d.addSource("a.yaml", std::string(5000, 'x') + "y" + std::string(5000, 'z'));
  d.error({"a.yaml", 1, 5001}, "here");
  std::string text = d.render();
  EXPECT_LT(text.size(), 400u);
  // The caret is below the y: both are the 83rd character of their line.
  EXPECT_EQ(text.find('y', 20) - text.find("\n  x"), text.rfind('^') - text.find("\n   "));
  for (int i = 0; i < 300; ++i)
    d.error({"b.yaml", i + 1, 1}, "again");
  text = d.render();
  EXPECT_NE(text.find("b.yaml:20:1: error: again\nb.yaml: ... and 280 more errors\n"), std::string::npos);
  EXPECT_EQ(text.find("b.yaml:21:"), std::string::npos);
  for (int i = 0; i < 21; ++i) // warnings do not hide errors
    d.warning({"a.yaml", i + 1, 1}, "less");
  text = d.render();
  EXPECT_NE(text.find("a.yaml:1:5001: error: here"), std::string::npos);
  EXPECT_NE(text.find("a.yaml: ... and 1 more warning\n"), std::string::npos);
}

TEST(Diagnostics, NearestNameIsNearEnough) {
  EXPECT_EQ(nearestName("hiden_size", {"vocab_size", "hidden_size"}), "hidden_size");
  EXPECT_EQ(nearestName("h100", {"h100_dgx", "h200"}), "h100_dgx");
  EXPECT_EQ(nearestName("xyzzy", {"vocab_size", "hidden_size"}), "");
  EXPECT_EQ(nearestName(std::string(1000, 'x'), {"x"}), "");
  EXPECT_EQ(didYouMean("sed", {"seed"}), ", did you mean 'seed'?");
}

} // namespace
} // namespace espalier
