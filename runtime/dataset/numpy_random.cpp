// Sources of the constants: MT19937 (Matsumoto and Nishimura 1998), SeedSequence (O'Neill's
// seed_seq_fe), PCG64 XSL-RR 128/64 (O'Neill 2014), bounded integers by Lemire 2019.
#include "runtime/dataset/numpy_random.h"

namespace espalier::rt {

LegacyRandom::LegacyRandom(uint32_t seed) {
  state[0] = seed;
  for (uint32_t i = 1; i < state.size(); ++i)
    state[i] = 1812433253U * (state[i - 1] ^ (state[i - 1] >> 30)) + i;
}

void LegacyRandom::refill() {
  constexpr int size = 624, shift = 397;
  for (int i = 0; i < size; ++i) {
    uint32_t mixed = (state[i] & 0x80000000U) | (state[(i + 1) % size] & 0x7fffffffU);
    state[i] = state[(i + shift) % size] ^ (mixed >> 1) ^ ((mixed & 1) ? 0x9908b0dfU : 0);
  }
  position = 0;
}

uint32_t LegacyRandom::next() {
  if (position == 624)
    refill();
  uint32_t value = state[position++];
  value ^= value >> 11;
  value ^= (value << 7) & 0x9d2c5680U;
  value ^= (value << 15) & 0xefc60000U;
  return value ^ (value >> 18);
}

uint64_t LegacyRandom::below(uint64_t limit) {
  if (limit == 0)
    return 0;
  uint64_t mask = ~uint64_t{0} >> __builtin_clzll(limit);
  uint64_t value;
  do {
    value = next();
    // For more than 32 bits, NumPy uses two words, the high one first.
    if (limit > 0xffffffffU)
      value = (value << 32) | next();
    value &= mask;
  } while (value > limit);
  return value;
}

namespace {

/// SeedSequence(seed).generate_state(4, uint64) for a seed of one 32-bit word.
std::array<uint64_t, 4> seedSequence(uint32_t seed) {
  std::array<uint32_t, 4> pool = {};
  uint32_t factor = 0x43b0d7e5U;
  auto hash = [&factor](uint32_t value) {
    value ^= factor;
    factor *= 0x931e8875U;
    value *= factor;
    return value ^ (value >> 16);
  };
  for (size_t i = 0; i < pool.size(); ++i)
    pool[i] = hash(i == 0 ? seed : 0);
  for (size_t from = 0; from < pool.size(); ++from)
    for (size_t to = 0; to < pool.size(); ++to)
      if (from != to) {
        uint32_t mixed = 0xca01f9ddU * pool[to] - 0x4973f715U * hash(pool[from]);
        pool[to] = mixed ^ (mixed >> 16);
      }
  std::array<uint64_t, 4> words = {};
  uint32_t outFactor = 0x8b51f9ddU;
  for (size_t i = 0; i < 8; ++i) {
    uint32_t value = pool[i % 4] ^ outFactor;
    outFactor *= 0x58f38dedU;
    value *= outFactor;
    value ^= value >> 16;
    words[i / 2] |= uint64_t{value} << (32 * (i % 2));
  }
  return words;
}

/// PCG64 with NumPy's 32-bit output: the low half of a word first, then the high half.
class Pcg64 {
public:
  explicit Pcg64(uint32_t seed) {
    std::array<uint64_t, 4> words = seedSequence(seed);
    increment = (((Wide{words[2]} << 64) | words[3]) << 1) | 1;
    step();
    state += (Wide{words[0]} << 64) | words[1];
    step();
  }
  uint32_t next32() {
    if (hasHalf) {
      hasHalf = false;
      return half;
    }
    step();
    uint64_t folded = static_cast<uint64_t>(state >> 64) ^ static_cast<uint64_t>(state);
    unsigned turn = static_cast<unsigned>(state >> 122);
    uint64_t value = (folded >> turn) | (folded << ((64 - turn) & 63));
    hasHalf = true;
    half = static_cast<uint32_t>(value >> 32);
    return static_cast<uint32_t>(value);
  }

private:
  __extension__ using Wide = unsigned __int128;
  void step() { state = state * ((Wide{2549297995355413924ULL} << 64) | 4865540595714422341ULL) + increment; }
  Wide state = 0, increment = 0;
  bool hasHalf = false;
  uint32_t half = 0;
};

} // namespace

std::vector<int32_t> defaultRngIntegers(uint32_t seed, int32_t low, int32_t high, int64_t count) {
  Pcg64 generator(seed);
  uint32_t range = static_cast<uint32_t>(high - low);
  uint32_t threshold = (0U - range) % range;
  std::vector<int32_t> values(count);
  for (int32_t &value : values) {
    uint64_t product;
    do
      product = uint64_t{generator.next32()} * range;
    while (static_cast<uint32_t>(product) < threshold);
    value = low + static_cast<int32_t>(product >> 32);
  }
  return values;
}

} // namespace espalier::rt
