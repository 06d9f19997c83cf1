#include "runtime/jinja/parser.h"

#include <algorithm>
#include <fmt/format.h>
#include <map>

namespace espalier::rt::jinja {

Parser::Level::Level(Parser &parser) : parser(parser) {
  if (parser.levels >= mostNesting)
    throw Fault(fmt::format("the template nests more than {} levels deep", mostNesting));
  ++parser.levels;
}

void Parser::next() {
  if (at + 1 < tokens.size())
    ++at;
  line = current().line;
}

bool Parser::isOperator(std::string_view symbol) const {
  return current().kind == TokenKind::Operator && current().text == symbol;
}

bool Parser::isName(std::string_view name) const { return current().kind == TokenKind::Name && current().text == name; }

bool Parser::skipOperator(std::string_view symbol) {
  bool isHere = isOperator(symbol);
  if (isHere)
    next();
  return isHere;
}

bool Parser::skipName(std::string_view name) {
  bool isHere = isName(name);
  if (isHere)
    next();
  return isHere;
}

void Parser::failHere() const {
  constexpr const char *names[] = {"text", "{{", "}}", "{%", "%}"};
  auto kind = static_cast<size_t>(current().kind);
  if (current().kind == TokenKind::End)
    throw Fault("the template ends inside a tag or a block");
  throw Fault(fmt::format("unexpected {}", kind < std::size(names) ? names[kind] : "'" + current().text + "'"));
}

void Parser::expectOperator(std::string_view symbol) {
  if (!skipOperator(symbol))
    failHere();
}

void Parser::expectName(std::string_view name) {
  if (!skipName(name))
    failHere();
}

void Parser::expectKind(TokenKind kind) {
  if (current().kind != kind)
    failHere();
  next();
}

Symbol Parser::readName() {
  if (current().kind != TokenKind::Name)
    failHere();
  Symbol name = intern(current().text);
  next();
  return name;
}

void Parser::run() {
  tree.body = parseUntil({});
  if (current().kind != TokenKind::End)
    failHere();
  if (unknownNames.empty())
    return;
  line = unknownNames.front().second;
  throw Fault(unknownNames.front().first);
}

/// Parses statements until the tag of one of `ends`, whose name is then the current token; without `ends`, until the
/// end of the template.
Body Parser::parseUntil(Ends ends) {
  Level level(*this);
  Body body;
  while (current().kind != TokenKind::End) {
    auto stmt = std::make_unique<Stmt>();
    stmt->line = line = current().line;
    if (current().kind == TokenKind::Data) {
      stmt->kind = StmtKind::Text;
      stmt->text = current().text;
      next();
      body.push_back(std::move(stmt));
    } else if (current().kind == TokenKind::VariableBegin) {
      next();
      stmt->kind = StmtKind::Print;
      stmt->values.push_back(parseTuple(/*hasConditions=*/true));
      expectKind(TokenKind::VariableEnd);
      body.push_back(std::move(stmt));
    } else {
      expectKind(TokenKind::BlockBegin);
      if (std::ranges::any_of(ends, [&](std::string_view end) { return isName(end); }))
        return body;
      parseStatement(body);
      expectKind(TokenKind::BlockEnd);
    }
  }
  if (ends.size() > 0)
    failHere();
  return body;
}

/// Parses the body of a statement, after its first tag.
Body Parser::parseBody(Ends ends) {
  skipOperator(":");
  expectKind(TokenKind::BlockEnd);
  return parseUntil(ends);
}

/// Parses a body in which unknown filters are faults again.
Body Parser::parseScope(Ends ends) {
  bool outer = std::exchange(isSoft, false);
  Body body = parseBody(ends);
  isSoft = outer;
  return body;
}

std::pair<StmtKind, Parser::Parse> Parser::statementNamed(std::string_view name) {
  static const std::map<std::string_view, std::pair<StmtKind, Parse>> statements = {
      {"for", {StmtKind::For, &Parser::parseFor}},
      {"if", {StmtKind::If, &Parser::parseIf}},
      {"set", {StmtKind::Set, &Parser::parseSet}},
      {"macro", {StmtKind::Macro, &Parser::parseMacro}},
      {"call", {StmtKind::CallBlock, &Parser::parseCallBlock}},
      {"filter", {StmtKind::FilterBlock, &Parser::parseFilterBlock}},
      {"with", {StmtKind::With, &Parser::parseWith}},
      {"block", {StmtKind::Block, &Parser::parseBlock}},
      {"generation", {StmtKind::Generation, &Parser::parseGeneration}},
      {"print", {StmtKind::Print, &Parser::parsePrint}},
      {"break", {StmtKind::Break, &Parser::parseJump}},
      {"continue", {StmtKind::Continue, &Parser::parseJump}},
      {"include", {StmtKind::Template, &Parser::parseTemplate}},
      {"import", {StmtKind::Template, &Parser::parseTemplate}},
      {"from", {StmtKind::Template, &Parser::parseTemplate}},
      {"extends", {StmtKind::Template, &Parser::parseTemplate}},
  };
  auto found = statements.find(name);
  if (found == statements.end())
    throw Fault(fmt::format("unknown tag '{}'", name));
  return found->second;
}

void Parser::parseStatement(Body &body) {
  auto stmt = std::make_unique<Stmt>();
  stmt->line = line = current().line;
  std::string name = *readName();
  auto [kind, parse] = statementNamed(name);
  stmt->kind = kind;
  stmt->text = name;
  (this->*parse)(*stmt);
  body.push_back(std::move(stmt));
}

void Parser::parseFor(Stmt &stmt) {
  stmt.target = parseTarget(/*mayBeNamespace=*/false, "in");
  expectName("in");
  stmt.value = parseTuple(/*hasConditions=*/false, "recursive");
  bool outer = std::exchange(isSoft, false);
  if (skipName("if"))
    stmt.test = parseExpression();
  stmt.isRecursive = skipName("recursive");
  ++loops;
  loopStmts.push_back(&stmt);
  stmt.body = parseBody({"endfor", "else"});
  loopStmts.pop_back();
  --loops;
  if (stmt.usesLoop && stmt.isScoped)
    throw Fault("a loop assigns to its variable `loop`");
  if (skipName("else"))
    stmt.otherwise = parseBody({"endfor"});
  expectName("endfor");
  isSoft = outer;
}

void Parser::parseIf(Stmt &stmt) {
  bool outer = std::exchange(isSoft, true);
  do {
    ExprPtr condition = parseTuple(/*hasConditions=*/false);
    stmt.branches.emplace_back(std::move(condition), parseBody({"elif", "else", "endif"}));
  } while (skipName("elif"));
  if (skipName("else"))
    stmt.otherwise = parseBody({"endif"});
  expectName("endif");
  isSoft = outer;
}

void Parser::parseSet(Stmt &stmt) {
  stmt.target = parseTarget(/*mayBeNamespace=*/true);
  if (skipOperator("=")) {
    stmt.value = parseTuple(/*hasConditions=*/true);
    return;
  }
  stmt.kind = StmtKind::SetBlock;
  if (isOperator("|"))
    stmt.value = parseFilter(nullptr);
  stmt.body = parseScope({"endset"});
  expectName("endset");
}

void Parser::parseSignature(Signature &signature) {
  expectOperator("(");
  while (!isOperator(")")) {
    if (!signature.parameters.empty())
      expectOperator(",");
    Symbol name = readName();
    if (std::ranges::find(signature.parameters, name, [](const auto &one) { return one.first; }) !=
        signature.parameters.end())
      throw Fault(fmt::format("the macro has two parameters '{}'", *name));
    ExprPtr byDefault = skipOperator("=") ? parseExpression() : nullptr;
    if (!byDefault && !signature.parameters.empty() && signature.parameters.back().second)
      throw Fault("a parameter without a default follows one with a default");
    signature.parameters.emplace_back(name, std::move(byDefault));
  }
  expectOperator(")");
}

/// Parses a body that is called like a function: loops outside of it cannot be left from it.
void Parser::parseMacroBody(Stmt &stmt, std::string_view end) {
  int outer = std::exchange(loops, 0);
  signatures.push_back(&stmt.signature);
  stmt.body = parseScope({end});
  signatures.pop_back();
  loops = outer;
  expectName(end);
}

void Parser::parseMacro(Stmt &stmt) {
  stmt.name = readName();
  bool outer = std::exchange(isSoft, false);
  parseSignature(stmt.signature);
  isSoft = outer;
  parseMacroBody(stmt, "endmacro");
}

void Parser::parseCallBlock(Stmt &stmt) {
  if (isOperator("("))
    parseSignature(stmt.signature);
  stmt.value = parseExpression();
  if (stmt.value->kind != ExprKind::Call)
    throw Fault("a call block needs a call");
  parseMacroBody(stmt, "endcall");
}

void Parser::parseGeneration(Stmt &stmt) {
  tree.hasGeneration = true;
  parseMacroBody(stmt, "endgeneration");
}

void Parser::parseFilterBlock(Stmt &stmt) {
  bool outer = std::exchange(isSoft, false);
  stmt.value = parseFilter(nullptr);
  stmt.body = parseBody({"endfilter"});
  isSoft = outer;
  expectName("endfilter");
}

void Parser::parseWith(Stmt &stmt) {
  while (current().kind != TokenKind::BlockEnd) {
    if (!stmt.bindings.empty())
      expectOperator(",");
    Target target = parseTarget(/*mayBeNamespace=*/false);
    expectOperator("=");
    stmt.bindings.emplace_back(std::move(target), parseExpression());
  }
  stmt.body = parseScope({"endwith"});
  expectName("endwith");
}

void Parser::parseBlock(Stmt &stmt) {
  Symbol name = readName();
  stmt.isScoped = skipName("scoped");
  skipName("required");
  int outer = std::exchange(loops, 0);
  stmt.body = parseScope({"endblock"});
  loops = outer;
  expectName("endblock");
  skipName(*name);
}

void Parser::parsePrint(Stmt &stmt) {
  while (current().kind != TokenKind::BlockEnd) {
    if (!stmt.values.empty())
      expectOperator(",");
    stmt.values.push_back(parseExpression());
  }
}

void Parser::parseJump(Stmt &) {
  if (loops == 0)
    throw Fault("break and continue stand outside of a loop");
}

void Parser::parseTemplate(Stmt &) {
  while (current().kind != TokenKind::BlockEnd && current().kind != TokenKind::End)
    next();
}

Target Parser::parseOneTarget(bool mayBeNamespace) {
  Target target;
  if (skipOperator("(")) {
    target = parseTarget(mayBeNamespace, ")");
    expectOperator(")");
    return target;
  }
  target.name = readName();
  constexpr std::string_view constants[] = {"true", "false", "none", "True", "False", "None"};
  if (std::ranges::find(constants, *target.name) != std::end(constants))
    throw Fault(fmt::format("cannot assign to '{}'", *target.name));
  if (mayBeNamespace && skipOperator("."))
    target.attribute = readName();
  else if (*target.name == "loop" && !loopStmts.empty())
    loopStmts.back()->isScoped = true; // refused if the loop uses its variable
  return target;
}

/// Parses a target, or a list of targets with commas. `end` is a name or a bracket that ends the list.
Target Parser::parseTarget(bool mayBeNamespace, std::string_view end) {
  Level level(*this);
  Target target;
  while (true) {
    target.parts.push_back(parseOneTarget(mayBeNamespace));
    if (!skipOperator(","))
      break;
    target.isTuple = true;
    if (isName(end) || isOperator(end) || isOperator("=") || current().kind == TokenKind::BlockEnd)
      break;
  }
  if (target.isTuple)
    return target;
  Target only = std::move(target.parts.front());
  return only;
}

Tree parse(std::string_view source, int &line) {
  Tree tree;
  Parser(tokenize(source, line), tree, line).run();
  return tree;
}

} // namespace espalier::rt::jinja
