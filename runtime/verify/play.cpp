#include "runtime/verify/play.h"

#include "runtime/verify/resident.h"

#include <fmt/format.h>

namespace espalier::rt::verify {
namespace {

class Play {
public:
  Play(const StageView &stage, const std::vector<std::string> &regionNames, PlanErrors &errors)
      : stage(stage), regionNames(regionNames), errors(errors), bytes(stage.arenaBytes),
        resident(stage, bytes, errors, [this] { return position(); }) {}

  void play();

private:
  void act(const ActionView &action);
  void load(const ActionView &action);
  void runCall(int call, const ActionView &action);
  void checkPlaces(int call, const ActionView &action, const Summary &summary);
  void checkNeeds(const CallView &call, const ActionView &action, const Summary &summary);
  void applyGives(const CallView &call, const ActionView &action, const Summary &summary);
  void startLine(const ActionView &action);
  void endLine(const ActionView &action);
  std::string explain(const Fault &fault) const;

  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(position() + ": " + fmt::format(format, std::forward<Args>(args)...));
  }
  std::string position() const;

  const StageView &stage;
  const std::vector<std::string> &regionNames;
  PlanErrors &errors;
  ByteState bytes;
  Resident resident;
  int action = 0, call = -1;
  std::set<std::tuple<Role, uint32_t>> done;             ///< what ran, by micro-batch
  std::set<std::tuple<int, Role, uint32_t>> knownPlaces; ///< calls whose regions were found apart
  std::map<std::tuple<int, uint32_t>, Span> flights;     ///< by line and slot
};

std::string Play::position() const {
  std::string name = stage.actionName(action);
  return call < 0 ? name : name + ", " + stage.calls[call].name;
}

std::string Play::explain(const Fault &fault) const {
  static constexpr const char *names[] = {"", "parameter", "state", "inputs", "stream", "cotangent", "saved values"};
  if (fault.kind == Fault::Written)
    return fmt::format("a transfer writes byte {} of the arena", fault.byte);
  if (fault.kind == Fault::Read)
    return fmt::format("a transfer reads byte {} of the arena", fault.byte);
  if (fault.found.kind == Content::Undefined)
    return fmt::format("byte {} of the arena holds nothing", fault.byte);
  if (fault.found.kind == Content::Sum)
    return fmt::format("byte {} of the arena holds a gradient", fault.byte);
  return fmt::format("byte {} of the arena holds {} {}, number {}", fault.byte, names[fault.found.instance.family],
                     fault.found.instance.place, fault.found.instance.number);
}

void Play::play() {
  resident.begin();
  for (const ActionView &next : stage.actions) {
    act(next);
    ++action;
    if (errors.list.size() > 16) // what follows follows from these
      return;
  }
  action = static_cast<int>(stage.actions.size()) - 1;
  call = -1;
  resident.end();
}

void Play::act(const ActionView &action) {
  call = -1;
  switch (action.kind) {
  case ActionView::Load:
    return load(action);
  case ActionView::Start:
    return startLine(action);
  case ActionView::Wait:
    return endLine(action);
  case ActionView::Agree:
    return resident.agree();
  case ActionView::Run:
    break;
  }
  if (!done.emplace(action.role, action.microBatch).second)
    add("runs a second time");
  int calls = static_cast<int>(stage.calls.size());
  for (int i = 0; i < calls; ++i)
    runCall(action.role == Role::Backward ? calls - 1 - i : i, action);
}

void Play::load(const ActionView &action) {
  for (size_t i = 0; i < stage.inputBuffers.size(); ++i) {
    const Span &buffer = stage.inputBuffers[i];
    Span span = stage.inputs.span(action.slot, buffer.begin, buffer.end);
    if (auto fault = bytes.free(span))
      add("loads what is in use: {}", explain(*fault));
    Content content;
    content.kind = Content::Ready;
    content.instance = {Inputs, 0, action.microBatch};
    content.write = static_cast<uint32_t>(i);
    content.origin = stage.inputs.at(action.slot);
    bytes.set(span, content);
  }
}

void Play::runCall(int index, const ActionView &action) {
  const CallView &view = stage.calls[index];
  const Summary *summary = view.summaries[static_cast<int>(action.role)];
  if (!summary)
    return;
  call = index;
  if (knownPlaces.emplace(index, action.role, action.slot).second)
    checkPlaces(index, action, *summary);
  checkNeeds(view, action, *summary);
  applyGives(view, action, *summary);
  for (const Step &step : summary->resident)
    resident.play(step, view, action);
}

/// Regions that a subprogram touches are apart, but for what it only reads.
void Play::checkPlaces(int index, const ActionView &action, const Summary &summary) {
  const CallView &view = stage.calls[index];
  for (size_t i = 0; i < summary.touched.size(); ++i)
    for (size_t j = i + 1; j < summary.touched.size(); ++j) {
      const Touched &one = summary.touched[i], &other = summary.touched[j];
      Span a = view.places[i].span(action.slot, one.begin, one.end);
      Span b = view.places[j].span(action.slot, other.begin, other.end);
      bool isUsed = a.begin < a.end && b.begin < b.end;
      if (isUsed && (one.isWritten || other.isWritten) && a.overlaps(b))
        add("{} and {} overlap while both are live, at bytes {} to {} and {} to {} of the arena", regionNames[i],
            regionNames[j], a.begin, a.end, b.begin, b.end);
    }
}

void Play::checkNeeds(const CallView &view, const ActionView &action, const Summary &summary) {
  for (const Operand &need : summary.needs) {
    const Place &place = view.places[need.region];
    const Meaning &meaning = view.meanings[need.region];
    Span span = place.span(action.slot, need.span.begin, need.span.end);
    span.part = need.span.part;
    if (auto fault = bytes.ready(span, {meaning.family, meaning.place, action.microBatch}, place.at(action.slot)))
      return add("reads bytes {} to {} of {} before they are there: {}", need.span.begin, need.span.end,
                 regionNames[need.region], explain(*fault));
  }
}

void Play::applyGives(const CallView &view, const ActionView &action, const Summary &summary) {
  auto write = [&](int region, const Span &span, const Content &content) {
    if (auto fault = bytes.free(span))
      add("writes {} while it is in use: {}", regionNames[region], explain(*fault));
    else
      bytes.set(span, content);
  };
  int workspace = stage.regions.workspace;
  const Touched &scratch = summary.touched[workspace];
  if (scratch.begin < scratch.end)
    write(workspace, view.places[workspace].span(action.slot, scratch.begin, scratch.end), {});
  for (const Give &give : summary.gives) {
    const Place &place = view.places[give.region];
    const Meaning &meaning = view.meanings[give.region];
    Content content;
    content.kind = Content::Ready;
    content.instance = {meaning.family, meaning.place, action.microBatch};
    content.write = give.write;
    content.origin = place.at(action.slot);
    Span span = place.span(action.slot, give.span.begin, give.span.end);
    span.part = give.span.part;
    write(give.region, span, content);
  }
}

void Play::startLine(const ActionView &action) {
  const Line &line = stage.lines[action.line];
  if (line.place.bytes == 0)
    return; // communication says so
  Span span = line.place.span(action.slot, 0, line.place.bytes);
  Instance instance = {line.meaning.family, line.meaning.place, action.microBatch};
  int64_t origin = line.place.at(action.slot);
  if (line.isSend) {
    if (auto fault = bytes.ready(span, instance, origin))
      add("sends what is not there: {}", explain(*fault));
  } else if (auto fault = bytes.free(span)) {
    return add("receives where a transfer is open: {}", explain(*fault));
  } else {
    Content content;
    content.kind = Content::Ready;
    content.instance = instance;
    content.origin = origin;
    bytes.set(span, content);
  }
  if (flights.emplace(std::tuple(action.line, action.slot), span).second)
    bytes.open(span, !line.isSend);
}

void Play::endLine(const ActionView &action) {
  auto flight = flights.find({action.line, action.slot});
  if (flight == flights.end())
    return; // communication says so
  bytes.close(flight->second, !stage.lines[action.line].isSend);
  flights.erase(flight);
}

} // namespace

void playStage(const StageView &stage, const std::vector<std::string> &regionNames, PlanErrors &errors) {
  Play(stage, regionNames, errors).play();
}

} // namespace espalier::rt::verify
