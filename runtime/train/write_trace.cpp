#include "runtime/train/write_trace.h"

#include "format/mesh.h"
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

/// Formats a call's name for people: "layer 3", or "embed" for a call that is not one of several.
std::string callText(const std::string &name) {
  size_t dot = name.rfind('.');
  bool isNumbered = dot != std::string::npos && name.find_first_not_of("0123456789", dot + 1) == std::string::npos;
  return isNumbered ? "layer " + name.substr(dot + 1) : name;
}

/// Formats a role that runs once per step.
std::string stepText(const std::string &role) {
  static const std::map<std::string, std::string> texts = {{"norm", "gradient norm"}, {"update", "optimizer update"}};
  auto text = texts.find(role);
  return text == texts.end() ? role : text->second;
}

/// Formats mesh axes: "tp", "dp x cp".
std::string axesText(uint32_t axes) {
  std::string text;
  for (auto [axis, name] : {std::pair(PP, "pp"), std::pair(DP_REPLICATE, replicateAxis), std::pair(DP, "dp"),
                            std::pair(CP, "cp"), std::pair(EP, "ep"), std::pair(TP, "tp")})
    if (axes & axis)
      text += (text.empty() ? "" : " x ") + std::string(name);
  return text;
}

/// Formats what a collective moves. A bucket's transfers end with their purpose ("block.decayed.scatter"), and a
/// subprogram's with a number ("block.none.forward.0").
std::string payloadText(const std::string &name) {
  size_t dot = name.rfind('.');
  if (dot == std::string::npos)
    return name == "agree" ? "of loss and gradient norm" : name;
  std::string subject = name.substr(0, dot), purpose = name.substr(dot + 1);
  if (purpose.find_first_not_of("0123456789") != std::string::npos)
    return (purpose == "gather" ? "of parameters " : "of gradients ") + subject;
  size_t end = subject.find('.'), begin = subject.rfind('.');
  return end == std::string::npos ? "in " + subject
                                  : fmt::format("in {} {}", subject.substr(0, end), subject.substr(begin + 1));
}

/// Formats a transfer: "all-reduce in block forward (tp)", "send activations".
std::string transferText(const pb::Plan &plan, const pb::Transfer &transfer) {
  static const std::map<std::string, const char *> lines = {{"out", "send activations"},
                                                            {"in", "receive activations"},
                                                            {"din", "send gradients of activations"},
                                                            {"dout", "receive gradients of activations"}};
  constexpr const char *kinds[] = {"all-reduce", "all-gather", "reduce-scatter", "all-to-all",
                                   "shift",      "send",       "receive",        "copy"};
  const std::string &name = transfer.name();
  if (transfer.kind() == pb::Transfer::SEND || transfer.kind() == pb::Transfer::RECEIVE) {
    auto line = lines.find(name);
    return line == lines.end() ? fmt::format("{} {}", kinds[transfer.kind()], name) : line->second;
  }
  if (transfer.kind() == pb::Transfer::COPY)
    return "copy " + name;
  uint32_t axes = Mesh(plan.mesh()).divided(plan.groups(static_cast<int>(transfer.group())).axes());
  return fmt::format("{} {}{}", kinds[transfer.kind()], payloadText(name),
                     axes ? fmt::format(" ({})", axesText(axes)) : "");
}

class StageTrace {
public:
  StageTrace(const pb::Plan &plan, int stage) : plan(plan), stage(plan.stages(stage)), number(stage) {}

  std::string write(const std::vector<TraceEvent> &events);

private:
  void name(const char *what, const std::string &as, int track);
  void add(const TraceEvent &event);
  /// Adds an event. `arguments` are further members of its `args`, each with a comma before it.
  void slice(int track, const std::string &name, const TraceEvent &event, const std::string &arguments = "");
  void addTransfer(const TraceEvent &event);
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

void StageTrace::addTransfer(const TraceEvent &event) {
  const pb::Transfer &transfer = plan.transfers(static_cast<int>(event.subject));
  bool isWait = event.kind == TraceEvent::Wait;
  int track = isWait ? waitTrack : firstQueueTrack + static_cast<int>(transfer.queue());
  uint64_t bytes = 0;
  for (const pb::Buffer &buffer : transfer.from_size() > 0 ? transfer.from() : transfer.to())
    bytes += buffer.bytes();
  std::string arguments = fmt::format(R"(,"transfer":{},"bytes":{})", nlohmann::json(transfer.name()).dump(), bytes);
  if (static_cast<int>(transfer.location()) < plan.locations_size())
    if (const pb::Location &place = plan.locations(static_cast<int>(transfer.location())); !place.file().empty())
      arguments += fmt::format(R"(,"at":{})", nlohmann::json(fmt::format("{}:{}", place.file(), place.line())).dump());
  slice(track, (isWait ? "wait for " : "") + transferText(plan, transfer), event, arguments);
}

void StageTrace::add(const TraceEvent &event) {
  if (event.kind == TraceEvent::Flight || event.kind == TraceEvent::Wait)
    return addTransfer(event);
  const std::string &role = plan.roles(static_cast<int>(event.subject));
  const char *letter = letterOf(role);
  int track = letter ? microBatchTrack : stepTrack;
  std::string kind = letter && *letter == 'W' ? "weight gradient" : letter ? role : stepText(role);
  if (event.kind == TraceEvent::Call)
    return slice(track, fmt::format("{} {}", callText(stage.calls(static_cast<int>(event.call)).name()), kind), event);
  if (!letter)
    return slice(track, kind, event);
  int chunk = chunkOf(event.call);
  bool hasChunks = stage.chunks_size() > 2; // the last one belongs to the step
  slice(track, fmt::format("{} mb {}{}", kind, event.microBatch, hasChunks ? fmt::format(", chunk {}", chunk) : ""),
        event, fmt::format(R"(,"action":"{}","chunk":{})", letter, chunk));
}

void StageTrace::slice(int track, const std::string &name, const TraceEvent &event, const std::string &arguments) {
  comma();
  double begin = static_cast<double>(event.begin) / 1e3, end = static_cast<double>(event.end) / 1e3;
  fmt::format_to(std::back_inserter(text),
                 R"({{"ph":"X","pid":{},"tid":{},"name":{},"ts":{:.3f},"dur":{:.3f},"args":{{"micro_batch":{}{}}}}})",
                 number, track, nlohmann::json(name).dump(), begin, end - begin, event.microBatch, arguments);
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
    std::string part = mine.substr(std::min(sent, mine.size()), Agreement::messageBytes - 1);
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
