// Writes the measured step as a trace file with the same tracks as `espalier plan --trace`.
#pragma once

#include "runtime/checkpoint/agree.h"
#include "runtime/executor.h"
#include "runtime/trace.h"

#include <filesystem>
#include <string>

namespace espalier::rt {

/// Formats the events of a stage's first rank in Chrome's trace format, for chrome://tracing or Perfetto. A comma
/// precedes each event but the first. The process is the stage. Tracks: 0 "micro-batches" ("forward mb 0", with nested
/// calls such as "layer 3 forward"), 1 "once per step", 2 "waits", and 3 + queue with the duration of each transfer
/// ("all-reduce in block forward (tp)"). `args` has the micro-batch; of an action, its letter and chunk as `plan
/// --trace` has them; of a transfer, its name in the plan, its bytes per rank and its place in the model file. Times
/// are microseconds.
std::string traceEvents(const pb::Plan &plan, int stage, const std::vector<TraceEvent> &events);

/// Gathers the events of each stage's first rank and writes the file. Every rank calls this function. Throws DataError
/// on rank 0 if the file cannot be written.
void writeTrace(const Program &program, int rank, const TraceRecorder &recorder, Agreement &agreement,
                const std::filesystem::path &file);

} // namespace espalier::rt
