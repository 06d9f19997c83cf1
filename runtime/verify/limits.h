// How large a plan's numbers may be: so that sums and products of a few of them stay below 63 bits, and the proof ends.
#pragma once

#include <cstdint>

namespace espalier::rt::verify {

constexpr uint64_t maxBytes = uint64_t(1) << 48;
constexpr uint64_t maxStride = uint64_t(1) << 44; ///< of a place
constexpr uint64_t maxCount = uint64_t(1) << 32;  ///< of settings
constexpr int64_t maxCoefficient = int64_t(1) << 40;
constexpr uint64_t maxRanks = 1 << 20;
constexpr uint32_t maxSlots = 1 << 16;
constexpr uint32_t maxMicroBatches = 1 << 20;
constexpr uint64_t maxActions = 1 << 25; ///< of all stages of an entry, rounds multiplied out
constexpr int64_t maxSubprograms = 1 << 16;
constexpr int64_t maxTable = 1 << 20;
constexpr int64_t maxNames = 64;
constexpr int64_t maxOperands = 64;
constexpr int64_t maxScalars = 32;
constexpr int64_t maxFactors = 8;     ///< of what a kernel reaches
constexpr uint32_t maxThreads = 1024; ///< of a block of a GPU
constexpr int maxOpen = 64;           ///< flights on a queue

} // namespace espalier::rt::verify
