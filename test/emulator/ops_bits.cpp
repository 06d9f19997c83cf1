// Bits and moves: mov, logic (also on predicates), shifts, bit fields, counts, prmt, lop3, shf.
#include <algorithm>

#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

using Unsigned = TypeList<uint16_t, uint32_t, uint64_t>;

void need32(Decoder &d) {
  if (d.takeType() != Type::b32)
    d.fail("type must be .b32");
}

struct And {
  template <class T> static T apply(T a, T b) { return a & b; }
};
struct Or {
  template <class T> static T apply(T a, T b) { return a | b; }
};
struct Xor {
  template <class T> static T apply(T a, T b) { return a ^ b; }
};
struct Not {
  template <class T> static T apply(T a) { return ~a; }
};

template <class F> void predicateLoop(Warp &warp, const Instruction &i, uint32_t mask) {
  if constexpr (requires { F::apply(0u); })
    storePredicate(warp, i.operands[0], F::apply(warp.predicate(i.operands[1])), mask);
  else
    storePredicate(warp, i.operands[0], F::apply(warp.predicate(i.operands[1]), warp.predicate(i.operands[2])), mask);
}

template <class F> void logicRule(Decoder &d) {
  Type type = d.takeType();
  if (isSigned(type) || isFloating(type) || type == Type::u16 || type == Type::u32 || type == Type::u64)
    d.fail("type must be one of bits");
  d.output(type);
  d.input(type);
  if constexpr (requires { F::apply(0u); }) {
    d.finish(type == Type::pred ? predicateLoop<F> : unaryOf<F>(type, Unsigned()), type);
  } else {
    d.input(type);
    d.finish(type == Type::pred ? predicateLoop<F> : binaryOf<F>(type, Unsigned()), type);
  }
}

/// Shifts by more than the width give the result of repeated shifts by one.
template <class T, bool isLeft> void shift(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]);
  const uint32_t *by = warp.lanes<uint32_t>(i.operands[2]);
  constexpr uint32_t width = sizeof(T) * 8;
  T result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane) {
    uint32_t n = std::min(by[lane], width - 1);
    T shifted = isLeft ? static_cast<T>(a[lane] << n) : static_cast<T>(a[lane] >> n);
    bool isAll = by[lane] >= width && (isLeft || std::is_unsigned_v<T>);
    result[lane] = isAll ? T(0) : shifted;
  }
  store(warp, i.operands[0], result, mask);
}

template <bool isLeft, class... Ts> Execute shiftOf(Type type, TypeList<Ts...>) {
  Execute found = nullptr;
  ((holds<Ts>(type) ? void(found = shift<Ts, isLeft>) : void()), ...);
  return found;
}

template <bool isLeft> void shiftRule(Decoder &d) {
  Type type = d.takeType();
  d.output(type);
  d.input(type);
  d.input(Type::u32);
  d.finish(isLeft ? shiftOf<true>(type, Unsigned()) : shiftOf<false>(type, Integers()), type);
}

/// Returns 32 of the 64 bits of `low` and `high`.
template <bool isLeft, bool wraps> struct FunnelShift {
  static uint32_t apply(uint32_t low, uint32_t high, uint32_t by) {
    uint32_t n = wraps ? by & 31 : std::min(by, 32u);
    uint64_t both = static_cast<uint64_t>(high) << 32 | low;
    return static_cast<uint32_t>(isLeft ? both << n >> 32 : both >> n);
  }
};

void funnelRule(Decoder &d) {
  int direction = d.takeOneOf({"l", "r"}), mode = d.takeOneOf({"wrap", "clamp"});
  if (direction < 0 || mode < 0)
    d.fail("needs .l or .r and .wrap or .clamp");
  need32(d);
  d.output(Type::b32);
  for (int i = 0; i < 3; ++i)
    d.input(Type::b32);
  d.finish(
      direction == 0
          ? (mode == 0 ? ternary<uint32_t, FunnelShift<true, true>> : ternary<uint32_t, FunnelShift<true, false>>)
          : (mode == 0 ? ternary<uint32_t, FunnelShift<false, true>> : ternary<uint32_t, FunnelShift<false, false>>),
      Type::b32);
}

/// Selects bytes of {a, b} by the selector's nibbles. The top bit of a nibble replicates the byte's sign.
struct Permute {
  static uint32_t apply(uint32_t a, uint32_t b, uint32_t selector) {
    uint64_t bytes = static_cast<uint64_t>(b) << 32 | a;
    uint32_t result = 0;
    for (int i = 0; i < 4; ++i) {
      uint32_t nibble = selector >> i * 4 & 15, byte = bytes >> (nibble & 7) * 8 & 0xff;
      if (nibble & 8)
        byte = byte & 0x80 ? 0xff : 0;
      result |= byte << i * 8;
    }
    return result;
  }
};

void permuteRule(Decoder &d) {
  need32(d);
  d.output(Type::b32);
  for (int i = 0; i < 3; ++i)
    d.input(Type::b32);
  d.finish(ternary<uint32_t, Permute>, Type::b32);
}

void lookUp(Warp &warp, const Instruction &i, uint32_t mask) {
  const uint32_t *a = warp.lanes<uint32_t>(i.operands[1]), *b = warp.lanes<uint32_t>(i.operands[2]),
                 *c = warp.lanes<uint32_t>(i.operands[3]);
  uint32_t result[warpLanes] = {};
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    for (uint32_t row = 0; row < 8; ++row)
      if (i.immediate >> row & 1)
        result[lane] |=
            (row & 4 ? a[lane] : ~a[lane]) & (row & 2 ? b[lane] : ~b[lane]) & (row & 1 ? c[lane] : ~c[lane]);
  store(warp, i.operands[0], result, mask);
}

void lookUpRule(Decoder &d) {
  need32(d);
  d.output(Type::b32);
  for (int i = 0; i < 3; ++i)
    d.input(Type::b32);
  d.instruction.immediate = d.number();
  d.finish(lookUp, Type::b32);
}

template <class T> void extractField(Warp &warp, const Instruction &i, uint32_t mask) {
  constexpr uint32_t width = sizeof(T) * 8;
  using Bits = std::make_unsigned_t<T>;
  const T *a = warp.lanes<T>(i.operands[1]);
  const uint32_t *position = warp.lanes<uint32_t>(i.operands[2]), *length = warp.lanes<uint32_t>(i.operands[3]);
  T result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane) {
    uint32_t from = position[lane] & 0xff, count = length[lane] & 0xff;
    uint32_t last = std::min(from + count, width) - 1; // sign bit, if any
    Bits value = count && from < width ? static_cast<Bits>(a[lane]) >> from : 0;
    Bits field = count >= width ? ~Bits(0) : (Bits(1) << count) - 1;
    bool isNegative = std::is_signed_v<T> && count && (static_cast<Bits>(a[lane]) >> std::min(last, width - 1) & 1);
    Bits inside = from + count > width ? static_cast<Bits>(from < width ? ~Bits(0) >> from : 0) & field : field;
    result[lane] = static_cast<T>((value & inside) | (isNegative ? ~inside : Bits(0)));
  }
  store(warp, i.operands[0], result, mask);
}

void fieldRule(Decoder &d) {
  Type type = d.takeType();
  d.output(type);
  d.input(type);
  d.input(Type::u32);
  d.input(Type::u32);
  d.finish(type == Type::u32   ? extractField<uint32_t>
           : type == Type::s32 ? extractField<int32_t>
           : type == Type::u64 ? extractField<uint64_t>
           : type == Type::s64 ? extractField<int64_t>
                               : nullptr,
           type);
}

template <class F, class T> void countBits(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]);
  uint32_t result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = F::apply(a[lane]);
  store(warp, i.operands[0], result, mask);
}
struct Ones {
  template <class T> static uint32_t apply(T a) { return std::popcount(a); }
};
struct LeadingZeros {
  template <class T> static uint32_t apply(T a) { return std::countl_zero(a); }
};

template <class F> void countRule(Decoder &d) {
  Type type = d.takeType();
  d.output(Type::u32);
  d.input(type);
  d.finish(type == Type::b32 ? countBits<F, uint32_t> : type == Type::b64 ? countBits<F, uint64_t> : nullptr, type);
}

struct Reverse {
  template <class T> static T apply(T a) {
    T result = 0;
    for (uint32_t bit = 0; bit < sizeof(T) * 8; ++bit)
      result |= (a >> bit & 1) << (sizeof(T) * 8 - 1 - bit);
    return result;
  }
};
void reverseRule(Decoder &d) {
  Type type = d.takeType();
  d.output(type);
  d.input(type);
  d.finish(unaryOf<Reverse>(type, TypeList<uint32_t, uint64_t>()), type);
}

struct Same {
  template <class T> static T apply(T a) { return a; }
};

void moveAddress(Warp &warp, const Instruction &i, uint32_t mask) {
  forLanes(mask, [&](uint32_t lane) { warp.setBits(i.operands[0], lane, warp.bits(i.operands[1], lane)); });
}

/// Packs or unpacks: operands of one width on one side, their concatenation, low bits first, on the other.
void packElements(Warp &warp, const Instruction &i, uint32_t mask) {
  forLanes(mask, [&](uint32_t lane) {
    uint64_t whole = 0;
    for (uint32_t k = i.inputs; k-- > 0;)
      whole = whole << i.operands[1 + k].bytes * 8 | warp.bits(i.operands[1 + k], lane);
    warp.setBits(i.operands[0], lane, whole);
  });
}
void unpackElements(Warp &warp, const Instruction &i, uint32_t mask) {
  forLanes(mask, [&](uint32_t lane) {
    uint64_t whole = warp.bits(i.operands[i.outputs], lane);
    for (uint32_t k = 0; k < i.outputs; ++k) {
      warp.setBits(i.operands[k], lane, whole);
      whole >>= i.operands[k].bytes * 8;
    }
  });
}

Type elementType(Decoder &d, Type whole, size_t count) {
  uint32_t bytes = count ? bytesOf(whole) / count : 0;
  if (bytes != 2 && bytes != 4)
    d.fail("elements in braces must have 16 or 32 bits");
  return bytes == 2 ? Type::b16 : Type::b32;
}

void moveRule(Decoder &d) {
  Type type = d.takeType();
  if (d.hasOperand() && d.peek().kind == Operand::Kind::vector) {
    size_t count = d.peek().elements.size();
    d.outputs(elementType(d, type, count), count);
    d.input(type);
    return d.finish(unpackElements, type);
  }
  d.output(type);
  if (d.hasOperand() && d.peek().kind == Operand::Kind::vector) {
    size_t count = d.peek().elements.size();
    d.inputs(elementType(d, type, count), count);
    return d.finish(packElements, type);
  }
  bool isVariable = d.hasOperand() && d.peek().isVariable;
  d.input(type, /*wider=*/isVariable);
  if (isVariable)
    d.finish(moveAddress, type);
  else if (type == Type::pred)
    d.finish(predicateLoop<Same>, type);
  else
    d.finish(bytesOf(type) == 2   ? unary<uint16_t, Same>
             : bytesOf(type) == 4 ? unary<uint32_t, Same>
             : bytesOf(type) == 8 ? unary<uint64_t, Same>
                                  : nullptr,
             type);
}

} // namespace

void addBitOperations(Rules &rules) {
  rules["mov"] = moveRule;
  rules["and"] = logicRule<And>;
  rules["or"] = logicRule<Or>;
  rules["xor"] = logicRule<Xor>;
  rules["not"] = logicRule<Not>;
  rules["shl"] = shiftRule<true>;
  rules["shr"] = shiftRule<false>;
  rules["shf"] = funnelRule;
  rules["prmt"] = permuteRule;
  rules["lop3"] = lookUpRule;
  rules["bfe"] = fieldRule;
  rules["popc"] = countRule<Ones>;
  rules["clz"] = countRule<LeadingZeros>;
  rules["brev"] = reverseRule;
}

} // namespace espalier::emulator
