// The output of a run: a log line per step, JSON lines, a progress bar on a terminal, and values for TensorBoard and
// Prometheus.
#pragma once

#include "runtime/train/event_file.h"
#include "runtime/train/line_file.h"
#include "runtime/train/log_line.h"
#include "runtime/train/prometheus.h"
#include "runtime/train/run_options.h"

#include <chrono>
#include <filesystem>
#include <string>

namespace espalier::rt {

/// Formats a line of --metrics: a JSON object without line breaks.
std::string metricsLine(const StepRecord &record);
/// Formats the line of an evaluation.
std::string metricsLine(const EvaluationRecord &record);
/// Formats the line of a checkpoint.
std::string metricsLine(const SaveRecord &record);

/// Formats the line of a rollback.
std::string metricsLine(const RollbackRecord &record);

/// Formats the line of a restart after which the run continues from `step`, `seconds` after the ranks before had ended.
std::string metricsLine(const RestartRecord &record, int64_t step, double seconds);

/// Formats a log line about a checkpoint of the folder: its size, for how long training waited, and the speed of both.
std::string logLine(const SaveRecord &record, const std::filesystem::path &folder);

/// Formats a log line about a checkpoint that was loaded: the bytes of its state, and how fast they were read.
std::string loadedLine(const std::filesystem::path &checkpoint, uint64_t bytes, double seconds);

/// Formats the line of slow ranks.
std::string metricsLine(const SlowRecord &record);

/// Writes the records of rank 0.
class Metrics {
public:
  /// Opens `options.metrics`, for appending if the run resumes, else to be replaced, and a new event file of
  /// `options.tensorboard`. Listens at `options.prometheus`. Throws PlanError if a file cannot be opened or the place
  /// is taken.
  explicit Metrics(const RunOptions &options);

  /// Removes the lines of steps after `step`, because a resumed run trains these steps again. Call it before the first
  /// add.
  void continueAfter(int64_t step);

  /// Appends the restarts of an elastic run to the metrics file. A file that is continued already has the lines of all
  /// restarts before the last one. The run continues from `step`.
  void addRestarts(int64_t step);

  /// Logs a step if one is due (RunOptions::logEvery), and appends the record to the metrics file. A terminal shows
  /// every step in one line that is overwritten.
  void add(const StepRecord &record);
  /// Logs an evaluation, and appends the record to the metrics file.
  void add(const EvaluationRecord &record);
  /// Logs a checkpoint that is on disk, and appends the record to the metrics file.
  void add(const SaveRecord &record);
  /// Logs a rollback, and appends the record to the metrics file. The lines of the repeated steps stay.
  void add(const RollbackRecord &record);
  /// Appends slow ranks to the metrics file.
  void add(const SlowRecord &record);
  /// Prints a line between the lines of the steps.
  void say(const std::string &line);
  /// Prints the last line, below the progress bar.
  void close(const std::string &line);

  /// Returns why lines of the file are missing, or an empty string.
  const std::string &fault() const { return file.fault(); }

private:
  void show(const std::string &line);
  /// Returns the seconds until the last step, from the wall time of the latest steps. The first step is not
  /// representative.
  double secondsLeft(const StepRecord &record);
  /// Returns whether a line of this step is logged.
  bool isDue(int64_t step);
  void print(const std::string &text);
  /// Returns the progress line for the present width of the terminal, so that a change of the width needs no signal.
  std::string progress() const;

  const RunOptions &options;
  LineFile file;
  EventFile events; ///< for TensorBoard
  PrometheusEndpoint endpoint;
  const bool isTerminal;
  bool isSilent = false; ///< the reader of the standard output has gone
  /// The step of the progress line below the log of a terminal, and its secondsLeft. The cursor is behind the line.
  std::optional<std::pair<StepRecord, double>> shown;
  std::chrono::steady_clock::time_point lastStep;
  double meanSeconds = 0; ///< of a step with its evaluations and checkpoints, weighted towards the latest ones
  bool hasSteps = false;
};

} // namespace espalier::rt
