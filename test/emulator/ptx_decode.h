// From the words of one PTX statement to an Instruction: the rules of opcodes take modifiers and operands one by one;
// what is left over or does not fit is a Fault that names it.
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

/// Gives out places in a kernel's register file; equal constants share one.
class RegisterFile {
public:
  RegisterFile(Entry &entry, uint32_t target) : target(target), entry(entry) {}
  const uint32_t target; // sm_80 is 80
  Slot add(Type type);
  Slot constant(uint64_t value, uint32_t bytes);
  /// An address that grows by the kernel's static shared memory once that is known.
  Slot dynamicShared(uint32_t bytes);
  /// Of a name such as %tid.x; nothing where there is none.
  std::optional<Slot> special(std::string_view name);
  void placeDynamicShared(uint64_t address);

private:
  Entry &entry;
  std::map<std::pair<uint64_t, uint32_t>, Slot> constants;
  std::map<std::string, Slot, std::less<>> specials;
  std::vector<size_t> dynamic; // of fills
};

/// What is wrong with a statement; the parser adds the place.
struct StatementError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// An operand as written.
struct Operand {
  enum class Kind { none, reg, number, address, vector, label, sink };
  Kind kind = Kind::none;
  bool negated = false;
  bool isVariable = false;            // a register that holds the address of a variable
  Type type = Type::none;             // of a register
  Slot slot = {};                     // of a register, of an address's base
  std::string_view text = {};         // of a number or label
  int64_t offset = 0;                 // of an address
  std::vector<Operand> elements = {}; // of a vector
  std::vector<Operand> second = {};   // behind '|': a predicate that is written too
};

/// One statement on its way to an Instruction.
class Decoder {
public:
  Decoder(RegisterFile &file, std::string_view opcode, uint32_t line, std::vector<Operand> operands);

  Instruction instruction;
  RegisterFile &file;
  std::string_view opcode;         // with its modifiers
  std::string_view base;           // without
  std::string_view label;          // of a branch
  std::vector<Instruction> before; // to be executed first: a negated predicate is computed there

  bool take(std::string_view modifier);
  /// The index of the modifier that is there, -1 for none.
  int takeOneOf(std::initializer_list<std::string_view> modifiers);
  void need(std::string_view modifier);
  /// Refuses what the text's target does not have.
  void needTarget(uint32_t target) const;
  Type takeType();
  /// The number of elements of .v2 and .v4, else 1.
  uint32_t takeVector();

  /// The next operand, as a register, constant or special register of the type; `wider` registers fit, too.
  Slot output(Type type, bool wider = false);
  Slot input(Type type, bool wider = false);
  /// Each element of the next operand, a vector of so many or, for one, no vector.
  void outputs(Type type, uint32_t count, bool wider = false);
  void inputs(Type type, uint32_t count, bool wider = false);
  /// The next operand, in brackets: its base is an input, its offset the immediate.
  void address();
  int64_t number();
  void branchTarget();
  /// The predicate behind '|' of the operand before; noSlot where none is written.
  void secondOutput();
  bool hasOperand() const { return next < operands.size(); }
  const Operand &peek() const { return operands[next]; }

  /// Sets what carries the instruction out; without it, the type is none of the opcode's.
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

/// The bits of a number as the type holds them.
uint64_t numberBits(std::string_view text, Type type, const Decoder &decoder);

/// Rules of opcodes by base opcode: each takes the statement's modifiers and operands.
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
