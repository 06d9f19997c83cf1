// The syntax tree of a bash script.
#pragma once

#include "compiler/import/shell/text.h"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace espalier::shell {

struct Part;
/// A word before expansion: the parts that follow each other without blanks.
using Word = std::vector<Part>;

/// A part of a word. `$NAME` and `${NAME[INDEX]OPERATION OPERANDS}` are parameters.
struct Part {
  enum Kind { Literal, Parameter, Arithmetic, Command } kind = Literal;
  bool isQuoted = false;
  Text text = {};         ///< Literal: the characters. Command: its source, with the signs around it
  std::string name = {};  ///< Parameter: a variable, a digit or a special sign
  std::string index = {}; ///< Parameter: "@" or "*" for all elements, "=" for the element `subscript`, or empty
  Word subscript = {};
  std::string operation = {};      ///< Parameter: "", ":-", "##", "//", ":" (a slice), "length", "indirect", "keys"
  std::vector<Word> operands = {}; ///< Arithmetic: one, the expression
  Place place = {};
};

/// NAME=WORD, NAME+=WORD, NAME[INDEX]=WORD or NAME=(ELEMENTS).
struct Assignment {
  struct Element {
    std::optional<Word> index;
    Word value;
  };
  std::string name;
  std::optional<Word> index = {};
  bool adds = false, isList = false;
  std::vector<Element> elements = {}; ///< one unless `isList`
  Place place = {};
};

/// A command or a condition of [[ ]].
struct Node {
  enum Kind {
    Simple,    ///< `assignments`, `words`
    Pipe,      ///< `children` in processes of their own
    List,      ///< `children` in order
    Chain,     ///< `children` joined by && and ||; `names` holds the signs
    Not,       ///< ! child
    If,        ///< children: condition, body, condition, body, ..., and the body of `else` if the number is odd
    For,       ///< `name` over `words`, or over the arguments if `overArguments`; child: body
    Count,     ///< for ((A; B; C)): three `words`; child: body
    While,     ///< children: condition, body; `name` is "while" or "until"
    Case,      ///< words[0], one entry of `patterns`, `names` (;; ;& ;;&) and `children` per clause
    Group,     ///< { child; }
    Subshell,  ///< ( child )
    Calculate, ///< (( words[0] ))
    Define,    ///< function `name` with the body `child`
    Both,      ///< [[ ]]: `children` joined by &&
    Either,    ///< [[ ]]: `children` joined by ||
    Unary,     ///< [[ ]]: the operator `name` on words[0]
    Binary,    ///< [[ ]]: the operator `name` on words[0] and words[1]
  } kind = Simple;
  Place place;
  std::string name;
  std::vector<Word> words;
  std::vector<Assignment> assignments;
  std::vector<Node> children;
  std::vector<std::vector<Word>> patterns;
  std::vector<std::string> names;
  bool overArguments = false;
  std::shared_ptr<Word> input; ///< the here-document or here-string, or null
};

} // namespace espalier::shell
