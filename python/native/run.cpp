// espalier._native.run trains with all ranks as threads of this process.
#include "python/native/bindings.h"

#include "format/plan_file.h"
#include "runtime/program.h"
#include "runtime/run/run.h"
#include "runtime/run/summary.h"
#include "runtime/train/metrics.h"

#include <nanobind/stl/filesystem.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <atomic>
#include <csignal>
#include <fmt/format.h>

namespace nb = nanobind;

namespace espalier::python {
namespace {

/// Calls a Python function after each step with the step's metrics line. If the function, or the handler of a signal
/// such as Ctrl-C, raises an exception, all ranks end after the next step.
class StepListener {
public:
  explicit StepListener(nb::object callback) : callback(std::move(callback)) {}

  /// The thread of rank 0 calls this function. It is the thread that called run().
  void hear(const rt::StepRecord &record) {
    nb::gil_scoped_acquire lock;
    try {
      if (PyErr_CheckSignals() != 0)
        throw nb::python_error();
      if (!callback.is_none())
        callback(rt::metricsLine(record));
    } catch (nb::python_error &raised) {
      error.emplace(std::move(raised));
      stop = SIGINT;
    }
  }

  int stopSignal() const { return stop; }

  void rethrow() {
    if (error)
      throw std::move(*error);
  }

private:
  nb::object callback;
  std::optional<nb::python_error> error;
  std::atomic<int> stop = 0;
};

struct RunArguments {
  std::filesystem::path plan;
  std::vector<std::string> data;
  std::optional<int64_t> steps;
  std::string metrics, checkpoint, load;
  int64_t saveEvery, evalEvery;
  bool resume;
  int threads;
};

rt::RunOptions optionsOf(const RunArguments &arguments, const rt::pb::Plan &plan) {
  rt::RunOptions options;
  options.data.words = arguments.data;
  int64_t planned = plan.settings().learning_rate().total_steps();
  options.steps = arguments.steps.value_or(planned > 0 ? planned : 1);
  if (options.steps < 1)
    throw rt::PlanError(fmt::format("steps must be at least 1, got {}; leave steps out for the plan's", options.steps));
  options.metrics = arguments.metrics;
  options.checkpoint = arguments.checkpoint;
  options.load = arguments.load;
  options.saveEvery = arguments.saveEvery;
  options.evalEvery = arguments.evalEvery;
  options.resume = arguments.resume;
  options.threads = rt::threadsPerRank(arguments.threads, rt::Mesh(plan.mesh()).ranks());
  options.stallSeconds = 0; // a callback may take its time, and the process is the caller's
  return options;
}

/// Returns the metrics lines of the steps, then those of the evaluations.
nb::list run(const RunArguments &arguments, nb::object callback) {
  StepListener listener(std::move(callback));
  rt::RunResult result;
  {
    nb::gil_scoped_release unlocked;
    rt::pb::Plan plan = rt::readPlan(arguments.plan);
    if (rt::findEntry(plan, "prefill"))
      throw rt::PlanError(fmt::format("{}: the plan generates; compile one that trains with "
                                      "sets=[\"run_mode=train\"]",
                                      arguments.plan.string()));
    rt::RunOptions options = optionsOf(arguments, plan);
    options.onStep = [&](const rt::StepRecord &record) { listener.hear(record); };
    options.stopSignal = [&] { return listener.stopSignal(); };
    rt::Program program(std::move(plan), options.threads);
    result = rt::runPlan(program, options);
    if (!result.divergence.empty()) {
      rt::Failure failure;
      failure.message = rt::divergenceSentence(result, options, program.plan().settings());
      throw rt::RankFailure(failure);
    }
  }
  listener.rethrow();
  nb::list lines;
  for (const rt::StepRecord &record : result.steps)
    lines.append(rt::metricsLine(record));
  for (const rt::EvaluationRecord &record : result.evaluations)
    lines.append(rt::metricsLine(record));
  return lines;
}

} // namespace

void addRun(nb::module_ &module) {
  module.def(
      "run",
      [](const std::filesystem::path &plan, std::vector<std::string> data, std::optional<int64_t> steps,
         const std::string &metrics, const std::string &checkpoint, const std::string &load, int64_t saveEvery,
         int64_t evalEvery, bool resume, int threads, nb::object callback) {
        return run({plan, std::move(data), steps, metrics, checkpoint, load, saveEvery, evalEvery, resume, threads},
                   std::move(callback));
      },
      nb::arg("plan"), nb::arg("data"), nb::arg("steps").none(), nb::arg("metrics"), nb::arg("checkpoint"),
      nb::arg("load"), nb::arg("save_every"), nb::arg("eval_every"), nb::arg("resume"), nb::arg("threads"),
      nb::arg("callback").none());
}

} // namespace espalier::python
