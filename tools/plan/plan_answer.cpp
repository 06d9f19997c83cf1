#include "tools/plan/plan_answer.h"

#include "compiler/choose/fit_memory.h"
#include "compiler/choose/print_plan.h"
#include "compiler/choose/report_plan.h"
#include "compiler/export/export_plan.h"
#include "compiler/import/megatron/edit_script.h"
#include "compiler/import/megatron/hybrid_pattern.h"
#include "messages/error_line.h"
#include "planner/answer/explain.h"
#include "planner/answer/trace.h"
#include "tools/command_line/exit_code.h"
#include "tools/plan/write_whole.h"

#include <fmt/format.h>

#include <cstdio>
#include <fstream>

namespace espalier {

/// Formats the rate of matrix products in a narrower format, as a line. Returns an empty text for the compute dtype.
static std::string formatLine(const planner::Problem &problem) {
  const planner::MatmulFormat &format = problem.matmulFormat;
  if (format.name.empty())
    return "";
  const planner::Machine &machine = problem.machine;
  double rate = machine.peakFlops * machine.matmulEfficiency / 1e12;
  return planner::wrapped(
      fmt::format("matrix products are in {} at {:.0f} TFLOP/s per device, {:.3g} times the {:.0f} of "
                  "the compute dtype; Espalier has no kernels for them, so these plans do not run here",
                  format.name, rate, format.gain, rate / format.gain),
      2);
}

int printAnswer(const PlanArguments &arguments, const Solved &solved, const std::string &howToUse,
                const std::optional<planner::WhatIf> &comparison) {
  planner::SearchResult result = solved.result;
  size_t shown = 1 + static_cast<size_t>(planner::SearchOptions().alternatives); // a report has more of them
  if (result.plans.size() > shown + 1)
    result.plans.erase(result.plans.begin() + static_cast<std::ptrdiff_t>(shown), result.plans.end());
  for (const std::string &error : result.errors)
    printError(arguments.file, error);
  if (arguments.json)
    fmt::print("{}\n", planJson(solved.run, solved.problem, result, solved.first, comparison ? &*comparison : nullptr));
  else if (result.errors.empty())
    fmt::print("{}{}{}{}", planner::headline(solved.problem), formatLine(solved.problem),
               planner::explainPlans(result, solved.first, howToUse),
               comparison ? planner::printWhatIf(*comparison) : "");
  if (!result.errors.empty())
    return UserError;
  if (result.plans.empty())
    return DoesNotFit;
  const planner::Prediction &first = result.plans.front().prediction;
  constexpr double doubtful = 0.05;
  if (first.mfu < doubtful && solved.run.cluster.device != "cpu")
    fmt::print(stderr, "{}: warning: the plan uses {:.1f} % of the peak; {}\n", arguments.file, 100 * first.mfu,
               planner::whatBinds(first));
  if (first.fits())
    return Success;
  bool onHost = first.peakBytes <= first.memoryLimitBytes;
  fmt::print(stderr,
             "{}: error: the pinned plan needs {} {}per rank, have {}{}; parallel.parallel_mode=2 leaves "
             "the choice to the planner\n",
             arguments.file, planner::describeBytes(onHost ? first.hostPeakBytes : first.peakBytes),
             onHost ? "of host memory " : "",
             planner::describeBytes(onHost ? first.hostLimitBytes : first.memoryLimitBytes),
             onHost ? "" : fitWithoutMargin(solved.run.cluster, first.peakBytes));
  return DoesNotFit;
}

bool writeReport(const PlanArguments &arguments, const Solved &solved, const planner::WhyNot *whyNot) {
  if (arguments.report.empty())
    return true;
  PlanReport report{solved.run, solved.problem, solved.result, solved.first, whyNot};
  return writeWhole(arguments.report, planReport(report), "the report");
}

/// Prints the script of --diff with the flags of a plan.
static bool printScript(const PlanArguments &arguments, const std::string &exported) {
  std::ifstream stream(arguments.diff, std::ios::binary);
  std::string script(mostScriptBytes + 1, '\0');
  stream.read(script.data(), static_cast<std::streamsize>(script.size()));
  if (!stream.is_open() || stream.bad() || static_cast<size_t>(stream.gcount()) > mostScriptBytes) {
    printError(arguments.diff, "cannot read the script, or it is larger than 1 MiB");
    return false;
  }
  script.resize(static_cast<size_t>(stream.gcount()));
  EditedScript edited = editScript(arguments.diff, script, {}, exported);
  fmt::print("{}", edited.text);
  for (const std::string &flag : edited.unplaced)
    fmt::print(stderr, "{}: warning: the script computes a flag; change it by hand: {}\n", arguments.diff, flag);
  return true;
}

bool writeExtras(const PlanArguments &arguments, const Solved &solved) {
  const planner::Problem &problem = solved.problem;
  const planner::PricedPlan *answer = planner::answerOf(solved.result, solved.first);
  const planner::Plan &plan = arguments.diff.empty() || !answer ? solved.result.plans.front().plan : answer->plan;
  if (!arguments.trace.empty() && !writeWhole(arguments.trace, planner::traceJson(problem, plan), "the trace"))
    return false;
  if (arguments.exportTo.empty())
    return true;
  ExportedPlan exported = arguments.exportTo == "megatron"
                              ? exportMegatron(problem, plan, hybridParts(solved.run.model))
                          : arguments.exportTo == "mindformers" ? exportMindFormers(problem, plan)
                                                                : exportTorchtitan(problem, plan);
  if (arguments.diff.empty())
    fmt::print("{}", exported.text);
  else if (!printScript(arguments, exported.text))
    return false;
  for (const std::string &left : exported.notExpressed)
    fmt::print(stderr, "{}: not expressed in {}: {}\n", arguments.file, arguments.exportTo, left);
  return true;
}

} // namespace espalier
