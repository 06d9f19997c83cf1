// Bit-exact versions of NumPy's two generators. The legacy RandomState (MT19937) shuffles Megatron's documents and
// samples. The default Generator (SeedSequence and PCG64) sizes Megatron's mock documents.
#pragma once

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

  /// Shuffles as RandomState.shuffle does for a one-dimensional array: Fisher-Yates from the end.
  template <typename T> void shuffle(std::span<T> values) {
    for (size_t i = values.size(); i-- > 1;)
      std::swap(values[i], values[below(i)]);
  }

private:
  void refill();
  std::array<uint32_t, 624> state;
  int position = 624;
};

/// Returns numpy.random.default_rng(seed).integers(low, high, count, dtype=int32): values in [low, high).
std::vector<int32_t> defaultRngIntegers(uint32_t seed, int32_t low, int32_t high, int64_t count);

} // namespace espalier::rt
