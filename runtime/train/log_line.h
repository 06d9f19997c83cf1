// The text of a step in the log and in the progress line of a terminal.
#pragma once

#include "runtime/train/run_options.h"

#include <string>

namespace espalier::rt {

/// Formats a log line: loss, gradient norm, learning rate, milliseconds, tokens per second, MFU, and the time until the
/// last step if `secondsLeft` is positive.
std::string logLine(const StepRecord &record, int64_t steps, double secondsLeft = 0);

/// Formats the line of a terminal that is overwritten by each step: a bar and the parts of the log line, in at most
/// `columns` columns. Leaves out the least important parts that have no room.
std::string progressLine(const StepRecord &record, int64_t steps, double secondsLeft, int columns);

/// Formats a duration with two units at most: "42 s", "3 min 20 s", "2 h 5 min", "3 d 4 h".
std::string durationText(double seconds);

/// Replaces "-nan" by "nan", because the sign of a NaN depends on the hardware.
double unsignedNaN(double number);

} // namespace espalier::rt
