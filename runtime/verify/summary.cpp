#include "runtime/verify/summary.h"

#include "runtime/comm/comm.h"

#include <algorithm>
#include <fmt/format.h>

namespace espalier::rt::verify {
namespace {

enum Family : uint32_t { Entry, Local };

/// A strided copy fills a buffer column by column: it is one value when all columns are there.
struct ColumnGroup {
  int region;
  int64_t begin, outer, stride, covered;
};

class Summarizer {
public:
  Summarizer(const Routine &routine, const std::vector<std::string> &regionNames, PlanErrors &errors);

  Summary summarize();

private:
  void playStep(const Step &step);
  void compute(const Step &step);
  void start(const Step &step);
  void wait(const Step &step);
  void checkDisjoint(const Step &step);
  void read(const Step &step, const Operand &operand);
  bool checkFree(const Step &step, const Operand &operand);
  void write(const Step &step, const Operand &operand);
  void writeColumns(const Step &step, const Operand &operand);
  Content contentOf(const Step &step, const Span &span);
  void keepResident(const Step &step);
  void touch(const Operand &operand);
  void collectGives();

  bool isResident(const Operand &operand) const { return routine.isResident[operand.region]; }
  std::string placeOf(const Operand &operand) const {
    return fmt::format("bytes {} to {} of {}", operand.span.begin, operand.span.end, regionNames[operand.region]);
  }
  template <typename... Args> void add(const Step &step, fmt::format_string<Args...> format, Args &&...args) {
    errors.add(routine.name(step.instruction) + ": " + fmt::format(format, std::forward<Args>(args)...));
  }

  const Routine &routine;
  const std::vector<std::string> &regionNames;
  PlanErrors &errors;
  std::vector<ByteState> states; ///< by region
  std::map<uint32_t, Step> open; ///< flights
  std::set<std::tuple<int, int64_t, int64_t, Axes>> needed;
  std::set<uint32_t> copies; ///< writes by copies, which grow side by side
  std::vector<ColumnGroup> columns;
  uint32_t writes = 0;
  std::vector<int> writers = {-1}; ///< instructions, by write
  Summary summary;
};

Summarizer::Summarizer(const Routine &routine, const std::vector<std::string> &regionNames, PlanErrors &errors)
    : routine(routine), regionNames(regionNames), errors(errors) {
  for (size_t region = 0; region < routine.regionBytes.size(); ++region) {
    Content content;
    if (static_cast<int>(region) != routine.workspace) {
      content.kind = Content::Ready;
      content.instance = {Entry, static_cast<uint32_t>(region), 0};
    }
    states.emplace_back(routine.regionBytes[region], content);
  }
  summary.touched.resize(states.size());
  summary.name = routine.name;
}

Summary Summarizer::summarize() {
  for (const Step &step : routine.steps)
    playStep(step);
  for (const auto &[flight, step] : open)
    add(step, "collective {} is never waited for", flight);
  collectGives();
  return std::move(summary);
}

void Summarizer::playStep(const Step &step) {
  for (const Operand &operand : step.operands)
    touch(operand);
  switch (step.kind) {
  case Step::Compute:
    return compute(step);
  case Step::Start:
    return start(step);
  case Step::Wait:
    return wait(step);
  }
}

void Summarizer::touch(const Operand &operand) {
  Touched &touched = summary.touched[operand.region];
  bool isFirst = touched.begin == touched.end;
  touched.begin = isFirst ? operand.span.begin : std::min(touched.begin, operand.span.begin);
  touched.end = std::max(touched.end, operand.span.end);
  touched.isWritten |= operand.access != Access::Read;
}

/// Within one instruction nothing is said about the order of reads and writes.
void Summarizer::checkDisjoint(const Step &step) {
  for (size_t i = 0; i < step.operands.size(); ++i)
    for (size_t j = 0; j < step.operands.size(); ++j) {
      const Operand &written = step.operands[i], &other = step.operands[j];
      bool isPair = written.access != Access::Read && i != j && (other.access == Access::Read || i < j);
      if (!isPair || written.region != other.region || !written.span.overlaps(other.span))
        continue;
      if (step.mayShare && other.access == Access::Read && written.span == other.span)
        continue;
      add(step, "writes {} while operand {} lies at bytes {} to {} there", placeOf(written), j, other.span.begin,
          other.span.end);
    }
}

void Summarizer::compute(const Step &step) {
  checkDisjoint(step);
  for (const Operand &operand : step.operands)
    if (operand.access == Access::Read || operand.access == Access::Update)
      read(step, operand);
  for (const Operand &operand : step.operands)
    if (operand.access != Access::Read && checkFree(step, operand))
      write(step, operand);
  keepResident(step);
}

void Summarizer::keepResident(const Step &step) {
  Step kept = step;
  std::erase_if(kept.operands, [&](const Operand &operand) { return !isResident(operand); });
  // Between its writes a region is the same: one read of a place says all.
  bool isRead = std::ranges::all_of(kept.operands, [](const Operand &o) { return o.access == Access::Read; });
  if (isRead && step.kind == Step::Compute)
    std::erase_if(kept.operands, [&](const Operand &operand) {
      return !summary.touched[operand.region].isWritten &&
             !needed.insert({operand.region, operand.span.begin, operand.span.end, operand.span.part}).second;
    });
  if (!kept.operands.empty())
    summary.resident.push_back(std::move(kept));
}

void Summarizer::read(const Step &step, const Operand &operand) {
  std::optional<Content> first;
  bool isEntry = false;
  auto fault = states[operand.region].check(operand.span, [&](const Content &content) {
    if (!first)
      first = content;
    isEntry = content.kind == Content::Ready && content.instance.family == Entry;
    return content == *first && content.kind == Content::Ready;
  });
  if (!fault) {
    auto key = std::tuple(operand.region, operand.span.begin, operand.span.end, operand.span.part);
    if (isEntry && !isResident(operand) && needed.insert(key).second)
      summary.needs.push_back(operand);
    return;
  }
  if (fault->kind == Fault::Written)
    return add(step, "touches {} while a collective is in flight there", placeOf(operand));
  if (fault->found.kind == Content::Undefined)
    return add(step, "reads {}, where nothing has been written at byte {}", placeOf(operand), fault->byte);
  add(step, "reads {}, where another value begins at byte {}", placeOf(operand), fault->byte);
}

bool Summarizer::checkFree(const Step &step, const Operand &operand) {
  if (!states[operand.region].free(operand.span))
    return true;
  add(step, "touches {} while a collective is in flight there", placeOf(operand));
  return false;
}

Content Summarizer::contentOf(const Step &step, const Span &span) {
  Content content;
  content.kind = Content::Ready;
  content.instance = {Local, 0, 0};
  content.write = ++writes;
  writers.push_back(step.instruction);
  content.origin = span.begin;
  return content;
}

void Summarizer::write(const Step &step, const Operand &operand) {
  ByteState &state = states[operand.region];
  if (isResident(operand))
    return; // the play knows what it holds
  if (!step.copy.isCopy)
    return state.set(operand.span, contentOf(step, operand.span));
  if (step.copy.outer > 1 && step.copy.stride > step.copy.bytes)
    return writeColumns(step, operand);
  for (int64_t neighbour : {operand.span.begin - 1, operand.span.end}) {
    const Content beside = state.contentOf(neighbour);
    if (beside.kind == Content::Ready && beside.instance.family == Local && copies.count(beside.write))
      return state.set(operand.span, beside);
  }
  Content content = contentOf(step, operand.span);
  copies.insert(content.write);
  state.set(operand.span, content);
}

void Summarizer::writeColumns(const Step &step, const Operand &operand) {
  const CopyShape &copy = step.copy;
  auto group = std::ranges::find_if(columns, [&](const ColumnGroup &g) {
    return g.region == operand.region && g.outer == copy.outer && g.stride == copy.stride &&
           g.begin + g.covered == operand.span.begin;
  });
  if (group == columns.end()) {
    columns.push_back({operand.region, operand.span.begin, copy.outer, copy.stride, 0});
    group = std::prev(columns.end());
  }
  group->covered += copy.bytes;
  Span all = {group->begin, group->begin + copy.outer * copy.stride, 0};
  if (group->covered < copy.stride)
    return states[operand.region].set(operand.span, {});
  columns.erase(group);
  states[operand.region].set(all, contentOf(step, all));
}

void Summarizer::start(const Step &step) {
  for (size_t i = 0; i + 1 < step.operands.size(); i += 2) {
    const Operand &from = step.operands[i], &to = step.operands[i + 1];
    read(step, from);
    if (!checkFree(step, to) || isResident(to))
      continue;
    if (from.region == to.region && from.span.overlaps(to.span))
      states[to.region].set({to.span.begin, to.span.end, 0}, {});
    states[to.region].set(to.span, contentOf(step, to.span));
  }
  if (!open.emplace(step.flight, step).second)
    return add(step, "collective {} is started twice", step.flight);
  if (open.size() > maxInFlight)
    add(step, "{} collectives in flight, at most {} are possible", open.size(), maxInFlight);
  for (const Operand &operand : step.operands)
    states[operand.region].open({operand.span.begin, operand.span.end, 0}, operand.access != Access::Read);
  Step kept = step;
  for (const Operand &operand : step.operands)
    if (!isResident(operand) && operand.access == Access::Read)
      kept.source = writers[states[operand.region].contentOf(operand.span.begin).write];
  keepResident(kept);
}

void Summarizer::wait(const Step &step) {
  auto flight = open.find(step.flight);
  if (flight == open.end())
    return add(step, "waits for collective {}, which is not in flight", step.flight);
  for (const Operand &operand : flight->second.operands)
    states[operand.region].close({operand.span.begin, operand.span.end, 0}, operand.access != Access::Read);
  open.erase(flight);
}

void Summarizer::collectGives() {
  for (size_t region = 0; region < states.size(); ++region)
    if (static_cast<int>(region) != routine.workspace && !routine.isResident[region])
      states[region].forEach([&](Span span, const Content &content) {
        if (content.kind == Content::Ready && content.instance.family == Local)
          summary.gives.push_back({static_cast<int>(region), span, content.write});
      });
}

} // namespace

Summary summarize(const Routine &routine, const std::vector<std::string> &regionNames, PlanErrors &errors) {
  return Summarizer(routine, regionNames, errors).summarize();
}

} // namespace espalier::rt::verify
