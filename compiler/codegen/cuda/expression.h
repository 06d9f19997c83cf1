// Arithmetic in kernels, written as formulas. An Expr is a value of each thread; operators emit instructions. A C++
// number takes the type of the other operand. A Variable can be assigned in loops; the optimizer keeps it in a
// register.
#pragma once

#include "compiler/codegen/cuda/kernel_function.h"

#include <functional>
#include <type_traits>
#include <vector>

namespace espalier::codegen::cuda {

/// A value or a C++ number. Integers are i32 or i64: `/`, `%` and `>>` are unsigned, comparisons are signed. Both
/// operands of an operator have the same type.
class Expr {
public:
  Expr() = default;
  Expr(KernelFunction &f, mlir::Value value) : f(&f), value(value) {}
  template <class Number>
    requires std::is_arithmetic_v<Number>
  Expr(Number number) : number(static_cast<double>(number)) {}

  /// Returns the value; a number becomes a constant of `type`.
  mlir::Value as(KernelFunction &f, mlir::Type type) const;
  mlir::Value get() const { return value; }
  mlir::Type type() const { return value.getType(); }
  KernelFunction &function() const { return *f; }
  bool isNumber() const { return !value; }

private:
  KernelFunction *f = nullptr;
  mlir::Value value;
  double number = 0;
};

Expr operator+(Expr a, Expr b);
Expr operator-(Expr a, Expr b);
Expr operator*(Expr a, Expr b);
Expr operator/(Expr a, Expr b);
Expr operator%(Expr a, Expr b);
Expr operator&(Expr a, Expr b);
Expr operator|(Expr a, Expr b);
Expr operator^(Expr a, Expr b);
Expr operator<<(Expr a, Expr b);
Expr operator>>(Expr a, Expr b);
Expr operator<(Expr a, Expr b);
Expr operator<=(Expr a, Expr b);
Expr operator>(Expr a, Expr b);
Expr operator>=(Expr a, Expr b);
Expr operator==(Expr a, Expr b);
Expr operator!=(Expr a, Expr b);
/// Return the minimum and the maximum of a and b.
Expr atMost(Expr a, Expr b);
Expr atLeast(Expr a, Expr b);
/// Returns a >= b for unsigned integers.
Expr unsignedAtLeast(Expr a, Expr b);
Expr select(Expr condition, Expr a, Expr b);
/// Returns a / b rounded up.
Expr ceilDivide(Expr a, Expr b);
/// Extend an i32 to i64, signed or unsigned.
Expr wide(Expr x);
Expr wideUnsigned(Expr x);
/// Returns the low half of an i64.
Expr narrow(Expr x);
/// Returns the high half of an i64.
Expr high(Expr x);
/// Returns the u64 product of two u32.
Expr wideProduct(Expr a, Expr b);
Expr exp2(Expr x);
Expr log2(Expr x);

/// A mutable variable of each thread; lives as long as the function.
class Variable {
public:
  explicit Variable(Expr initial);
  Expr get() const;
  void set(Expr value);

private:
  KernelFunction *f;
  mlir::Type type;
  mlir::Value slot;
};

/// Runs `body` with begin, begin + step, ... below `end`.
void loop(Expr begin, Expr end, Expr step, const std::function<void(Expr)> &body);
/// Runs `body` while `condition()` holds.
void loopWhile(const std::function<Expr()> &condition, const std::function<void()> &body);
/// Runs `body` if `condition` holds.
void when(Expr condition, const std::function<void()> &body);

/// Returns the address of element `index` of the array at `base`.
Expr elementAt(Expr base, Expr index, mlir::Type element);
/// Load or store `count` (1, 2, 4 or 8) neighbours. The pointer is aligned to their total size, up to 16 bytes.
std::vector<Expr> loadElements(Expr from, mlir::Type element, int count);
void storeElements(const std::vector<Expr> &values, Expr to, mlir::Type element);
/// Load or store one value of `type` in its memory representation.
Expr loadValue(Expr from, mlir::Type type);
void storeValue(Expr value, Expr to);
/// Returns the address of byte `offset` of the block's shared memory.
Expr sharedAt(KernelFunction &f, Expr offset);

/// [rows][columns] of values that one thread holds.
using Grid = std::vector<std::vector<Expr>>;

} // namespace espalier::codegen::cuda
