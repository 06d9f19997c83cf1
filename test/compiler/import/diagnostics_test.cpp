// Order, form and suggestions of findings.
#include "compiler/import/diagnostics.h"

#include <gtest/gtest.h>

namespace espalier {
namespace {

TEST(Diagnostics, AreSortedByPlaceAndKeptOnce) {
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

TEST(Diagnostics, NearestNameIsNearEnough) {
  EXPECT_EQ(nearestName("hiden_size", {"vocab_size", "hidden_size"}), "hidden_size");
  EXPECT_EQ(nearestName("xyzzy", {"vocab_size", "hidden_size"}), "");
  EXPECT_EQ(nearestName(std::string(1000, 'x'), {"x"}), "");
  EXPECT_EQ(didYouMean("sed", {"seed"}), ", did you mean 'seed'?");
}

} // namespace
} // namespace espalier
