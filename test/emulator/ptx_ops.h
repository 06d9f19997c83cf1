// Executes instructions over the lanes of a warp. The rules of opcodes instantiate these loops for their types.
#pragma once
#include "test/emulator/numbers.h"
#include "test/emulator/ptx_decode.h"
#include "test/emulator/warp.h"

namespace espalier::emulator {

template <class... Ts> struct TypeList {};
using Integers = TypeList<uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t>;
using Floats = TypeList<float, double>;
using Halves = TypeList<F16, BF16, Two<F16>, Two<BF16>>;

/// Whether a register of the PTX type holds a T.
template <class T> constexpr bool holds(Type type) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return type == Type::u8 || type == Type::b8;
  else if constexpr (std::is_same_v<T, int8_t>)
    return type == Type::s8;
  else if constexpr (std::is_same_v<T, uint16_t>)
    return type == Type::u16 || type == Type::b16;
  else if constexpr (std::is_same_v<T, int16_t>)
    return type == Type::s16;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return type == Type::u32 || type == Type::b32;
  else if constexpr (std::is_same_v<T, int32_t>)
    return type == Type::s32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return type == Type::u64 || type == Type::b64;
  else if constexpr (std::is_same_v<T, int64_t>)
    return type == Type::s64;
  else if constexpr (std::is_same_v<T, float>)
    return type == Type::f32;
  else if constexpr (std::is_same_v<T, double>)
    return type == Type::f64;
  else if constexpr (std::is_same_v<T, F16>)
    return type == Type::f16;
  else if constexpr (std::is_same_v<T, BF16>)
    return type == Type::bf16;
  else if constexpr (std::is_same_v<T, Two<F16>>)
    return type == Type::f16x2;
  else
    return type == Type::bf16x2;
}

/// Applies F::apply(T...) to each lane; the last operands are its inputs.
template <class T, class F> void unary(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]);
  T result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = F::apply(a[lane]);
  store(warp, i.operands[0], result, mask);
}

template <class T, class F> void binary(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]), *b = warp.lanes<T>(i.operands[2]);
  T result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = F::apply(a[lane], b[lane]);
  store(warp, i.operands[0], result, mask);
}

template <class T, class F> void ternary(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]), *b = warp.lanes<T>(i.operands[2]), *c = warp.lanes<T>(i.operands[3]);
  T result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = F::apply(a[lane], b[lane], c[lane]);
  store(warp, i.operands[0], result, mask);
}

// Returns the loop for a type of the list, or nullptr if the list lacks it.
template <class F, class... Ts> Execute unaryOf(Type type, TypeList<Ts...>) {
  Execute found = nullptr;
  ((holds<Ts>(type) ? void(found = unary<Ts, F>) : void()), ...);
  return found;
}
template <class F, class... Ts> Execute binaryOf(Type type, TypeList<Ts...>) {
  Execute found = nullptr;
  ((holds<Ts>(type) ? void(found = binary<Ts, F>) : void()), ...);
  return found;
}
template <class F, class... Ts> Execute ternaryOf(Type type, TypeList<Ts...>) {
  Execute found = nullptr;
  ((holds<Ts>(type) ? void(found = ternary<Ts, F>) : void()), ...);
  return found;
}

/// Applies F to both halves of a pair, or to a single value.
template <class F> struct Lanewise {
  template <class T, class... More> static T apply(T a, More... more) { return F::apply(a, more...); }
  template <class Half, class... More> static Two<Half> apply(Two<Half> a, More... more) {
    return {F::apply(a.low, more.low...), F::apply(a.high, more.high...)};
  }
};

} // namespace espalier::emulator
