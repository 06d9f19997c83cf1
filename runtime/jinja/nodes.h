// The syntax tree of a template.
#pragma once

#include "runtime/jinja/value.h"

#include <set>

namespace espalier::rt::jinja {

/// A name. Equal names of one template have one address.
using Symbol = const std::string *;

enum class ExprKind {
  Constant,
  Name,
  List,
  Tuple,
  Dict,      ///< parts: key, value, key, value...
  Attribute, ///< parts: object; symbol
  Item,      ///< parts: object, key
  Slice,     ///< parts: object, start, stop, step; null if not given
  Call,      ///< parts: function
  Filter,    ///< parts: value, or null for the text of a block; symbol
  Test,      ///< parts: value; symbol
  Not,
  Negative,
  Positive,
  And,
  Or,
  Binary,  ///< an arithmetic operator in `symbol`
  Compare, ///< parts: the first operand, then one for each of `symbols`
  Concat,
  Conditional, ///< parts: condition, value, value otherwise or null
};

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

struct Expr {
  ExprKind kind;
  int line = 0;
  int nesting = 1; ///< of the tree
  Symbol symbol = nullptr;
  Value constant;
  std::vector<ExprPtr> parts;
  std::vector<Symbol> symbols;
  // The arguments of a call, a filter or a test.
  std::vector<ExprPtr> arguments;
  std::vector<std::pair<Symbol, ExprPtr>> named;
  ExprPtr star, stars; ///< *list and **dict
};

/// The target of an assignment: a name, an attribute of a namespace, or a list of targets.
struct Target {
  Symbol name = nullptr, attribute = nullptr;
  std::vector<Target> parts;
  bool isTuple = false;
};

enum class StmtKind {
  Text,
  Print,
  For,
  If, ///< `branches`
  Set,
  SetBlock,
  Macro,
  CallBlock,
  FilterBlock,
  With,
  Block,
  Generation,
  Break,
  Continue,
  Template, ///< include, import or extends: a fault when it is executed
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

/// Parameters of a macro or of a call block.
struct Signature {
  std::vector<std::pair<Symbol, ExprPtr>> parameters; ///< with the default or null
  bool usesCaller = false, usesVarargs = false, usesKwargs = false;
};

struct Stmt {
  StmtKind kind;
  int line = 0;
  std::string text;
  Symbol name = nullptr;
  Target target;
  ExprPtr value, test; ///< test: the filter of a loop
  bool isRecursive = false, usesLoop = false, isScoped = false;
  Body body, otherwise;
  std::vector<std::pair<ExprPtr, Body>> branches;   ///< of If, and `otherwise`
  std::vector<std::pair<Target, ExprPtr>> bindings; ///< of With
  std::vector<ExprPtr> values;                      ///< of Print
  Signature signature;
};

/// A parsed template.
struct Tree {
  std::set<std::string> symbols;
  Body body;
  bool hasGeneration = false; ///< a `generation` block anywhere
};

/// Parses a template. Throws Fault, and sets `line` to its line.
Tree parse(std::string_view source, int &line);

} // namespace espalier::rt::jinja
