#include "planner/answer/trace.h"

#include "planner/answer/format.h"
#include "planner/model/layout.h"

#include <cmath>

namespace espalier::planner {

namespace {

// Formats one slice of the trace. Both ends are rounded to nanoseconds, because viewers drop slices that overlap.
std::string slice(int stage, int track, const std::string &name, double startSeconds, double endSeconds) {
  auto start = std::llround(1e9 * startSeconds), duration = std::llround(1e9 * endSeconds) - start;
  return format(",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\",\"ts\":%lld.%03lld,\"dur\":%lld.%03lld}", stage,
                track, name.c_str(), start / 1000, start % 1000, duration / 1000, duration % 1000);
}

std::string names(int stage) {
  std::string text =
      format("\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"stage %d\"}}", stage, stage);
  for (const auto &[track, stream] : {std::pair(0, "micro-batches"), std::pair(1, "once per step")})
    text += format(",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}", stage,
                   track, stream);
  return text;
}

std::string nameOf(const Action &action) {
  return format("%c%d.%d", "FBW"[static_cast<int>(action.kind)], action.microBatch, action.chunk);
}

} // namespace

std::string traceJson(const Problem &problem, const Plan &given) {
  Plan plan = pricePlan(problem, given).plan; // with stages filled in
  Layout layout = layOut(problem, plan);
  Played played = play(layout.schedule, layout.seconds, /*wantTrace=*/true);
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (int stage = 0; stage < plan.pp; ++stage) {
    text += (stage > 0 ? "," : "") + names(stage);
    for (const PlayedAction &action : played.trace[stage])
      text += slice(stage, 0, nameOf(action.action), action.startSeconds, action.endSeconds);
    double end = played.endSeconds[stage];
    text += slice(stage, 1, "step", end, end + layout.step[stage].total());
  }
  return text + "\n]}\n";
}

} // namespace espalier::planner
