// Arithmetic in kernels, written as formulas: an Expr is a value of each thread and operators emit instructions. A C++
// number takes the type of the other operand. A Variable is what a loop changes; the optimizer keeps it in registers.
#pragma once

#include "compiler/codegen/cuda/kernel_function.h"

#include <functional>
#include <type_traits>
#include <vector>

namespace espalier::codegen::cuda {

/// Integers are i32 or i64: `/`, `%` and `>>` take them as unsigned, comparisons as signed. Both operands of an
/// operator have one type.
class Expr {
public:
  Expr() = default;
  Expr(KernelFunction &f, mlir::Value value) : f(&f), value(value) {}
  template <class Number>
  requires std::is_arithmetic_v<Number> Expr(Number number) : number(static_cast<double>(number)) {}

  /// The value; a number becomes a constant of `type`.
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
Expr atMost(Expr a, Expr b);
Expr atLeast(Expr a, Expr b);
/// a >= b of unsigned integers.
Expr unsignedAtLeast(Expr a, Expr b);
Expr select(Expr condition, Expr a, Expr b);
/// a / b rounded up.
Expr ceilDivide(Expr a, Expr b);
/// i64 of an i32, with its sign or without.
Expr wide(Expr x);
Expr wideUnsigned(Expr x);
/// The low half of an i64.
Expr narrow(Expr x);
/// The high half of an i64.
Expr high(Expr x);
/// a * b of u32 as u64.
Expr wideProduct(Expr a, Expr b);
Expr exp2(Expr x);
Expr log2(Expr x);

/// A place that can be set again; lives as long as the function.
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
/// Runs `body` as long as `condition()` holds.
void loopWhile(const std::function<Expr()> &condition, const std::function<void()> &body);
/// Runs `body` where `condition` holds.
void when(Expr condition, const std::function<void()> &body);

/// The element `index` behind the pointer `base`.
Expr elementAt(Expr base, Expr index, mlir::Type element);
/// `count` (1, 2, 4 or 8) neighbours from a pointer that is aligned to all of them, up to 16 bytes.
std::vector<Expr> loadElements(Expr from, mlir::Type element, int count);
void storeElements(const std::vector<Expr> &values, Expr to, mlir::Type element);
/// One value of `type` as it lies in memory, from a pointer and back.
Expr loadValue(Expr from, mlir::Type type);
void storeValue(Expr value, Expr to);
/// Byte `offset` of the block's shared memory.
Expr sharedAt(KernelFunction &f, Expr offset);

/// [rows][columns] of values that one thread holds.
using Grid = std::vector<std::vector<Expr>>;

} // namespace espalier::codegen::cuda
