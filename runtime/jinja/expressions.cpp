#include "runtime/jinja/filters.h"
#include "runtime/jinja/parser.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fmt/format.h>

namespace espalier::rt::jinja {

void Parser::deepen(Expr &parent, const ExprPtr &child) {
  if (!child)
    return;
  parent.nesting = std::max(parent.nesting, child->nesting + 1);
  if (parent.nesting > 2 * mostNesting) // chains of operators are longer than nested brackets
    throw Fault(fmt::format("an expression has more than {} levels", 2 * mostNesting));
}

void Parser::add(Expr &parent, std::vector<ExprPtr> &list, ExprPtr child) {
  deepen(parent, child);
  list.push_back(std::move(child));
}

ExprPtr Parser::make(ExprKind kind, ExprPtr first, ExprPtr second) {
  auto made = std::make_unique<Expr>();
  made->kind = kind;
  made->line = line;
  if (first)
    add(*made, made->parts, std::move(first));
  if (second)
    add(*made, made->parts, std::move(second));
  return made;
}

ExprPtr Parser::parseExpression() {
  Level level(*this);
  bool outer = isSoft;
  size_t unknown = unknownNames.size();
  ExprPtr value = parseOr();
  if (isName("if")) // only now it is known that the filters before it are conditional
    unknownNames.resize(unknown);
  while (isName("if")) {
    isSoft = true;
    next();
    ExprPtr condition = parseOr();
    ExprPtr conditional = make(ExprKind::Conditional, std::move(condition), std::move(value));
    add(*conditional, conditional->parts, skipName("else") ? parseExpression() : nullptr);
    value = std::move(conditional);
    isSoft = outer;
  }
  return value;
}

/// Parses an expression, or a tuple without parentheses.
ExprPtr Parser::parseTuple(bool hasConditions, std::string_view end, bool isInParentheses) {
  Level level(*this);
  std::vector<ExprPtr> items;
  bool isTuple = false;
  while (true) {
    bool isEnd = current().kind == TokenKind::VariableEnd || current().kind == TokenKind::BlockEnd || isOperator(")") ||
                 (!end.empty() && isName(end));
    if (isEnd)
      break;
    items.push_back(hasConditions ? parseExpression() : parseOr());
    if (!skipOperator(","))
      break;
    isTuple = true;
  }
  if (!isTuple && !items.empty())
    return std::move(items.front());
  if (!isTuple && !isInParentheses)
    failHere();
  ExprPtr tuple = make(ExprKind::Tuple);
  for (ExprPtr &item : items)
    add(*tuple, tuple->parts, std::move(item));
  return tuple;
}

ExprPtr Parser::parseOr() {
  ExprPtr left = parseAnd();
  while (skipName("or"))
    left = make(ExprKind::Or, std::move(left), parseAnd());
  return left;
}

ExprPtr Parser::parseAnd() {
  ExprPtr left = parseNot();
  while (skipName("and"))
    left = make(ExprKind::And, std::move(left), parseNot());
  return left;
}

ExprPtr Parser::parseNot() {
  Level level(*this);
  return skipName("not") ? make(ExprKind::Not, parseNot()) : parseCompare();
}

ExprPtr Parser::parseCompare() {
  constexpr std::array comparisons = {"==", "!=", "<=", ">=", "<", ">"};
  ExprPtr first = parseBinary(0);
  ExprPtr compare;
  while (true) {
    const auto *found = std::ranges::find_if(comparisons, [&](const char *one) { return isOperator(one); });
    std::string symbol = found != comparisons.end() ? *found : isName("in") ? "in" : "";
    if (isName("not") && following().kind == TokenKind::Name && following().text == "in") {
      symbol = "not in";
      next();
    }
    if (symbol.empty())
      return compare ? std::move(compare) : std::move(first);
    next();
    if (!compare)
      compare = make(ExprKind::Compare, std::move(first));
    compare->symbols.push_back(intern(symbol));
    add(*compare, compare->parts, parseBinary(0));
  }
}

/// Parses the arithmetic operators of a level: sums, products and powers. Concatenation is between the first two.
ExprPtr Parser::parseBinary(size_t level) {
  static const std::vector<std::string_view> operators[] = {{"+", "-"}, {"*", "/", "//", "%"}, {"**"}};
  auto operand = [&] { return level == 0 ? parseConcat() : level == 1 ? parseBinary(2) : parseUnary(); };
  ExprPtr left = operand();
  while (std::ranges::any_of(operators[level], [&](std::string_view one) { return isOperator(one); })) {
    Symbol symbol = intern(current().text);
    next();
    left = make(ExprKind::Binary, std::move(left), operand());
    left->symbol = symbol;
  }
  return left;
}

ExprPtr Parser::parseConcat() {
  ExprPtr first = parseBinary(1);
  if (!isOperator("~"))
    return first;
  ExprPtr concat = make(ExprKind::Concat, std::move(first));
  while (skipOperator("~"))
    add(*concat, concat->parts, parseBinary(1));
  return concat;
}

ExprPtr Parser::parseUnary(bool takesFilters) {
  Level level(*this);
  ExprPtr value;
  if (skipOperator("-"))
    value = make(ExprKind::Negative, parseUnary(/*takesFilters=*/false));
  else if (skipOperator("+"))
    value = make(ExprKind::Positive, parseUnary(/*takesFilters=*/false));
  else
    value = parsePrimary();
  value = parsePostfix(std::move(value));
  return takesFilters ? parseFilters(std::move(value)) : std::move(value);
}

ExprPtr Parser::parsePrimary() {
  const Token token = current();
  if (skipOperator("(")) {
    ExprPtr inside = parseTuple(/*hasConditions=*/true, "", /*isInParentheses=*/true);
    expectOperator(")");
    return inside;
  }
  if (isOperator("[") || isOperator("{")) {
    bool isList = isOperator("[");
    std::string_view end = isList ? "]" : "}";
    ExprPtr made = make(isList ? ExprKind::List : ExprKind::Dict);
    for (next(); !isOperator(end);) {
      add(*made, made->parts, parseExpression());
      if (!isList) {
        expectOperator(":");
        add(*made, made->parts, parseExpression());
      }
      if (!isOperator(end))
        expectOperator(",");
    }
    next();
    return made;
  }
  ExprPtr value = make(ExprKind::Constant);
  if (token.kind == TokenKind::String) {
    std::string text;
    for (; current().kind == TokenKind::String; next())
      text += current().text;
    value->constant = Value::constant(std::move(text));
    return value;
  }
  if (token.kind != TokenKind::Float && token.kind != TokenKind::Integer && token.kind != TokenKind::Name)
    failHere();
  next();
  const char *begin = token.text.data(), *end = begin + token.text.size();
  if (token.kind == TokenKind::Float) {
    value->constant = std::strtod(begin, nullptr);
  } else if (token.kind == TokenKind::Integer) {
    char letter = token.text.size() > 2 ? static_cast<char>(token.text[1] | 0x20) : '\0';
    int base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    int64_t number = 0;
    if (std::from_chars(begin + (base == 10 ? 0 : 2), end, number, base).ec != std::errc())
      throw Fault(fmt::format("the integer {} does not fit into 64 bits", token.text));
    value->constant = number;
  } else if (token.text == "true" || token.text == "True" || token.text == "false" || token.text == "False") {
    value->constant = token.text == "true" || token.text == "True";
  } else if (token.text != "none" && token.text != "None") {
    value->kind = ExprKind::Name;
    value->symbol = intern(token.text);
    for (Signature *signature : signatures) {
      signature->usesCaller |= token.text == "caller";
      signature->usesVarargs |= token.text == "varargs";
      signature->usesKwargs |= token.text == "kwargs";
    }
    if (token.text == "loop" && !loopStmts.empty())
      loopStmts.back()->usesLoop = true;
  }
  return value;
}

ExprPtr Parser::parsePostfix(ExprPtr value) {
  while (true)
    if (isOperator(".") || isOperator("["))
      value = parseSubscript(std::move(value));
    else if (isOperator("(")) {
      value = make(ExprKind::Call, std::move(value));
      parseArguments(*value);
    } else
      return value;
}

ExprPtr Parser::parseSubscript(ExprPtr object) {
  if (skipOperator(".")) {
    if (current().kind == TokenKind::Integer)
      return make(ExprKind::Item, std::move(object), parsePrimary());
    ExprPtr attribute = make(ExprKind::Attribute, std::move(object));
    attribute->symbol = readName();
    return attribute;
  }
  expectOperator("[");
  ExprPtr item = make(ExprKind::Item, std::move(object));
  if (!isOperator(":"))
    add(*item, item->parts, parseExpression());
  if (isOperator(":")) {
    item->kind = ExprKind::Slice;
    item->parts.resize(2);
    for (int part = 0; part < 2; ++part) {
      bool isGiven = skipOperator(":") && !isOperator(":") && !isOperator("]");
      add(*item, item->parts, isGiven ? parseExpression() : nullptr);
    }
  } else if (isOperator(",")) {
    ExprPtr tuple = make(ExprKind::Tuple, std::move(item->parts.back()));
    item->parts.pop_back();
    while (skipOperator(","))
      add(*tuple, tuple->parts, parseExpression());
    add(*item, item->parts, std::move(tuple));
  }
  expectOperator("]");
  return item;
}

ExprPtr Parser::parseFilters(ExprPtr value) {
  while (true)
    if (isOperator("|"))
      value = parseFilter(std::move(value));
    else if (isName("is"))
      value = parseTest(std::move(value));
    else if (isOperator("(")) {
      value = make(ExprKind::Call, std::move(value));
      parseArguments(*value);
    } else
      return value;
}

void Parser::requireKnown(bool isKnown, const char *kind, const std::string &name) {
  if (!isKnown && !isSoft)
    unknownNames.emplace_back(fmt::format("unknown {} '{}'", kind, name), line);
}

/// Parses filters. A null value stands for the text of a block, whose first filter has no bar.
ExprPtr Parser::parseFilter(ExprPtr value) {
  bool isFirst = !value && !isOperator("|");
  while (isFirst || skipOperator("|")) {
    isFirst = false;
    ExprPtr filter = make(ExprKind::Filter);
    std::string name = *readName();
    while (skipOperator("."))
      name += "." + *readName();
    requireKnown(findFilter(name) != nullptr, "filter", name);
    filter->symbol = intern(name);
    add(*filter, filter->parts, std::move(value));
    if (isOperator("("))
      parseArguments(*filter);
    value = std::move(filter);
  }
  return value;
}

ExprPtr Parser::parseTest(ExprPtr value) {
  next();
  bool isNegated = skipName("not");
  ExprPtr test = make(ExprKind::Test, std::move(value));
  std::string name = *readName();
  while (skipOperator("."))
    name += "." + *readName();
  requireKnown(findTest(name) != nullptr, "test", name);
  test->symbol = intern(name);
  bool isValue = current().kind == TokenKind::Name || current().kind == TokenKind::String ||
                 current().kind == TokenKind::Integer || current().kind == TokenKind::Float || isOperator("[") ||
                 isOperator("{");
  if (isOperator("("))
    parseArguments(*test);
  else if (isName("is"))
    throw Fault("tests with `is` cannot follow one another");
  else if (isValue && !isName("else") && !isName("or") && !isName("and"))
    add(*test, test->arguments, parsePostfix(parsePrimary()));
  return isNegated ? make(ExprKind::Not, std::move(test)) : std::move(test);
}

void Parser::parseArguments(Expr &call) {
  Level level(*this);
  expectOperator("(");
  while (!isOperator(")")) {
    bool isNamed =
        current().kind == TokenKind::Name && following().kind == TokenKind::Operator && following().text == "=";
    bool isRight = true;
    ExprPtr *slot = nullptr;
    if (skipOperator("*")) {
      isRight = !call.star && !call.stars;
      slot = &call.star;
    } else if (skipOperator("**")) {
      isRight = !call.stars;
      slot = &call.stars;
    } else if (isNamed) {
      isRight = !call.stars;
      Symbol name = readName();
      isRight &= std::ranges::find(call.named, name, [](const auto &one) { return one.first; }) == call.named.end();
      next();
      call.named.emplace_back(name, nullptr);
      slot = &call.named.back().second;
    } else {
      isRight = !call.star && !call.stars && call.named.empty();
    }
    if (!isRight)
      throw Fault("the arguments of a call are in no valid order, or one is given twice");
    ExprPtr value = parseExpression();
    deepen(call, value);
    if (slot)
      *slot = std::move(value);
    else
      call.arguments.push_back(std::move(value));
    if (!isOperator(")"))
      expectOperator(",");
  }
  next();
}

} // namespace espalier::rt::jinja
