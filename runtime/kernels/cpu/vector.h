// Vectors of the level being compiled, as wide as its registers, written with the compiler's vector types. Only the
// *_loops.cpp files include this header, once per level. Everything is in the level's namespace, so that the linker
// cannot merge a function with instructions of a higher level into shared code.
#pragma once

#include "runtime/kernels/dtype.h"

#include <cstddef>
#include <cstdint>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

namespace espalier::rt::cpu::ESPALIER_LEVEL {

#if defined(__AVX512F__)
constexpr int kWidth = 16;
constexpr int kTileRows = 14; // 14 x 2 accumulators of 32 registers
#elif defined(__AVX2__)
constexpr int kWidth = 8;
constexpr int kTileRows = 6; // 6 x 2 accumulators of 16 registers
#else
constexpr int kWidth = 4;
constexpr int kTileRows = 6;
#endif

typedef float Floats __attribute__((vector_size(kWidth * 4)));
typedef int32_t Ints __attribute__((vector_size(kWidth * 4)));
typedef uint32_t Words __attribute__((vector_size(kWidth * 4)));
typedef uint16_t Shorts __attribute__((vector_size(kWidth * 2)));
typedef int8_t Chars __attribute__((vector_size(kWidth)));
typedef _Float16 Halfs __attribute__((vector_size(kWidth * 2)));
typedef double Doubles __attribute__((vector_size(kWidth * 8)));

#define ESPALIER_INLINE static inline __attribute__((always_inline))

ESPALIER_INLINE Floats loadFloats(const float *p) {
  Floats v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
ESPALIER_INLINE void storeFloats(float *p, Floats v) { __builtin_memcpy(p, &v, sizeof v); }
/// Copies bits only, so it also works for packed pairs.
ESPALIER_INLINE Floats splat(float x) {
  Floats v;
  for (int i = 0; i < kWidth; ++i)
    v[i] = x;
  return v;
}
ESPALIER_INLINE Words wordsOf(Floats v) { return __builtin_bit_cast(Words, v); }
ESPALIER_INLINE Floats floatsOf(Words v) { return __builtin_bit_cast(Floats, v); }
ESPALIER_INLINE Floats select(Ints mask, Floats yes, Floats no) { return mask ? yes : no; }
ESPALIER_INLINE Floats maximum(Floats a, Floats b) { return select(a > b, a, b); }

ESPALIER_INLINE int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
ESPALIER_INLINE int64_t ceilDivide(int64_t a, int64_t b) { return (a + b - 1) / b; }
ESPALIER_INLINE int64_t roundUp(int64_t a, int64_t b) { return ceilDivide(a, b) * b; }

template <int... Lanes> struct LaneList {};
template <int Count, int... Lanes> struct MakeLanes : MakeLanes<Count - 1, Count - 1, Lanes...> {};
template <int... Lanes> struct MakeLanes<0, Lanes...> {
  typedef LaneList<Lanes...> List;
};
typedef MakeLanes<kWidth>::List AllLanes;

/// Swaps lanes: each lane gets the value of the lane whose number differs only in the bit `Distance`.
template <int Distance, int... L> ESPALIER_INLINE Floats exchange(Floats v, LaneList<L...>) {
  return __builtin_shufflevector(v, v, (L ^ Distance)...);
}

/// Returns the sum of all lanes in every lane.
ESPALIER_INLINE Floats sumOf(Floats v) {
  if constexpr (kWidth >= 16)
    v += exchange<8>(v, AllLanes{});
  if constexpr (kWidth >= 8)
    v += exchange<4>(v, AllLanes{});
  v += exchange<2>(v, AllLanes{});
  return v + exchange<1>(v, AllLanes{});
}

/// Returns the maximum of all lanes in every lane.
ESPALIER_INLINE Floats maxOf(Floats v) {
  if constexpr (kWidth >= 16)
    v = maximum(exchange<8>(v, AllLanes{}), v);
  if constexpr (kWidth >= 8)
    v = maximum(exchange<4>(v, AllLanes{}), v);
  v = maximum(exchange<2>(v, AllLanes{}), v);
  return maximum(exchange<1>(v, AllLanes{}), v);
}

ESPALIER_INLINE Floats fromBf16(Shorts bits) { return floatsOf(__builtin_convertvector(bits, Words) << 16); }

/// Rounds to nearest even and keeps NaN; the vector form of floatToBf16.
ESPALIER_INLINE Shorts toBf16(Floats v) {
  Words bits = wordsOf(v);
  Words rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  Words quiet = (bits >> 16) | 0x40u;
  Words nan = Words(v != v);
  return __builtin_convertvector((nan & quiet) | (~nan & rounded), Shorts);
}

/// The element type of a storage, for pointer arithmetic.
template <Storage> struct ElementOf {
  using Type = uint16_t;
};
template <> struct ElementOf<Storage::F32> {
  using Type = float;
};
template <Storage S> using Element = typename ElementOf<S>::Type;

template <Storage S> ESPALIER_INLINE Floats load(const Element<S> *p) {
  if constexpr (S == Storage::F32) {
    return loadFloats(p);
  } else if constexpr (S == Storage::BF16) {
    Shorts bits;
    __builtin_memcpy(&bits, p, sizeof bits);
    return fromBf16(bits);
  } else {
    Halfs halfs;
    __builtin_memcpy(&halfs, p, sizeof halfs);
    return __builtin_convertvector(halfs, Floats);
  }
}

template <Storage S> ESPALIER_INLINE void store(Element<S> *p, Floats v) {
  if constexpr (S == Storage::F32) {
    storeFloats(p, v);
  } else if constexpr (S == Storage::BF16) {
    Shorts bits = toBf16(v);
    __builtin_memcpy(p, &bits, sizeof bits);
  } else {
    Halfs halfs = __builtin_convertvector(v, Halfs);
    __builtin_memcpy(p, &halfs, sizeof halfs);
  }
}

/// Copies the first `count` of at most `Most` elements. A short loop is cheaper than a call to memcpy.
template <int Most, class T> ESPALIER_INLINE void copyFirst(T *to, const T *from, int64_t count) {
#pragma clang loop vectorize(disable) unroll(disable)
  for (int64_t i = 0; i < count && i < Most; ++i) {
    to[i] = from[i];
    __asm__ volatile("" ::: "memory"); // prevents the compiler from replacing the loop by memcpy
  }
}

/// Loads the first `count` lanes; the others are 0.
template <Storage S> ESPALIER_INLINE Floats loadFirst(const Element<S> *p, int64_t count) {
  if (__builtin_expect(count >= kWidth, 1))
    return load<S>(p);
#if defined(__AVX512F__)
  if constexpr (S == Storage::F32) {
    return __builtin_bit_cast(Floats, _mm512_maskz_loadu_ps(static_cast<__mmask16>((1u << count) - 1), p));
  }
#endif
  Element<S> lanes[kWidth] = {};
  copyFirst<kWidth>(lanes, p, count);
  return load<S>(lanes);
}

template <Storage S> ESPALIER_INLINE void storeFirst(Element<S> *p, Floats v, int64_t count) {
  if (__builtin_expect(count >= kWidth, 1))
    return store<S>(p, v);
  Element<S> lanes[kWidth];
  store<S>(lanes, v);
  copyFirst<kWidth>(p, lanes, count);
}

/// Calls body.template operator()<S>() for the storage given at run time.
template <class Body> ESPALIER_INLINE void withStorage(Storage storage, Body body) {
  switch (storage) {
  case Storage::F32:
    return body.template operator()<Storage::F32>();
  case Storage::BF16:
    return body.template operator()<Storage::BF16>();
  default:
    return body.template operator()<Storage::F16>();
  }
}

/// Computes e^x to about 2 units in the last place for x up to 88. Returns 0 below -87.3 and keeps NaN. Uses
/// x = n ln 2 + r with |r| <= ln 2 / 2. e^r is the Taylor series up to r^7 / 7! (error 6e-9). 2^n is built in the
/// exponent bits.
ESPALIER_INLINE Floats exponential(Floats x) {
  constexpr float kRound = 12582912.0f; // 1.5 * 2^23: adding it rounds to an integer in the low bits
  Floats shifted = x * 1.44269504f + kRound;
  Floats n = shifted - kRound;
  Floats r = x - n * 0.693359375f; // ln 2 in two parts, the first exact in 10 bits
  r = r + n * 2.12194440e-4f;
  Floats p = splat(1.0f / 5040.0f);
  p = p * r + 1.0f / 720.0f;
  p = p * r + 1.0f / 120.0f;
  p = p * r + 1.0f / 24.0f;
  p = p * r + 1.0f / 6.0f;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  Words power = (wordsOf(shifted) << 23) + (127u << 23); // the bits of kRound are shifted out
  return select(x < -87.3f, Floats{}, p * floatsOf(power));
}

/// Computes tanh to about 3 units in the last place: S. Moshier's polynomial (Cephes, tanhf) where 1 - 2 / (e^2x + 1)
/// would cancel.
ESPALIER_INLINE Floats hyperbolicTangent(Floats x) {
  Floats magnitude = maximum(x, -x), limited = select(magnitude > 20.0f, splat(20.0f), magnitude);
  Floats large = 1.0f - 2.0f / (exponential(limited * 2.0f) + 1.0f);
  Floats square = x * x;
  Floats p = splat(-5.70498872745e-3f);
  p = p * square + 2.06390887954e-2f;
  p = p * square - 5.37397155531e-2f;
  p = p * square + 1.33314422036e-1f;
  p = p * square - 3.33332819422e-1f;
  return select(magnitude < 0.625f, p * square * x + x, select(x < 0.0f, -large, large));
}

} // namespace espalier::rt::cpu::ESPALIER_LEVEL
