// Comparisons and selection: setp set selp.
#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

// In the order of the low bits of Instruction::variant. Comparisons of the second half are also true if an operand is
// NaN.
enum Comparison : uint8_t { eq, ne, lt, le, gt, ge, equ, neu, ltu, leu, gtu, geu, num, nan };
constexpr std::initializer_list<std::string_view> comparisonNames = {"eq",  "ne",  "lt",  "le",  "gt",  "ge",  "equ",
                                                                     "neu", "ltu", "leu", "gtu", "geu", "num", "nan"};
constexpr std::initializer_list<std::string_view> unsignedNames = {"", "", "lo", "ls", "hi", "hs"};

template <class T, class F> uint32_t compareBy(const T *a, const T *b, F holds) {
  uint32_t result = 0;
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result |= uint32_t(holds(a[lane], b[lane])) << lane;
  return result;
}

template <class T> uint32_t compare(const T *a, const T *b, uint8_t comparison, bool flushes) {
  auto by = [&](auto holds) {
    return compareBy(a, b, [&](T x, T y) {
      if constexpr (std::is_same_v<T, float>)
        return flushes ? holds(flush(x), flush(y)) : holds(x, y);
      else if constexpr (isHalf<T>)
        return holds(widen(x), widen(y));
      else
        return holds(x, y);
    });
  };
  switch (comparison) {
  case eq:
    return by([](auto x, auto y) { return x == y; });
  // ne is false if an operand is NaN; neu is C's !=.
  case ne:
    return by([](auto x, auto y) { return x < y || x > y; });
  case lt:
    return by([](auto x, auto y) { return x < y; });
  case le:
    return by([](auto x, auto y) { return x <= y; });
  case gt:
    return by([](auto x, auto y) { return x > y; });
  case ge:
    return by([](auto x, auto y) { return x >= y; });
  case equ:
    return by([](auto x, auto y) { return !(x < y || x > y); });
  case neu:
    return by([](auto x, auto y) { return !(x == y); });
  case ltu:
    return by([](auto x, auto y) { return !(x >= y); });
  case leu:
    return by([](auto x, auto y) { return !(x > y); });
  case gtu:
    return by([](auto x, auto y) { return !(x <= y); });
  case geu:
    return by([](auto x, auto y) { return !(x < y); });
  case num:
    return by([](auto x, auto y) { return x == x && y == y; });
  default:
    return by([](auto x, auto y) { return x != x || y != y; });
  }
}

// The bits above the comparison in Instruction::variant: the combination with another predicate, and .ftz.
constexpr uint8_t joinsAnd = 16, joinsOr = 32, joinMask = 48, flushesInputs = 64;

uint32_t join(Warp &warp, const Instruction &i, uint32_t result) {
  if (!(i.variant & joinMask))
    return result;
  uint32_t other = warp.predicate(i.operands[i.outputs + 2]);
  uint8_t how = i.variant & joinMask;
  return how == joinsAnd ? result & other : how == joinsOr ? result | other : result ^ other;
}

template <class T> void setPredicate(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t result = compare(warp.lanes<T>(i.operands[i.outputs]), warp.lanes<T>(i.operands[i.outputs + 1]),
                            i.variant & 15, i.variant & flushesInputs);
  uint32_t joined = join(warp, i, result), inverse = join(warp, i, ~result);
  storePredicate(warp, i.operands[0], joined, mask);
  if (i.outputs == 2)
    storePredicate(warp, i.operands[1], inverse, mask);
}

/// Gives all ones or 1.0 if the comparison holds.
template <class T, bool toFloat> void setValue(Warp &warp, const Instruction &i, uint32_t mask) {
  uint32_t result = join(
      warp, i,
      compare(warp.lanes<T>(i.operands[1]), warp.lanes<T>(i.operands[2]), i.variant & 15, i.variant & flushesInputs));
  uint32_t values[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    values[lane] = result >> lane & 1 ? (toFloat ? 0x3f800000u : ~0u) : 0;
  store(warp, i.operands[0], values, mask);
}

template <template <class> class Loop, class... Ts> Execute loopFor(Type type, TypeList<Ts...>) {
  Execute found = nullptr;
  ((holds<Ts>(type) ? void(found = Loop<Ts>::run) : void()), ...);
  return found;
}
template <class T> struct SetPredicate {
  static constexpr Execute run = setPredicate<T>;
};
template <class T> struct SetFloat {
  static constexpr Execute run = setValue<T, true>;
};
template <class T> struct SetBits {
  static constexpr Execute run = setValue<T, false>;
};
using Comparable = TypeList<uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t, float, double, F16, BF16>;

uint8_t takeComparison(Decoder &d) {
  int comparison = d.takeOneOf(comparisonNames);
  if (comparison < 0)
    comparison = d.takeOneOf(unsignedNames);
  if (comparison < 0)
    d.fail("comparison is missing");
  int joining = d.takeOneOf({"and", "or", "xor"});
  return static_cast<uint8_t>(comparison | (joining + 1) << 4 | (d.take("ftz") ? flushesInputs : 0));
}

void takeInputs(Decoder &d, Type type) {
  if (type == Type::bf16)
    d.needTarget(90);
  if (d.instruction.variant % 16 >= equ && !isFloating(type))
    d.fail("comparison is for floats");
  d.input(type);
  d.input(type);
  if (d.instruction.variant & joinMask)
    d.input(Type::pred);
}

void setPredicateRule(Decoder &d) {
  d.instruction.variant = takeComparison(d);
  Type type = d.takeType();
  d.output(Type::pred);
  d.secondOutput();
  takeInputs(d, type);
  d.finish(loopFor<SetPredicate>(type, Comparable()), type);
}

void setRule(Decoder &d) {
  d.instruction.variant = takeComparison(d);
  Type result = d.takeType(), type = d.takeType();
  d.output(result);
  takeInputs(d, type);
  if (bytesOf(result) != 4 || result == Type::f16x2 || result == Type::bf16x2)
    d.fail("result must be .u32, .s32 or .f32");
  d.finish(result == Type::f32 ? loopFor<SetFloat>(type, Comparable()) : loopFor<SetBits>(type, Comparable()), type);
}

template <class T> void select(Warp &warp, const Instruction &i, uint32_t mask) {
  const T *a = warp.lanes<T>(i.operands[1]), *b = warp.lanes<T>(i.operands[2]);
  uint32_t first = warp.predicate(i.operands[3]);
  T result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = first >> lane & 1 ? a[lane] : b[lane];
  store(warp, i.operands[0], result, mask);
}

void selectRule(Decoder &d) {
  Type type = d.takeType();
  d.output(type);
  d.input(type);
  d.input(type);
  d.input(Type::pred);
  uint32_t bytes = type == Type::pred ? 0 : bytesOf(type);
  d.finish(bytes == 2   ? select<uint16_t>
           : bytes == 4 ? select<uint32_t>
           : bytes == 8 ? select<uint64_t>
                        : nullptr,
           type);
}

} // namespace

void addComparisons(Rules &rules) {
  rules["setp"] = setPredicateRule;
  rules["set"] = setRule;
  rules["selp"] = selectRule;
}

} // namespace espalier::emulator
