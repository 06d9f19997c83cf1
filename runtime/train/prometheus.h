// The state of a run for Prometheus, which fetches it over HTTP: `espalier run --prometheus HOST:PORT`.
#pragma once

#include "runtime/launch/control_channel.h"
#include "runtime/train/run_options.h"

#include <memory>
#include <string>

namespace espalier::rt {

/// The latest values and the counters of a run.
class RunGauges {
public:
  /// Sets the values that are known before the first step. `restarts` are those of an elastic run.
  void begin(int64_t plannedSteps, const std::vector<RestartRecord> &restarts);
  /// Takes the values of a record.
  void add(const StepRecord &record);
  void add(const EvaluationRecord &record);
  void add(const SaveRecord &record);
  void add(const RollbackRecord &record);
  void add(const SlowRecord &record);

  /// Returns the values in Prometheus' text format. Values of what has not happened yet are left out.
  std::string text() const;

private:
  int64_t plannedSteps = 0, trainedSteps = 0, skippedSteps = 0, saves = 0, rollbacks = 0;
  int64_t restarts = 0, growths = 0; ///< after failures; because lost ranks returned
  double labels = 0, blockedSeconds = 0;
  std::optional<StepRecord> step;
  ExpertLoads experts;                ///< the latest ones
  std::optional<double> largestScore; ///< of attention, the latest one
  std::optional<EvaluationRecord> evaluation;
  std::optional<SaveRecord> save;
  std::vector<std::pair<int, double>> slowRanks; ///< rank, and its compute time over the median
};

/// Parses a place of PrometheusEndpoint::open(). Throws PlanError if it is malformed, or if others than this machine
/// reach it and there is no file with a token.
launch::Endpoint prometheusPlace(const std::string &place, const std::string &tokenFile);

/// An HTTP server with one thread, which answers GET /metrics. Scrapes do not delay the run.
class PrometheusEndpoint {
public:
  PrometheusEndpoint();
  /// Stops the server.
  ~PrometheusEndpoint();

  /// Listens at `place`: HOST:PORT, or PORT for connections from this machine only. Port 0 takes a free one. Scrapes
  /// must send the token in the first line of `tokenFile`, unless its name is empty. Throws PlanError if
  /// prometheusPlace() does, if the place is taken, or if there is no token in the file.
  void open(const std::string &place, const std::string &tokenFile = "");
  /// Returns the URL, "http://127.0.0.1:9400/metrics"; empty before open().
  std::string url() const;
  /// Changes the values. Does nothing before open().
  template <typename Record> void add(const Record &record) {
    change([&](RunGauges &gauges) { gauges.add(record); });
  }
  /// Calls `work` with the values while no scrape reads them. Does nothing before open().
  void change(const std::function<void(RunGauges &)> &work);

private:
  struct Server;
  std::unique_ptr<Server> server; ///< null before open()
};

} // namespace espalier::rt
