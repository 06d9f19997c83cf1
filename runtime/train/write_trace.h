// The measured step as a file, in the tracks of the one that `espalier plan --trace` simulates.
#pragma once

#include "runtime/checkpoint/agree.h"
#include "runtime/executor.h"
#include "runtime/trace.h"

#include <filesystem>
#include <string>

namespace espalier::rt {

/// What the first rank of a stage did, as events in Chrome's format (a text for chrome://tracing or Perfetto), with a
/// comma before each but the first. The process is the stage; tracks are 0 "micro-batches" (F, B and W with micro-batch
/// and chunk, in them the calls), 1 "once per step", 2 "waits", and 3 + queue, where a transfer lasts from its start to
/// its end. Times are microseconds.
std::string traceEvents(const pb::Plan &plan, int stage, const std::vector<TraceEvent> &events);

/// Gathers the events of each stage's first rank and writes the file: to be called by every rank. Throws DataError
/// where it cannot be written, on rank 0.
void writeTrace(const Program &program, int rank, const TraceRecorder &recorder, Agreement &agreement,
                const std::filesystem::path &file);

} // namespace espalier::rt
