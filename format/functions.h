// The rows of functions.def, parsed. Plain C++, free of protobuf and LLVM: the dialects, the compiler and the runtime
// use it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::rt {

/// One dim of an operand: `name` is a size of the call, or "1" for a dimension of one element.
struct SignatureDim {
  std::string name;
  std::string stride;   ///< of `n@stride`
  std::string flag;     ///< of `flag?n`: the dim is there if this size is 1
  int size = -1;        ///< its index among the sizes of the function; -1 for "1", and for sizes that only kernels know
  bool isMany = false;  ///< of `n..`: stands for any number of neighbouring dimensions
  bool isTiled = false; ///< of `tiled n`, in an extent: n rounded up to whole blocks
  bool operator==(const SignatureDim &) const = default;
  bool isOne() const { return name == "1"; }
};

/// One buffer of a call or of a launch.
struct OperandSignature {
  enum class Access : uint8_t { Read, Write, Update, Add, Store };
  std::string name;
  char type = 'f'; ///< f, e, s, i or b, see functions.def
  std::vector<SignatureDim> dims;
  Access access = Access::Read;
  bool isOptional = false, isLinear = false, isSum = false, isSlot = false, isRepeated = false;
  std::string over; ///< operand whose allocation it may share
  std::string of;   ///< the only operand that it depends on; empty: all that are read
  std::string flag; ///< the size that must be 1 for the operand to exist; empty: none

  bool isRead() const { return access == Access::Read || access == Access::Update; }
  bool isWritten() const { return access != Access::Read; }
  bool isStored() const { return access == Access::Store; }
};

/// One size or float of a call.
struct NumberSignature {
  std::string name;
  std::string initial; ///< the default: a number or the name of another size; empty: none
  bool isFlag = false; ///< 0 or 1
};

/// One scalar of a call or of a launch: a kind as Kernel.Scalar of plan.proto spells it, or the name of a size.
struct ScalarSignature {
  std::string name;
  bool isOptional = false;
  bool isSize() const { return name.front() >= 'a' && name.front() <= 'z'; }
};

/// The part of a row that functions, epilogues and kernels share.
struct Signature {
  std::string name; ///< as IR spells it: "attention_forward"
  std::vector<OperandSignature> operands;
  std::vector<ScalarSignature> scalars;
  std::string space; ///< the operand whose dims say what the scalars must be

  /// The index of an operand or scalar, or nothing.
  std::optional<size_t> findOperand(std::string_view name) const;
  std::optional<size_t> findScalar(std::string_view name) const;
  bool hasType(char type) const;
};

struct FunctionSignature : Signature {
  int number = 0;
  std::vector<NumberSignature> sizes, floats;
  std::vector<std::string> whole; ///< sizes of dimensions that are not split
  std::vector<std::string> slots; ///< empty, or the sizes of tokens and of slots, see functions.def
  std::vector<std::string> flags; ///< fields of LibraryCall

  std::optional<size_t> findSize(std::string_view name) const;
  std::optional<size_t> findFloat(std::string_view name) const;
  bool hasFlag(std::string_view name) const;
  bool isWhole(std::string_view size) const;
  /// Sizes and floats without initial value.
  size_t leastSizes() const;
  size_t leastFloats() const;
};

struct EpilogueSignature : Signature {
  int number = 0;
  bool isLinear = true; ///< the product stays linear in a and b
};

/// A CUDA kernel that stands for a library call or for a step of one.
struct KernelSignature : Signature {
  const FunctionSignature *function = nullptr;
  std::vector<SignatureDim> extent;
  bool isCounted = false;        ///< no operand reaches by the extent
  std::string norm;              ///< the float that weighs squares
  std::vector<std::string> code; ///< sizes, floats and flags that the code is made for

  /// Whether an operand is memory that only the kernels of one call use.
  bool isScratch(const OperandSignature &operand) const { return !function->findOperand(operand.name); }
  /// Whether an operand reaches by the extent: it begins with the extent's dims.
  bool reachesByExtent(const OperandSignature &operand) const;
};

/// All rows, in the order of functions.def.
std::span<const FunctionSignature> functionSignatures();
std::span<const EpilogueSignature> epilogueSignatures();
std::span<const KernelSignature> kernelSignatures();

/// The row with this number or name; null if there is none.
const FunctionSignature *findFunction(int number);
const FunctionSignature *findFunction(std::string_view name);
const EpilogueSignature *findEpilogue(int number);
const EpilogueSignature *findEpilogue(std::string_view name);
const KernelSignature *findKernel(std::string_view shape);

/// The slot of format/abi.h that an operand with `slot` names; nothing for other names.
std::optional<uint32_t> findSlot(std::string_view operand);

/// The operands of a call with `buffers` buffers: those of the function, then those of its epilogue, which may be null.
/// `sizes` are those that the call gives. Leaves out operands whose flag is not 1, and optional operands if there are
/// fewer buffers than operands.
std::vector<const OperandSignature *> operandsOf(const FunctionSignature &function, const EpilogueSignature *epilogue,
                                                 size_t buffers, std::span<const int64_t> sizes = {});
/// The operands of a launch with `buffers` buffers, in their order: an operand with `each` occurs once for each time.
std::vector<const OperandSignature *> operandsOf(const KernelSignature &kernel, size_t buffers);

/// All sizes of a call: those that it gives, then initial values. Nothing if there are too few or too many, if one is
/// negative, or if a flag is neither 0 nor 1. Example: attention's sizes 2 9 2 1 8 become 2 9 2 1 8 9.
std::optional<std::vector<int64_t>> allSizes(const FunctionSignature &function, std::span<const int64_t> given);
/// Elements of an operand (bytes for the type b), by all sizes of the call; nothing if that is no number below 2^48.
std::optional<int64_t> elementsOf(const OperandSignature &operand, const FunctionSignature &function,
                                  std::span<const int64_t> sizes);

/// Parses one row; throws std::invalid_argument with the place of an error. For functions.cpp and its test.
FunctionSignature parseFunction(int number, std::string_view name, std::string_view text);
EpilogueSignature parseEpilogue(int number, std::string_view name, std::string_view text);
/// `before`: the kernels of the function whose scratch memory this one may name.
KernelSignature parseKernel(std::string_view shape, const FunctionSignature &function, std::string_view text,
                            std::span<const KernelSignature> before);

} // namespace espalier::rt
