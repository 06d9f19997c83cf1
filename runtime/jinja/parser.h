// A recursive-descent parser of jinja2's grammar. expressions.cpp has the part for expressions.
#pragma once

#include "runtime/jinja/lexer.h"
#include "runtime/jinja/nodes.h"

#include <initializer_list>

namespace espalier::rt::jinja {

class Parser {
public:
  Parser(std::vector<Token> tokens, Tree &tree, int &line) : tokens(std::move(tokens)), tree(tree), line(line) {}
  void run();

private:
  // Tokens.
  const Token &current() const { return tokens[at]; }
  const Token &following() const { return tokens[std::min(at + 1, tokens.size() - 1)]; }
  void next();
  bool isOperator(std::string_view symbol) const;
  bool isName(std::string_view name) const;
  bool skipOperator(std::string_view symbol);
  bool skipName(std::string_view name);
  void expectOperator(std::string_view symbol);
  void expectName(std::string_view name);
  void expectKind(TokenKind kind);
  Symbol readName();
  Symbol intern(const std::string &name) { return &*tree.symbols.insert(name).first; }
  [[noreturn]] void failHere() const;

  // Statements.
  using Ends = std::initializer_list<std::string_view>;
  Body parseUntil(Ends ends);
  Body parseBody(Ends ends);
  Body parseScope(Ends ends);
  void parseStatement(Body &body);
  using Parse = void (Parser::*)(Stmt &);
  static std::pair<StmtKind, Parse> statementNamed(std::string_view name);
  void parseFor(Stmt &stmt);
  void parseIf(Stmt &stmt);
  void parseSet(Stmt &stmt);
  void parseMacro(Stmt &stmt);
  void parseCallBlock(Stmt &stmt);
  void parseFilterBlock(Stmt &stmt);
  void parseWith(Stmt &stmt);
  void parseBlock(Stmt &stmt);
  void parseGeneration(Stmt &stmt);
  void parsePrint(Stmt &stmt);
  void parseJump(Stmt &stmt);
  void parseTemplate(Stmt &stmt);
  void parseSignature(Signature &signature);
  void parseMacroBody(Stmt &stmt, std::string_view end);
  Target parseTarget(bool mayBeNamespace, std::string_view end = "");
  Target parseOneTarget(bool mayBeNamespace);

  // Expressions.
  ExprPtr parseExpression();
  ExprPtr parseTuple(bool hasConditions, std::string_view end = "", bool isInParentheses = false);
  ExprPtr parseOr();
  ExprPtr parseAnd();
  ExprPtr parseNot();
  ExprPtr parseCompare();
  ExprPtr parseBinary(size_t level);
  ExprPtr parseConcat();
  ExprPtr parseUnary(bool takesFilters = true);
  ExprPtr parsePrimary();
  ExprPtr parsePostfix(ExprPtr value);
  ExprPtr parseSubscript(ExprPtr object);
  ExprPtr parseFilters(ExprPtr value);
  ExprPtr parseFilter(ExprPtr value);
  ExprPtr parseTest(ExprPtr value);
  void parseArguments(Expr &call);
  ExprPtr make(ExprKind kind, ExprPtr first = nullptr, ExprPtr second = nullptr);
  void add(Expr &parent, std::vector<ExprPtr> &list, ExprPtr child);
  void deepen(Expr &parent, const ExprPtr &child);
  void requireKnown(bool isKnown, const char *kind, const std::string &name);

  /// A level of nesting while it lives.
  class Level {
  public:
    explicit Level(Parser &parser);
    ~Level() { --parser.levels; }
    Level(const Level &) = delete;

  private:
    Parser &parser;
  };

  const std::vector<Token> tokens;
  Tree &tree;
  int &line;
  size_t at = 0;
  int levels = 0;
  int loops = 0; ///< open in this macro
  /// Whether an unknown filter is a fault only when it is called. jinja2 allows this in the branches of a condition.
  bool isSoft = false;
  std::vector<std::pair<std::string, int>> unknownNames; ///< faults of filters and tests, with their lines
  std::vector<Signature *> signatures;                   ///< of the open macros
  std::vector<Stmt *> loopStmts;                         ///< open, also of outer macros
};

} // namespace espalier::rt::jinja
