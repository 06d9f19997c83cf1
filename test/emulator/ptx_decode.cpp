#include "test/emulator/ptx_decode.h"

#include <bit>
#include <charconv>

#include "test/emulator/numbers.h"

namespace espalier::emulator {
namespace {

struct TypeName {
  std::string_view name;
  Type type;
  uint32_t bytes;
};
constexpr TypeName typeNames[] = {
    {"pred", Type::pred, 1},     {"b8", Type::b8, 1},   {"b16", Type::b16, 2},     {"b32", Type::b32, 4},
    {"b64", Type::b64, 8},       {"u8", Type::u8, 1},   {"u16", Type::u16, 2},     {"u32", Type::u32, 4},
    {"u64", Type::u64, 8},       {"s8", Type::s8, 1},   {"s16", Type::s16, 2},     {"s32", Type::s32, 4},
    {"s64", Type::s64, 8},       {"f16", Type::f16, 2}, {"f16x2", Type::f16x2, 4}, {"bf16", Type::bf16, 2},
    {"bf16x2", Type::bf16x2, 4}, {"f32", Type::f32, 4}, {"f64", Type::f64, 8}};

bool isBits(Type type) { return type >= Type::b8 && type <= Type::b64; }

} // namespace

Type typeNamed(std::string_view name) {
  for (const TypeName &known : typeNames)
    if (known.name == name)
      return known.type;
  return Type::none;
}
uint32_t bytesOf(Type type) {
  for (const TypeName &known : typeNames)
    if (known.type == type)
      return known.bytes;
  return 0;
}
bool isSigned(Type type) { return type >= Type::s8 && type <= Type::s64; }
bool isFloating(Type type) { return type >= Type::f16; }

Slot RegisterFile::add(Type type) {
  if (type == Type::pred) {
    Slot slot{entry.fileBytes, 4};
    entry.fileBytes += 4;
    return slot;
  }
  uint32_t bytes = std::max(bytesOf(type), 2u);
  Slot slot{(entry.fileBytes + 63) / 64 * 64, bytes};
  entry.fileBytes = slot.offset + bytes * warpLanes;
  entry.registers += (bytes + 3) / 4;
  return slot;
}

Slot RegisterFile::constant(uint64_t value, uint32_t bytes) {
  if (bytes < 8)
    value &= (uint64_t(1) << bytes * 8) - 1;
  auto [known, isNew] = constants.try_emplace({value, bytes});
  if (isNew) {
    known->second = add(bytes == 8 ? Type::b64 : bytes == 4 ? Type::b32 : Type::b16);
    entry.fills.push_back({.slot = known->second, .value = value});
  }
  return known->second;
}

Slot RegisterFile::dynamicShared(uint32_t bytes) {
  Slot slot = add(bytes == 8 ? Type::b64 : Type::b32);
  dynamic.push_back(entry.fills.size());
  entry.fills.push_back({.slot = slot});
  return slot;
}

void RegisterFile::placeDynamicShared(uint64_t address) {
  for (size_t fill : dynamic)
    entry.fills[fill].value = address;
}

std::optional<Slot> RegisterFile::special(std::string_view name) {
  using Source = Fill::Source;
  static const std::map<std::string_view, Source> sources = {
      {"%tid", Source::tid},     {"%ntid", Source::ntid},   {"%ctaid", Source::ctaid},  {"%nctaid", Source::nctaid},
      {"%laneid", Source::lane}, {"%warpid", Source::warp}, {"%nwarpid", Source::warps}};
  size_t dot = name.find('.');
  auto source = sources.find(name.substr(0, dot));
  if (source == sources.end())
    return std::nullopt;
  bool hasAxes = source->second <= Source::nctaid;
  std::string_view axis = dot == std::string_view::npos ? "" : name.substr(dot + 1);
  size_t number = std::string_view("xyz").find(axis);
  if (hasAxes ? axis.size() != 1 || number == std::string_view::npos : !axis.empty())
    return std::nullopt;
  auto [known, isNew] = specials.try_emplace(std::string(name));
  if (isNew) {
    known->second = add(Type::b32);
    entry.fills.push_back(
        {.slot = known->second, .source = source->second, .axis = static_cast<uint8_t>(hasAxes ? number : 0)});
  }
  return known->second;
}

uint64_t numberBits(std::string_view text, Type type, const Decoder &decoder) {
  bool negative = text.starts_with('-');
  std::string_view digits = text.substr(negative);
  auto parse = [&](std::string_view part, int radix) {
    uint64_t value = 0;
    auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), value, radix);
    if (error != std::errc() || end != part.data() + part.size())
      decoder.fail("number " + std::string(text) + " cannot be read");
    return value;
  };
  if (digits.size() == 10 && (digits.starts_with("0f") || digits.starts_with("0F"))) {
    uint64_t bits = parse(digits.substr(2), 16) ^ (negative ? 0x80000000u : 0);
    float value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    return type == Type::f64 ? std::bit_cast<uint64_t>(static_cast<double>(value)) : bits;
  }
  if (digits.size() == 18 && (digits.starts_with("0d") || digits.starts_with("0D"))) {
    uint64_t bits = parse(digits.substr(2), 16) ^ (negative ? uint64_t(1) << 63 : 0);
    if (type != Type::f32)
      return bits;
    return std::bit_cast<uint32_t>(static_cast<float>(std::bit_cast<double>(bits)));
  }
  if (type == Type::f32 || type == Type::f64)
    decoder.fail("number " + std::string(text) + " is not written as bits of a float (0f..., 0d...)");
  if (digits.ends_with('U'))
    digits.remove_suffix(1);
  bool isHex = digits.starts_with("0x") || digits.starts_with("0X");
  uint64_t value = isHex ? parse(digits.substr(2), 16) : parse(digits, 10);
  return negative ? -value : value;
}

Decoder::Decoder(RegisterFile &file, std::string_view opcode, uint32_t line, std::vector<Operand> operands)
    : file(file), opcode(opcode), operands(std::move(operands)) {
  instruction.line = line;
  base = opcode.substr(0, opcode.find('.'));
  for (size_t at = base.size(); at < opcode.size();) {
    size_t end = std::min(opcode.find('.', at + 1), opcode.size());
    modifiers.push_back(opcode.substr(at + 1, end - at - 1));
    at = end;
  }
}

bool Decoder::take(std::string_view modifier) {
  for (auto at = modifiers.begin(); at != modifiers.end(); ++at)
    if (*at == modifier) {
      modifiers.erase(at);
      return true;
    }
  return false;
}

int Decoder::takeOneOf(std::initializer_list<std::string_view> wanted) {
  int index = 0;
  for (std::string_view modifier : wanted) {
    if (take(modifier))
      return index;
    ++index;
  }
  return -1;
}

void Decoder::need(std::string_view modifier) {
  if (!take(modifier))
    fail("modifier ." + std::string(modifier) + " is missing");
}

void Decoder::needTarget(uint32_t target) const {
  if (file.target < target)
    fail("needs .target sm_" + std::to_string(target) + ", the text has sm_" + std::to_string(file.target));
}

Type Decoder::takeType() {
  for (auto at = modifiers.begin(); at != modifiers.end(); ++at)
    if (Type type = typeNamed(*at); type != Type::none) {
      modifiers.erase(at);
      return type;
    }
  fail("type is missing");
}

uint32_t Decoder::takeVector() { return take("v4") ? 4 : take("v2") ? 2 : 1; }

const Operand &Decoder::takeOperand() {
  if (next == operands.size())
    fail("operand " + std::to_string(next + 1) + " is missing");
  return operands[next++];
}

void Decoder::checkRegister(const Operand &operand, Type type, bool wider) const {
  if ((operand.type == Type::pred) != (type == Type::pred))
    fail("operand " + std::to_string(next) + (type == Type::pred ? " must be a predicate" : " must be no predicate"));
  if (type == Type::pred)
    return;
  uint32_t has = bytesOf(operand.type), wants = bytesOf(type);
  bool fits = wider ? has >= wants : has == wants;
  // An untyped register (.b) accepts any type; a typed register accepts its own kind.
  if (!wider && isFloating(operand.type) != isFloating(type) && !isBits(operand.type) && !isBits(type))
    fits = false;
  if (!fits)
    fail("operand " + std::to_string(next) + " is a register of another type");
}

Slot Decoder::asOutput(const Operand &operand, Type type, bool wider) {
  if (operand.kind == Operand::Kind::sink)
    return file.add(type);
  if (operand.kind != Operand::Kind::reg || operand.negated)
    fail("operand " + std::to_string(next) + " must be a register");
  checkRegister(operand, type, wider);
  return operand.slot;
}

Slot Decoder::asInput(const Operand &operand, Type type, bool wider) {
  if (operand.kind == Operand::Kind::number && type >= Type::f16 && type <= Type::bf16x2)
    fail("operand " + std::to_string(next) + " of half floats must be a register");
  if (operand.kind == Operand::Kind::number)
    return file.constant(numberBits(operand.text, type, *this), std::max(bytesOf(type), 2u));
  if (operand.kind != Operand::Kind::reg)
    fail("operand " + std::to_string(next) + " must be a register or a number");
  checkRegister(operand, type, wider);
  if (!operand.negated)
    return operand.slot;
  Operand target{.kind = Operand::Kind::reg, .type = Type::pred, .slot = file.add(Type::pred)};
  Operand source = operand;
  source.negated = false;
  Decoder inverse(file, "not.pred", instruction.line, {target, source});
  Rules rules;
  addBitOperations(rules);
  rules.at("not")(inverse);
  before.push_back(inverse.instruction);
  return target.slot;
}

Slot Decoder::append(Slot slot, uint8_t &count) {
  instruction.operands[instruction.outputs + instruction.inputs] = slot;
  ++count;
  return slot;
}

Slot Decoder::output(Type type, bool wider) {
  return append(asOutput(takeOperand(), type, wider), instruction.outputs);
}
Slot Decoder::input(Type type, bool wider) { return append(asInput(takeOperand(), type, wider), instruction.inputs); }

void Decoder::outputs(Type type, uint32_t count, bool wider) {
  if (count == 1 && peek().kind != Operand::Kind::vector)
    return (void)output(type, wider);
  const Operand &vector = takeOperand();
  if (vector.kind != Operand::Kind::vector || vector.elements.size() != count)
    fail("operand " + std::to_string(next) + " must have " + std::to_string(count) + " elements in braces");
  for (const Operand &element : vector.elements)
    append(asOutput(element, type, wider), instruction.outputs);
}

void Decoder::inputs(Type type, uint32_t count, bool wider) {
  if (!hasOperand() || (count == 1 && peek().kind != Operand::Kind::vector))
    return (void)input(type, wider);
  const Operand &vector = takeOperand();
  if (vector.kind != Operand::Kind::vector || vector.elements.size() != count)
    fail("operand " + std::to_string(next) + " must have " + std::to_string(count) + " elements in braces");
  for (const Operand &element : vector.elements)
    append(asInput(element, type, wider), instruction.inputs);
}

void Decoder::address() {
  const Operand &operand = takeOperand();
  if (operand.kind != Operand::Kind::address)
    fail("operand " + std::to_string(next) + " must be an address in brackets");
  append(operand.slot, instruction.inputs);
  instruction.immediate = operand.offset;
}

int64_t Decoder::number() {
  const Operand &operand = takeOperand();
  if (operand.kind != Operand::Kind::number)
    fail("operand " + std::to_string(next) + " must be a number");
  return static_cast<int64_t>(numberBits(operand.text, Type::b64, *this));
}

void Decoder::branchTarget() {
  const Operand &operand = takeOperand();
  if (operand.kind != Operand::Kind::label)
    fail("operand " + std::to_string(next) + " must be a label");
  label = operand.text;
}

void Decoder::secondOutput() {
  const Operand &first = operands[next - 1];
  if (first.second.empty())
    return;
  append(asOutput(first.second.front(), Type::pred, /*wider=*/false), instruction.outputs);
}

void Decoder::finish(Execute execute, Type type) {
  if (!execute)
    fail("type is none that it has");
  instruction.execute = execute;
  instruction.type = type;
}

void Decoder::checkUsedUp() const {
  if (!modifiers.empty())
    fail("modifier ." + std::string(modifiers.front()) + " is not known");
  if (next != operands.size())
    fail("operand " + std::to_string(next + 1) + " is one too many");
}

void Decoder::fail(const std::string &what) const { throw StatementError(std::string(opcode) + ": " + what); }

} // namespace espalier::emulator
