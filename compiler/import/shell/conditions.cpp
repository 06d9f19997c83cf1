#include "compiler/import/shell/conditions.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>

namespace espalier::shell {

namespace {

bool isOneOf(const std::string &text, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), text) != names.end();
}

bool comparesNumbers(const std::string &sign) { return isOneOf(sign, {"-eq", "-ne", "-lt", "-le", "-gt", "-ge"}); }

bool comparesFiles(const std::string &sign) { return isOneOf(sign, {"-nt", "-ot", "-ef"}); }

bool isBinary(const std::string &sign) {
  return isOneOf(sign, {"=", "==", "!=", "<", ">"}) || comparesNumbers(sign) || comparesFiles(sign);
}

Truth both(const Truth &left, const Truth &right) {
  if (left.value == Truth::No || right.value == Truth::No)
    return Truth::of(false);
  return left.value == Truth::Unknown ? left : right;
}

Truth either(const Truth &left, const Truth &right) { return both(left.negated(), right.negated()).negated(); }

bool compare(const std::string &sign, int64_t left, int64_t right) {
  return sign == "-eq"   ? left == right
         : sign == "-ne" ? left != right
         : sign == "-lt" ? left < right
         : sign == "-le" ? left <= right
         : sign == "-gt" ? left > right
                         : left >= right;
}

/// Compares texts as = does. Texts with unknown parts may be equal unless one of them is empty.
Truth areEqual(const Text &left, const Text &right) {
  Cause unknown = left.unknown() ? left.unknown() : right.unknown();
  if (left == right || !unknown)
    return Truth::of(left == right);
  bool cannotBe = (left.empty() && !right.isUnknown()) || (right.empty() && !left.isUnknown());
  return cannotBe ? Truth::of(false) : Truth::unknown(unknown);
}

Truth unary(Expander &shell, const std::string &sign, const Text &operand, const Place &place) {
  if (sign == "-z")
    return areEqual(operand, Text());
  if (sign == "-n")
    return areEqual(operand, Text()).negated();
  if (sign == "-v") {
    auto found = shell.state.variables.find(operand.bytes());
    if (found != shell.state.variables.end())
      return Truth::of(!found->second->elements.empty());
    return Truth::unknown(
        shell.makeCause("$" + operand.bytes(), fmt::format("give --env {}=VALUE", operand.bytes()), place));
  }
  return Truth::unknown(shell.makeCause(fmt::format("the test {} {}", sign, Expander::describe(operand)), "", place));
}

/// Compares the operands of [ ]. Without numbers, bash reports an error and takes the comparison as false.
Truth compareNumbers(const std::string &sign, const Text &left, const Text &right) {
  if (Cause unknown = left.unknown() ? left.unknown() : right.unknown())
    return Truth::unknown(unknown);
  int64_t numbers[2] = {0, 0};
  for (int i = 0; i < 2; ++i) {
    std::string digits = i == 0 ? left.bytes() : right.bytes();
    digits.erase(0, std::min(digits.find_first_not_of(" \t\n"), digits.size()));
    digits.erase(digits.find_last_not_of(" \t\n") + 1);
    size_t begin = digits.starts_with("+") ? 1 : 0;
    auto [end, error] = std::from_chars(digits.data() + begin, digits.data() + digits.size(), numbers[i]);
    if (error != std::errc() || end != digits.data() + digits.size())
      return Truth::of(false);
  }
  return Truth::of(compare(sign, numbers[0], numbers[1]));
}

Truth compareTexts(Expander &shell, const std::string &sign, const Text &left, const Text &right, const Place &place) {
  if (comparesFiles(sign))
    return unary(shell, sign, right, place);
  if (sign == "=" || sign == "==")
    return areEqual(left, right);
  if (sign == "!=")
    return areEqual(left, right).negated();
  if (Cause unknown = left.unknown() ? left.unknown() : right.unknown())
    return Truth::unknown(unknown);
  return Truth::of(sign == "<" ? left.bytes() < right.bytes() : left.bytes() > right.bytes());
}

/// The grammar of `test`: operands joined by -o and -a, with ! and parentheses.
class TestReader {
public:
  TestReader(Expander &shell, const std::vector<Text> &arguments, const Place &place)
      : shell(shell), arguments(arguments), place(place) {}

  Truth read() {
    if (arguments.empty())
      return Truth::of(false);
    Truth truth = readEither();
    return at < arguments.size() ? Truth::of(false) : truth; // bash: too many arguments
  }

private:
  std::string sign(size_t ahead) const { return at + ahead < arguments.size() ? arguments[at + ahead].bytes() : ""; }
  size_t left() const { return arguments.size() - at; }

  Truth readEither() {
    Truth truth = readBoth();
    while (left() > 1 && sign(0) == "-o") {
      ++at;
      truth = either(truth, readBoth());
    }
    return truth;
  }

  Truth readBoth() {
    Truth truth = readOperand();
    while (left() > 1 && sign(0) == "-a") {
      ++at;
      truth = both(truth, readOperand());
    }
    return truth;
  }

  Truth readOperand() {
    bool isNegated = false;
    while (left() > 1 && sign(0) == "!" && !(left() == 3 && isBinary(sign(1)))) {
      isNegated = !isNegated;
      ++at;
    }
    Truth truth = readPrimary();
    return isNegated ? truth.negated() : truth;
  }

  Truth readPrimary() {
    if (left() == 0)
      return Truth::of(false);
    if (left() > 2 && isBinary(sign(1))) {
      const Text &first = arguments[at], &second = arguments[at + 2];
      std::string name = sign(1);
      at += 3;
      return comparesNumbers(name) ? compareNumbers(name, first, second)
                                   : compareTexts(shell, name, first, second, place);
    }
    if (left() > 2 && sign(0) == "(" && ++depth < 32) {
      ++at;
      Truth truth = readEither();
      at += sign(0) == ")";
      return truth;
    }
    std::string name = sign(0);
    if (left() > 1 && name.size() == 2 && name[0] == '-') {
      at += 2;
      return unary(shell, name, arguments[at - 1], place);
    }
    return areEqual(arguments[at++], Text()).negated();
  }

  Expander &shell;
  const std::vector<Text> &arguments;
  Place place;
  size_t at = 0;
  int depth = 0;
};

Truth evaluateBinary(Expander &shell, const Node &node) {
  const std::string &sign = node.name;
  if (sign == "=~")
    return Truth::unknown(shell.makeCause("the regular expression of =~", "", node.place));
  Text left = shell.textOf(node.words[0]);
  if (sign == "=" || sign == "==")
    return matchPattern(shell, left, node.words[1]);
  if (sign == "!=")
    return matchPattern(shell, left, node.words[1]).negated();
  Text right = shell.textOf(node.words[1]);
  if (!comparesNumbers(sign))
    return compareTexts(shell, sign, left, right, node.place);
  Cause unknown, other;
  int64_t first = shell.evaluate(left, node.place, unknown), second = shell.evaluate(right, node.place, other);
  if (unknown || other)
    return Truth::unknown(unknown ? unknown : other);
  return Truth::of(compare(sign, first, second));
}

} // namespace

Truth matchPattern(Expander &shell, const Text &text, const Word &word) {
  Cause unknown;
  Pattern pattern = shell.patternOf(word, unknown);
  if (pattern.isAll()) // matches unknown texts, too
    return Truth::of(true);
  if (text.unknown() || unknown)
    return pattern.isEmpty() && !text.isUnknown() ? Truth::of(false)
                                                  : Truth::unknown(text.unknown() ? text.unknown() : unknown);
  return Truth::of(pattern.matches(text.bytes()));
}

Truth evaluateTest(Expander &shell, const std::vector<Text> &arguments, const Place &place) {
  return TestReader(shell, arguments, place).read();
}

Truth evaluateCondition(Expander &shell, const Node &node) {
  shell.budget.step(Budget::stepsPerCommand, node.place);
  switch (node.kind) {
  case Node::Not:
    return evaluateCondition(shell, node.children[0]).negated();
  case Node::Both: {
    Truth truth = Truth::of(true);
    for (size_t i = 0; i < node.children.size() && truth.value != Truth::No; ++i)
      truth = both(truth, evaluateCondition(shell, node.children[i]));
    return truth;
  }
  case Node::Either: {
    Truth truth = Truth::of(false);
    for (size_t i = 0; i < node.children.size() && truth.value != Truth::Yes; ++i)
      truth = either(truth, evaluateCondition(shell, node.children[i]));
    return truth;
  }
  case Node::Unary:
    return unary(shell, node.name, shell.textOf(node.words[0]), node.place);
  default:
    return evaluateBinary(shell, node);
  }
}

} // namespace espalier::shell
