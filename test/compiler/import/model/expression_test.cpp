// Tests arithmetic expressions in model files.
#include "compiler/import/model/expression.h"

#include <cmath>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace espalier {
namespace {

using testing::HasSubstr;

ExpressionValue evaluate(std::string_view text) {
  return evaluateExpression(text, [](const std::string &name, bool &known) -> std::optional<double> {
    known = name == "h" || name == "layers" || name == "unset";
    if (name == "unset" || !known)
      return std::nullopt;
    return name == "h" ? 4096 : 32;
  });
}

TEST(Expression, Arithmetic) {
  EXPECT_EQ(evaluate("1 + 2 * 3 - 4 / 2").value, 5);
  EXPECT_EQ(evaluate("-(1 - 3) * 2").value, 4);
  EXPECT_DOUBLE_EQ(*evaluate("0.02 / sqrt(2 * layers)").value, 0.02 / 8);
  EXPECT_DOUBLE_EQ(*evaluate("1 + log(layers)").value, 1 + std::log(32.0));
  EXPECT_EQ(evaluate("max(min(3, 5), 2)").value, 3);
}

TEST(Expression, LlamaWidth) {
  EXPECT_EQ(evaluate("256 * ceil(floor(floor(first_of(unset + 0.01, 1) * 4 * h) * 2 / 3) / 256)").value, 11008);
}

TEST(Expression, UnsetSpreadsUntilFirstOf) {
  ExpressionValue value = evaluate("unset * 2");
  EXPECT_EQ(value.value, std::nullopt);
  EXPECT_EQ(value.fault, "");
  EXPECT_EQ(evaluate("first_of(unset, 7, h)").value, 7);
  EXPECT_EQ(evaluate("first_of(unset)").value, std::nullopt);
}

TEST(Expression, FaultsHaveALocation) {
  EXPECT_THAT(evaluate("1 +").fault, HasSubstr("a number or a name is missing"));
  EXPECT_THAT(evaluate("(1").fault, HasSubstr("')' is missing"));
  EXPECT_THAT(evaluate("floor(1").fault, HasSubstr("')' is missing"));
  EXPECT_THAT(evaluate("1 2").fault, HasSubstr("unexpected '2'"));
  EXPECT_THAT(evaluate(".").fault, HasSubstr("number expected"));
  EXPECT_THAT(evaluate("h / 0").fault, HasSubstr("division by zero"));
  EXPECT_THAT(evaluate("width").fault, HasSubstr("'width' is not defined"));
  EXPECT_THAT(evaluate("exp(2)").fault, HasSubstr("no function 'exp'"));
  EXPECT_THAT(evaluate("min(2)").fault, HasSubstr("min takes 2 arguments, got 1"));
  EXPECT_THAT(evaluate("sqrt(-1)").fault, HasSubstr("not a finite number"));
}

TEST(Expression, IsBounded) {
  EXPECT_THAT(evaluate(std::string(500, '(')).fault, HasSubstr("nested deeper than 32 levels"));
  EXPECT_THAT(evaluate(std::string(2000, '1')).fault, HasSubstr("longer than 1000 characters"));
}

TEST(Expression, NamesAreRecorded) { EXPECT_THAT(evaluate("h / layers").names, testing::ElementsAre("h", "layers")); }

} // namespace
} // namespace espalier
