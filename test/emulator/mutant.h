// Deliberate errors for tests of the emulator's checks. ESPALIER_EMULATOR_MUTANT=KIND:N changes the N-th call, from 1,
// of a kind. Product code does not use it.
#pragma once
#include <cstdint>
#include <string_view>

namespace espalier::emulator {

/// Counts a call and returns whether it is the one to change. Kinds: drop_wait: a stream of device 0 does not wait for
/// an event; swap_queues: work is enqueued on another stream of device 0; short_share: a rank's part of a collective
/// lacks its last element.
__attribute__((visibility("default"))) bool isMutant(std::string_view kind);
/// Returns the number of calls counted in this process.
__attribute__((visibility("default"))) uint64_t mutantCalls(std::string_view kind);

} // namespace espalier::emulator
