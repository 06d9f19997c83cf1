#include "tools/roofline/ptx_reader.h"

#include "tools/ptx/syntax.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <stdexcept>

namespace espalier {
namespace {

using Kind = PtxOperand::Kind;

bool isOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Translates the body of one kernel.
class Body {
public:
  Body(const ptx::Kernel &syntax, PtxKernel &kernel) : syntax(syntax), kernel(kernel) {}

  void run();

private:
  uint32_t registerNumber(std::string_view word) {
    return registers.try_emplace(word, static_cast<uint32_t>(registers.size())).first->second;
  }
  PtxOperand operand(const ptx::Operand &operand);
  PtxOperand named(std::string_view name);
  void addOperands(PtxInstruction &instruction, const std::vector<ptx::Operand> &operands);
  void addStatement(const ptx::Statement &statement);
  [[noreturn]] void fail(uint32_t line, std::string_view what) const {
    throw std::invalid_argument(fmt::format("kernel {}, line {} of the PTX: {}", syntax.name, line, what));
  }

  const ptx::Kernel &syntax;
  PtxKernel &kernel;
  std::map<std::string_view, uint32_t> registers, labels;
  std::vector<std::pair<size_t, const ptx::Statement *>> branches; ///< index of the instruction, and its statement
};

/// Sets width and kind from the last type modifier. The vector modifiers of loads precede it.
void readType(PtxInstruction &instruction) {
  for (size_t begin = 0, end = 0; end < instruction.opcode.size(); begin = end + 1) {
    end = std::min(instruction.opcode.find('.', begin), instruction.opcode.size());
    std::string_view part = instruction.opcode.substr(begin, end - begin);
    bool isType = part.size() >= 2 && std::string_view("usbf").find(part[0]) != std::string_view::npos &&
                  std::isdigit(static_cast<unsigned char>(part[1]));
    if (!isType && part != "pred" && !part.starts_with("bf16"))
      continue;
    std::string_view digits = part.starts_with("bf") ? part.substr(2) : part.substr(1);
    int bits = 1;
    if (part != "pred")
      std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    instruction.bits = bits;
    instruction.isSigned = part[0] == 's';
    instruction.isFloat = part[0] == 'f' || part.starts_with("bf");
    if (instruction.base != "mul" && instruction.base != "mma" && instruction.base != "ld")
      break; // the first is the type of the result
  }
}

/// FLOP of a matrix instruction: 16 x 8 results of a warp, each of k multiply-adds. The opcode names k = 8 or 16.
int64_t matrixFlops(std::string_view opcode) {
  bool isDeep = opcode.find("m16n8k16") != std::string_view::npos;
  return 2 * 16 * 8 * (isDeep ? 16 : 8) / 32;
}

void classify(PtxInstruction &op) {
  auto has = [&](std::string_view part) { return op.opcode.find(part) != std::string_view::npos; };
  op.isWide = has(".wide");
  readType(op);
  op.slots = op.bits == 64 && !op.isFloat ? 2 : 1;
  if (isOneOf(op.base, {"mov", "cvta"}) || has("ld.param")) {
    op.unit = PtxUnit::None;
    op.slots = 0;
  } else if (isOneOf(op.base, {"ld", "st", "cp", "ldmatrix", "atom", "shfl", "vote", "red"})) {
    op.unit = PtxUnit::Memory;
    op.slots = 1;
  } else if (op.base == "mma") {
    op.unit = PtxUnit::Matrix;
    op.slots = 1;
    op.flops = matrixFlops(op.opcode);
  } else if (isOneOf(op.base, {"bra", "bar", "ret", "exit"})) {
    op.unit = PtxUnit::Control;
    op.slots = 1;
  } else if (isOneOf(op.base, {"ex2", "lg2", "rcp", "rsqrt", "sqrt", "tanh", "sin", "cos"})) {
    op.unit = PtxUnit::Special;
  } else if (op.base == "div") { // a reciprocal or an estimate, and its correction steps
    op.unit = PtxUnit::Special;
    op.slots = op.isFloat ? 8 : 20;
  } else if (op.isFloat) {
    op.unit = PtxUnit::Float;
    op.flops = op.base == "fma" ? 2 : isOneOf(op.base, {"add", "sub", "mul"}) ? 1 : 0;
  }
  if (op.base == "rem")
    op.slots = 24;
  if (op.base == "cvt" && !op.isFloat)
    op.slots = 1; // integer types: a copy or sign extension
  if (op.isWide || op.base == "selp" || (op.base == "cvt" && has(".u64")))
    op.slots = 1;
}

/// Returns the value of an integer, or another kind of operand for a float.
PtxOperand numberOf(std::string_view word) {
  PtxOperand number{Kind::Number};
  bool isNegative = word.starts_with('-'), isHex = word.substr(isNegative).starts_with("0x");
  std::string_view digits = word.substr(isNegative + 2 * isHex);
  uint64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, isHex ? 16 : 10);
  bool isWhole = error == std::errc() && (end == digits.data() + digits.size() || *end == 'U');
  if (!isWhole)
    return {Kind::Other};
  number.value = static_cast<int64_t>(isNegative ? -value : value);
  return number;
}

PtxOperand Body::named(std::string_view name) {
  if (name == "%tid.x")
    return {Kind::ThreadIndex};
  if (name == "%ctaid.x")
    return {Kind::BlockX};
  if (name == "%ctaid.y")
    return {Kind::BlockY};
  if (name.starts_with('%') && name.find('.') == std::string_view::npos)
    return {Kind::Register, registerNumber(name)};
  auto parameter = std::ranges::find(syntax.parameters, name, &ptx::Parameter::name);
  if (parameter != syntax.parameters.end())
    return {Kind::Parameter, static_cast<uint32_t>(parameter - syntax.parameters.begin())};
  return {Kind::Other}; // a variable of shared memory, or a special register
}

PtxOperand Body::operand(const ptx::Operand &operand) {
  switch (operand.kind) {
  case ptx::Operand::Kind::number:
    return numberOf(operand.text);
  case ptx::Operand::Kind::name:
    return operand.isNegated ? PtxOperand{Kind::Other} : named(operand.text);
  case ptx::Operand::Kind::address:
    return operand.text.empty() ? PtxOperand{Kind::Number} : named(operand.text);
  default:
    return {Kind::Other};
  }
}

void Body::addOperands(PtxInstruction &instruction, const std::vector<ptx::Operand> &operands) {
  instruction.isStore = isOneOf(instruction.base, {"st", "red"});
  bool hasResult = !instruction.isStore && !isOneOf(instruction.base, {"bar", "cp", "ret", "exit"});
  size_t first = 0;
  if (hasResult && !operands.empty()) {
    const ptx::Operand &result = operands[first++];
    auto add = [&](const ptx::Operand &one) {
      if (one.kind == ptx::Operand::Kind::name && one.text.starts_with('%'))
        instruction.results.push_back(registerNumber(one.text));
    };
    add(result);
    std::ranges::for_each(result.elements, add);
    std::ranges::for_each(result.second, add);
  }
  std::vector<const ptx::Operand *> sources;
  for (const ptx::Operand &operand : operands)
    sources.push_back(&operand);
  bool isCopy = instruction.base == "cp" && operands.size() >= 3;
  if (isCopy)
    std::swap(sources[0], sources[1]); // its second address is the one in global memory
  size_t count = 0;
  for (; first < sources.size() && count < instruction.sources.size(); ++first)
    instruction.sources[count++] = operand(*sources[first]);
  // The data of a load or store may be a vector.
  const std::vector<ptx::Operand> *data = hasResult && !operands.empty()                    ? &operands[0].elements
                                          : instruction.base == "st" && operands.size() > 1 ? &operands[1].elements
                                                                                            : nullptr;
  int64_t elements = data && !data->empty() ? static_cast<int64_t>(data->size()) : 1;
  if (isCopy)
    instruction.globalBytes = operand(operands[2]).value;
  else if (instruction.opcode.find(".global") != std::string_view::npos)
    instruction.globalBytes = elements * instruction.bits / 8;
}

void Body::addStatement(const ptx::Statement &statement) {
  PtxInstruction instruction;
  for (const ptx::Operand &guard : statement.guard) {
    instruction.guardNegated = guard.isNegated;
    instruction.guard = registerNumber(guard.text);
  }
  instruction.opcode = statement.opcode;
  instruction.base = instruction.opcode.substr(0, instruction.opcode.find('.'));
  classify(instruction);
  if (instruction.base == "bra")
    branches.emplace_back(kernel.instructions.size(), &statement);
  else
    addOperands(instruction, statement.operands);
  kernel.instructions.push_back(std::move(instruction));
}

void Body::run() {
  for (const ptx::Item &item : syntax.body) {
    if (const auto *statement = std::get_if<ptx::Statement>(&item))
      addStatement(*statement);
    else if (const auto *label = std::get_if<ptx::Label>(&item))
      labels[label->name] = static_cast<uint32_t>(kernel.instructions.size());
  }
  for (auto [index, statement] : branches) {
    auto found = statement->operands.empty() ? labels.end() : labels.find(statement->operands.back().text);
    if (found == labels.end())
      fail(statement->line, "the branch has no target");
    kernel.instructions[index].target = found->second;
  }
  kernel.registers = static_cast<uint32_t>(registers.size());
}

} // namespace

std::map<std::string, PtxKernel, std::less<>> readPtx(std::string_view text) {
  std::map<std::string, PtxKernel, std::less<>> kernels;
  try {
    for (const ptx::Kernel &kernel : ptx::readModule(text).kernels)
      Body(kernel, kernels[std::string(kernel.name)]).run();
  } catch (const ptx::SyntaxError &error) {
    throw std::invalid_argument(
        fmt::format("kernel {}, line {} of the PTX: {}", error.kernel, error.line, error.what()));
  }
  return kernels;
}

} // namespace espalier
