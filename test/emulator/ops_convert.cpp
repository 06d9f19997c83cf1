// Conversions: cvt between all types, cvt of two values into one register, cvta between address spaces.
#include <algorithm>

#include "test/emulator/ptx_ops.h"

namespace espalier::emulator {
namespace {

// Instruction::variant: rounding mode and flags.
enum Rounding : uint8_t { none, rn, rz, rm, rp, rni, rzi, rmi, rpi };
constexpr uint8_t roundingMask = 15, saturates = 16, flushesInputs = 32, clampsNegative = 64;

double toIntegral(double x, uint8_t rounding) {
  switch (rounding) {
  case rni:
    return std::nearbyint(x);
  case rzi:
    return std::trunc(x);
  case rmi:
    return std::floor(x);
  case rpi:
    return std::ceil(x);
  default:
    return x;
  }
}

/// Values out of range become the nearest value in range; NaN becomes 0.
template <class To> To toInteger(double x) {
  if (std::isnan(x))
    return 0;
  // The 64-bit limits are not doubles, so the comparison uses the next power of two.
  double behind = std::ldexp(1.0, std::numeric_limits<To>::digits);
  if (x >= behind)
    return std::numeric_limits<To>::max();
  if (x <= static_cast<double>(std::numeric_limits<To>::min()))
    return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}

template <class To, class From> To convertFloat(From value, uint8_t variant) {
  double x = widen(value);
  if (variant & flushesInputs && std::is_same_v<From, float>)
    x = flush(static_cast<float>(x));
  uint8_t rounding = variant & roundingMask;
  if constexpr (isFloat<To>) {
    x = toIntegral(x, rounding);
    if (variant & clampsNegative && x <= 0)
      x = 0;
    if (variant & saturates)
      x = x > 0 ? std::min(x, 1.0) : 0;
    To result = rounding == rz ? truncate<To>(x) : narrow<To>(x);
    if constexpr (std::is_same_v<To, float>)
      return variant & flushesInputs ? flush(result) : result;
    else
      return result;
  } else {
    return toInteger<To>(toIntegral(x, rounding));
  }
}

/// Returns `nearest`, or the float before it, whichever does not exceed the integer.
template <class Float, class Integer> Float towardsZero(Float nearest, Integer value) {
  // Floats of this size are exact as 128-bit integers.
  __int128 rounded = static_cast<__int128>(nearest), exact = value;
  bool isBeyond = exact >= 0 ? rounded > exact : rounded < exact;
  return isBeyond ? neighbour(nearest, /*outward=*/false) : nearest;
}

template <class To, class From> To convertInteger(From value, uint8_t variant) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, double>) {
    To nearest = static_cast<To>(value);
    return (variant & roundingMask) == rz ? towardsZero(nearest, value) : nearest;
  } else if constexpr (isHalf<To>) {
    // The bits of a 64-bit integer that a double cannot hold only break ties.
    double high = static_cast<double>(static_cast<int64_t>(value >> 11)) * 2048,
           low = static_cast<double>(value & 2047);
    if constexpr (std::is_same_v<From, uint64_t>)
      high = static_cast<double>(value >> 11) * 2048;
    return narrow<To>(sizeof(From) == 8 ? addToOdd(high, low) : static_cast<double>(value));
  } else if (variant & saturates) {
    __int128 wide = value, low = std::numeric_limits<To>::min(), high = std::numeric_limits<To>::max();
    return static_cast<To>(std::clamp(wide, low, high));
  } else {
    return static_cast<To>(value);
  }
}

template <class To, class From> To convertOne(From value, uint8_t variant) {
  if constexpr (isFloat<From>)
    return convertFloat<To>(value, variant);
  else
    return convertInteger<To>(value, variant);
}

/// Registers may be wider than the types: sources use their low bits, results are sign-extended.
template <class To, class From> void convert(Warp &warp, const Instruction &i, uint32_t mask) {
  forLanes(mask, [&](uint32_t lane) {
    uint64_t bits = warp.bits(i.operands[1], lane);
    From from;
    std::memcpy(&from, &bits, sizeof from);
    To to = convertOne<To>(from, i.variant);
    uint64_t result = 0;
    if constexpr (std::is_integral_v<To>)
      result = static_cast<uint64_t>(static_cast<std::conditional_t<std::is_signed_v<To>, int64_t, uint64_t>>(to));
    else
      std::memcpy(&result, &to, sizeof to);
    warp.setBits(i.operands[0], lane, result);
  });
}

// The fast path, in which both registers have the width of their types.
template <class To, class From> void convertExact(Warp &warp, const Instruction &i, uint32_t mask) {
  const From *from = warp.lanes<From>(i.operands[1]);
  To result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = convertOne<To>(from[lane], i.variant);
  store(warp, i.operands[0], result, mask);
}

using Scalars =
    TypeList<uint8_t, int8_t, uint16_t, int16_t, uint32_t, int32_t, uint64_t, int64_t, F16, BF16, float, double>;

template <class To, class... From> Execute convertFrom(Type type, bool isExact, TypeList<From...>) {
  Execute found = nullptr;
  ((holds<From>(type) ? void(found = isExact ? convertExact<To, From> : convert<To, From>) : void()), ...);
  return found;
}
template <class... To> Execute convertTo(Type to, Type from, bool isExact, TypeList<To...>) {
  Execute found = nullptr;
  ((holds<To>(to) ? void(found = convertFrom<To>(from, isExact, Scalars())) : void()), ...);
  return found;
}

/// The first source becomes the high half.
template <class Half> void convertPair(Warp &warp, const Instruction &i, uint32_t mask) {
  const float *high = warp.lanes<float>(i.operands[1]), *low = warp.lanes<float>(i.operands[2]);
  Two<Half> result[warpLanes];
  for (uint32_t lane = 0; lane < warpLanes; ++lane)
    result[lane] = {convertFloat<Half>(low[lane], i.variant), convertFloat<Half>(high[lane], i.variant)};
  store(warp, i.operands[0], result, mask);
}

/// Checks the rounding mode. Conversions to a narrower float or from an integer need a float mode; to an integer, an
/// integer mode.
void checkRounding(const Decoder &d, Type to, Type from, uint8_t rounding) {
  bool toFloat = isFloating(to), fromFloat = isFloating(from);
  bool needsFloat = toFloat && (!fromFloat || bytesOf(to) < bytesOf(from) || (bytesOf(to) == 2 && to != from));
  bool needsIntegral = !toFloat && fromFloat;
  if ((needsFloat && (rounding < rn || rounding > rp)) || (needsIntegral && rounding < rni))
    d.fail("rounding is missing");
  if ((!toFloat && !fromFloat && rounding != none) || (toFloat && rounding >= rni && (!fromFloat || to != from)))
    d.fail("rounding is one too many");
  if (rounding == rm || rounding == rp)
    d.fail("rounding .rm and .rp to a float are not known");
}

void convertRule(Decoder &d) {
  uint8_t rounding = static_cast<uint8_t>(d.takeOneOf({"rn", "rz", "rm", "rp", "rni", "rzi", "rmi", "rpi"}) + 1);
  d.instruction.variant =
      static_cast<uint8_t>(rounding | (d.take("sat") ? saturates : 0) | (d.take("ftz") ? flushesInputs : 0) |
                           (d.take("relu") ? clampsNegative : 0));
  Type to = d.takeType(), from = d.takeType();
  if (to == Type::f16x2 || to == Type::bf16x2) {
    if (from != Type::f32 || (rounding != rn && rounding != rz))
      d.fail("converts two .f32, with .rn or .rz");
    d.output(to);
    d.input(from);
    d.input(from);
    return d.finish(to == Type::f16x2 ? convertPair<F16> : convertPair<BF16>, to);
  }
  if ((to == Type::bf16 && from != Type::f32) || (from == Type::bf16 && to != Type::f32))
    d.needTarget(90);
  checkRounding(d, to, from, rounding);
  Slot result = d.output(to, /*wider=*/!isFloating(to));
  Slot source = d.input(from, /*wider=*/!isFloating(from));
  bool isExact = result.bytes == bytesOf(to) && source.bytes == bytesOf(from);
  d.finish(convertTo(to, from, isExact, Scalars()), to);
}

template <bool toGeneric> void convertAddress(Warp &warp, const Instruction &i, uint32_t mask) {
  uint64_t window = i.space == Space::shared ? sharedWindow : i.space == Space::local ? localWindow : 0;
  forLanes(mask, [&](uint32_t lane) {
    uint64_t address = warp.bits(i.operands[1], lane);
    warp.setBits(i.operands[0], lane, toGeneric ? address + window : address - window);
  });
}

void addressRule(Decoder &d) {
  bool fromGeneric = d.take("to");
  int space = d.takeOneOf({"global", "shared", "local"});
  if (space < 0)
    d.fail("address space is missing");
  d.instruction.space = space == 0 ? Space::global : space == 1 ? Space::shared : Space::local;
  Type type = d.takeType();
  if (type != Type::u64)
    d.fail("type must be .u64");
  d.output(type);
  d.input(type);
  d.finish(fromGeneric ? convertAddress<false> : convertAddress<true>, type);
}

} // namespace

void addConversions(Rules &rules) {
  rules["cvt"] = convertRule;
  rules["cvta"] = addressRule;
}

} // namespace espalier::emulator
