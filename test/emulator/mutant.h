// A back end that is wrong on purpose, for tests of the emulator's own checks: ESPALIER_EMULATOR_MUTANT=KIND:N changes
// the N-th call, from 1, that the kind is about. No product code knows of it.
#pragma once
#include <cstdint>
#include <string_view>

namespace espalier::emulator {

/// Kinds: drop_wait: a stream of device 0 does not wait for an event; swap_queues: work is put into another stream of
/// device 0; short_share: a rank's part of a collective lacks its last element.
/// Counts a call; whether it is the one.
__attribute__((visibility("default"))) bool isMutant(std::string_view kind);
/// Calls counted so far in this process.
__attribute__((visibility("default"))) uint64_t mutantCalls(std::string_view kind);

} // namespace espalier::emulator
