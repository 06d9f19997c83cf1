// Converts a plan into events: launches, library calls and transfers become steps with operands.
#include "runtime/verify/library_functions.h"
#include "runtime/verify/program_view.h"

#include <algorithm>

namespace espalier::rt::verify {
namespace {

class FrontEnd {
public:
  FrontEnd(const pb::Plan &plan, const Values &values) : plan(plan), values(values) {}

  Routine routineOf(const pb::Subprogram &subprogram) const;
  std::vector<Operand> operandsOfTransfer(const pb::Transfer &transfer) const;

private:
  Step stepOf(const pb::Subprogram &subprogram, int instruction) const;
  void addLaunch(const pb::Launch &launch, Step &step) const;
  void addCall(const pb::LibraryCall &call, Step &step) const;
  double squareWeight(const pb::Subprogram &subprogram, int instruction) const;
  void placePieces(std::vector<Step> &steps) const;

  const pb::Plan &plan;
  const Values &values;
};

Routine FrontEnd::routineOf(const pb::Subprogram &subprogram) const {
  Routine routine;
  for (int i = 0; i < subprogram.instructions_size(); ++i)
    routine.steps.push_back(stepOf(subprogram, i));
  placePieces(routine.steps);
  routine.name = [this, &subprogram](int instruction) { return instructionName(plan, subprogram, instruction); };
  return routine;
}

std::vector<Operand> FrontEnd::operandsOfTransfer(const pb::Transfer &transfer) const {
  std::vector<Operand> operands;
  for (const pb::Buffer &buffer : transfer.from())
    operands.push_back(values.operandOf(buffer, Access::Read));
  for (const pb::Buffer &buffer : transfer.to())
    operands.push_back(values.operandOf(buffer, Access::Write));
  return operands;
}

Step FrontEnd::stepOf(const pb::Subprogram &subprogram, int instruction) const {
  const pb::Instruction &source = subprogram.instructions(instruction);
  Step step;
  step.instruction = instruction;
  if (source.has_launch())
    addLaunch(source.launch(), step);
  else if (source.has_call())
    addCall(source.call(), step);
  step.squares = squareWeight(subprogram, instruction);
  if (!source.has_start() && !source.has_wait())
    return step;
  step.kind = source.has_start() ? Step::Start : Step::Wait;
  step.transfer = source.has_start() ? source.start() : source.wait();
  const pb::Transfer &transfer = plan.transfers(static_cast<int>(step.transfer));
  step.queue = transfer.queue();
  step.operands = operandsOfTransfer(transfer);
  return step;
}

Access accessOf(pb::Operand::Access access) {
  switch (access) {
  case pb::Operand::WRITE:
    return Access::Write;
  case pb::Operand::UPDATE:
    return Access::Update;
  case pb::Operand::ADD:
    return Access::Add;
  default:
    return Access::Read;
  }
}

void FrontEnd::addLaunch(const pb::Launch &launch, Step &step) const {
  const pb::Kernel &kernel = plan.kernels(static_cast<int>(launch.kernel()));
  step.isGenerated = kernel.shape() == "row" || kernel.shape() == "column" || kernel.shape() == "flat";
  for (int i = 0; i < launch.buffers_size(); ++i) {
    const pb::Operand &declared = kernel.operands(i);
    Access access = accessOf(declared.access());
    if (declared.unless() > 0) {
      const pb::Affine &scalar = launch.scalars(static_cast<int>(declared.unless()) - 1);
      access = scalar.first() ? Access::AddUnlessFirst : scalar.constant() == 1 ? Access::Write : Access::Add;
    }
    step.operands.push_back(values.operandOf(launch.buffers(i), access));
    uint64_t over = 0;
    for (uint32_t other : declared.over())
      over |= uint64_t(1) << other;
    step.over.push_back(over);
  }
}

void FrontEnd::addCall(const pb::LibraryCall &call, Step &step) const {
  std::optional<std::vector<OperandRule>> rules = operandsOf(call);
  for (int i = 0; rules && i < call.buffers_size(); ++i) {
    const OperandRule &rule = (*rules)[static_cast<size_t>(i)];
    Access access = rule.unlessFirst ? Access::AddUnlessFirst : accessOf(rule.access);
    step.operands.push_back(values.operandOf(call.buffers(i), access));
    step.over.push_back(rule.over);
  }
  if (call.has_workspace())
    step.operands.push_back(values.operandOf(call.workspace(), Access::Write));
}

/// Returns the weight with which an instruction adds squares to the gradient norm, or 0. The norm is one library call,
/// or a squaring kernel followed by the kernels that add its partial sums. Those kernels hold the weight.
double FrontEnd::squareWeight(const pb::Subprogram &subprogram, int instruction) const {
  const pb::Instruction &source = subprogram.instructions(instruction);
  if (source.call().function() == pb::LibraryCall::SQUARED_NORM && source.has_call())
    return source.call().floats().empty() ? 0 : source.call().floats(0);
  auto kernelOf = [&](int i) -> const pb::Kernel & {
    return plan.kernels(static_cast<int>(subprogram.instructions(i).launch().kernel()));
  };
  if (!source.has_launch() || kernelOf(instruction).shape() != "square_blocks")
    return 0;
  uint32_t squares = source.launch().buffers(1).value();
  double weight = 0;
  for (int i = instruction + 1; i < subprogram.instructions_size(); ++i) {
    if (!subprogram.instructions(i).has_launch())
      continue;
    const pb::Launch &launch = subprogram.instructions(i).launch();
    const std::string &shape = kernelOf(i).shape();
    if ((shape == "square_blocks" && launch.buffers(1).value() == squares) ||
        (shape == "add_squares" && launch.buffers(0).value() != squares))
      break;
    if (shape == "add_squares")
      weight += kernelOf(i).norm_weight();
  }
  return weight;
}

/// Sets the origin of values that are written slice by slice: the first accessed byte of the value is its beginning.
void FrontEnd::placePieces(std::vector<Step> &steps) const {
  std::map<std::tuple<int, uint32_t, int32_t>, int64_t> begins; // by region, value, layer
  auto keyOf = [](const Operand &operand) { return std::tuple(operand.region, operand.value, operand.layer); };
  for (const Step &step : steps)
    for (const Operand &operand : step.operands) {
      auto [entry, isNew] = begins.emplace(keyOf(operand), operand.span.begin);
      entry->second = std::min(entry->second, operand.span.begin);
    }
  for (Step &step : steps)
    for (Operand &operand : step.operands)
      if (operand.span.end - operand.span.begin < operand.valueEnd - operand.valueBegin)
        operand.origin = begins[keyOf(operand)] - operand.valueBegin;
}

} // namespace

void verifyData(const pb::Plan &plan, const Mesh &mesh, PlanErrors &errors) {
  Values values(plan, mesh);
  FrontEnd frontEnd(plan, values);
  ProgramView view = {plan, mesh, values, {}, {}};
  std::vector<std::string> regionNames(plan.regions().begin(), plan.regions().end());
  std::vector<bool> isWanted(values.all().size(), false);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    view.summaries.push_back(summarize(frontEnd.routineOf(subprogram), values.all(), regionNames, errors));
  for (const Summary &summary : view.summaries)
    for (const Operand &need : summary.needs)
      isWanted[values[need.value].root] = true;
  for (const pb::Transfer &transfer : plan.transfers()) {
    view.transfers.push_back(frontEnd.operandsOfTransfer(transfer));
    for (const pb::Buffer &buffer : transfer.from())
      isWanted[values[buffer.value()].root] = true;
  }
  for (const pb::Stage &stage : plan.stages())
    for (const pb::Exchange &exchange : stage.exchanges())
      isWanted[values[exchange.buffer().value()].root] = true;
  // An output without a reader shows that the instruction that accumulates this output is missing from the plan.
  for (int i = 0; i < plan.subprograms_size(); ++i)
    for (const auto &[instruction, operand] : view.summaries[static_cast<size_t>(i)].leftOver)
      if (!isWanted[values[operand.value].root])
        errors.add(fmt::format("{}: leaves '{}', and nothing reads it",
                               instructionName(plan, plan.subprograms(i), instruction),
                               plan.values(static_cast<int>(operand.value)).name()));
  if (!errors.empty())
    return;
  dropUnwanted(view.summaries, isWanted, values.all());
  for (int stage = 0; stage < plan.stages_size(); ++stage)
    for (int entry = 0; entry < plan.entries_size(); ++entry)
      playEntry(view, stage, entry, errors);
}

} // namespace espalier::rt::verify
