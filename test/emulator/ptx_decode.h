// Decodes a PTX statement to an Instruction. The rule of an opcode consumes modifiers and operands one by one. A
// modifier or operand that is left over or does not fit is a Fault that names it.
#pragma once
#include <initializer_list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "test/emulator/ptx.h"

namespace espalier::emulator {

/// Allocates slots in a kernel's register file. Equal constants share a slot.
class RegisterFile {
public:
  RegisterFile(Entry &entry, uint32_t target) : target(target), entry(entry) {}
  const uint32_t target; // sm_80 is 80
  Slot add(Type type);
  Slot constant(uint64_t value, uint32_t bytes);
  /// Allocates a constant address, to which the kernel's static shared memory size is added later.
  Slot dynamicShared(uint32_t bytes);
  /// Allocates a special register such as %tid.x; returns nothing if the name is unknown.
  std::optional<Slot> special(std::string_view name);
  void placeDynamicShared(uint64_t address);

private:
  Entry &entry;
  std::map<std::pair<uint64_t, uint32_t>, Slot> constants;
  std::map<std::string, Slot, std::less<>> specials;
  std::vector<size_t> dynamic; // indices of fills
};

/// An error in a statement. The parser adds the location.
struct StatementError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An operand as written in the text.
struct Operand {
  enum class Kind { none, reg, number, address, vector, label, sink };
  Kind kind = Kind::none;
  bool negated = false;
  bool isVariable = false;            // whether the register holds the address of a variable
  Type type = Type::none;             // of a register
  Slot slot = {};                     // of a register or of an address's base
  std::string_view text = {};         // of a number or label
  int64_t offset = 0;                 // of an address
  std::vector<Operand> elements = {}; // of a vector
  std::vector<Operand> second = {};   // after '|': a second predicate result
};

/// A statement while it is decoded to an Instruction.
class Decoder {
public:
  Decoder(RegisterFile &file, std::string_view opcode, uint32_t line, std::vector<Operand> operands);

  Instruction instruction;
  RegisterFile &file;
  std::string_view opcode;         // with modifiers
  std::string_view base;           // without modifiers
  std::string_view label;          // of a branch
  std::vector<Instruction> before; // executed first: computes a negated predicate

  bool take(std::string_view modifier);
  /// Returns the index of the modifier that is present, or -1 for none.
  int takeOneOf(std::initializer_list<std::string_view> modifiers);
  void need(std::string_view modifier);
  /// Throws unless the text's target supports the feature.
  void needTarget(uint32_t target) const;
  Type takeType();
  /// Returns 2 or 4 for .v2 and .v4, else 1.
  uint32_t takeVector();

  /// Consumes an operand of the type: a register, constant or special register. `wider` also accepts wider registers.
  Slot output(Type type, bool wider = false);
  Slot input(Type type, bool wider = false);
  /// Consumes an operand with `count` elements: a vector, or for one element a scalar.
  void outputs(Type type, uint32_t count, bool wider = false);
  void inputs(Type type, uint32_t count, bool wider = false);
  /// Consumes an operand in brackets. Its base becomes an input, its offset the immediate.
  void address();
  int64_t number();
  void branchTarget();
  /// Adds the second predicate of the previous operand as an output, if there is one.
  void secondOutput();
  bool hasOperand() const { return next < operands.size(); }
  const Operand &peek() const { return operands[next]; }

  /// Sets the function that executes the instruction. Without one, the opcode does not support the type.
  void finish(Execute execute, Type type);
  void checkUsedUp() const;
  [[noreturn]] void fail(const std::string &what) const;

private:
  std::vector<std::string_view> modifiers;
  std::vector<Operand> operands;
  size_t next = 0;

  const Operand &takeOperand();
  Slot asOutput(const Operand &operand, Type type, bool wider);
  Slot asInput(const Operand &operand, Type type, bool wider);
  void checkRegister(const Operand &operand, Type type, bool wider) const;
  Slot append(Slot slot, uint8_t &count);
};

/// Returns the bits of a number in the type's representation.
uint64_t numberBits(std::string_view text, Type type, const Decoder &decoder);

/// The rules of opcodes, keyed by base opcode. Each consumes the statement's modifiers and operands.
using Rules = std::map<std::string_view, void (*)(Decoder &)>;
void addArithmetic(Rules &rules);
void addComparisons(Rules &rules);
void addBitOperations(Rules &rules);
void addConversions(Rules &rules);
void addMemory(Rules &rules);
void addAsynchronousCopies(Rules &rules);
void addWarpOperations(Rules &rules);
void addMatrices(Rules &rules);

} // namespace espalier::emulator
