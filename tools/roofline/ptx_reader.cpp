#include "tools/roofline/ptx_reader.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <stdexcept>

namespace espalier {
namespace {

using Kernels = std::map<std::string, PtxKernel, std::less<>>;
using Kind = PtxOperand::Kind;

std::string_view trim(std::string_view text, std::string_view blanks = " \t\r\n") {
  size_t begin = text.find_first_not_of(blanks);
  return begin == std::string_view::npos ? std::string_view()
                                         : text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// Splits at `separator` outside of brackets and braces.
std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t i = 0; i <= text.size(); ++i) {
    char c = i < text.size() ? text[i] : separator;
    depth += (c == '{' || c == '[') - (c == '}' || c == ']');
    if (i == text.size() || (c == separator && depth == 0)) {
      if (std::string_view part = trim(text.substr(begin, i - begin)); !part.empty())
        parts.push_back(part);
      begin = i + 1;
    }
  }
  return parts;
}

bool isOneOf(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// Parses the body of one entry.
class Body {
public:
  Body(std::string_view name, PtxKernel &kernel) : name(name), kernel(kernel) {}

  void add(std::string_view statement);
  void label(std::string_view label) { labels[label] = static_cast<uint32_t>(kernel.instructions.size()); }
  void finish();

private:
  uint32_t registerNumber(std::string_view word) {
    return registers.try_emplace(word, static_cast<uint32_t>(registers.size())).first->second;
  }
  PtxOperand operand(std::string_view word);
  void addOperands(PtxInstruction &instruction, std::string_view rest);
  [[noreturn]] void fail(std::string_view statement) const {
    throw std::invalid_argument(fmt::format("kernel {}: '{}' is no PTX that can be counted", name, statement));
  }

  std::string_view name;
  PtxKernel &kernel;
  std::map<std::string_view, uint32_t> registers, labels;
  std::vector<std::pair<size_t, std::string_view>> branches; ///< instruction, label
};

/// Sets width and kind from the last type modifier. The vector modifiers of loads precede it.
void readType(PtxInstruction &instruction) {
  for (std::string_view part : split(instruction.opcode, '.')) {
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

PtxOperand Body::operand(std::string_view word) {
  if (word.starts_with('[')) {
    word = trim(word.substr(1, word.size() - 2));
    word = trim(word.substr(0, word.find_first_of("+-", 1)));
    size_t mark = word.rfind("_param_");
    if (mark == std::string_view::npos)
      return operand(word);
    PtxOperand parameter{Kind::Parameter};
    std::from_chars(word.data() + mark + 7, word.data() + word.size(), parameter.number);
    return parameter;
  }
  if (word.starts_with('!'))
    return {Kind::Other};
  if (word == "%tid.x")
    return {Kind::ThreadIndex};
  if (word == "%ctaid.x")
    return {Kind::BlockX};
  if (word == "%ctaid.y")
    return {Kind::BlockY};
  if (word.starts_with('%'))
    return word.find('.') == std::string_view::npos ? PtxOperand{Kind::Register, registerNumber(word)}
                                                    : PtxOperand{Kind::Other};
  PtxOperand number{Kind::Number};
  bool isNegative = word.starts_with('-'), isHex = word.substr(isNegative).starts_with("0x");
  std::string_view digits = word.substr(isNegative + 2 * isHex);
  uint64_t value = 0;
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value, isHex ? 16 : 10);
  bool isWhole = error == std::errc() && (end == digits.data() + digits.size() || *end == 'U');
  if (!isWhole) // a float or a variable of shared memory
    return {Kind::Other};
  number.value = static_cast<int64_t>(isNegative ? -value : value);
  return number;
}

void Body::addOperands(PtxInstruction &instruction, std::string_view rest) {
  std::vector<std::string_view> words = split(rest, ',');
  instruction.isStore = isOneOf(instruction.base, {"st", "red"});
  bool hasResult = !instruction.isStore && !isOneOf(instruction.base, {"bar", "cp", "ret", "exit"});
  size_t first = 0;
  int64_t elements = 1;
  auto registersOf = [&](std::string_view word) {
    bool isVector = word.starts_with('{');
    std::vector<std::string_view> parts = isVector ? split(word.substr(1, word.size() - 2), ',') : split(word, '|');
    elements = isVector ? static_cast<int64_t>(parts.size()) : 1;
    return parts;
  };
  if (hasResult && !words.empty())
    for (std::string_view word : registersOf(words[first++]))
      if (word.starts_with('%'))
        instruction.results.push_back(registerNumber(word));
  if (instruction.base == "st" && words.size() > 1)
    registersOf(words[1]);
  bool isCopy = instruction.base == "cp" && words.size() >= 3;
  if (isCopy)
    std::swap(words[0], words[1]); // its second address is the one in global memory
  size_t count = 0;
  for (; first < words.size() && count < instruction.sources.size(); ++first)
    instruction.sources[count++] = operand(words[first]);
  if (isCopy)
    instruction.globalBytes = operand(words[2]).value;
  else if (instruction.opcode.find(".global") != std::string_view::npos)
    instruction.globalBytes = elements * instruction.bits / 8;
}

void Body::add(std::string_view statement) {
  statement = trim(statement, " \t\r\n{}");
  if (statement.empty() || statement[0] == '.')
    return;
  PtxInstruction instruction;
  std::string_view text = statement;
  if (text[0] == '@') {
    size_t end = text.find_first_of(" \t");
    if (end == std::string_view::npos)
      fail(statement);
    std::string_view guard = text.substr(1, end - 1);
    instruction.guardNegated = guard.starts_with('!');
    instruction.guard = registerNumber(guard.substr(instruction.guardNegated));
    text = trim(text.substr(end));
  }
  size_t end = text.find_first_of(" \t");
  instruction.opcode = text.substr(0, end);
  instruction.base = instruction.opcode.substr(0, instruction.opcode.find('.'));
  if (instruction.base.empty() || !std::islower(static_cast<unsigned char>(instruction.base[0])))
    fail(statement);
  classify(instruction);
  std::string_view rest = end == std::string_view::npos ? std::string_view() : trim(text.substr(end));
  if (instruction.base == "bra")
    branches.emplace_back(kernel.instructions.size(), rest);
  else
    addOperands(instruction, rest);
  kernel.instructions.push_back(std::move(instruction));
}

void Body::finish() {
  for (auto [index, label] : branches) {
    auto found = labels.find(label);
    if (found == labels.end())
      fail(label);
    kernel.instructions[index].target = found->second;
  }
  kernel.registers = static_cast<uint32_t>(registers.size());
}

/// Returns the text between the first braces at or after `from`.
std::string_view bodyOf(std::string_view text, size_t from) {
  size_t open = text.find('{', from);
  int depth = 0;
  for (size_t i = open; i < text.size(); ++i) {
    depth += (text[i] == '{') - (text[i] == '}');
    if (depth == 0)
      return text.substr(open + 1, i - open - 1);
  }
  throw std::invalid_argument("a kernel's text has no end");
}

} // namespace

Kernels readPtx(std::string_view text) {
  constexpr std::string_view entryWord = ".entry ";
  Kernels kernels;
  for (size_t at = text.find(entryWord); at != std::string_view::npos; at = text.find(entryWord, at + 1)) {
    size_t begin = at + entryWord.size();
    std::string_view name = trim(text.substr(begin, text.find('(', begin) - begin));
    PtxKernel &kernel = kernels[std::string(name)];
    Body body(name, kernel);
    // Labels and comments end with their line, statements with a semicolon.
    std::string_view rest = bodyOf(text, begin);
    while (!(rest = trim(rest)).empty()) {
      if (rest.starts_with("//")) {
        rest.remove_prefix(std::min(rest.find('\n'), rest.size()));
        continue;
      }
      size_t end = std::min(rest.find(';'), rest.size()), colon = rest.find(':');
      if (rest[0] == '$' && colon < end) {
        body.label(rest.substr(0, colon));
        rest.remove_prefix(colon + 1);
        continue;
      }
      body.add(rest.substr(0, end));
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    body.finish();
  }
  return kernels;
}

} // namespace espalier
