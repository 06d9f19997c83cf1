#include "tools/ptx/syntax.h"

#include "tools/ptx/lexer.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>

namespace espalier::ptx {
namespace {

using Kind = Token::Kind;

/// Reads tokens one by one. Errors name the current line and kernel.
class TokenReader {
public:
  explicit TokenReader(std::string_view text) : tokens(readTokens(text)) {}

  const Token &peek(size_t ahead = 0) const { return tokens[std::min(at + ahead, tokens.size() - 1)]; }
  const Token &take() { return tokens[std::min(at++, tokens.size() - 1)]; }
  bool isAtEnd() const { return peek().kind == Kind::end; }
  bool takeIf(std::string_view text) { return peek().is(text) && ++at; }
  void need(std::string_view text) {
    if (!takeIf(text))
      fail("expected '" + std::string(text) + "', got '" + std::string(peek().text) + "'");
  }
  [[noreturn]] void fail(const std::string &what) const { throw SyntaxError(kernel, peek().line, what); }
  /// Reports that the previous word is no directive that may stand there.
  [[noreturn]] void failDirective() {
    --at;
    fail("directive " + std::string(peek().text) + " is not known");
  }

  std::string_view word() {
    if (peek().kind != Kind::word)
      fail("expected a name, got '" + std::string(peek().text) + "'");
    return take().text;
  }

  uint32_t count() {
    uint32_t value = 0;
    std::string_view text = peek().text;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (peek().kind != Kind::number || error != std::errc() || end != text.data() + text.size())
      fail("expected a number, got '" + std::string(text) + "'");
    ++at;
    return value;
  }

  /// Reads `.b32` and returns "b32".
  std::string_view type() {
    std::string_view name = word();
    if (!name.starts_with('.'))
      fail("type " + std::string(name) + " is not known");
    return name.substr(1);
  }

  std::string_view signedNumber() {
    const char *begin = peek().text.data();
    takeIf("-");
    if (peek().kind != Kind::number)
      fail("expected a number, got '" + std::string(peek().text) + "'");
    std::string_view digits = take().text;
    return {begin, static_cast<size_t>(digits.data() + digits.size() - begin)};
  }

  /// Skips the tokens of a line.
  void skipLine(uint32_t line) {
    while (!isAtEnd() && peek().line == line)
      ++at;
  }

  std::string kernel; ///< that is being read

private:
  std::vector<Token> tokens;
  size_t at = 0;
};

/// Reads the body of a kernel.
class BodyReader {
public:
  BodyReader(TokenReader &in, std::vector<Item> &body) : in(in), body(body) {}

  /// Reads up to the brace that closes the kernel.
  void run() {
    for (size_t depth = 1; depth > 0;) {
      if (in.takeIf("{")) {
        body.emplace_back(Brace::open);
        ++depth;
      } else if (in.takeIf("}")) {
        if (--depth > 0)
          body.emplace_back(Brace::close);
      } else if (in.takeIf(";")) {
        continue;
      } else if (in.peek().kind == Kind::word && in.peek(1).is(":")) {
        uint32_t line = in.peek().line;
        body.emplace_back(Label{line, in.word()});
        in.take();
      } else if (in.peek().text.starts_with('.')) {
        readDirective();
      } else {
        readStatement();
      }
    }
  }

private:
  void readDirective();
  void readRegisters();
  void readStatement();
  Operand readOperand();
  Operand readAddress();

  TokenReader &in;
  std::vector<Item> &body;
};

/// Reads `.align 16 .b8 name[64];`, after the address space.
VariableDeclaration readVariable(TokenReader &in, std::string_view space) {
  VariableDeclaration variable{.line = in.peek().line, .space = space};
  variable.alignment = in.takeIf(".align") ? in.count() : 0;
  variable.type = in.type();
  variable.name = in.word();
  while (in.takeIf("[")) {
    variable.isDynamic |= in.peek().is("]");
    if (!variable.isDynamic)
      variable.elements *= in.count();
    in.need("]");
  }
  in.need(";");
  return variable;
}

void BodyReader::readDirective() {
  std::string_view name = in.word();
  if (name == ".reg")
    readRegisters();
  else if (name == ".shared" || name == ".local")
    body.emplace_back(readVariable(in, name.substr(1)));
  else if (name == ".loc")
    in.skipLine(in.peek().line);
  else if (name == ".pragma")
    in.take(), in.need(";");
  else
    in.failDirective();
}

void BodyReader::readRegisters() {
  uint32_t line = in.peek().line;
  std::string_view type = in.type();
  do {
    RegisterDeclaration declaration{line, type, in.word()};
    if (in.takeIf("<")) {
      declaration.count = in.count();
      in.need(">");
    }
    body.emplace_back(declaration);
  } while (in.takeIf(","));
  in.need(";");
}

Operand BodyReader::readOperand() {
  Operand operand;
  if (in.takeIf("{")) {
    operand.kind = Operand::Kind::vector;
    do
      operand.elements.push_back(readOperand());
    while (in.takeIf(","));
    in.need("}");
  } else if (in.takeIf("[")) {
    operand = readAddress();
  } else if (in.peek().is("-") || in.peek().kind == Kind::number) {
    operand.kind = Operand::Kind::number;
    operand.text = in.signedNumber();
  } else if (in.takeIf("_")) {
    operand.kind = Operand::Kind::sink;
  } else {
    operand.isNegated = in.takeIf("!");
    operand.text = in.word();
  }
  if (in.takeIf("|"))
    operand.second.push_back(readOperand());
  return operand;
}

Operand BodyReader::readAddress() {
  auto number = [&] { return std::strtoll(std::string(in.signedNumber()).c_str(), nullptr, 0); };
  Operand operand{.kind = Operand::Kind::address};
  if (in.peek().kind == Kind::number)
    operand.offset = number();
  else
    operand.text = in.word();
  if (in.takeIf("+"))
    operand.offset += number();
  in.need("]");
  return operand;
}

void BodyReader::readStatement() {
  Statement statement{.line = in.peek().line};
  if (in.takeIf("@"))
    statement.guard.push_back(readOperand());
  statement.opcode = in.word();
  if (!in.peek().is(";"))
    do
      statement.operands.push_back(readOperand());
    while (in.takeIf(","));
  in.need(";");
  body.emplace_back(std::move(statement));
}

/// Reads directives and declarations outside of kernels, and the heads of kernels.
class ModuleReader {
public:
  explicit ModuleReader(std::string_view text) : in(text) {}

  Module run() {
    while (!in.isAtEnd())
      readDirective();
    return std::move(module);
  }

private:
  void readDirective();
  uint32_t readVersion();
  void readTarget();
  void readKernel();
  void readParameters(Kernel &kernel);
  void readBounds(Kernel &kernel);

  TokenReader in;
  Module module;
};

void ModuleReader::readDirective() {
  std::string_view name = in.word();
  if (name == ".version") {
    module.version = readVersion();
  } else if (name == ".file") {
    in.skipLine(in.peek().line);
  } else if (name == ".target") {
    readTarget();
  } else if (name == ".address_size") {
    if (in.count() != 64)
      in.fail(".address_size must be 64");
  } else if (name == ".visible" || name == ".weak") {
    // All kernels are visible to the readers of a text.
  } else if (name == ".extern") {
    in.need(".shared");
    module.variables.push_back(readVariable(in, "shared"));
  } else if (name == ".shared") {
    module.variables.push_back(readVariable(in, "shared"));
  } else if (name == ".entry") {
    readKernel();
  } else if (name == ".section") {
    while (!in.takeIf("}"))
      if (in.take().kind == Kind::end)
        in.fail("section without end");
  } else {
    in.failDirective();
  }
}

/// Reads a version: `8.0` is 80.
uint32_t ModuleReader::readVersion() {
  std::string_view text = in.peek().text;
  size_t point = text.find('.');
  if (in.peek().kind != Kind::number || point + 2 != text.size() || point == 0 || !std::isdigit(text.back()))
    in.fail("expected a version as 8.0, got '" + std::string(text) + "'");
  in.take();
  uint32_t major = 0;
  std::from_chars(text.data(), text.data() + point, major);
  return 10 * major + static_cast<uint32_t>(text.back() - '0');
}

void ModuleReader::readTarget() {
  uint32_t line = in.peek().line;
  std::string_view name = in.word();
  if (!name.starts_with("sm_"))
    in.fail("target " + std::string(name) + " is not known");
  std::from_chars(name.data() + 3, name.data() + name.size(), module.target);
  in.skipLine(line);
}

void ModuleReader::readKernel() {
  Kernel kernel{.line = in.peek().line, .variables = module.variables.size()};
  kernel.name = in.word();
  if (std::ranges::find(module.kernels, kernel.name, &Kernel::name) != module.kernels.end())
    in.fail("kernel " + std::string(kernel.name) + " is there twice");
  in.kernel = kernel.name;
  readParameters(kernel);
  readBounds(kernel);
  in.need("{");
  BodyReader(in, kernel.body).run();
  kernel.lastLine = in.peek().line;
  in.kernel.clear();
  module.kernels.push_back(std::move(kernel));
}

void ModuleReader::readParameters(Kernel &kernel) {
  if (!in.takeIf("("))
    return;
  while (!in.takeIf(")")) {
    in.need(".param");
    Parameter parameter{.line = in.peek().line};
    parameter.alignment = in.takeIf(".align") ? in.count() : 0;
    parameter.type = in.type();
    if (in.takeIf(".ptr")) {
      while (in.peek().is(".global") || in.peek().is(".shared"))
        in.take();
      if (in.takeIf(".align"))
        in.count();
    }
    parameter.name = in.word();
    if (in.takeIf("[")) {
      parameter.elements = in.count();
      in.need("]");
    }
    kernel.parameters.push_back(parameter);
    if (!in.peek().is(")"))
      in.need(",");
  }
}

void ModuleReader::readBounds(Kernel &kernel) {
  while (!in.peek().is("{")) {
    Bound bound{.line = in.peek().line};
    std::string_view name = in.word();
    if (name != ".maxntid" && name != ".reqntid" && name != ".minnctapersm" && name != ".maxnreg")
      in.failDirective();
    bound.name = name.substr(1);
    do
      bound.product *= in.count();
    while (in.takeIf(","));
    kernel.bounds.push_back(bound);
  }
}

} // namespace

Module readModule(std::string_view text) { return ModuleReader(text).run(); }

} // namespace espalier::ptx
