// Parses PTX text to kernels: directives, declarations and scopes. The opcode rules parse statements.
#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <set>

#include "test/emulator/ptx.h"
#include "test/emulator/ptx_decode.h"
#include "test/emulator/ptx_lexer.h"

namespace espalier::emulator {
namespace {

using Kind = Token::Kind;

const Rules &rules() {
  static const Rules all = [] {
    Rules rules;
    for (auto add : {addArithmetic, addComparisons, addBitOperations, addConversions, addMemory, addAsynchronousCopies,
                     addWarpOperations, addMatrices})
      add(rules);
    return rules;
  }();
  return all;
}

/// An array in shared or local memory.
struct Variable {
  Space space;
  uint32_t bytes, alignment;
  bool isDynamic = false;
  int64_t address = -1; // in the kernel being parsed; -1 until the kernel uses the variable
};

struct Register {
  Type type;
  uint32_t count; // 100 for %r<100>; 0 for a single name
  std::map<uint32_t, Slot> slots;
};

/// The names between braces.
struct Scope {
  std::map<std::string_view, Register> registers;
  std::map<std::string_view, Variable> variables;
};

class Parser {
public:
  explicit Parser(std::string_view text) : tokens(readTokens(text)) {}

  Program run() {
    scopes.emplace_back();
    while (peek().kind != Kind::end)
      readModuleStatement();
    return std::move(program);
  }

private:
  std::vector<Token> tokens;
  size_t at = 0;
  Program program;
  std::vector<Scope> scopes; // the module's scope first
  // State of the kernel being parsed:
  Entry *entry = nullptr;
  RegisterFile *file = nullptr;
  std::map<std::string_view, uint32_t> labels;
  std::vector<std::pair<uint32_t, std::string_view>> branches; // instructions with unresolved labels

  const Token &peek(size_t ahead = 0) const { return tokens[std::min(at + ahead, tokens.size() - 1)]; }
  const Token &take() { return tokens[std::min(at++, tokens.size() - 1)]; }
  bool takeIf(std::string_view text) { return peek().is(text) && ++at; }
  void need(std::string_view text) {
    if (!takeIf(text))
      fail("expected '" + std::string(text) + "', got '" + std::string(peek().text) + "'");
  }
  [[noreturn]] void fail(const std::string &what) const {
    throw Fault(Fault::Check::syntax, entry ? entry->name : "", peek().line, what);
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

  Type type() {
    std::string_view name = word();
    Type type = name.starts_with('.') ? typeNamed(name.substr(1)) : Type::none;
    if (type == Type::none)
      fail("type " + std::string(name) + " is not known");
    return type;
  }

  void skipLine() {
    uint32_t line = peek().line;
    while (peek().kind != Kind::end && peek().line == line)
      ++at;
  }

  void readModuleStatement() {
    std::string_view name = word();
    if (name == ".version") {
      program.version = readVersion();
    } else if (name == ".file") {
      skipLine();
    } else if (name == ".target") {
      readTarget();
    } else if (name == ".address_size") {
      if (count() != 64)
        fail(".address_size must be 64");
    } else if (name == ".visible" || name == ".weak") {
      // Linkage has no effect here.
    } else if (name == ".extern") {
      need(".shared");
      readVariable(Space::shared);
    } else if (name == ".shared") {
      readVariable(Space::shared);
    } else if (name == ".entry") {
      readEntry();
    } else if (name == ".section") {
      while (!takeIf("}"))
        if (take().kind == Kind::end)
          fail("section without end");
    } else {
      --at;
      fail("directive " + std::string(name) + " is not known");
    }
  }

  /// Parses a version: `8.0` is 80.
  uint32_t readVersion() {
    std::string_view text = peek().text;
    size_t point = text.find('.');
    if (peek().kind != Kind::number || point + 2 != text.size() || point == 0 || !std::isdigit(text.back()))
      fail("expected a version as 8.0, got '" + std::string(text) + "'");
    ++at;
    uint32_t major = 0;
    std::from_chars(text.data(), text.data() + point, major);
    return 10 * major + static_cast<uint32_t>(text.back() - '0');
  }

  void readTarget() {
    std::string_view name = word();
    if (!name.starts_with("sm_"))
      fail("target " + std::string(name) + " is not known");
    std::from_chars(name.data() + 3, name.data() + name.size(), program.target);
    skipLine();
  }

  /// Parses `.align 16 .b8 name[64];`, after the address space.
  void readVariable(Space space) {
    uint32_t alignment = takeIf(".align") ? count() : 0;
    Type element = type();
    std::string_view name = word();
    uint64_t bytes = bytesOf(element);
    bool isDynamic = false;
    while (takeIf("[")) {
      isDynamic |= peek().is("]");
      if (!isDynamic)
        bytes *= count();
      need("]");
    }
    need(";");
    scopes.back().variables[name] = {space, static_cast<uint32_t>(bytes), std::max(alignment, bytesOf(element)),
                                     isDynamic};
  }

  void readEntry() {
    Entry fresh;
    fresh.name = word();
    if (program.entries.contains(fresh.name))
      fail("kernel " + fresh.name + " is there twice");
    entry = &(program.entries[fresh.name] = std::move(fresh));
    RegisterFile registers(*entry, program.target);
    file = &registers;
    labels.clear();
    branches.clear();
    for (auto &[name, variable] : scopes.front().variables)
      variable.address = -1;
    readParameters();
    readBounds();
    need("{");
    readBody();
    for (auto [instruction, label] : branches) {
      if (!labels.contains(label))
        throw Fault(Fault::Check::syntax, entry->name, entry->instructions[instruction].line,
                    "label " + std::string(label) + " is not there");
      entry->instructions[instruction].target = labels.at(label);
    }
    // Reaching the end of a kernel is an exit.
    Instruction end{.flow = Flow::exit, .line = peek().line};
    entry->instructions.push_back(end);
    entry->opcodes.push_back("end");
    entry->sharedBytes = (entry->sharedBytes + 15) / 16 * 16;
    registers.placeDynamicShared(entry->sharedBytes);
    entry = nullptr;
    file = nullptr;
  }

  void readParameters() {
    uint32_t offset = 0;
    if (!takeIf("("))
      return;
    while (!takeIf(")")) {
      need(".param");
      uint32_t alignment = takeIf(".align") ? count() : 0;
      Type element = type();
      if (takeIf(".ptr")) {
        while (peek().is(".global") || peek().is(".shared"))
          ++at;
        if (takeIf(".align"))
          count();
      }
      Parameter parameter{std::string(word()), bytesOf(element), 0};
      if (takeIf("[")) {
        parameter.bytes *= count();
        need("]");
      }
      alignment = std::max(alignment, bytesOf(element));
      parameter.offset = (offset + alignment - 1) / alignment * alignment;
      offset = parameter.offset + parameter.bytes;
      entry->parameters.push_back(parameter);
      if (!peek().is(")"))
        need(",");
    }
  }

  void readBounds() {
    while (!peek().is("{")) {
      std::string_view name = word();
      uint32_t product = count();
      while (takeIf(","))
        product *= count();
      if (name == ".maxntid")
        entry->maxThreads = product;
      else if (name == ".reqntid")
        entry->requiredThreads = product;
      else if (name != ".minnctapersm" && name != ".maxnreg")
        fail("directive " + std::string(name) + " is not known");
    }
  }

  void readBody() {
    scopes.emplace_back();
    size_t outside = scopes.size() - 1;
    while (scopes.size() > outside) {
      if (takeIf("{"))
        scopes.emplace_back();
      else if (takeIf("}"))
        scopes.pop_back();
      else if (takeIf(";"))
        continue;
      else if (peek().kind == Kind::word && peek(1).is(":"))
        readLabel();
      else if (peek().text.starts_with('.'))
        readDirective();
      else
        readInstruction();
    }
  }

  void readLabel() {
    if (!labels.try_emplace(peek().text, entry->instructions.size()).second)
      fail("label " + std::string(peek().text) + " is there twice");
    at += 2;
  }

  void readDirective() {
    std::string_view name = word();
    if (name == ".reg")
      readRegisters();
    else if (name == ".shared")
      readVariable(Space::shared);
    else if (name == ".local")
      readVariable(Space::local);
    else if (name == ".loc")
      skipLine();
    else if (name == ".pragma")
      at += 1, need(";");
    else
      --at, fail("directive " + std::string(name) + " is not known");
  }

  void readRegisters() {
    Type of = type();
    do {
      std::string_view name = word();
      uint32_t number = 0;
      if (takeIf("<")) {
        number = count();
        need(">");
      }
      scopes.back().registers[name] = {of, number, {}};
    } while (takeIf(","));
    need(";");
  }

  /// Returns the register of this name in the innermost scope that has it. Slots are allocated at first use.
  Operand registerNamed(std::string_view name) {
    if (auto special = file->special(name))
      return {.kind = Operand::Kind::reg, .type = Type::b32, .slot = *special};
    std::string_view family = name;
    while (!family.empty() && family.back() >= '0' && family.back() <= '9')
      family.remove_suffix(1);
    uint32_t number = 0;
    std::from_chars(name.data() + family.size(), name.data() + name.size(), number);
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      auto found = scope->registers.find(name);
      uint32_t index = 0;
      if (found == scope->registers.end() || found->second.count) {
        found = scope->registers.find(family);
        index = number;
        if (found == scope->registers.end() || index >= found->second.count)
          continue;
      }
      auto [slot, isNew] = found->second.slots.try_emplace(index);
      if (isNew)
        slot->second = file->add(found->second.type);
      return {.kind = Operand::Kind::reg, .type = found->second.type, .slot = slot->second};
    }
    fail("register " + std::string(name) + " is not declared");
  }

  Variable *variableNamed(std::string_view name) {
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
      if (auto found = scope->variables.find(name); found != scope->variables.end())
        return &found->second;
    return nullptr;
  }

  /// Returns a slot with the variable's address. The kernel allocates the variable at first use.
  Slot addressOf(Variable &variable) {
    if (variable.isDynamic)
      return file->dynamicShared(8);
    uint32_t &used = variable.space == Space::shared ? entry->sharedBytes : entry->localBytes;
    if (variable.address < 0) {
      variable.address = (used + variable.alignment - 1) / variable.alignment * variable.alignment;
      used = variable.address + variable.bytes;
    }
    return file->constant(variable.address, 8);
  }

  std::string_view signedNumber() {
    const char *begin = peek().text.data();
    takeIf("-");
    if (peek().kind != Kind::number)
      fail("expected a number, got '" + std::string(peek().text) + "'");
    std::string_view digits = take().text;
    return {begin, static_cast<size_t>(digits.data() + digits.size() - begin)};
  }

  Operand readOperand() {
    Operand operand;
    if (takeIf("{")) {
      operand.kind = Operand::Kind::vector;
      do
        operand.elements.push_back(readOperand());
      while (takeIf(","));
      need("}");
    } else if (takeIf("[")) {
      operand = readAddress();
    } else if (peek().is("-") || peek().kind == Kind::number) {
      operand.kind = Operand::Kind::number;
      operand.text = signedNumber();
    } else if (takeIf("_")) {
      operand.kind = Operand::Kind::sink;
    } else {
      bool negated = takeIf("!");
      std::string_view name = word();
      if (Variable *variable = variableNamed(name))
        operand = {.kind = Operand::Kind::reg, .isVariable = true, .type = Type::b64, .slot = addressOf(*variable)};
      else if (name.starts_with('%') || isRegister(name))
        operand = registerNamed(name);
      else
        operand = {.kind = Operand::Kind::label, .text = name};
      operand.negated = negated;
    }
    if (takeIf("|"))
      operand.second.push_back(readOperand());
    return operand;
  }

  bool isRegister(std::string_view name) const {
    return std::any_of(scopes.begin(), scopes.end(), [&](const Scope &s) { return s.registers.contains(name); });
  }

  Operand readAddress() {
    Operand operand{.kind = Operand::Kind::address};
    if (peek().kind == Kind::number) {
      operand.slot = file->constant(0, 8);
      operand.offset = std::strtoll(std::string(signedNumber()).c_str(), nullptr, 0);
    } else {
      std::string_view name = word();
      auto parameter = std::find_if(entry->parameters.begin(), entry->parameters.end(),
                                    [&](const Parameter &p) { return p.name == name; });
      if (parameter != entry->parameters.end())
        operand.slot = file->constant(parameter->offset, 8);
      else if (Variable *variable = variableNamed(name))
        operand.slot = addressOf(*variable);
      else
        operand.slot = registerNamed(name).slot;
    }
    if (takeIf("+"))
      operand.offset += std::strtoll(std::string(signedNumber()).c_str(), nullptr, 0);
    need("]");
    return operand;
  }

  void readInstruction() {
    uint32_t line = peek().line;
    Operand guard;
    if (takeIf("@"))
      guard = readOperand();
    std::string_view opcode = word();
    std::vector<Operand> operands;
    if (!peek().is(";"))
      do
        operands.push_back(readOperand());
      while (takeIf(","));
    need(";");
    std::string_view base = opcode.substr(0, opcode.find('.'));
    auto rule = rules().find(base);
    if (rule == rules().end())
      throw Fault(Fault::Check::syntax, entry->name, line, "opcode " + std::string(opcode) + " is not known");
    Decoder decoder(*file, opcode, line, std::move(operands));
    try {
      rule->second(decoder);
      decoder.checkUsedUp();
    } catch (const StatementError &error) {
      throw Fault(Fault::Check::syntax, entry->name, line, error.what());
    }
    decoder.instruction.guard = guard.slot;
    decoder.instruction.guardNegated = guard.negated;
    for (const Instruction &first : decoder.before)
      append(first, "not.pred");
    if (!decoder.label.empty())
      branches.emplace_back(entry->instructions.size(), decoder.label);
    append(decoder.instruction, opcode);
  }

  void append(const Instruction &instruction, std::string_view opcode) {
    entry->instructions.push_back(instruction);
    entry->opcodes.emplace_back(opcode);
  }
};

} // namespace

Program parseProgram(std::string_view text) { return Parser(text).run(); }

} // namespace espalier::emulator
