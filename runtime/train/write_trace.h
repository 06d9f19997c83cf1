// Writes the measured step as a trace file with the same tracks as `espalier plan --trace`.
#pragma once

#include "runtime/checkpoint/agree.h"
#include "runtime/executor.h"
#include "runtime/trace.h"

#include <filesystem>
#include <string>

namespace espalier::rt {

/// Formats the events of a stage's first rank in Chrome's trace format, for chrome://tracing or Perfetto. A comma
/// precedes each event but the first. The process is the stage. Tracks: 0 "micro-batches" (F, B and W with micro-batch
/// and chunk, with nested calls), 1 "once per step", 2 "waits", and 3 + queue with the duration of each transfer. Times
/// are microseconds.
std::string traceEvents(const pb::Plan &plan, int stage, const std::vector<TraceEvent> &events);

/// Gathers the events of each stage's first rank and writes the file. Every rank calls this function. Throws DataError
/// on rank 0 if the file cannot be written.
void writeTrace(const Program &program, int rank, const TraceRecorder &recorder, Agreement &agreement,
                const std::filesystem::path &file);

} // namespace espalier::rt
