// Arithmetic: add sub mul mad fma div rem abs neg min max, and the approximations, which are correctly rounded here.
#include <algorithm>
#include <concepts>

#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

using AllIntegers = Integers;
using Numbers =
    TypeList<uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t, float, double, F16, BF16, Two<F16>, Two<BF16>>;
using FloatingNumbers = TypeList<float, double, F16, BF16, Two<F16>, Two<BF16>>;

// Integer arithmetic wraps around, so it is computed on unsigned types.
template <class T> uint64_t raw(T x) { return static_cast<uint64_t>(static_cast<std::make_unsigned_t<T>>(x)); }

struct Add {
  template <class T> static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(raw(a) + raw(b));
    else if constexpr (isHalf<T>)
      return narrow<T>(static_cast<double>(widen(a)) + widen(b));
    else
      return a + b;
  }
};
struct Subtract {
  template <class T> static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(raw(a) - raw(b));
    else if constexpr (isHalf<T>)
      return narrow<T>(static_cast<double>(widen(a)) - widen(b));
    else
      return a - b;
  }
};
struct Multiply { // .lo for integers
  template <class T> static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(raw(a) * raw(b));
    else if constexpr (isHalf<T>)
      return narrow<T>(static_cast<double>(widen(a)) * widen(b));
    else
      return a * b;
  }
};
struct MultiplyHigh {
  template <std::integral T> static T apply(T a, T b) {
    return static_cast<T>((static_cast<__int128>(a) * static_cast<__int128>(b)) >> (sizeof(T) * 8));
  }
  static uint64_t apply(uint64_t a, uint64_t b) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(a) * b) >> 64);
  }
};
template <class Product> struct MultiplyAdd {
  template <std::integral T> static T apply(T a, T b, T c) { return Add::apply(Product::apply(a, b), c); }
};
struct Fused {
  template <class T> static T apply(T a, T b, T c) { return fusedMultiplyAdd(a, b, c); }
};
/// A fused multiply-add of f32 by the processor's instruction, because calls of the library function dominate the run
/// time.
[[gnu::target("avx2,fma")]] void fusedNatively(Warp &warp, const Instruction &i, uint32_t mask) {
  const float *a = warp.lanes<float>(i.operands[1]), *b = warp.lanes<float>(i.operands[2]),
              *c = warp.lanes<float>(i.operands[3]);
  float result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = __builtin_fmaf(a[lane], b[lane], c[lane]);
  store(warp, i.operands[0], result, mask);
}
struct FusedRelu {
  template <class T>
  static T apply(T a, T b, T c)
    requires isHalf<T>
  {
    T result = fusedMultiplyAdd(a, b, c);
    return widen(result) > 0 || std::isnan(widen(result)) ? result : T{};
  }
};
// Inactive lanes may hold any value, including zero divisors.
struct Divide {
  template <class T> static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      if (b == 0)
        return static_cast<T>(~T(0));
      return std::is_signed_v<T> && b == static_cast<T>(-1) ? static_cast<T>(-raw(a)) : static_cast<T>(a / b);
    } else {
      return a / b;
    }
  }
};
struct Remainder {
  template <std::integral T> static T apply(T a, T b) {
    if (b == 0)
      return a;
    return std::is_signed_v<T> && b == static_cast<T>(-1) ? T(0) : static_cast<T>(a % b);
  }
};
struct Absolute {
  template <class T> static T apply(T a) {
    if constexpr (std::is_integral_v<T>)
      return a < 0 ? static_cast<T>(-raw(a)) : a;
    else if constexpr (isHalf<T>)
      return {static_cast<uint16_t>(a.bits & 0x7fff)};
    else
      return std::fabs(a);
  }
};
struct Negate {
  template <class T> static T apply(T a) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(-raw(a));
    else if constexpr (isHalf<T>)
      return {static_cast<uint16_t>(a.bits ^ 0x8000)};
    else
      return -a;
  }
};
/// -0 is less than +0. If one operand is NaN, the result is the other one, or NaN with `keepsNan`.
template <bool isMaximum, bool keepsNan> struct Extreme {
  template <class T> static T apply(T a, T b) {
    if constexpr (std::is_integral_v<T>) {
      return isMaximum ? std::max(a, b) : std::min(a, b);
    } else {
      auto x = widen(a), y = widen(b);
      if (std::isnan(x) || std::isnan(y))
        return keepsNan || (std::isnan(x) && std::isnan(y)) ? narrow<T>(std::numeric_limits<double>::quiet_NaN())
               : std::isnan(x)                              ? b
                                                            : a;
      bool isLess = x < y || (x == y && std::signbit(x));
      return isLess != isMaximum ? a : b;
    }
  }
};
struct CopySign {
  template <std::floating_point T> static T apply(T sign, T value) { return std::copysign(value, sign); }
};

struct Exp2 {
  template <class T> static T apply(T x) { return narrow<T>(std::exp2(static_cast<double>(widen(x)))); }
};
struct Log2 {
  static float apply(float x) { return static_cast<float>(std::log2(static_cast<double>(x))); }
};
struct Reciprocal {
  template <class T> static T apply(T x) { return 1 / x; }
};
struct ReciprocalRoot {
  template <class T> static T apply(T x) { return static_cast<T>(1 / std::sqrt(static_cast<double>(x))); }
};
struct Root {
  template <class T> static T apply(T x) { return std::sqrt(x); }
};
struct Sine {
  static float apply(float x) { return static_cast<float>(std::sin(static_cast<double>(x))); }
};
struct Cosine {
  static float apply(float x) { return static_cast<float>(std::cos(static_cast<double>(x))); }
};
struct Tanh {
  template <class T> static T apply(T x) { return narrow<T>(std::tanh(static_cast<double>(widen(x)))); }
};

/// .ftz: flushes subnormal inputs and results to zero.
template <class F> struct Flushing {
  template <class... More> static float apply(More... x) { return flush(F::apply(flush(x)...)); }
};
/// .sat: clamps to [0, 1]; NaN becomes 0.
template <class F> struct Saturating {
  template <class... More> static float apply(More... x) {
    float result = F::apply(x...);
    return result > 0 ? std::min(result, 1.0f) : 0;
  }
};

template <class F, int inputs> Execute loopOf(Type type) {
  if constexpr (inputs == 1)
    return unaryOf<F>(type, TypeList<float>());
  else if constexpr (inputs == 2)
    return binaryOf<F>(type, TypeList<float>());
  else
    return ternaryOf<F>(type, TypeList<float>());
}

/// Completes a rule: operands, .ftz and .sat of .f32, and the loop for the type.
template <class F, int inputs> void finish(Decoder &d, Type type, Execute plain) {
  bool flushes = d.take("ftz"), saturates = type == Type::f32 && d.take("sat");
  if (flushes && type != Type::f32 && !isFloating(type))
    d.fail("modifier .ftz is for floats");
  d.output(type);
  for (int i = 0; i < inputs; ++i)
    d.input(type);
  if constexpr (
      requires { F::apply(0.0f); } || requires { F::apply(0.0f, 0.0f); } || requires { F::apply(0.0f, 0.0f, 0.0f); })
    if (type == Type::f32 && (flushes || saturates))
      plain = !saturates ? loopOf<Flushing<F>, inputs>(type)
              : flushes  ? loopOf<Flushing<Saturating<F>>, inputs>(type)
                         : loopOf<Saturating<F>, inputs>(type);
  d.finish(plain, type);
}

bool isBrain(Type type) { return type == Type::bf16 || type == Type::bf16x2; }

template <class F, class Types> void binaryRule(Decoder &d) {
  d.take("rn");
  Type type = d.takeType();
  if (isBrain(type))
    d.needTarget(90);
  finish<F, 2>(d, type, binaryOf<Lanewise<F>>(type, Types()));
}

template <class F, class Types> void unaryRule(Decoder &d) {
  bool isApproximate = d.take("approx") || d.take("rn");
  Type type = d.takeType();
  if (isBrain(type) && isApproximate)
    d.needTarget(90);
  finish<F, 1>(d, type, unaryOf<Lanewise<F>>(type, Types()));
}

template <bool isMaximum> void extremeRule(Decoder &d) {
  bool keepsNan = d.take("NaN");
  Type type = d.takeType();
  if (keepsNan)
    finish<Extreme<isMaximum, true>, 2>(d, type, binaryOf<Lanewise<Extreme<isMaximum, true>>>(type, FloatingNumbers()));
  else
    finish<Extreme<isMaximum, false>, 2>(d, type, binaryOf<Lanewise<Extreme<isMaximum, false>>>(type, Numbers()));
}

template <class T, class Twice, bool adds> void multiplyWide(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]), *b = warp.lanes<T>(i.operands[2]);
  const Twice *c = warp.lanes<Twice>(i.operands[adds ? 3 : 2]);
  Twice result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = static_cast<Twice>(static_cast<Twice>(a[lane]) * static_cast<Twice>(b[lane]));
  if (adds)
    for (uint32_t lane = 0; lane < warpLanes; ++lane)
      result[lane] = Add::apply(result[lane], c[lane]);
  store(warp, i.operands[0], result, mask);
}

template <bool adds> void wideRule(Decoder &d, Type type) {
  Type twice = type == Type::u16   ? Type::u32
               : type == Type::s16 ? Type::s32
               : type == Type::u32 ? Type::u64
               : type == Type::s32 ? Type::s64
                                   : Type::none;
  d.output(twice);
  d.input(type);
  d.input(type);
  if (adds)
    d.input(twice);
  d.finish(type == Type::u16   ? multiplyWide<uint16_t, uint32_t, adds>
           : type == Type::s16 ? multiplyWide<int16_t, int32_t, adds>
           : type == Type::u32 ? multiplyWide<uint32_t, uint64_t, adds>
           : type == Type::s32 ? multiplyWide<int32_t, int64_t, adds>
                               : nullptr,
           type);
}

void multiplyRule(Decoder &d) {
  int part = d.takeOneOf({"lo", "hi", "wide"});
  if (part < 0)
    return binaryRule<Multiply, FloatingNumbers>(d);
  Type type = d.takeType();
  if (part == 2)
    wideRule<false>(d, type);
  else if (part == 0)
    finish<Multiply, 2>(d, type, binaryOf<Multiply>(type, AllIntegers()));
  else
    finish<MultiplyHigh, 2>(d, type, binaryOf<MultiplyHigh>(type, AllIntegers()));
}

void fusedRule(Decoder &d) {
  d.take("rn");
  bool relu = d.take("relu");
  Type type = d.takeType();
  if (relu)
    finish<FusedRelu, 3>(d, type, ternaryOf<Lanewise<FusedRelu>>(type, Halves()));
  else
    finish<Fused, 3>(d, type,
                     type == Type::f32 && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2")
                         ? fusedNatively
                         : ternaryOf<Lanewise<Fused>>(type, FloatingNumbers()));
}

void multiplyAddRule(Decoder &d) {
  int part = d.takeOneOf({"lo", "hi", "wide"});
  if (part < 0) // for floats the same as fma
    return fusedRule(d);
  Type type = d.takeType();
  if (part == 2)
    wideRule<true>(d, type);
  else if (part == 0)
    finish<MultiplyAdd<Multiply>, 3>(d, type, ternaryOf<MultiplyAdd<Multiply>>(type, AllIntegers()));
  else
    finish<MultiplyAdd<MultiplyHigh>, 3>(d, type, ternaryOf<MultiplyAdd<MultiplyHigh>>(type, AllIntegers()));
}

void divideRule(Decoder &d) {
  int form = d.takeOneOf({"rn", "full", "approx"});
  Type type = d.takeType();
  if (form < 0 && isFloating(type))
    d.fail("modifier .rn, .full or .approx is missing");
  finish<Divide, 2>(d, type, form < 0 ? binaryOf<Divide>(type, AllIntegers()) : binaryOf<Divide>(type, Floats()));
}

} // namespace

void addArithmetic(Rules &rules) {
  rules["add"] = binaryRule<Add, Numbers>;
  rules["sub"] = binaryRule<Subtract, Numbers>;
  rules["mul"] = multiplyRule;
  rules["mad"] = multiplyAddRule;
  rules["fma"] = fusedRule;
  rules["div"] = divideRule;
  rules["rem"] = binaryRule<Remainder, AllIntegers>;
  rules["abs"] =
      unaryRule<Absolute, TypeList<int16_t, int32_t, int64_t, float, double, F16, BF16, Two<F16>, Two<BF16>>>;
  rules["neg"] = unaryRule<Negate, TypeList<int16_t, int32_t, int64_t, float, double, F16, BF16, Two<F16>, Two<BF16>>>;
  rules["min"] = extremeRule<false>;
  rules["max"] = extremeRule<true>;
  rules["copysign"] = binaryRule<CopySign, Floats>;
  rules["ex2"] = unaryRule<Exp2, TypeList<float, F16, BF16, Two<F16>, Two<BF16>>>;
  rules["lg2"] = unaryRule<Log2, TypeList<float>>;
  rules["rcp"] = unaryRule<Reciprocal, Floats>;
  rules["rsqrt"] = unaryRule<ReciprocalRoot, Floats>;
  rules["sqrt"] = unaryRule<Root, Floats>;
  rules["sin"] = unaryRule<Sine, TypeList<float>>;
  rules["cos"] = unaryRule<Cosine, TypeList<float>>;
  rules["tanh"] = unaryRule<Tanh, TypeList<float, F16, BF16, Two<F16>, Two<BF16>>>;
}

} // namespace espalier::emulator
