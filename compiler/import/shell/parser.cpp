#include "compiler/import/shell/parser.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fmt/format.h>

namespace espalier::shell {

namespace {

constexpr std::array declarers = {"export", "local", "readonly", "declare", "typeset"};

constexpr std::array closers = {"then", "elif", "else", "fi", "do", "done", "esac", "}"};

/// Returns the text of a word without quotes if it has no expansions.
std::string plainText(const Word &word) {
  std::string text;
  for (const Part &part : word)
    text += part.text.bytes();
  return text;
}

bool isPlain(const Word &word, std::string_view text) {
  return word.size() == 1 && word[0].kind == Part::Literal && !word[0].isQuoted && word[0].text.bytes() == text;
}

} // namespace

Node Parser::makeNode(Node::Kind kind, const Place &at) {
  count();
  Node node;
  node.kind = kind;
  node.place = at;
  return node;
}

void Parser::refuse() const {
  if (isAtEnd())
    throw Fault(place(), "the script ends within a command");
  std::string_view name = peekName();
  throw Fault(place(),
              fmt::format("a command cannot begin with '{}' here", name.empty() ? input.bytes().substr(at, 1) : name));
}

Node Parser::parse() {
  Node script = readList({});
  if (!isAtEnd())
    refuse();
  return script;
}

std::string_view Parser::peekName() const {
  size_t length = 0;
  if (peek() == '{' || peek() == '}' || peek() == '!')
    length = 1;
  else if (startsWith("[["))
    length = 2;
  else
    while (at + length < input.size() && (isNameChar(peek(length)) || peek(length) == '-'))
      ++length;
  char after = peek(length);
  bool isWhole = std::string_view(" \t\n;&|()<>").find(after) != std::string_view::npos;
  return isWhole && length > 0 ? std::string_view(input.bytes()).substr(at, length) : std::string_view();
}

bool Parser::takeName(std::string_view name) {
  if (peekName() != name)
    return false;
  at += name.size();
  skipBlanks();
  return true;
}

void Parser::expect(std::string_view name, const Place &open, std::string_view of) {
  skipLines();
  if (!takeName(name))
    throw Fault(open, fmt::format("'{}' has no '{}'", of, name));
}

void Parser::skipComment() {
  while (peek() != '\n')
    ++at;
}

void Parser::skipLines() {
  while (!isAtEnd()) {
    skipBlanks();
    if (peek() == '#')
      skipComment();
    if (isAtEnd() || peek() != '\n')
      return;
    ++at;
    readDocuments();
  }
}

Node Parser::readList(const std::vector<std::string_view> &ends) {
  Level level(*this);
  Node list = makeNode(Node::List, place());
  while (true) {
    skipLines();
    bool isEnd = isAtEnd() || std::any_of(ends.begin(), ends.end(), [&](std::string_view end) {
                   return std::isalpha(static_cast<unsigned char>(end[0])) != 0 || end == "}" ? peekName() == end
                                                                                              : startsWith(end);
                 });
    if (isEnd)
      return list;
    list.children.push_back(readChain());
    skipBlanks();
    bool isClause = startsWith(";;") || startsWith(";&");
    if (!isClause && (peek() == ';' || peek() == '&'))
      ++at;
  }
}

Node Parser::readChain() {
  Node first = readPipe();
  Node chain = makeNode(Node::Chain, first.place);
  chain.children.push_back(std::move(first));
  while (true) {
    skipBlanks();
    if (!startsWith("&&") && !startsWith("||"))
      break;
    chain.names.push_back(input.bytes().substr(at, 2));
    at += 2;
    skipLines();
    chain.children.push_back(readPipe());
  }
  return chain.names.empty() ? std::move(chain.children[0]) : chain;
}

Node Parser::readPipe() {
  Place begin = place();
  if (takeName("!")) {
    Level level(*this);
    Node negation = makeNode(Node::Not, begin);
    negation.children.push_back(readPipe());
    return negation;
  }
  if (takeName("time"))
    takeName("-p");
  Node first = readCommand();
  Node pipe = makeNode(Node::Pipe, begin);
  pipe.children.push_back(std::move(first));
  while (true) {
    skipBlanks();
    if (peek() != '|' || peek(1) == '|')
      break;
    at += peek(1) == '&' ? 2 : 1;
    skipLines();
    pipe.children.push_back(readCommand());
  }
  return pipe.children.size() == 1 ? std::move(pipe.children[0]) : pipe;
}

Node Parser::readCommand() {
  Level level(*this);
  Place begin = place();
  std::string_view name = peekName();
  Node command;
  if (std::find(closers.begin(), closers.end(), name) != closers.end()) {
    refuse();
  } else if (name == "if") {
    command = readIf();
  } else if (name == "while" || name == "until") {
    command = readLoop();
  } else if (name == "for" || name == "select") {
    command = readFor();
  } else if (name == "case") {
    command = readCase();
  } else if (takeName("function")) {
    std::string called(peekName());
    if (called.empty())
      called = plainText(readWord());
    else
      at += called.size();
    skipBlanks();
    if (take("("))
      expect(")", begin, "(");
    return readDefinition(called);
  } else if (takeName("{")) {
    command = makeNode(Node::Group, begin);
    command.children.push_back(readList({"}"}));
    expect("}", begin, "{");
  } else if (startsWith("((") && endOfArithmetic(at + 2) != std::string::npos) {
    command = readCalculation();
  } else if (take("(")) {
    command = makeNode(Node::Subshell, begin);
    command.children.push_back(readList({")"}));
    if (!take(")"))
      throw Fault(begin, "this bracket is not closed");
  } else if (takeName("[[")) {
    skipLines();
    command = readCondition();
    skipLines();
    if (!take("]]"))
      throw Fault(begin, "'[[' has no ']]'");
  } else {
    return readSimple();
  }
  readRedirections(command);
  return command;
}

Node Parser::readIf() {
  Node node = makeNode(Node::If, place());
  takeName("if");
  do {
    node.children.push_back(readList({"then"}));
    expect("then", node.place, "if");
    node.children.push_back(readList({"elif", "else", "fi"}));
  } while (takeName("elif"));
  if (takeName("else"))
    node.children.push_back(readList({"fi"}));
  expect("fi", node.place, "if");
  return node;
}

Node Parser::readLoop() {
  Node node = makeNode(Node::While, place());
  node.name = peekName();
  takeName(peekName());
  node.children.push_back(readList({"do"}));
  expect("do", node.place, node.name);
  node.children.push_back(readList({"done"}));
  expect("done", node.place, node.name);
  return node;
}

Node Parser::readFor() {
  Node node = makeNode(Node::For, place());
  std::string_view of = peekName();
  takeName(of);
  if (startsWith("((")) {
    node.kind = Node::Count;
    size_t end = endOfArithmetic(at + 2);
    Text inside = input.slice(at + 2, end == std::string::npos ? at + 2 : end - 2);
    for (size_t begin = 0; begin <= inside.size();) {
      size_t semicolon = std::min(inside.bytes().find(';', begin), inside.size());
      Text part = inside.slice(begin, semicolon);
      node.words.push_back(WordReader(part, depth).readAllQuoted());
      begin = semicolon + 1;
    }
    if (node.words.size() != 3)
      throw Fault(node.place, "'for ((' needs three expressions");
    at = end;
  } else {
    node.name = peekName();
    if (!isName(node.name))
      throw Fault(node.place, "'for' needs the name of a variable");
    at += node.name.size();
    skipLines();
    node.overArguments = !takeName("in");
    for (skipBlanks(); !node.overArguments && peek() != '\n' && peek() != ';'; skipBlanks()) {
      node.words.push_back(readWord());
      if (node.words.back().empty())
        refuse();
    }
  }
  skipBlanks();
  take(";");
  skipLines();
  bool isBraced = takeName("{");
  if (!isBraced)
    expect("do", node.place, of);
  node.children.push_back(readList({isBraced ? "}" : "done"}));
  expect(isBraced ? "}" : "done", node.place, of);
  return node;
}

Node Parser::readCase() {
  Node node = makeNode(Node::Case, place());
  takeName("case");
  node.words.push_back(readWord());
  expect("in", node.place, "case");
  for (skipLines(); !takeName("esac"); skipLines()) {
    if (isAtEnd())
      throw Fault(node.place, "'case' has no 'esac'");
    take("(");
    std::vector<Word> patterns;
    do {
      skipBlanks();
      patterns.push_back(readWord());
      skipBlanks();
    } while (take("|"));
    if (!take(")"))
      refuse();
    node.patterns.push_back(std::move(patterns));
    node.children.push_back(readList({"esac", ";;", ";&"}));
    node.names.emplace_back(take(";;&") ? ";;&" : take(";&") ? ";&" : ";;");
    take(";;");
  }
  return node;
}

Node Parser::readDefinition(std::string name) {
  Node node = makeNode(Node::Define, place());
  node.name = std::move(name);
  skipLines();
  node.children.push_back(readCommand());
  return node;
}

Node Parser::readCalculation() {
  Node node = makeNode(Node::Calculate, place());
  size_t end = endOfArithmetic(at + 2);
  Text inside = input.slice(at + 2, end - 2);
  node.words.push_back(WordReader(inside, depth).readAllQuoted());
  at = end;
  return node;
}

Node Parser::readCondition() {
  Level level(*this);
  Node node = makeNode(Node::Either, place());
  do
    node.children.push_back(readBoth());
  while (skipLines(), take("||"));
  return node;
}

Node Parser::readBoth() {
  Node node = makeNode(Node::Both, place());
  do
    node.children.push_back(readOperand());
  while (skipLines(), take("&&"));
  return node;
}

Word Parser::readConditionWord() {
  skipBlanks();
  Word word = readWord();
  if (word.empty())
    refuse();
  return word;
}

Node Parser::readOperand() {
  Level level(*this);
  skipLines();
  Node node = makeNode(Node::Unary, place());
  if (take("(")) {
    node = readCondition();
    skipLines();
    if (!take(")"))
      throw Fault(node.place, "this bracket is not closed");
    return node;
  }
  Word first = readConditionWord();
  if (isPlain(first, "!")) {
    node.kind = Node::Not;
    node.children.push_back(readOperand());
    return node;
  }
  skipBlanks();
  bool isLast = startsWith("]]") || startsWith("&&") || startsWith("||") || peek() == ')' || peek() == '\n';
  if (std::string sign = plainText(first); !isLast && isPlain(first, sign) && sign.size() == 2 && sign[0] == '-') {
    node.name = sign;
    node.words.push_back(readConditionWord());
    return node;
  }
  node.words.push_back(std::move(first));
  if (isLast) {
    node.name = "-n";
    return node;
  }
  node.kind = Node::Binary;
  node.name = take("<") ? "<" : take(">") ? ">" : plainText(readConditionWord());
  if (node.name != "=~") {
    node.words.push_back(readConditionWord());
    return node;
  }
  skipBlanks(); // a regular expression may hold signs of the shell
  for (int parentheses = 0; !isAtEnd() && (parentheses > 0 || (peek() != ' ' && peek() != '\n')); ++at) {
    parentheses += (peek() == '(') - (peek() == ')');
    if (peek() == '"' || peek() == '\'')
      at = std::min(input.bytes().find(peek(), at + 1), input.size());
  }
  return node;
}

Node Parser::readSimple() {
  Node command = makeNode(Node::Simple, place());
  size_t start = at;
  while (true) {
    skipBlanks();
    if (peek() == '#') {
      skipComment();
      break;
    }
    if (peek() == '\n' || readRedirection(command)) {
      if (peek() == '\n')
        break;
      continue;
    }
    bool declares = !command.words.empty() && std::any_of(declarers.begin(), declarers.end(), [&](const char *name) {
      return isPlain(command.words[0], name);
    });
    if ((command.words.empty() || declares) && readAssignment(command))
      continue;
    Place begin = place();
    Word word = readWord();
    if (word.empty()) {
      bool isDefinition = peek() == '(' && command.words.size() == 1 && command.assignments.empty();
      if (!isDefinition)
        break;
      ++at;
      skipBlanks();
      if (!take(")"))
        throw Fault(begin, "a command cannot hold '(' outside of quotes");
      return readDefinition(plainText(command.words[0]));
    }
    command.words.push_back(std::move(word));
  }
  if (peek() == '(')
    throw Fault(place(), "a command cannot hold '(' outside of quotes");
  if (at == start)
    refuse();
  return command;
}

bool Parser::readAssignment(Node &command) {
  size_t length = 0, begin = at;
  while (isNameChar(peek(length)))
    ++length;
  Assignment assignment{.name = input.bytes().substr(at, length), .place = place()};
  if (!isName(assignment.name))
    return false;
  at += length;
  if (take("[")) {
    assignment.index = readIndex();
    take("]");
  }
  assignment.adds = take("+=");
  if (!assignment.adds && !take("=")) {
    at = begin;
    return false;
  }
  if (peek() == '(')
    readElements(assignment);
  else
    assignment.elements.push_back({std::nullopt, readWord()});
  command.assignments.push_back(std::move(assignment));
  return true;
}

void Parser::readElements(Assignment &assignment) {
  Place open = place();
  assignment.isList = true;
  ++at;
  for (skipLines(); !take(")"); skipLines()) {
    if (isAtEnd())
      throw Fault(open, "this bracket is not closed");
    Assignment::Element element;
    if (size_t begin = at; take("[")) {
      element.index = readIndex();
      if (!take("]=")) { // a word that begins with a bracket
        element.index.reset();
        at = begin;
      }
    }
    element.value = readWord();
    if (element.value.empty() && !element.index)
      refuse();
    assignment.elements.push_back(std::move(element));
  }
}

void Parser::readRedirections(Node &command) {
  while (skipBlanks(), readRedirection(command))
    ;
}

bool Parser::readRedirection(Node &command) {
  size_t digits = 0;
  while (std::isdigit(static_cast<unsigned char>(peek(digits))) != 0)
    ++digits;
  bool isBoth = peek() == '&' && peek(1) == '>';
  char sign = peek(isBoth ? 1 : digits);
  if ((sign != '<' && sign != '>') || placeholderLength() > 0 || (digits == 0 && !isBoth && peek(1) == '('))
    return false;
  at += isBoth ? 1 : digits;
  for (std::string_view form : {"<<<", "<<-", "<<", "<&", "<>", "<", ">>", ">&", ">|", ">"}) {
    if (!take(form))
      continue;
    skipBlanks();
    Word target = readWord();
    if (form == "<<<")
      command.input = std::make_shared<Word>(std::move(target));
    if (form != "<<" && form != "<<-")
      break;
    bool isLiteral = std::any_of(target.begin(), target.end(), [](const Part &part) { return part.isQuoted; });
    command.input = std::make_shared<Word>();
    documents.push_back({plainText(target), form == "<<-", isLiteral, command.input});
    break;
  }
  return true;
}

void Parser::readDocuments() {
  for (const Document &document : std::exchange(documents, {})) {
    Text content;
    while (!isAtEnd()) {
      size_t begin = at, end = std::min(input.bytes().find('\n', at), input.size());
      while (document.isIndented && begin < end && input[begin] == '\t')
        ++begin;
      at = std::min(end + 1, input.size());
      if (input.bytes().compare(begin, end - begin, document.end) == 0)
        break;
      content.append(input, begin, at);
    }
    if (!document.isLiteral)
      *document.content = WordReader(content, depth).readAllQuoted();
    else
      document.content->push_back({.isQuoted = true, .text = content});
  }
}

} // namespace espalier::shell
