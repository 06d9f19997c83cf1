// espalier_run: trains with all ranks as threads of this process.
#include "c_interface/guard.h"

#include "runtime/plan_signature.h"
#include "runtime/program.h"
#include "runtime/run/run.h"
#include "runtime/run/summary.h"
#include "runtime/status.h"
#include "runtime/train/metrics.h"

#include <atomic>
#include <csignal>
#include <fmt/format.h>

namespace espalier::c_interface {
namespace {

std::string textOf(const char *text) { return text ? text : ""; }

rt::RunOptions optionsOf(const espalier_run_options &given, const rt::pb::Plan &plan) {
  rt::RunOptions options;
  options.data.words.assign(given.data, given.data + given.data_count);
  int64_t planned = plan.settings().learning_rate().total_steps();
  options.steps = given.steps ? given.steps : planned > 0 ? planned : 1;
  if (options.steps < 1)
    throw rt::PlanError(fmt::format("steps must be at least 1, got {}; leave steps out for the plan's", options.steps));
  options.metrics = textOf(given.metrics);
  options.checkpoint = textOf(given.checkpoint);
  options.load = textOf(given.load);
  options.saveEvery = given.save_every;
  options.evalEvery = given.eval_every;
  options.resume = given.resume != 0;
  options.threads = rt::threadsPerRank(given.threads, rt::Mesh(plan.mesh()).ranks());
  options.stallSeconds = 0; // a callback may take its time, and the process is the caller's
  return options;
}

void run(const espalier_run_options &given) {
  std::string file = textOf(given.plan);
  auto [plan, note] = rt::readSignedPlan(file, given.require_signed != 0);
  if (!note.empty())
    fmt::print(stderr, "espalier: note: {}\n", note);
  if (rt::findEntry(plan, "prefill"))
    throw rt::PlanError(
        fmt::format("{}: the plan generates; compile one that trains with sets=[\"run_mode=train\"]", file));
  rt::RunOptions options = optionsOf(given, plan);
  std::atomic<int> stop = 0;
  auto tell = [&](const auto &record) {
    if (given.on_metrics && given.on_metrics(given.context, rt::metricsLine(record).c_str()) != 0)
      stop = SIGINT;
  };
  options.onStep = tell; // by rank 0, which is the calling thread
  options.stopSignal = [&] { return stop.load(); };
  rt::Program program(std::move(plan), options.threads);
  rt::RunResult result = rt::runPlan(program, options);
  for (const rt::EvaluationRecord &record : result.evaluations)
    tell(record);
  if (!result.divergence.empty()) {
    rt::Failure failure;
    failure.message = rt::divergenceSentence(result, options, program.plan().settings());
    throw rt::RankFailure(failure);
  }
}

} // namespace
} // namespace espalier::c_interface

espalier_status espalier_run(const espalier_run_options *options) {
  return espalier::c_interface::guarded([&] { espalier::c_interface::run(*options); });
}
