#include "planner/answer/trace.h"

#include "planner/model/layout.h"

#include <cmath>
#include <fmt/format.h>

namespace espalier::planner {

namespace {

// Formats one slice of the trace. Both ends are rounded to nanoseconds, because viewers drop slices that overlap.
std::string slice(int stage, int track, const std::string &name, double startSeconds, double endSeconds,
                  const std::string &arguments) {
  auto start = std::llround(1e9 * startSeconds), duration = std::llround(1e9 * endSeconds) - start;
  return fmt::format(R"(,
{{"ph":"X","pid":{},"tid":{},"name":"{}","ts":{}.{:03},"dur":{}.{:03},"args":{{{}}}}})",
                     stage, track, name, start / 1000, start % 1000, duration / 1000, duration % 1000, arguments);
}

std::string names(int stage) {
  std::string text = fmt::format(R"(
{{"ph":"M","pid":{0},"name":"process_name","args":{{"name":"stage {0}"}}}})",
                                 stage);
  for (const auto &[track, stream] : {std::pair(0, "micro-batches"), std::pair(1, "once per step")})
    text += fmt::format(R"(,
{{"ph":"M","pid":{},"tid":{},"name":"thread_name","args":{{"name":"{}"}}}})",
                        stage, track, stream);
  return text;
}

// Formats an action's name: "forward mb 0", and ", chunk 1" if stages have several chunks.
std::string nameOf(const Action &action, bool hasChunks) {
  constexpr const char *names[] = {"forward", "backward", "weight gradient"};
  std::string text = fmt::format("{} mb {}", names[static_cast<int>(action.kind)], action.microBatch);
  return hasChunks ? fmt::format("{}, chunk {}", text, action.chunk) : text;
}

std::string argumentsOf(const Action &action) {
  return fmt::format(R"("action":"{}","micro_batch":{},"chunk":{})", "FBW"[static_cast<int>(action.kind)],
                     action.microBatch, action.chunk);
}

} // namespace

std::string traceJson(const Problem &problem, const Plan &given) {
  Plan plan = pricePlan(problem, given).plan; // with stages filled in
  Layout layout = layOut(problem, plan);
  Played played = play(layout.schedule, layout.seconds, /*wantTrace=*/true);
  bool hasChunks = chunksOf(plan.schedule, plan.virtualStages) > 1;
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  for (int stage = 0; stage < plan.pp; ++stage) {
    text += (stage > 0 ? "," : "") + names(stage);
    for (const PlayedAction &action : played.trace[stage])
      text += slice(stage, 0, nameOf(action.action, hasChunks), action.startSeconds, action.endSeconds,
                    argumentsOf(action.action));
    double end = played.endSeconds[stage];
    text += slice(stage, 1, "gradient sums and optimizer", end, end + layout.step[stage].total(), "");
  }
  return text + "\n]}\n";
}

} // namespace espalier::planner
