#include "runtime/train/write_trace.h"

#include "runtime/files/atomic_file.h"

#include <fmt/format.h>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>

namespace espalier::rt {
namespace {

enum Track { microBatchTrack = 0, stepTrack = 1, waitTrack = 2, firstQueueTrack = 3 };

/// Returns the conventional letter for a subprogram of a micro-batch.
const char *letterOf(const std::string &role) {
  static const std::map<std::string, const char *> letters = {{"forward", "F"}, {"backward", "B"}, {"weight", "W"}};
  auto letter = letters.find(role);
  return letter == letters.end() ? nullptr : letter->second;
}

class StageTrace {
public:
  StageTrace(const pb::Plan &plan, int stage) : plan(plan), stage(plan.stages(stage)), number(stage) {}

  std::string write(const std::vector<TraceEvent> &events);

private:
  void name(const char *what, const std::string &as, int track);
  void add(const TraceEvent &event);
  void slice(int track, const std::string &name, const TraceEvent &event);
  /// Returns the index of the chunk that contains a call.
  int chunkOf(uint32_t call) const;
  void comma() { text += text.empty() ? "\n" : ",\n"; }

  const pb::Plan &plan;
  const pb::Stage &stage;
  const int number;
  std::string text;
};

std::string StageTrace::write(const std::vector<TraceEvent> &events) {
  name("process_name", fmt::format("stage {}", number), 0);
  name("thread_name", "micro-batches", microBatchTrack);
  name("thread_name", "once per step", stepTrack);
  name("thread_name", "waits", waitTrack);
  for (int queue = 1; queue < plan.queues_size(); ++queue)
    name("thread_name", plan.queues(queue).name(), firstQueueTrack + queue);
  for (const TraceEvent &event : events)
    add(event);
  return std::move(text);
}

void StageTrace::name(const char *what, const std::string &as, int track) {
  comma();
  fmt::format_to(std::back_inserter(text), R"({{"ph":"M","pid":{},"tid":{},"name":"{}","args":{{"name":{}}}}})", number,
                 track, what, nlohmann::json(as).dump());
}

int StageTrace::chunkOf(uint32_t call) const {
  for (int i = 0; i < stage.chunks_size(); ++i)
    if (call - stage.chunks(i).first_call() < stage.chunks(i).calls()) // unsigned: false for calls before the first
      return i;
  return 0;
}

void StageTrace::add(const TraceEvent &event) {
  const std::string &callName = stage.calls(static_cast<int>(event.call)).name();
  if (event.kind == TraceEvent::Flight || event.kind == TraceEvent::Wait) {
    const pb::Transfer &transfer = plan.transfers(static_cast<int>(event.subject));
    int track = event.kind == TraceEvent::Wait ? waitTrack : firstQueueTrack + static_cast<int>(transfer.queue());
    return slice(track, fmt::format("{}/{}", transfer.name(), event.microBatch), event);
  }
  const std::string &role = plan.roles(static_cast<int>(event.subject));
  const char *letter = letterOf(role);
  int track = letter ? microBatchTrack : stepTrack;
  if (event.kind == TraceEvent::Call)
    return slice(track, callName, event);
  slice(track, letter ? fmt::format("{}{}.{}", letter, event.microBatch, chunkOf(event.call)) : role, event);
}

void StageTrace::slice(int track, const std::string &name, const TraceEvent &event) {
  comma();
  double begin = static_cast<double>(event.begin) / 1e3, end = static_cast<double>(event.end) / 1e3;
  fmt::format_to(std::back_inserter(text),
                 R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{:.3f},"dur":{:.3f},"args":{{"micro_batch":{}}}}})",
                 number, track, nlohmann::json(name).dump(), begin, end - begin, event.microBatch);
}

} // namespace

std::string traceEvents(const pb::Plan &plan, int stage, const std::vector<TraceEvent> &events) {
  return StageTrace(plan, stage).write(events);
}

void writeTrace(const Program &program, int rank, const TraceRecorder &recorder, Agreement &agreement,
                const std::filesystem::path &file) {
  const Mesh &mesh = program.mesh();
  int stage = mesh.stage(rank);
  bool isFirstOfStage = rank == 0 || mesh.stage(rank - 1) != stage; // pp is the outermost axis
  std::string mine = isFirstOfStage ? traceEvents(program.plan(), stage, recorder.events()) : "";
  std::vector<std::string> texts;
  // Messages have a bounded length, so a long text takes several rounds.
  for (size_t sent = 0;;) {
    std::string part = mine.substr(std::min(sent, mine.size()), Agreement::wordBytes - 1);
    sent += part.size();
    std::vector<std::string> parts = agreement.tell(part);
    texts.resize(parts.size());
    bool isEnd = true;
    for (size_t i = 0; i < parts.size(); ++i) {
      texts[i] += parts[i];
      isEnd = isEnd && parts[i].empty();
    }
    if (isEnd)
      break;
  }
  if (!agreement.isLeader())
    return;
  std::string all = R"({"displayTimeUnit":"ms","traceEvents":[)";
  const char *separator = "";
  for (const std::string &text : texts) {
    if (text.empty())
      continue;
    all += separator + text;
    separator = ",";
  }
  writeWhole(file, all + "\n]}\n");
}

} // namespace espalier::rt
