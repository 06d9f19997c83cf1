// Bit-exact versions of NumPy's two generators. The legacy RandomState (MT19937) shuffles Megatron's documents and
// samples. The default Generator (SeedSequence and PCG64) sizes Megatron's mock documents.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace espalier::rt {

/// numpy.random.RandomState(seed): MT19937 seeded by init_genrand (Matsumoto and Nishimura 1998).
class LegacyRandom {
public:
  /// Seeds the generator.
  explicit LegacyRandom(uint32_t seed);
  /// Returns the next 32 random bits.
  uint32_t next();
  /// Returns a number in [0, limit] by rejection sampling under the smallest bit mask that covers `limit`.
  uint64_t below(uint64_t limit);

  /// Shuffles as RandomState.shuffle does for a one-dimensional array: Fisher-Yates from the end. Draws a block of
  /// numbers ahead of their swaps and prefetches their elements, because an array beyond the cache waits for each one.
  template <typename T> void shuffle(std::span<T> values) {
    constexpr size_t block = 64;
    std::array<size_t, block> drawn;
    for (size_t end = values.size(); end > 1;) {
      size_t count = std::min(block, end - 1);
      for (size_t i = 0; i < count; ++i) {
        drawn[i] = below(end - 1 - i);
        __builtin_prefetch(&values[drawn[i]], /*rw=*/1);
      }
      for (size_t i = 0; i < count; ++i)
        std::swap(values[--end], values[drawn[i]]);
    }
  }

private:
  void refill();
  std::array<uint32_t, 624> state;
  int position = 624;
};

/// Returns numpy.random.default_rng(seed).integers(low, high, count, dtype=int32): values in [low, high).
std::vector<int32_t> defaultRngIntegers(uint32_t seed, int32_t low, int32_t high, int64_t count);

} // namespace espalier::rt
