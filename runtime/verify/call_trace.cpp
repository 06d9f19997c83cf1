#include "runtime/verify/call_trace.h"

#include "runtime/abi.h"
#include "runtime/verify/library_functions.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

bool isGenerated(const pb::Kernel &kernel) {
  return kernel.shape() == "row" || kernel.shape() == "column" || kernel.shape() == "flat";
}

bool haveCommon(const Parameters::Set &a, const Parameters::Set &b) {
  return std::ranges::any_of(a, [&](const auto &parameter) { return b.count(parameter) > 0; });
}

} // namespace

void Parameters::include(const Parameters &more) {
  weights.insert(more.weights.begin(), more.weights.end());
  others.insert(more.others.begin(), more.others.end());
}

bool areAkin(const Parameters &a, const Parameters &b) {
  if (a.isEmpty() || b.isEmpty())
    return true;
  if (!a.weights.empty() && !b.weights.empty())
    return haveCommon(a.weights, b.weights);
  return haveCommon(a.weights, b.others) || haveCommon(a.others, b.weights) || haveCommon(a.others, b.others);
}

bool isWithin(const Parameters &a, const Parameters &b) {
  return std::ranges::includes(a.weights, b.weights) || std::ranges::includes(b.weights, a.weights);
}

CallTrace::CallTrace(const pb::Plan &plan, const Values &values, const pb::Call &call) : plan(plan), values(values) {
  int programs = 0;
  for (uint32_t number : call.programs()) {
    if (number == 0)
      continue;
    const pb::Subprogram &program = plan.subprograms(static_cast<int>(number) - 1);
    for (int i = 0; i < program.instructions_size(); ++i)
      addStep(program, programs, i);
    ++programs;
  }
  for (size_t i = 0; i < list.size(); ++i)
    followForward(i);
  for (size_t i = list.size(); i-- > 0;)
    followBackward(list[i]);
}

void CallTrace::addStep(const pb::Subprogram &program, int number, int instruction) {
  TraceStep step;
  step.instruction = &program.instructions(instruction);
  if (step.instruction->body_case() == pb::Instruction::kWait)
    return; // what it brings was named at the start
  step.name = instructionName(plan, program, instruction);
  step.program = number;
  addUses(step, *step.instruction);
  addFactors(step);
  for (size_t i = 0; i < step.uses.size(); ++i)
    addsGradients |= step.isWritten[i] && values[step.uses[i].value].part == ValueInfo::Gradient;
  list.push_back(std::move(step));
}

void CallTrace::addUses(TraceStep &step, const pb::Instruction &instruction) {
  auto add = [&](const pb::Buffer &buffer, bool isRead, bool isWritten) {
    bool isOfBucket = values[buffer.value()].layering == ValueInfo::OfBucket;
    step.uses.push_back({buffer.value(), isOfBucket ? 0 : buffer.layer()});
    step.isRead.push_back(isRead);
    step.isWritten.push_back(isWritten);
  };
  auto addOperand = [&](const pb::Buffer &buffer, pb::Operand::Access access) {
    add(buffer, access == pb::Operand::READ || access == pb::Operand::UPDATE, access != pb::Operand::READ);
  };
  if (instruction.has_start()) {
    const pb::Transfer &transfer = plan.transfers(static_cast<int>(instruction.start()));
    for (const pb::Buffer &buffer : transfer.from())
      add(buffer, /*isRead=*/true, /*isWritten=*/false);
    for (const pb::Buffer &buffer : transfer.to())
      add(buffer, /*isRead=*/false, /*isWritten=*/true);
  } else if (instruction.has_call()) {
    const pb::LibraryCall &call = instruction.call();
    step.isElementwise = call.function() == pb::LibraryCall::REDUCE_PARTS;
    std::vector<OperandRule> rules = operandsOf(call).value_or(std::vector<OperandRule>());
    for (int i = 0; i < std::min(call.buffers_size(), static_cast<int>(rules.size())); ++i)
      addOperand(call.buffers(i), rules[static_cast<size_t>(i)].access);
  } else {
    const pb::Launch &launch = instruction.launch();
    const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
    step.isElementwise = isGenerated(kernel) || kernel.shape() == "reduce_parts";
    for (int i = 0; i < launch.buffers_size(); ++i) {
      addOperand(launch.buffers(i), kernel.operands(i).access());
      step.isCotangent |= kernel.operands(i).slot() == LossScale + 1;
    }
    for (int i = 0; i < std::min(kernel.uses_size(), launch.scalars_size()); ++i)
      if (kernel.uses(i) == pb::Kernel::STREAM && isGenerated(kernel))
        step.draws.push_back(launch.scalars(i).constant());
  }
}

/// A product reads the bias of its epilogue as numbers.
void CallTrace::addParameter(Parameters &to, const TraceStep &step, size_t operand) const {
  const ValueInfo &info = values[step.uses[operand].value];
  bool isOfEpilogue = operand > 2 && step.instruction->call().function() == pb::LibraryCall::MATMUL &&
                      step.instruction->has_call();
  (step.isElementwise || isOfEpilogue ? to.others : to.weights).insert({info.bucket, static_cast<uint64_t>(info.begin / info.width)});
}

/// Factors of a product are its first two operands; its third may be the gradient of one.
constexpr size_t factorsOfProduct = 2;

void CallTrace::addFactors(TraceStep &step) const {
  if (!step.instruction->has_call() || step.instruction->call().function() != pb::LibraryCall::MATMUL)
    return;
  for (size_t i = 0; i < std::min(step.uses.size(), factorsOfProduct + 1); ++i)
    if (auto part = values[step.uses[i].value].part; part == ValueInfo::Stored || part == ValueInfo::Gathered ||
                                                     part == ValueInfo::Gradient)
      addParameter(step.factors, step, i);
}

/// The weights of the last products on the way to what a step writes.
Parameters CallTrace::makersOf(const TraceStep &step) const {
  Parameters found = step.factors;
  for (size_t i = step.factors.isEmpty() ? 0 : factorsOfProduct; i < step.uses.size(); ++i)
    if (step.isRead[i] && !isCotangent(step.uses[i]))
      found.include(madeBy(step.uses[i]));
  return found;
}

/// What a call finds beside its inputs when it goes backward: no subprogram of it has written that, and the first one
/// did not read it.
bool CallTrace::isFound(const TraceStep &step, const ValueUse &use) {
  const ValueInfo &info = values[use.value];
  bool isWritten = writers.count(use) + writers.count(rootOf(use)) + origins.pieces.count(use) > 0;
  if (info.isResident || info.layering != ValueInfo::OfCall || isWritten)
    return false;
  if (step.program == 0)
    foundFirst.insert(use);
  return addsGradients && foundFirst.count(use) == 0;
}

void CallTrace::followForward(size_t index) {
  TraceStep &step = list[index];
  for (size_t i = 0; i < step.uses.size(); ++i) {
    const ValueUse &use = step.uses[i];
    if (!step.isRead[i])
      continue;
    if (isFound(step, use))
      cotangents.insert(use);
    if (auto part = values[use.value].part; part == ValueInfo::Stored || part == ValueInfo::Gathered)
      addParameter(step.before, step, i);
    else if (isCotangent(use))
      step.isCotangent = true;
    else
      step.before.include(before(use));
  }
  if (step.isCotangent)
    backward.insert(step.program);
  for (size_t i = 0; i < step.uses.size(); ++i) {
    const ValueUse &use = step.uses[i];
    if (!step.isWritten[i] || values[use.value].isResident)
      continue;
    writers[use] = {index, static_cast<int>(i)};
    if (step.isCotangent)
      cotangents.insert(use);
    include(origins, use, step.draws.empty() ? step.before : Parameters());
    include(makers, use, makersOf(step));
  }
}

void CallTrace::followBackward(TraceStep &step) {
  for (size_t i = 0; i < step.uses.size(); ++i) {
    const ValueUse &use = step.uses[i];
    if (!step.isWritten[i])
      continue;
    if (values[use.value].part == ValueInfo::Gradient)
      addParameter(step.behind, step, i);
    else
      step.behind.include(behind(use));
  }
  Parameters takenOn;
  for (size_t i = 0; i < step.uses.size(); ++i)
    if (step.isWritten[i] && values[step.uses[i].value].part != ValueInfo::Gradient)
      takenOn.include(goesTo(step.uses[i]));
  for (size_t i = 0; i < step.uses.size(); ++i)
    if (step.isRead[i])
      include(takers, step.uses[i], step.factors.isEmpty() || i >= factorsOfProduct ? takenOn : step.factors);
  for (size_t i = 0; i < step.uses.size(); ++i)
    if (step.isRead[i] && step.draws.empty() && values[step.uses[i].value].layering != ValueInfo::OfBucket)
      include(sinks, step.uses[i], step.behind);
}

/// A piece has what it and its whole have, a whole what its pieces have.
Parameters CallTrace::of(const Map &map, const ValueUse &use) const {
  Parameters found;
  auto add = [&](const std::map<ValueUse, Parameters> &from, const ValueUse &key) {
    if (auto entry = from.find(key); entry != from.end())
      found.include(entry->second);
  };
  add(map.own, use);
  if (rootOf(use) == use)
    add(map.pieces, use);
  else
    add(map.own, rootOf(use));
  return found;
}

void CallTrace::include(Map &map, const ValueUse &use, const Parameters &more) {
  map.own[use].include(more);
  if (rootOf(use) != use)
    map.pieces[rootOf(use)].include(more);
}

std::pair<const TraceStep *, int> CallTrace::writerOf(const ValueUse &use) const {
  auto found = writers.find(use);
  return found == writers.end() ? std::pair<const TraceStep *, int>(nullptr, 0)
                                : std::pair(&list[found->second.first], found->second.second);
}

} // namespace espalier::rt::verify
