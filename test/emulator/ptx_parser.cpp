// Translates the syntax of a PTX text to kernels: it declares names, allocates registers and variables, and decodes
// statements by the rules of their opcodes.
#include <algorithm>
#include <charconv>
#include <set>

#include "test/emulator/ptx.h"
#include "test/emulator/ptx_decode.h"
#include "tools/ptx/syntax.h"

namespace espalier::emulator {
namespace {

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
  int64_t address = -1; // in the kernel being built; -1 until the kernel uses the variable
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

[[noreturn]] void fail(std::string_view kernel, uint32_t line, const std::string &what) {
  throw Fault(Fault::Check::syntax, std::string(kernel), line, what);
}

/// The names that a kernel's statements may use.
class Names {
public:
  explicit Names(Entry &entry, RegisterFile &file) : entry(entry), file(file), scopes(1) {}

  void open() { scopes.emplace_back(); }
  void close() { scopes.pop_back(); }
  void declare(const ptx::RegisterDeclaration &declaration);
  void declare(const ptx::VariableDeclaration &declaration);
  Type type(std::string_view name, uint32_t line) const;

  /// Translates an operand of a statement in `line`.
  Operand operand(const ptx::Operand &syntax, uint32_t line);

private:
  Operand address(const ptx::Operand &syntax, uint32_t line);
  Operand registerNamed(std::string_view name, uint32_t line);
  Variable *variableNamed(std::string_view name);
  Slot addressOf(Variable &variable);
  bool isRegister(std::string_view name) const;

  Entry &entry;
  RegisterFile &file;
  std::vector<Scope> scopes; // the module's scope first
};

Type Names::type(std::string_view name, uint32_t line) const {
  Type type = typeNamed(name);
  if (type == Type::none)
    fail(entry.name, line, "type ." + std::string(name) + " is not known");
  return type;
}

void Names::declare(const ptx::RegisterDeclaration &declaration) {
  scopes.back().registers[declaration.name] = {type(declaration.type, declaration.line), declaration.count, {}};
}

void Names::declare(const ptx::VariableDeclaration &declaration) {
  uint32_t bytes = bytesOf(type(declaration.type, declaration.line));
  scopes.back().variables[declaration.name] = {declaration.space == "shared" ? Space::shared : Space::local,
                                               static_cast<uint32_t>(bytes * declaration.elements),
                                               std::max(declaration.alignment, bytes), declaration.isDynamic};
}

/// Returns the register of this name in the innermost scope that has it. Slots are allocated at first use.
Operand Names::registerNamed(std::string_view name, uint32_t line) {
  if (auto special = file.special(name))
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
      slot->second = file.add(found->second.type);
    return {.kind = Operand::Kind::reg, .type = found->second.type, .slot = slot->second};
  }
  fail(entry.name, line, "register " + std::string(name) + " is not declared");
}

Variable *Names::variableNamed(std::string_view name) {
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope)
    if (auto found = scope->variables.find(name); found != scope->variables.end())
      return &found->second;
  return nullptr;
}

bool Names::isRegister(std::string_view name) const {
  return std::any_of(scopes.begin(), scopes.end(), [&](const Scope &s) { return s.registers.contains(name); });
}

/// Returns a slot with the variable's address. The kernel allocates the variable at first use.
Slot Names::addressOf(Variable &variable) {
  if (variable.isDynamic)
    return file.dynamicShared(8);
  uint32_t &used = variable.space == Space::shared ? entry.sharedBytes : entry.localBytes;
  if (variable.address < 0) {
    variable.address = (used + variable.alignment - 1) / variable.alignment * variable.alignment;
    used = variable.address + variable.bytes;
  }
  return file.constant(variable.address, 8);
}

Operand Names::operand(const ptx::Operand &syntax, uint32_t line) {
  Operand operand;
  switch (syntax.kind) {
  case ptx::Operand::Kind::vector:
    operand.kind = Operand::Kind::vector;
    for (const ptx::Operand &element : syntax.elements)
      operand.elements.push_back(this->operand(element, line));
    break;
  case ptx::Operand::Kind::address:
    operand = address(syntax, line);
    break;
  case ptx::Operand::Kind::number:
    operand = {.kind = Operand::Kind::number, .text = syntax.text};
    break;
  case ptx::Operand::Kind::sink:
    operand.kind = Operand::Kind::sink;
    break;
  case ptx::Operand::Kind::name:
    if (Variable *variable = variableNamed(syntax.text))
      operand = {.kind = Operand::Kind::reg, .isVariable = true, .type = Type::b64, .slot = addressOf(*variable)};
    else if (syntax.text.starts_with('%') || isRegister(syntax.text))
      operand = registerNamed(syntax.text, line);
    else
      operand = {.kind = Operand::Kind::label, .text = syntax.text};
  }
  operand.negated = syntax.isNegated;
  for (const ptx::Operand &second : syntax.second)
    operand.second.push_back(this->operand(second, line));
  return operand;
}

Operand Names::address(const ptx::Operand &syntax, uint32_t line) {
  Operand operand{.kind = Operand::Kind::address, .offset = syntax.offset};
  auto parameter = std::ranges::find(entry.parameters, syntax.text, &Parameter::name);
  if (syntax.text.empty())
    operand.slot = file.constant(0, 8);
  else if (parameter != entry.parameters.end())
    operand.slot = file.constant(parameter->offset, 8);
  else if (Variable *variable = variableNamed(syntax.text))
    operand.slot = addressOf(*variable);
  else
    operand.slot = registerNamed(syntax.text, line).slot;
  return operand;
}

/// Builds the kernel of an entry.
class KernelBuilder {
public:
  KernelBuilder(const ptx::Module &module, const ptx::Kernel &kernel, Entry &entry)
      : module(module), kernel(kernel), entry(entry), file(entry, module.target), names(entry, file) {}

  void run();

private:
  void addParameters();
  void addBounds();
  void addItem(const ptx::Item &item);
  void addLabel(const ptx::Label &label);
  void addStatement(const ptx::Statement &statement);
  void append(const Instruction &instruction, std::string_view opcode);

  const ptx::Module &module;
  const ptx::Kernel &kernel;
  Entry &entry;
  RegisterFile file;
  Names names;
  std::map<std::string_view, uint32_t> labels;
  std::vector<std::pair<uint32_t, std::string_view>> branches; // instructions with unresolved labels
};

void KernelBuilder::run() {
  entry.name = kernel.name;
  for (size_t i = 0; i < kernel.variables; ++i)
    names.declare(module.variables[i]);
  addParameters();
  addBounds();
  names.open();
  for (const ptx::Item &item : kernel.body)
    addItem(item);
  for (auto [instruction, label] : branches) {
    if (!labels.contains(label))
      fail(entry.name, entry.instructions[instruction].line, "label " + std::string(label) + " is not there");
    entry.instructions[instruction].target = labels.at(label);
  }
  // Reaching the end of a kernel is an exit.
  append({.flow = Flow::exit, .line = kernel.lastLine}, "end");
  entry.sharedBytes = (entry.sharedBytes + 15) / 16 * 16;
  file.placeDynamicShared(entry.sharedBytes);
}

void KernelBuilder::addParameters() {
  uint32_t offset = 0;
  for (const ptx::Parameter &parameter : kernel.parameters) {
    uint32_t bytes = bytesOf(names.type(parameter.type, parameter.line));
    uint32_t alignment = std::max(parameter.alignment, bytes);
    uint32_t begin = (offset + alignment - 1) / alignment * alignment;
    entry.parameters.push_back({std::string(parameter.name), bytes * parameter.elements, begin});
    offset = begin + bytes * parameter.elements;
  }
}

void KernelBuilder::addBounds() {
  for (const ptx::Bound &bound : kernel.bounds) {
    if (bound.name == "maxntid")
      entry.maxThreads = bound.product;
    else if (bound.name == "reqntid")
      entry.requiredThreads = bound.product;
  }
}

void KernelBuilder::addItem(const ptx::Item &item) {
  if (const auto *statement = std::get_if<ptx::Statement>(&item))
    addStatement(*statement);
  else if (const auto *label = std::get_if<ptx::Label>(&item))
    addLabel(*label);
  else if (const auto *registers = std::get_if<ptx::RegisterDeclaration>(&item))
    names.declare(*registers);
  else if (const auto *variable = std::get_if<ptx::VariableDeclaration>(&item))
    names.declare(*variable);
  else
    std::get<ptx::Brace>(item) == ptx::Brace::open ? names.open() : names.close();
}

void KernelBuilder::addLabel(const ptx::Label &label) {
  if (!labels.try_emplace(label.name, entry.instructions.size()).second)
    fail(entry.name, label.line, "label " + std::string(label.name) + " is there twice");
}

void KernelBuilder::addStatement(const ptx::Statement &statement) {
  Operand guard;
  for (const ptx::Operand &operand : statement.guard)
    guard = names.operand(operand, statement.line);
  std::string_view opcode = statement.opcode;
  std::vector<Operand> operands;
  for (const ptx::Operand &operand : statement.operands)
    operands.push_back(names.operand(operand, statement.line));
  auto rule = rules().find(opcode.substr(0, opcode.find('.')));
  if (rule == rules().end())
    fail(entry.name, statement.line, "opcode " + std::string(opcode) + " is not known");
  Decoder decoder(file, opcode, statement.line, std::move(operands));
  try {
    rule->second(decoder);
    decoder.checkUsedUp();
  } catch (const StatementError &error) {
    fail(entry.name, statement.line, error.what());
  }
  decoder.instruction.guard = guard.slot;
  decoder.instruction.guardNegated = guard.negated;
  for (const Instruction &first : decoder.before)
    append(first, "not.pred");
  if (!decoder.label.empty())
    branches.emplace_back(entry.instructions.size(), decoder.label);
  append(decoder.instruction, opcode);
}

void KernelBuilder::append(const Instruction &instruction, std::string_view opcode) {
  entry.instructions.push_back(instruction);
  entry.opcodes.emplace_back(opcode);
}

} // namespace

Program parseProgram(std::string_view text) {
  ptx::Module module;
  try {
    module = ptx::readModule(text);
  } catch (const ptx::SyntaxError &error) {
    fail(error.kernel, error.line, error.what());
  }
  Program program{.target = module.target, .version = module.version, .entries = {}};
  for (const ptx::Kernel &kernel : module.kernels)
    KernelBuilder(module, kernel, program.entries[std::string(kernel.name)]).run();
  return program;
}

} // namespace espalier::emulator
