// Loading: a plan is proved before anything of it is used.
#include "runtime/program.h"

#include "runtime/verify_plan.h"
#include "runtime/verify_rules.h"

#include <fmt/format.h>
#include <thread>

namespace espalier::rt {
namespace {

/// The plan, or PlanError with all that the verifier found.
pb::Plan proved(pb::Plan plan) {
  std::vector<std::string> errors = verifyPlan(plan);
  if (errors.empty())
    return plan;
  std::string text = fmt::format("the plan does not hold ({} errors)", errors.size());
  for (const std::string &error : errors)
    text += "\n  " + error;
  throw PlanError(text);
}

/// Writes one rank's arrays.
class Preparation {
public:
  Preparation(const Mesh &mesh, uint64_t seed, Device &device, RankProgram &program)
      : mesh(mesh), seed(seed), device(device), program(program) {}

  void add(const pb::Instruction &from);
  PreparedCall prepareCall(const pb::Stage &stage, const pb::Call &call) const;

private:
  PreparedBuffer place(const pb::BufferRef &buffer) const {
    return {buffer.offset() + mesh.affine(program.rank, buffer.coordinates()), static_cast<uint32_t>(buffer.region())};
  }
  void addOperands(PreparedInstruction &instruction, const google::protobuf::RepeatedPtrField<pb::BufferRef> &buffers,
                   const google::protobuf::RepeatedPtrField<pb::Scalar> &scalars);
  void addCollective(const pb::Collective &collective);

  const Mesh &mesh;
  const uint64_t seed;
  Device &device;
  RankProgram &program;
  std::vector<std::pair<uint32_t, uint32_t>> started; ///< id in the plan, index in the rank's program
};

void Preparation::addOperands(PreparedInstruction &instruction,
                              const google::protobuf::RepeatedPtrField<pb::BufferRef> &buffers,
                              const google::protobuf::RepeatedPtrField<pb::Scalar> &scalars) {
  instruction.firstBuffer = program.buffers.size();
  instruction.buffers = buffers.size();
  for (const pb::BufferRef &buffer : buffers)
    program.buffers.push_back(place(buffer));
  instruction.firstScalar = program.scalars.size();
  instruction.scalars = scalars.size();
  for (const pb::Scalar &scalar : scalars)
    program.scalars.push_back({scalar.constant() + mesh.affine(program.rank, scalar.coordinates()) +
                                   scalar.seed() * static_cast<int64_t>(seed),
                               scalar.step(), scalar.micro_batch(), scalar.layer()});
}

void Preparation::addCollective(const pb::Collective &collective) {
  std::vector<int> members;
  if (collective.stages().empty()) {
    std::vector<std::string> axes(collective.axes().begin(), collective.axes().end());
    members = mesh.group(program.rank, axes);
  } else {
    std::vector<uint32_t> stages(collective.stages().begin(), collective.stages().end());
    members = mesh.stageGroup(program.rank, stages);
  }
  CollectiveShape shape = {collective.kind(), collective.reduction(), collective.type(), {}};
  shape.elements.assign(collective.elements().begin(), collective.elements().end());
  PreparedCollective prepared;
  prepared.number = device.addCollective(members, shape);
  for (const pb::BufferRef &buffer : collective.from())
    prepared.from.push_back(place(buffer));
  for (const pb::BufferRef &buffer : collective.to())
    prepared.to.push_back(place(buffer));
  started.emplace_back(collective.id(), program.collectives.size());
  program.collectives.push_back(std::move(prepared));
}

void Preparation::add(const pb::Instruction &from) {
  PreparedInstruction instruction;
  instruction.location = from.location();
  if (from.has_launch()) {
    instruction.kernel = from.launch().kernel();
    instruction.extent = from.launch().extent();
    instruction.grain = from.launch().grain();
    addOperands(instruction, from.launch().buffers(), from.launch().scalars());
  } else if (from.has_call()) {
    instruction.kind = PreparedInstruction::Call;
    instruction.accumulate = from.call().accumulate();
    instruction.alwaysAdds = from.call().always_adds();
    addOperands(instruction, from.call().buffers(), from.call().scalars());
  } else if (from.has_start()) {
    instruction.kind = PreparedInstruction::Start;
    instruction.collective = program.collectives.size();
    addCollective(from.start());
  } else {
    instruction.kind = PreparedInstruction::Wait;
    for (auto [id, index] : started) // ids are unique within a subprogram
      if (id == from.wait().id())
        instruction.collective = index;
  }
  program.instructions.push_back(instruction);
}

PreparedCall Preparation::prepareCall(const pb::Stage &stage, const pb::Call &call) const {
  PreparedCall prepared;
  prepared.layer = call.layer();
  prepared.forward = call.forward();
  prepared.backward = call.backward();
  prepared.reduceGradients = call.reduce_gradients();
  prepared.squaredNorm = call.squared_norm();
  prepared.optimizer = call.optimizer();
  prepared.evaluate = call.evaluate();
  prepared.bases.resize(std::max(1u, stage.slots()));
  for (uint32_t slot = 0; slot < prepared.bases.size(); ++slot) {
    auto bind = [&](pb::Region region, const pb::Binding &binding) {
      prepared.bases[slot][region] = binding.base() + slot * binding.slot_stride();
    };
    bind(pb::INPUTS, stage.inputs_binding());
    bind(pb::SCALARS, stage.scalars_binding());
    for (const pb::Binding &binding : call.bindings())
      bind(binding.region(), binding);
  }
  return prepared;
}

} // namespace

std::string locationText(const pb::Plan &plan, uint32_t location) {
  if (location >= static_cast<uint32_t>(plan.locations_size()))
    return "";
  const pb::Location &place = plan.locations(location);
  return fmt::format("{} at {}:{}:{}", place.op(), place.file(), place.line(), place.column());
}

int threadsPerRank(int wanted, int ranks) {
  int cores = std::max(1u, std::thread::hardware_concurrency());
  return wanted > 0 ? wanted : std::max(1, cores / ranks);
}

Program::Program(pb::Plan plan, int threads)
    : thePlan(proved(std::move(plan))), theMesh(thePlan),
      theBackend(loadBackend(thePlan, threadsPerRank(threads, theMesh.ranks()))) {}

RankProgram Program::prepare(int rank, Device &device) const {
  RankProgram program;
  program.rank = rank;
  program.stage = theMesh.stage(rank);
  const pb::Stage &stage = thePlan.stages(program.stage);
  std::vector<bool> used(thePlan.subprograms_size() + 1);
  for (const pb::Call &call : stage.calls())
    for (auto [kind, number] : subprogramsOf(call))
      used[number] = true;
  program.subprograms.resize(used.size());
  for (size_t index = 1; index < used.size(); ++index) {
    if (!used[index])
      continue;
    const pb::Subprogram &subprogram = thePlan.subprograms(index - 1);
    Preparation preparation(theMesh, thePlan.settings().seed(), device, program);
    program.subprograms[index].first = program.instructions.size();
    for (const pb::Instruction &instruction : subprogram.instructions())
      preparation.add(instruction);
    program.subprograms[index].last = program.instructions.size();
  }
  Preparation preparation(theMesh, thePlan.settings().seed(), device, program);
  for (const pb::Call &call : stage.calls())
    program.calls.push_back(preparation.prepareCall(stage, call));
  return program;
}

int dataReplica(const Mesh &mesh, int rank) {
  return mesh.coordinate(rank, "dp") * mesh.axisSize("ep") + mesh.coordinate(rank, "ep");
}

int dataReplicas(const Mesh &mesh) { return mesh.axisSize("dp") * mesh.axisSize("ep"); }

} // namespace espalier::rt
