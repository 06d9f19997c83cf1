// What a run tells people and programs: a line per step, JSON lines, a progress bar on a terminal.
#pragma once

#include "runtime/train/line_file.h"
#include "runtime/train/run.h"

#include <filesystem>
#include <string>

namespace espalier::rt {

/// One readable line: loss, gradient norm, learning rate, milliseconds, tokens per second, MFU.
std::string logLine(const StepRecord &record, int64_t steps);

/// A line of --metrics: a JSON object without line break.
std::string metricsLine(const StepRecord &record);
std::string metricsLine(const EvaluationRecord &record);

/// Writes the records of rank 0.
class Metrics {
public:
  /// Appends to `options.metrics` when the run resumes, else starts it anew. Throws PlanError if it
  /// cannot be opened.
  explicit Metrics(const RunOptions &options);

  /// Removes what the file holds of steps after `step`, because a resumed run trains them again. Called before the
  /// first add.
  void continueAfter(int64_t step);

  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);
  /// A line between those of the steps; `step` is the last one that was trained.
  void say(const std::string &line, int64_t step);
  /// The last line, below the progress bar.
  void close(const std::string &line);

  /// Why lines of the file are missing, empty where none is.
  const std::string &fault() const { return file.fault(); }

private:
  void show(const std::string &line, int64_t step);
  void print(const std::string &text);

  const RunOptions &options;
  LineFile file;
  const bool isTerminal;
  bool isSilent = false; ///< nobody reads the standard output any more
  bool hasBar = false;   ///< the cursor stands behind a progress bar
};

} // namespace espalier::rt
