#include "runtime/verify/resident.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

/// Whether a step of an update writes it.
bool isWritten(const Operand &operand) { return operand.access != Access::Read; }

} // namespace

Content Resident::contentOf(const Holding &holding, uint32_t family, uint32_t version) const {
  Content content;
  content.kind = Content::Ready;
  content.instance = {family, holding.parameter, version};
  return content;
}

void Resident::begin() {
  for (const CallView &view : stage.calls)
    for (const Holding &holding : view.holdings) {
      int64_t stored = view.places[stage.regions.parameters].at(0) + holding.stored;
      Content content = contentOf(holding, Parameter, 0);
      content.origin = stored;
      bytes.set({stored, stored + holding.padded * holding.width, 0}, content);
      int64_t state = view.places[stage.regions.state].at(0) + holding.state;
      for (int64_t tensor = 0; tensor < holding.tensors && holding.stateElements > 0; ++tensor) {
        content = contentOf(holding, State, 0);
        content.write = static_cast<uint32_t>(tensor);
        content.origin = state;
        int64_t first = state + tensor * holding.stateElements * 4;
        bytes.set({first, first + holding.stateElements * 4, 0}, content);
      }
    }
}

void Resident::end() {
  uint32_t version = stage.isTraining ? 1 : 0;
  for (const CallView &view : stage.calls)
    for (const Holding &holding : view.holdings) {
      int64_t stored = view.places[stage.regions.parameters].at(0) + holding.stored;
      Span whole = {stored, stored + holding.elements * holding.width, 0};
      if (auto fault = bytes.ready(whole, {Parameter, holding.parameter, version}, stored))
        add("ends with parameter '{}' not {} at byte {} of the arena", holding.name, version ? "updated once" : "kept",
            fault->byte);
      int64_t state = view.places[stage.regions.state].at(0) + holding.state;
      Span all = {state, state + holding.stateElements * holding.tensors * 4, 0};
      auto isKept = [&](const Content &content) {
        return content.kind == Content::Ready && content.instance == Instance{State, holding.parameter, version};
      };
      if (auto fault = bytes.check(all, isKept))
        add("ends with the optimizer state of parameter '{}' not {} at byte {} of the arena", holding.name,
            version ? "updated once" : "kept", fault->byte);
    }
  if (!stage.isTraining)
    checkSums();
}

std::optional<Resident::Target> Resident::find(const Operand &operand, const CallView &view) const {
  const Regions &regions = stage.regions;
  const Place &place = view.places[operand.region];
  for (const Holding &holding : view.holdings) {
    int64_t width = operand.region == regions.parameters ? holding.width : 4;
    int64_t begin = operand.region == regions.parameters  ? holding.stored
                    : operand.region == regions.gradients ? holding.gradient
                                                          : holding.state;
    int64_t elements = operand.region == regions.state ? holding.stateElements * holding.tensors : holding.padded;
    if (operand.span.begin < begin || operand.span.end > begin + elements * width)
      continue;
    Target target;
    target.holding = &holding;
    target.span = place.span(action->slot, operand.span.begin, operand.span.end);
    target.span.part = target.part = operand.span.part;
    target.first = (operand.span.begin - begin) / width;
    target.elements = (operand.span.end - operand.span.begin) / width;
    return target;
  }
  return std::nullopt;
}

void Resident::play(const Step &step, const CallView &view, const ActionView &now) {
  if (call != &view)
    updates.clear();
  call = &view;
  action = &now;
  std::vector<Target> targets;
  for (const Operand &operand : step.operands) {
    if (operand.region == stage.regions.scalars) {
      touchScalars(operand);
      continue;
    }
    std::optional<Target> target = find(operand, view);
    if (!target)
      return add("{} touches bytes {} to {} of a resident region, where no parameter of the call lies",
                 view.summaries[static_cast<int>(now.role)]->name(step.instruction), operand.span.begin,
                 operand.span.end);
    targets.push_back(*target);
  }
  if (step.kind == Step::Start) {
    if (targets.size() == 1)
      return gatherUpdated(step, targets.front());
    for (size_t i = 0; i + 1 < targets.size(); i += 2)
      transfer(step, targets[i], targets[i + 1]);
    return;
  }
  if (now.role == Role::Update)
    checkUpdate(step, targets);
  size_t next = 0;
  for (const Operand &operand : step.operands)
    if (operand.region != stage.regions.scalars)
      touch(operand, targets[next++]);
}

void Resident::touch(const Operand &operand, const Target &target) {
  const Holding &holding = *target.holding;
  const Regions &regions = stage.regions;
  if (operand.region == regions.gradients)
    return isWritten(operand) ? addTerm(operand, target) : readGradient(target);
  uint32_t family = operand.region == regions.parameters ? Parameter : State;
  int64_t origin =
      call->places[operand.region].at(action->slot) + (family == Parameter ? holding.stored : holding.state);
  auto isOld = [&](const Content &content) {
    return content.kind == Content::Ready && content.origin == origin &&
           content.instance == Instance{family, holding.parameter, 0};
  };
  if (auto fault = bytes.check(target.span, isOld))
    return add("touches {} of '{}' at byte {} of the arena, where it is not as the step found it",
               family == Parameter ? "the value" : "the optimizer state", holding.name, fault->byte);
  if (!isWritten(operand))
    return;
  if (action->role != Role::Update)
    return add("writes '{}', which only the optimizer does", holding.name);
  bytes.change(target.span, [](Content &content) { content.instance.number = 1; });
}

void Resident::readGradient(const Target &target) {
  const Holding &holding = *target.holding;
  std::optional<Content> bad;
  auto isTotal = [&](const Content &content) {
    bool isWhole = content.kind == Content::Sum && content.instance.place == holding.parameter &&
                   content.instance.number == holding.terms && content.partial == 0;
    if (!isWhole)
      bad = content;
    return isWhole;
  };
  if (auto fault = bytes.check(target.span, isTotal)) {
    bool isSum = bad && bad->kind == Content::Sum;
    add("reads the gradient of '{}', which is not whole at byte {} of the arena: {} of {} terms{}", holding.name,
        fault->byte, isSum ? bad->instance.number : 0, holding.terms,
        isSum && bad->partial ? ", not summed over all its axes" : "");
  }
}

void Resident::addTerm(const Operand &operand, const Target &target) {
  const Holding &holding = *target.holding;
  Content sum;
  sum.kind = Content::Sum;
  sum.instance = {Nothing, holding.parameter, 0};
  sum.partial = holding.partial;
  sum.origin = target.span.begin - target.first * 4;
  auto isSum = [&](const Content &content) {
    return content.kind == Content::Sum && content.instance.place == holding.parameter &&
           content.partial == holding.partial && content.origin == sum.origin;
  };
  auto isFree = [&](const Content &content) { return content.kind == Content::Undefined; };
  bool isFirst = operand.access == Access::AddUnlessFirst && action->microBatch == 0;
  if (operand.access == Access::Write)
    return add("writes over the gradient of '{}', which is added to", holding.name);
  if (isFirst && bytes.check(target.span, isFree))
    return add("begins the gradient of '{}' where something lies already", holding.name);
  if (!isFirst && bytes.check(target.span, isSum))
    return add("adds to the gradient of '{}', which has not begun", holding.name);
  if (isFirst)
    bytes.set(target.span, sum);
  bytes.change(target.span, [](Content &content) { ++content.instance.number; });
}

/// Value, state and gradient that an update takes are those of one parameter, element by element.
void Resident::checkUpdate(const Step &step, const std::vector<Target> &targets) {
  const Regions &regions = stage.regions;
  const Target *elements = nullptr; // those of the first value or gradient
  int64_t read = 0, written = 0;
  bool takesGradient = false, writesValue = false;
  size_t next = 0;
  for (const Operand &operand : step.operands) {
    if (operand.region == regions.scalars)
      continue;
    const Target &target = targets[next++];
    const std::string &name = target.holding->name;
    if (target.holding != targets.front().holding)
      return add("updates '{}' with what belongs to '{}'", targets.front().holding->name, name);
    if (operand.region == regions.state) {
      // Moments are read before the master, and written behind it.
      const Holding &holding = *target.holding;
      int64_t &count = isWritten(operand) ? written : read;
      int64_t tensor = isWritten(operand) ? count : (count + holding.tensors - 2) % holding.tensors;
      bool isAll = target.elements == holding.stateElements * holding.tensors;
      if (target.part || target.first != (isAll ? 0 : tensor * holding.stateElements) ||
          (!isAll && target.elements != holding.stateElements))
        return add("takes the optimizer state of '{}' in another order", name);
      ++count;
      continue;
    }
    takesGradient |= operand.region == regions.gradients;
    writesValue |= operand.region == regions.parameters && isWritten(operand);
    if (elements &&
        (elements->first != target.first || elements->elements != target.elements || elements->part != target.part))
      return add("updates other elements of '{}' than it has the gradient of", name);
    elements = &target;
  }
  if (writesValue && !takesGradient)
    add("updates '{}' without its gradient", targets.front().holding->name);
  if (takesGradient && elements)
    updates.insert_or_assign(step.instruction, *elements);
}

void Resident::transfer(const Step &step, const Target &from, const Target &to) {
  const Holding &holding = *from.holding;
  bool isGather = step.transfer.kind == Transfer::Gather;
  int region = isGather ? stage.regions.parameters : stage.regions.gradients;
  auto isThere = [&](const Operand &operand) { return operand.region == region; };
  if (from.holding != to.holding || from.first != to.first || !std::ranges::all_of(step.operands, isThere))
    return add("moves '{}' to another place", holding.name);
  Axes axes = step.transfer.axes;
  if (isGather) {
    Content content = contentOf(holding, Parameter, 1);
    content.origin = from.span.begin - from.first * holding.width;
    if (from.part != axes || to.part || bytes.ready(from.span, content.instance, content.origin))
      return add("gathers '{}' before it is updated, or not by its parts", holding.name);
    return bytes.set(to.span, content);
  }
  auto isPartial = [&](const Content &content) {
    return content.kind == Content::Sum && content.instance.place == holding.parameter &&
           content.instance.number == holding.terms && (content.partial & axes) == axes;
  };
  bool isScatter = step.transfer.kind == Transfer::Scatter;
  bool areSharesWrong = isScatter && (to.part != axes || from.part);
  if (bytes.check(from.span, isPartial) || !step.transfer.isSum || areSharesWrong)
    return add("sums the gradient of '{}' over axes that it is not, or no longer, partial over, or before it is whole",
               holding.name);
  if (!isScatter)
    return bytes.change(from.span, [&](Content &content) { content.partial &= ~axes; });
  Content sum = bytes.contentOf(from.span.begin);
  sum.partial &= ~axes;
  bytes.set({to.span.begin, to.span.end, 0}, {});
  bytes.set(to.span, sum);
}

/// What an update has left of the own part comes together in the parameter.
void Resident::gatherUpdated(const Step &step, const Target &to) {
  const Holding &holding = *to.holding;
  auto update = updates.find(step.source);
  bool isOwnPart = update != updates.end() && update->second.holding == to.holding &&
                   update->second.part == step.transfer.axes && update->second.first == to.first;
  int64_t origin = to.span.begin - to.first * holding.width;
  if (step.transfer.kind != Transfer::Gather || action->role != Role::Update || !isOwnPart || to.part ||
      step.operands.front().region != stage.regions.parameters ||
      bytes.ready(to.span, {Parameter, holding.parameter, 0}, origin))
    return add("fills '{}' with what is not its update", holding.name);
  bytes.change(to.span, [](Content &content) { content.instance.number = 1; });
}

void Resident::touchScalars(const Operand &operand) {
  if (!isWritten(operand)) {
    if (action->role == Role::Update && !isAgreed)
      add("reads the scalars before they are agreed upon");
    return;
  }
  for (int slot : stage.regions.sums)
    if (operand.span.begin <= slot * 4 && slot * 4 + 4 <= operand.span.end)
      ++scalars[slot];
  if (isAgreed)
    add("writes the scalars after they are agreed upon");
}

/// So many terms the stage's calls add to a scalar in an entry.
uint32_t Resident::scalarTerms(int slot) const {
  uint32_t terms = 0;
  for (const CallView &view : stage.calls)
    for (int role = 0; role < roleCount; ++role) {
      bool isRun = stage.isTraining || role == static_cast<int>(Role::Forward);
      if (!view.summaries[role] || !isRun)
        continue;
      uint32_t runs = role <= static_cast<int>(Role::Backward) ? stage.microBatches : 1;
      for (const Step &step : view.summaries[role]->resident)
        for (const Operand &operand : step.operands)
          if (operand.region == stage.regions.scalars && isWritten(operand) && operand.span.begin <= slot * 4 &&
              slot * 4 + 4 <= operand.span.end)
            terms += runs;
    }
  return terms;
}

void Resident::checkSums() {
  for (int slot : stage.regions.sums)
    if (uint32_t wanted = scalarTerms(slot); scalars[slot] != wanted)
      add("scalar {} has {} of {} terms", slot, scalars[slot], wanted);
}

void Resident::agree() {
  if (isAgreed)
    add("agrees a second time");
  isAgreed = true;
  checkSums();
}

} // namespace espalier::rt::verify
