#include "compiler/import/shell/arithmetic.h"

#include "compiler/import/shell/word_reader.h"

#include <array>
#include <cctype>
#include <fmt/format.h>
#include <limits>
#include <string_view>

namespace espalier::shell {

namespace {

struct Refusal {
  std::string reason;
};

/// The binary operators by ascending precedence. Longer ones come first.
constexpr std::array<std::array<std::string_view, 4>, 10> levels = {{{"||"},
                                                                     {"&&"},
                                                                     {"|"},
                                                                     {"^"},
                                                                     {"&"},
                                                                     {"==", "!="},
                                                                     {"<=", ">=", "<", ">"},
                                                                     {"<<", ">>"},
                                                                     {"+", "-"},
                                                                     {"*", "/", "%"}}};

/// Returns the result of a binary operator. Division by 0 gives 0.
int64_t apply(std::string_view sign, int64_t left, int64_t right) {
  auto a = static_cast<uint64_t>(left), b = static_cast<uint64_t>(right);
  if (sign == "/" || sign == "%") {
    if (right == 0 || right == -1)
      return right == 0 || sign == "%" ? 0 : static_cast<int64_t>(0 - a);
    return sign == "/" ? left / right : left % right;
  }
  return sign == "+"    ? static_cast<int64_t>(a + b)
         : sign == "-"  ? static_cast<int64_t>(a - b)
         : sign == "*"  ? static_cast<int64_t>(a * b)
         : sign == "<<" ? static_cast<int64_t>(a << (b & 63))
         : sign == ">>" ? left >> (b & 63)
         : sign == "||" ? left != 0 || right != 0
         : sign == "&&" ? left != 0 && right != 0
         : sign == "|"  ? left | right
         : sign == "^"  ? left ^ right
         : sign == "&"  ? left & right
         : sign == "==" ? left == right
         : sign == "!=" ? left != right
         : sign == "<=" ? left <= right
         : sign == ">=" ? left >= right
         : sign == "<"  ? left < right
                        : left > right;
}

class Evaluator {
public:
  Evaluator(std::string_view text, const ArithmeticVariables &variables, int depth)
      : text(text), variables(variables), depth(depth) {}

  int64_t evaluate() {
    skipBlanks();
    int64_t value = at == text.size() ? 0 : readList();
    if (at < text.size())
      throw Refusal{fmt::format("syntax error at '{}'", text.substr(at))};
    return value;
  }

  Cause cause; ///< set if the value depends on an unknown one

private:
  void skipBlanks() {
    while (at < text.size() && (std::isspace(static_cast<unsigned char>(text[at])) != 0 || text[at] == '"'))
      ++at;
  }

  bool take(std::string_view sign) {
    if (text.substr(at, sign.size()) != sign)
      return false;
    at += sign.size();
    skipBlanks();
    return true;
  }

  void deepen() {
    if (++depth > 64)
      throw Refusal{"it is nested deeper than 64 levels"};
  }

  int64_t readList() {
    deepen();
    int64_t value = readTernary();
    while (take(","))
      value = readTernary();
    --depth;
    return value;
  }

  int64_t readTernary() {
    deepen();
    int64_t condition = readBinary(0);
    if (take("?")) {
      bool wasLive = isLive;
      isLive = wasLive && condition != 0;
      int64_t yes = readTernary();
      if (!take(":"))
        throw Refusal{"'?' has no ':'"};
      isLive = wasLive && condition == 0;
      int64_t no = readTernary();
      isLive = wasLive;
      condition = condition != 0 ? yes : no;
    }
    --depth;
    return condition;
  }

  std::string_view takeOperator(size_t level) {
    for (std::string_view sign : levels[level]) {
      if (sign.empty() || text.substr(at, sign.size()) != sign)
        continue;
      char after = at + sign.size() < text.size() ? text[at + sign.size()] : ' ';
      bool isLonger = (after == sign[0] && std::string_view("|&<>*").find(after) != std::string_view::npos) ||
                      (after == '=' && sign != "==" && sign != "!=" && sign != "<=" && sign != ">=");
      if (isLonger && sign.size() == 1)
        continue;
      take(sign);
      return sign;
    }
    return {};
  }

  int64_t readBinary(size_t level) {
    if (level == levels.size())
      return readPower();
    int64_t left = readBinary(level + 1);
    for (std::string_view sign; !(sign = takeOperator(level)).empty();) {
      bool wasLive = isLive;
      isLive = wasLive && (sign == "&&" ? left != 0 : sign == "||" ? left == 0 : true);
      int64_t right = readBinary(level + 1);
      isLive = wasLive;
      left = applyChecked(sign, left, right);
    }
    return left;
  }

  int64_t applyChecked(std::string_view sign, int64_t left, int64_t right) const {
    if ((sign == "/" || sign == "%") && right == 0 && isLive && !cause)
      throw Refusal{"division by 0"};
    return apply(sign, left, right);
  }

  int64_t readPower() {
    deepen();
    int64_t base = readUnary();
    if (take("**")) {
      int64_t exponent = readPower();
      if (exponent < 0 && isLive)
        throw Refusal{"an exponent is below 0"};
      uint64_t result = 1, factor = static_cast<uint64_t>(base);
      for (auto left = static_cast<uint64_t>(exponent); left > 0; left >>= 1, factor *= factor)
        result *= (left & 1) != 0 ? factor : 1;
      base = static_cast<int64_t>(result);
    }
    --depth;
    return base;
  }

  int64_t readUnary() {
    deepen();
    int64_t value = 0;
    if (text.substr(at, 2) == "++" || text.substr(at, 2) == "--") {
      int64_t change = text[at] == '+' ? 1 : -1;
      take(text.substr(at, 2));
      value = readVariable(readName(), change);
    } else if (take("!")) {
      value = readUnary() == 0;
    } else if (take("~")) {
      value = ~readUnary();
    } else if (take("-")) {
      value = apply("-", 0, readUnary());
    } else if (take("+")) {
      value = readUnary();
    } else {
      value = readPrimary();
    }
    --depth;
    return value;
  }

  int64_t readPrimary() {
    if (take("(")) {
      int64_t value = readList();
      if (!take(")"))
        throw Refusal{"a bracket is not closed"};
      return value;
    }
    if (at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0)
      return readNumber();
    return readVariable(readName(), 0);
  }

  int64_t readNumber() {
    size_t end = at;
    while (end < text.size() && (isNameChar(text[end]) || text[end] == '#' || text[end] == '@'))
      ++end;
    std::string_view digits = text.substr(at, end - at);
    at = end;
    skipBlanks();
    uint64_t base = 10, value = 0;
    if (size_t sign = digits.find('#'); sign != std::string_view::npos) {
      base = std::strtoull(std::string(digits.substr(0, sign)).c_str(), nullptr, 10);
      digits.remove_prefix(sign + 1);
    } else if (digits.size() > 1 && digits[0] == '0') {
      bool isHexadecimal = digits[1] == 'x' || digits[1] == 'X';
      base = isHexadecimal ? 16 : 8;
      digits.remove_prefix(isHexadecimal ? 2 : 1);
    }
    for (char c : digits) {
      bool isLower = std::islower(static_cast<unsigned char>(c)) != 0,
           isUpper = std::isupper(static_cast<unsigned char>(c)) != 0;
      uint64_t digit = isLower    ? c - 'a' + 10
                       : isUpper  ? c - 'A' + (base > 36 ? 36 : 10)
                       : c == '@' ? 62
                       : c == '_' ? 63
                                  : c - '0';
      if (digit >= base || base > 64)
        throw Refusal{fmt::format("'{}' is no number of base {}", digits, base)};
      value = value * base + digit;
    }
    return static_cast<int64_t>(value);
  }

  /// Reads NAME or NAME[INDEX]. The index is the text between the brackets.
  std::pair<std::string, std::string> readName() {
    size_t begin = at;
    while (at < text.size() && isNameChar(text[at]))
      ++at;
    std::pair<std::string, std::string> name(text.substr(begin, at - begin), "");
    if (!isName(name.first))
      throw Refusal{begin < text.size() ? fmt::format("syntax error at '{}'", text.substr(begin))
                                        : "an operand is missing"};
    if (at < text.size() && text[at] == '[') {
      size_t end = text.find(']', at);
      if (end == std::string_view::npos)
        throw Refusal{"a bracket is not closed"};
      name.second = text.substr(at + 1, end - at - 1);
      at = end + 1;
    }
    skipBlanks();
    return name;
  }

  /// Returns the value of a variable, which an operator may change: ++ and -- before it by `change`, or those behind
  /// it, or an assignment.
  int64_t readVariable(const std::pair<std::string, std::string> &name, int64_t change) {
    for (std::string_view sign : {"=", "+=", "-=", "*=", "/=", "%=", "<<=", ">>=", "&=", "^=", "|="}) {
      if (text.substr(at, sign.size()) != sign || text.substr(at, 2) == "==")
        continue;
      take(sign);
      Cause before = std::exchange(cause, nullptr);
      int64_t left = sign == "=" ? 0 : valueOf(name), right = readTernary();
      int64_t value = sign == "=" ? right : applyChecked(sign.substr(0, sign.size() - 1), left, right);
      write(name, value);
      cause = before ? before : cause;
      return value;
    }
    Cause before = std::exchange(cause, nullptr);
    int64_t value = valueOf(name), result = value;
    if (change != 0)
      write(name, result = apply("+", value, change));
    else if (take("++"))
      write(name, apply("+", value, 1));
    else if (take("--"))
      write(name, apply("-", value, 1));
    cause = before ? before : cause;
    return result;
  }

  void write(const std::pair<std::string, std::string> &name, int64_t value) const {
    if (isLive)
      variables.write(name.first, name.second, cause ? Text(cause, cause->place) : Text(fmt::format("{}", value), {}));
  }

  int64_t valueOf(const std::pair<std::string, std::string> &name) {
    if (!isLive)
      return 0;
    Text value = variables.read(name.first, name.second);
    if (Cause unknown = value.unknown()) {
      cause = unknown;
      return 0;
    }
    deepen();
    Evaluator inner(value.bytes(), variables, depth);
    int64_t number = inner.evaluate();
    --depth;
    cause = inner.cause;
    return number;
  }

  std::string_view text;
  const ArithmeticVariables &variables;
  size_t at = 0;
  int depth = 0;
  bool isLive = true; ///< false in operands that do not count, as that of 0 && X
};

} // namespace

ArithmeticResult evaluateArithmetic(const Text &expression, const ArithmeticVariables &variables) {
  ArithmeticResult result;
  if ((result.cause = expression.unknown()))
    return result;
  Evaluator evaluator(expression.bytes(), variables, 0);
  try {
    result.value = evaluator.evaluate();
    result.cause = evaluator.cause;
  } catch (const Refusal &refusal) {
    result.fault = refusal.reason;
  }
  return result;
}

} // namespace espalier::shell
