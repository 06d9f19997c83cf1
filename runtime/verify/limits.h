// Upper limits of the numbers in a plan. They keep sums and products of a few numbers below 2^63 and bound the proof.
#pragma once

#include <cstdint>

namespace espalier::rt::verify {

constexpr uint64_t maxBytes = uint64_t(1) << 48;
constexpr uint64_t maxStride = uint64_t(1) << 44;  ///< limit of Place.stride
constexpr uint64_t maxCount = uint64_t(1) << 32;   ///< limit of counts in Settings
constexpr uint64_t maxSamples = uint64_t(1) << 50; ///< limit of BatchStep.samples
constexpr int64_t maxCoefficient = int64_t(1) << 40;
constexpr uint64_t maxRanks = 1 << 20;
constexpr uint32_t maxSlots = 1 << 16;
constexpr uint32_t maxMicroBatches = 1 << 20;
constexpr uint64_t maxActions = 1 << 25; ///< limit of the actions of all stages in an entry, with rounds expanded
constexpr int64_t maxSubprograms = 1 << 16;
constexpr int64_t maxTable = 1 << 20;
constexpr int64_t maxNames = 64;
constexpr int64_t maxOperands = 64;
constexpr int64_t maxScalars = 32;
constexpr int64_t maxFactors = 8;     ///< limit of the factors of Operand.reach
constexpr uint32_t maxThreads = 1024; ///< limit of the threads of a GPU block
constexpr int maxOpen = 64;           ///< limit of the in-flight transfers of a queue

} // namespace espalier::rt::verify
