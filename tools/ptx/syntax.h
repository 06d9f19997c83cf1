// Reads PTX text to syntax trees. The reader knows the grammar of modules, kernels and statements. It knows neither
// opcodes nor types: its users give them a meaning.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace espalier::ptx {

/// A text that is no PTX. what() has neither the kernel nor the line.
struct SyntaxError : std::runtime_error {
  SyntaxError(std::string kernel, uint32_t line, const std::string &text)
      : std::runtime_error(text), kernel(std::move(kernel)), line(line) {}
  std::string kernel; ///< empty outside of kernels
  uint32_t line;
};

/// An operand of a statement.
struct Operand {
  enum class Kind : uint8_t {
    name,    ///< a register, variable or label
    number,  ///< with its sign
    address, ///< [name + offset] or [offset]
    vector,  ///< {a, b}
    sink     ///< _
  };
  Kind kind = Kind::name;
  bool isNegated = false;             ///< !%p1
  std::string_view text = {};         ///< of a name or number, and the name of an address, which may be empty
  int64_t offset = 0;                 ///< of an address
  std::vector<Operand> elements = {}; ///< of a vector
  std::vector<Operand> second = {};   ///< after '|': a second result, at most one
};

/// One instruction. A guard is a list of at most one name.
struct Statement {
  uint32_t line = 0;
  std::vector<Operand> guard = {};
  std::string_view opcode = {}; ///< "ld.global.v4.u32"
  std::vector<Operand> operands = {};
};

/// The place of a label.
struct Label {
  uint32_t line = 0;
  std::string_view name = {};
};

/// `.reg .b32 %r<4>;` declares %r0 to %r3.
struct RegisterDeclaration {
  uint32_t line = 0;
  std::string_view type = {}; ///< without its dot
  std::string_view name = {};
  uint32_t count = 0; ///< 0 for a single name
};

/// `.shared .align 16 .b8 name[64];`
struct VariableDeclaration {
  uint32_t line = 0;
  std::string_view space = {}; ///< "shared" or "local"
  uint32_t alignment = 0;      ///< 0 if none is given
  std::string_view type = {};  ///< without its dot
  std::string_view name = {};
  uint64_t elements = 1;
  bool isDynamic = false; ///< name[]: the launch gives the size
};

/// A brace in the body of a kernel. Names that are declared between braces end there.
enum class Brace : uint8_t { open, close };

using Item = std::variant<Statement, Label, RegisterDeclaration, VariableDeclaration, Brace>;

/// A parameter of a kernel.
struct Parameter {
  uint32_t line = 0;
  uint32_t alignment = 0;     ///< 0 if none is given
  std::string_view type = {}; ///< without its dot
  std::string_view name = {};
  uint32_t elements = 1;
};

/// A bound of the launch: `.maxntid 128, 1, 1`.
struct Bound {
  uint32_t line = 0;
  std::string_view name = {}; ///< without its dot
  uint32_t product = 1;       ///< of the numbers
};

/// A kernel.
struct Kernel {
  uint32_t line = 0, lastLine = 0;
  std::string_view name = {};
  std::vector<Parameter> parameters = {};
  std::vector<Bound> bounds = {};
  std::vector<Item> body = {};
  size_t variables = 0; ///< number of the module's variables that precede the kernel
};

/// A text.
struct Module {
  uint32_t version = 0; ///< of the PTX language: 8.0 is 80
  uint32_t target = 0;  ///< sm_80 is 80
  std::vector<VariableDeclaration> variables = {};
  std::vector<Kernel> kernels = {};
};

/// Reads a text. The result points into the text. Throws SyntaxError.
Module readModule(std::string_view text);

} // namespace espalier::ptx
