// The output of a run: a log line per step, JSON lines, and a progress bar on a terminal.
#pragma once

#include "runtime/train/line_file.h"
#include "runtime/train/run_options.h"

#include <filesystem>
#include <string>

namespace espalier::rt {

/// Formats a log line: loss, gradient norm, learning rate, milliseconds, tokens per second, MFU.
std::string logLine(const StepRecord &record, int64_t steps);

/// Formats a line of --metrics: a JSON object without line breaks.
std::string metricsLine(const StepRecord &record);
/// Formats the line of an evaluation.
std::string metricsLine(const EvaluationRecord &record);

/// Writes the records of rank 0.
class Metrics {
public:
  /// Opens `options.metrics`, for appending if the run resumes, else empty. Throws PlanError if the file cannot be
  /// opened.
  explicit Metrics(const RunOptions &options);

  /// Removes the lines of steps after `step`, because a resumed run trains these steps again. Call it before the first
  /// add.
  void continueAfter(int64_t step);

  /// Logs a step, and appends the record to the metrics file.
  void add(const StepRecord &record);
  /// Logs an evaluation, and appends the record to the metrics file.
  void add(const EvaluationRecord &record);
  /// Prints a line between the lines of the steps. `step` is the last step that was trained.
  void say(const std::string &line, int64_t step);
  /// Prints the last line, below the progress bar.
  void close(const std::string &line);

  /// Returns why lines of the file are missing, or an empty string.
  const std::string &fault() const { return file.fault(); }

private:
  void show(const std::string &line, int64_t step);
  void print(const std::string &text);

  const RunOptions &options;
  LineFile file;
  const bool isTerminal;
  bool isSilent = false; ///< the reader of the standard output has gone
  bool hasBar = false;   ///< the cursor is behind a progress bar
};

} // namespace espalier::rt
