// The interface between compiled code and the runtime, besides plan.proto: the kernel signature, the slots of the
// scalars region and the counter-based random generator. Plain C++, included by compiler and runtime.
#pragma once

#include <array>
#include <cstdint>

namespace espalier::rt {

/// A generated kernel. `buffers` are absolute addresses in the order of the launch. `scalars` are the launch's run-time
/// integers. [begin, end) is a part of the iteration space (rows, column blocks or elements). Threads of a rank call
/// the kernel with disjoint parts.
using KernelFunction = void (*)(void *const *buffers, const int64_t *scalars, int64_t begin, int64_t end);

// A generated GPU kernel is a PTX `.visible .entry SYMBOL` with 8-byte parameters: a global address per buffer of the
// launch, its scalars, then the extent. Blocks are (threads, 1, 1). They process iterations [x * extent_per_block, ...)
// of the extent and columns [y * columns_per_block, ...); see Geometry in plan.proto. The arena is aligned to at least
// 256 bytes, so the alignment of an offset is the alignment of its address.

/// Slots of the scalars region, each one f32 except Step. Kernels read them from memory, so the host does not branch
/// within a step and every step issues the same device operations.
enum ScalarSlot : uint32_t {
  LossSum = 0,     ///< sum over tokens of weight * cross entropy, accumulated over micro-batches
  TokenCount = 1,  ///< sum of the loss weights
  SquaredNorm = 2, ///< sum of squares of the (scaled, summed) gradients, each parameter counted once
  LossScale = 3,   ///< multiplies the loss before the backward pass; 1 unless f16
  LearningRate = 4,
  GradientScale = 5,   ///< clip factor / (TokenCount * LossScale), by which the optimizer multiplies gradients
  BiasCorrection1 = 6, ///< 1 / (1 - beta1^t)
  BiasCorrection2 = 7, ///< 1 / (1 - beta2^t)
  Apply = 8,           ///< 1 to apply the update, 0 to skip the step (overflow)
  Step = 9,            ///< optimizer steps begun, a 32-bit integer; input of randomBits()
  StopRequests = 10,   ///< requests of the ranks to stop or to wait for a save (train/rank_requests.h); all-reduced
                       ///< like the sums, so that all ranks act together
  NormLimit = 11,      ///< a step with a larger gradient norm is skipped
  GroupRate = 12,      ///< learning rates of groups of parameters, in slots 12 to 15
  ScalarSlotCount = 16,
};

/// The most groups of parameters with their own learning rate.
inline constexpr int mostRateGroups = ScalarSlotCount - GroupRate;

/// The scalars region, indexed by slot.
using Scalars = std::array<float, ScalarSlotCount>;

/// Returns counter-based random bits: Philox-2x32 with 7 rounds (Salmon et al., "Parallel random numbers: as easy as 1,
/// 2, 3", SC 2011). Dropout in op `stream` keeps an element if randomBits(seed, step, stream, sample, element) >= rate
/// * 2^32. `stream` = (layer << 8 | op id). `sample` is the index in the *global* batch. `element` is the index within
/// this sample in the unsplit tensor. So the mask is the same under every plan.
inline uint32_t randomBits(uint32_t seed, uint32_t step, uint32_t stream, uint32_t sample, uint64_t element) {
  uint32_t key = seed * 0x9E3779B9u + step * 0x85EBCA6Bu + stream * 0xC2B2AE35u;
  uint32_t counter0 = static_cast<uint32_t>(element);
  uint32_t counter1 = static_cast<uint32_t>(element >> 32) ^ (sample * 0x27D4EB2Fu);
  for (int round = 0; round < 7; ++round) {
    uint64_t product = static_cast<uint64_t>(counter0) * 0xD256D193u;
    counter0 = static_cast<uint32_t>(product >> 32) ^ key ^ counter1;
    counter1 = static_cast<uint32_t>(product);
    key += 0x9E3779B9u;
  }
  return counter0;
}

/// Returns the threshold for randomBits(): an element survives dropout of `rate` if bits >= threshold, and is then
/// multiplied by 1 / (1 - rate).
inline uint32_t dropoutThreshold(double rate) { return static_cast<uint32_t>(rate * 4294967296.0); }

} // namespace espalier::rt
