// Rules about single fields: every index points at something, every enum is known, every size is
// small enough that later sums cannot overflow 63 bits.
#include "runtime/device/cpu/kernel_object.h"
#include "runtime/program.h"
#include "runtime/status.h"
#include "runtime/verify_rules.h"

#include <fmt/format.h>
#include <set>

namespace espalier::rt {
namespace {

constexpr uint64_t maxBytes = uint64_t(1) << 50;
constexpr uint32_t maxSlots = 1 << 16;
constexpr int64_t maxCoefficient = int64_t(1) << 40;
constexpr uint64_t maxCount = uint64_t(1) << 32;

class Structure {
public:
  Structure(const pb::Plan &plan, PlanErrors &errors) : plan(plan), errors(errors) {}

  void check();

private:
  void checkMesh();
  void checkSettings();
  void checkParameter(const pb::Parameter &parameter);
  void checkSubprogram(const pb::Subprogram &subprogram);
  void checkInstruction(const pb::Instruction &instruction, const std::string &name);
  void checkBuffer(const pb::BufferRef &buffer, const std::string &name);
  void checkTerms(const google::protobuf::RepeatedPtrField<pb::AxisTerm> &terms, const std::string &name);
  void checkCollective(const pb::Collective &collective, const std::string &name);
  void checkStage(int index, const pb::Stage &stage);
  void checkCall(const pb::Call &call, const std::string &name);
  void checkActions(int index, const pb::Stage &stage, bool isEvaluation);
  void checkBinding(const pb::Binding &binding, const std::string &name);
  bool isAxis(const std::string &axis) const { return axes.count(axis) > 0; }

  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  PlanErrors &errors;
  std::set<std::string> axes;
  int stages = 1;
};

void Structure::check() {
  if (plan.version() != planVersion)
    return add("the plan has version {}, this runtime reads {}", plan.version(), planVersion);
  bool isCuda = plan.target() == "cuda";
  if (!isCuda && plan.target() != "cpu")
    add("the plan is for target '{}', known are cpu and cuda", plan.target());
  checkMesh();
  if (!errors.empty())
    return;
  checkSettings();
  if (plan.kernels_size() > 0 && plan.objects_size() == 0)
    add("the plan has {} kernels and no kernel object", plan.kernels_size());
  for (const pb::KernelObject &object : plan.objects())
    if (isCuda ? !object.level().starts_with("sm_") : levelNumber(object.level()) == 0)
      add("a kernel object has the unknown level '{}'", object.level());
  for (const pb::Kernel &kernel : plan.kernels())
    if (isCuda && (kernel.threads() == 0 || kernel.threads() > 1024 || kernel.extent_per_block() == 0))
      add("kernel {} has blocks of {} threads over {} iterations", kernel.symbol(), kernel.threads(),
          kernel.extent_per_block());
  for (const pb::Parameter &parameter : plan.parameters())
    checkParameter(parameter);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    checkSubprogram(subprogram);
  for (int i = 0; i < plan.stages_size(); ++i)
    checkStage(i, plan.stages(i));
}

void Structure::checkMesh() {
  for (const pb::Axis &axis : plan.mesh())
    axes.insert(axis.name());
  try {
    stages = Mesh(plan).axisSize("pp");
  } catch (const PlanError &error) {
    return add("{}", error.what());
  }
  if (plan.stages_size() != stages)
    add("the plan has {} stages on a mesh with {} along pp", plan.stages_size(), stages);
}

void Structure::checkSettings() {
  const pb::Settings &settings = plan.settings();
  for (uint64_t count :
       {settings.micro_batch_size(), settings.micro_batches(), settings.global_batch(), settings.sequence()})
    if (count == 0 || count > maxCount)
      return add("micro-batch size, micro-batches, global batch and sequence must lie in 1 to {}, "
                 "got: {}",
                 maxCount, count);
  Mesh mesh(plan);
  // Divided rather than multiplied: the product of three counts may overflow.
  uint64_t perReplica = settings.global_batch() / dataReplicas(mesh);
  if (settings.global_batch() % dataReplicas(mesh) != 0 || perReplica % settings.micro_batches() != 0 ||
      perReplica / settings.micro_batches() != settings.micro_batch_size())
    add("the global batch of {} is not micro-batch size {} * micro-batches {} * {} data replicas",
        settings.global_batch(), settings.micro_batch_size(), settings.micro_batches(), dataReplicas(mesh));
  if (settings.sequence() % mesh.axisSize("cp") != 0)
    add("the sequence of {} does not split over {} context ranks", settings.sequence(), mesh.axisSize("cp"));
}

void Structure::checkParameter(const pb::Parameter &parameter) {
  int rank = parameter.shape_size();
  if (parameter.padded_shape_size() != rank || parameter.dims_size() != rank)
    return add("parameter '{}' has {} dimensions, {} padded ones and {} shardings", parameter.name(), rank,
               parameter.padded_shape_size(), parameter.dims_size());
  uint64_t elements = 1;
  for (int i = 0; i < rank; ++i) {
    uint64_t size = parameter.shape(i), padded = parameter.padded_shape(i);
    if (size == 0 || padded < size || padded > maxBytes / elements)
      return add("parameter '{}' has size {} padded to {} in dimension {}", parameter.name(), size, padded, i);
    elements *= padded;
    for (const std::string &axis : parameter.dims(i).axes())
      if (!isAxis(axis) || axis == "pp")
        add("parameter '{}' is split over '{}', which is no axis to split over", parameter.name(), axis);
  }
  for (const std::string &axis : parameter.partial_axes())
    if (!isAxis(axis))
      add("parameter '{}' is partial over '{}', which is no axis of the mesh", parameter.name(), axis);
  if (!pb::DataType_IsValid(parameter.type()) || parameter.type() == pb::I32)
    add("parameter '{}' has no floating-point type", parameter.name());
  if (!pb::Initialization::Kind_IsValid(parameter.initialization().kind()))
    add("parameter '{}' has an unknown initialisation", parameter.name());
  for (uint32_t stage : parameter.stages())
    if (stage >= static_cast<uint32_t>(stages))
      add("parameter '{}' is on stage {} of {}", parameter.name(), stage, stages);
  if (parameter.stages().empty())
    add("parameter '{}' is on no stage", parameter.name());
}

void Structure::checkSubprogram(const pb::Subprogram &subprogram) {
  if (subprogram.region_bytes_size() > regionCount)
    add("{} has sizes for {} regions, there are {}", subprogram.name(), subprogram.region_bytes_size(), regionCount);
  for (uint64_t bytes : subprogram.region_bytes())
    if (bytes > maxBytes)
      add("{} touches {} bytes of a region", subprogram.name(), bytes);
  if (subprogram.workspace_bytes() > maxBytes)
    add("{} has a workspace of {} bytes", subprogram.name(), subprogram.workspace_bytes());
  for (int i = 0; i < subprogram.instructions_size(); ++i)
    checkInstruction(subprogram.instructions(i), instructionName(plan, subprogram, i));
}

void Structure::checkInstruction(const pb::Instruction &instruction, const std::string &name) {
  if (plan.locations_size() > 0 && instruction.location() >= static_cast<uint32_t>(plan.locations_size()))
    add("{}: location {} of {}", name, instruction.location(), plan.locations_size());
  if (instruction.has_launch()) {
    const pb::Launch &launch = instruction.launch();
    if (launch.kernel() >= static_cast<uint32_t>(plan.kernels_size()))
      add("{}: kernel {} of {}", name, launch.kernel(), plan.kernels_size());
    if (launch.extent() < 0 || launch.grain() < 1)
      add("{}: extent {} in grains of {}", name, launch.extent(), launch.grain());
  } else if (instruction.has_call()) {
    const pb::LibraryCall &call = instruction.call();
    if (!pb::LibraryCall::Function_IsValid(call.function()) || call.function() == pb::LibraryCall::UPDATE_SCALARS)
      add("{}: library function {} cannot be called", name, static_cast<int>(call.function()));
    for (int type : call.types())
      if (!pb::DataType_IsValid(type))
        add("{}: unknown data type {}", name, type);
  } else if (instruction.has_start()) {
    return checkCollective(instruction.start(), name);
  } else if (instruction.has_wait()) {
    return;
  } else {
    return add("{}: neither launch, call, start nor wait", name);
  }
  const auto &buffers = instruction.has_launch() ? instruction.launch().buffers() : instruction.call().buffers();
  const auto &scalars = instruction.has_launch() ? instruction.launch().scalars() : instruction.call().scalars();
  if (buffers.size() > static_cast<int>(maxBuffers) || scalars.size() > static_cast<int>(maxScalars))
    add("{}: {} buffers and {} scalars, at most {} and {} are possible", name, buffers.size(), scalars.size(),
        maxBuffers, maxScalars);
  for (const pb::BufferRef &buffer : buffers)
    checkBuffer(buffer, name);
  for (const pb::Scalar &scalar : scalars)
    checkTerms(scalar.coordinates(), name);
}

void Structure::checkBuffer(const pb::BufferRef &buffer, const std::string &name) {
  if (!pb::Region_IsValid(buffer.region()))
    add("{}: unknown region {}", name, static_cast<int>(buffer.region()));
  if (buffer.offset() > maxBytes || buffer.bytes() > maxBytes)
    add("{}: a buffer of {} bytes at {}", name, buffer.bytes(), buffer.offset());
  checkTerms(buffer.coordinates(), name);
}

void Structure::checkTerms(const google::protobuf::RepeatedPtrField<pb::AxisTerm> &terms, const std::string &name) {
  for (const pb::AxisTerm &term : terms) {
    if (!isAxis(term.axis()))
      add("{}: '{}' is no axis of the mesh", name, term.axis());
    if (term.coefficient() > maxCoefficient || term.coefficient() < -maxCoefficient || terms.size() > 8)
      add("{}: {} per step on axis '{}' is out of range", name, term.coefficient(), term.axis());
  }
}

void Structure::checkCollective(const pb::Collective &collective, const std::string &name) {
  int buffers = collective.elements_size();
  if (buffers == 0 || collective.from_size() != buffers || collective.to_size() != buffers)
    add("{}: a collective from {} to {} buffers with {} sizes", name, collective.from_size(), collective.to_size(),
        buffers);
  if (!pb::Collective::Kind_IsValid(collective.kind()) || !pb::Collective::Reduction_IsValid(collective.reduction()) ||
      !pb::DataType_IsValid(collective.type()))
    add("{}: a collective of unknown kind, reduction or type", name);
  bool reduces = collective.kind() == pb::Collective::ALL_REDUCE || collective.kind() == pb::Collective::REDUCE_SCATTER;
  if (reduces && collective.type() == pb::I32)
    add("{}: i32 is moved between ranks, never reduced", name);
  for (const std::string &axis : collective.axes())
    if (!isAxis(axis) || axis == "pp")
      add("{}: '{}' is no axis of a group; groups across stages list the stages", name, axis);
  std::set<uint32_t> listed(collective.stages().begin(), collective.stages().end());
  if (listed.size() != static_cast<size_t>(collective.stages_size()) ||
      (!listed.empty() && *listed.rbegin() >= static_cast<uint32_t>(stages)))
    add("{}: a group over stages that are listed twice or do not exist", name);
  for (uint64_t elements : collective.elements())
    if (elements > maxBytes / 4)
      add("{}: a collective of {} elements", name, elements);
  for (const pb::BufferRef &buffer : collective.from())
    checkBuffer(buffer, name);
  for (const pb::BufferRef &buffer : collective.to())
    checkBuffer(buffer, name);
}

void Structure::checkStage(int index, const pb::Stage &stage) {
  std::string name = fmt::format("stage {}", index);
  if (stage.arena_bytes() > maxBytes)
    add("{}: an arena of {} bytes", name, stage.arena_bytes());
  if (stage.slots() == 0 || stage.slots() > maxSlots)
    add("{}: {} slots, needs 1 to {}", name, stage.slots(), maxSlots);
  for (const pb::Binding *binding : {&stage.inputs_binding(), &stage.scalars_binding(), &stage.receive_forward(),
                                     &stage.send_forward(), &stage.receive_backward(), &stage.send_backward()})
    checkBinding(*binding, name);
  for (const pb::InputBuffer &input : stage.inputs())
    if (input.offset() > maxBytes || input.bytes() > maxBytes || !pb::DataType_IsValid(input.type()))
      add("{}: input '{}' has {} bytes at {}", name, input.name(), input.bytes(), input.offset());
  for (const pb::Call &call : stage.calls())
    checkCall(call, fmt::format("stage {}, layer {}", index, call.layer()));
  checkActions(index, stage, /*isEvaluation=*/false);
  checkActions(index, stage, /*isEvaluation=*/true);
}

void Structure::checkCall(const pb::Call &call, const std::string &name) {
  for (auto [kind, subprogram] : subprogramsOf(call))
    if (subprogram > static_cast<uint32_t>(plan.subprograms_size()))
      add("{}: {} is subprogram {} of {}", name, kind, subprogram, plan.subprograms_size());
  std::set<int> bound;
  for (const pb::Binding &binding : call.bindings()) {
    checkBinding(binding, name);
    if (!bound.insert(binding.region()).second)
      add("{}: {} is bound twice", name, pb::Region_Name(binding.region()));
  }
  for (const pb::ParameterSlot &slot : call.parameters()) {
    if (slot.parameter() >= static_cast<uint32_t>(plan.parameters_size()))
      add("{}: parameter {} of {}", name, slot.parameter(), plan.parameters_size());
    for (uint64_t value : {slot.parameter_offset(), slot.gradient_offset(), slot.state_offset(), slot.local_elements(),
                           slot.state_elements()})
      if (value > maxBytes / 16)
        add("{}: a parameter slot holds {}, which is out of range", name, value);
  }
}

void Structure::checkBinding(const pb::Binding &binding, const std::string &name) {
  if (!pb::Region_IsValid(binding.region()))
    add("{}: unknown region {}", name, static_cast<int>(binding.region()));
  if (binding.base() > maxBytes || binding.bytes() > maxBytes || binding.slot_stride() > maxBytes / maxSlots * 16)
    add("{}: {} bytes bound at {} with a stride of {}", name, binding.bytes(), binding.base(), binding.slot_stride());
}

void Structure::checkActions(int index, const pb::Stage &stage, bool isEvaluation) {
  const auto &actions = isEvaluation ? stage.evaluation() : stage.schedule();
  uint64_t microBatches = isEvaluation ? 1 : plan.settings().micro_batches();
  for (int i = 0; i < actions.size(); ++i) {
    const pb::Action &action = actions[i];
    if (!pb::Action::Kind_IsValid(action.kind()) || action.slot() >= stage.slots() ||
        action.micro_batch() >= microBatches)
      add("stage {}, action {}: kind {} of micro-batch {} in slot {}, there are {} micro-batches "
          "and {} slots",
          index, i, static_cast<int>(action.kind()), action.micro_batch(), action.slot(), microBatches, stage.slots());
  }
}

} // namespace

void verifyStructure(const pb::Plan &plan, PlanErrors &errors) { Structure(plan, errors).check(); }

} // namespace espalier::rt
