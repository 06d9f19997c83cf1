// Rule A for the tables of the plan: every index is in range and every enumeration is known. Sizes are bounded, so that
// sums and products of a few of them stay below 2^63.
#include "format/abi.h"
#include "format/plan_file.h"
#include "runtime/device/cpu/kernel_object.h"
#include "runtime/status.h"
#include "runtime/verify/kernel_code.h"
#include "runtime/verify/limits.h"
#include "runtime/verify/rules.h"

#include <algorithm>
#include <set>

namespace espalier::rt::verify {
namespace {

class Structure {
public:
  Structure(const pb::Plan &plan, PlanErrors &errors) : plan(plan), errors(errors) {}

  void check();

private:
  void checkRamp(uint64_t replicas);
  void checkSettings(const Mesh &mesh);
  void checkTables();
  void checkNames();
  void checkValue(const pb::Value &value);
  void checkCommunicator(const pb::Communicator &communicator);
  void checkTransfer(const pb::Transfer &transfer);
  void checkKernel(const pb::Kernel &kernel);
  void checkLevels();
  void checkObject(const pb::Object &object);
  void checkSubprogram(const pb::Subprogram &subprogram);
  void checkInstruction(const pb::Instruction &instruction, const std::string &name);
  void checkBucket(const pb::Bucket &bucket);
  void checkParameter(const pb::Parameter &parameter, const std::string &name);
  void checkBuffer(const pb::Buffer &buffer, const std::string &name);
  void checkAffine(const pb::Affine &affine, const std::string &name);
  void checkAxes(uint32_t axes, const std::string &name);
  void checkStageList(const google::protobuf::RepeatedField<uint32_t> &stages, const std::string &name);
  void checkEntries();

  /// Checks an index into a table of `size` entries.
  void index(uint64_t value, int64_t size, std::string_view what, const std::string &name) {
    if (value >= static_cast<uint64_t>(size))
      add("{}: {} {} of {}", name, what, value, size);
  }
  void count(int64_t size, int64_t limit, std::string_view what, const std::string &name) {
    if (size > limit)
      add("{}: {} {}, at most {} are possible", name, size, what, limit);
  }
  void number(uint64_t value, uint64_t limit, std::string_view what, const std::string &name) {
    if (value > limit)
      add("{}: {} {} is out of range", name, what, value);
  }
  template <typename... Args> void add(fmt::format_string<Args...> format, Args &&...args) {
    errors.add(fmt::format(format, std::forward<Args>(args)...));
  }

  const pb::Plan &plan;
  PlanErrors &errors;
};

void Structure::check() {
  if (plan.version() != planVersion)
    return add("plan version {}, this runtime reads {}; compile it again", plan.version(), planVersion);
  if (plan.target() != "cuda" && plan.target() != "cpu")
    add("the plan is for target '{}', known are cpu and cuda", plan.target());
  try {
    Mesh mesh(plan.mesh());
    if (plan.stages_size() != mesh.count(PP))
      return add("the plan has {} stages on a mesh with {} along pp", plan.stages_size(), mesh.count(PP));
    checkSettings(mesh);
  } catch (const PlanError &error) {
    return add("{}", error.what());
  }
  checkTables();
  checkEntries();
}

void Structure::checkSettings(const Mesh &mesh) {
  const pb::Settings &settings = plan.settings();
  for (uint64_t size :
       {settings.micro_batch_size(), settings.micro_batches(), settings.global_batch(), settings.sequence()})
    if (size == 0 || size > maxCount)
      return add("micro-batch size, micro-batches, global batch and sequence must be 1 to {}, got: {}", maxCount, size);
  // Divides, because the product of three counts may overflow.
  uint64_t replicas = mesh.count(sampleAxes), perReplica = settings.global_batch() / replicas;
  if (settings.global_batch() % replicas != 0 || perReplica % settings.micro_batches() != 0 ||
      perReplica / settings.micro_batches() != settings.micro_batch_size())
    add("the global batch of {} is not micro-batch size {} * micro-batches {} * {} data replicas",
        settings.global_batch(), settings.micro_batch_size(), settings.micro_batches(), replicas);
  checkRamp(replicas);
  if (settings.sequence() % mesh.count(CP) != 0)
    add("the sequence of {} does not split over {} context ranks", settings.sequence(), mesh.count(CP));
  bool isZigzag = std::ranges::any_of(plan.values(), [](const pb::Value &value) { return value.zigzag(); });
  if (isZigzag && settings.sequence() % (2 * mesh.count(CP)) != 0)
    add("the sequence of {} does not split into 2 chunks for each of {} context ranks", settings.sequence(),
        mesh.count(CP));
}

/// Checks that the entry of each batch of a ramp trains on as many samples.
void Structure::checkRamp(uint64_t replicas) {
  const pb::Settings &settings = plan.settings();
  uint64_t before = 0;
  for (const pb::BatchStep &step : settings.batch_ramp()) {
    const pb::Entry *entry = step.entry() < static_cast<uint32_t>(plan.entries_size())
                                 ? &plan.entries(static_cast<int>(step.entry()))
                                 : nullptr;
    if (!entry || !entry->name().starts_with("train_step"))
      return add("a batch of the ramp runs entry {}, which is no training step", step.entry());
    if (step.global_batch() != entry->micro_batches() * settings.micro_batch_size() * replicas)
      return add("entry '{}' has {} micro-batches, the batch of the ramp has {} samples", entry->name(),
                 entry->micro_batches(), step.global_batch());
    if (step.samples() <= before || step.samples() > maxSamples)
      return add("a batch of the ramp ends at {} samples, the one before at {}", step.samples(), before);
    before = step.samples();
  }
}

void Structure::checkTables() {
  count(plan.subprograms_size(), maxSubprograms, "subprograms", "the plan");
  count(plan.values_size(), maxTable, "values", "the plan");
  count(plan.transfers_size(), maxTable, "transfers", "the plan");
  count(plan.buckets_size(), maxTable, "buckets", "the plan");
  for (int names : {plan.roles_size(), plan.regions_size(), plan.queues_size(), plan.entries_size()})
    count(names, maxNames, "roles, regions, queues or entries", "the plan");
  if (plan.queues().empty())
    add("the plan lists no queue");
  if (!errors.empty())
    return;
  checkNames();
  count(plan.dims_size(), maxTable, "dims", "the plan");
  for (const pb::Dim &dim : plan.dims()) {
    number(dim.size(), maxBytes / 4, "size", fmt::format("dim '{}'", dim.name()));
    checkAxes(dim.split(), fmt::format("dim '{}'", dim.name()));
  }
  for (const pb::Value &value : plan.values())
    checkValue(value);
  for (const pb::Group &group : plan.groups()) {
    checkAxes(group.axes(), "a group");
    checkStageList(group.stages(), "a group");
    if (!group.stages().empty() && !(group.axes() & PP))
      add("a group lists stages and its ranks do not differ in them");
  }
  for (const pb::Communicator &communicator : plan.communicators())
    checkCommunicator(communicator);
  for (const pb::Transfer &transfer : plan.transfers())
    checkTransfer(transfer);
  for (const pb::Kernel &kernel : plan.kernels())
    checkKernel(kernel);
  checkLevels();
  for (const pb::Object &object : plan.objects())
    checkObject(object);
  for (const pb::Bucket &bucket : plan.buckets())
    checkBucket(bucket);
  for (const pb::Subprogram &subprogram : plan.subprograms())
    checkSubprogram(subprogram);
}

/// Checks that names are unique in every table that is searched by name.
void Structure::checkNames() {
  auto check = [&](const char *what, const auto &table, auto nameOf) {
    std::set<std::string_view> names;
    for (const auto &entry : table)
      if (!names.insert(nameOf(entry)).second)
        add("two {} are called '{}'", what, nameOf(entry));
  };
  auto itself = [](const std::string &name) -> std::string_view { return name; };
  check("roles", plan.roles(), itself);
  check("regions", plan.regions(), itself);
  check("entries", plan.entries(), [](const pb::Entry &entry) -> std::string_view { return entry.name(); });
  check("kernels", plan.kernels(), [](const pb::Kernel &kernel) -> std::string_view { return kernel.symbol(); });
}

void Structure::checkAxes(uint32_t axes, const std::string &name) {
  if (axes & ~allAxes)
    add("{}: {} is no set of axes", name, axes);
}

void Structure::checkStageList(const google::protobuf::RepeatedField<uint32_t> &stages, const std::string &name) {
  std::set<uint32_t> listed(stages.begin(), stages.end());
  if (listed.size() != static_cast<size_t>(stages.size()) || (!listed.empty() && *listed.rbegin() >= plan.mesh().pp()))
    add("{}: lists a stage twice, or one that does not exist", name);
}

void Structure::checkValue(const pb::Value &value) {
  std::string name = fmt::format("value '{}'", value.name());
  if (!pb::DataType_IsValid(value.type()) || !pb::Reduction_IsValid(value.reduction()))
    add("{}: unknown type or reduction", name);
  number(value.elements(), maxBytes / 4, "size", name);
  number(value.first(), maxBytes / 4, "first element", name);
  checkAxes(value.split(), name);
  checkAxes(value.partial(), name);
  index(value.whole(), plan.values_size() + 1, "whole", name);
  count(value.dims_size(), maxFactors, "dims", name);
  for (uint32_t dim : value.dims())
    index(dim, plan.dims_size(), "dim", name);
  bool isPart = value.whole() > 0 && value.whole() <= static_cast<uint32_t>(plan.values_size());
  if (isPart && plan.values(static_cast<int>(value.whole()) - 1).whole() > 0)
    add("{}: is part of a part", name);
}

void Structure::checkCommunicator(const pb::Communicator &communicator) {
  index(communicator.queue(), plan.queues_size(), "queue", "a communicator");
  if (communicator.is_line()) {
    index(communicator.sender(), plan.stages_size(), "stage", "a communicator");
    index(communicator.receiver(), plan.stages_size(), "stage", "a communicator");
  } else {
    index(communicator.group(), plan.groups_size(), "group", "a communicator");
  }
}

void Structure::checkTransfer(const pb::Transfer &transfer) {
  std::string name = fmt::format("transfer '{}'", transfer.name());
  if (!pb::Transfer::Kind_IsValid(transfer.kind()) || !pb::Reduction_IsValid(transfer.reduction()))
    return add("{}: unknown kind or reduction", name);
  index(transfer.queue(), plan.queues_size(), "queue", name);
  if (transfer.queue() == 0)
    add("{}: is on queue 0, which computes", name);
  if (transfer.kind() <= pb::Transfer::SHIFT)
    index(transfer.group(), plan.groups_size(), "group", name);
  bool sends = transfer.kind() == pb::Transfer::SEND, receives = transfer.kind() == pb::Transfer::RECEIVE;
  int pairs = std::max(transfer.from_size(), transfer.to_size());
  if (pairs == 0 || transfer.from_size() != (receives ? 0 : pairs) || transfer.to_size() != (sends ? 0 : pairs))
    add("{}: goes from {} to {} buffers", name, transfer.from_size(), transfer.to_size());
  count(pairs, maxTable, "buffers", name);
  if (std::abs(static_cast<int64_t>(transfer.shift())) > int64_t(maxRanks))
    add("{}: shift {} is out of range", name, transfer.shift());
  if (!plan.locations().empty())
    index(transfer.location(), plan.locations_size(), "location", name);
  for (const auto *buffers : {&transfer.from(), &transfer.to()})
    for (const pb::Buffer &buffer : *buffers)
      checkBuffer(buffer, name);
}

void Structure::checkKernel(const pb::Kernel &kernel) {
  std::string name = fmt::format("kernel {}", kernel.symbol());
  count(kernel.operands_size(), maxOperands, "operands", name);
  count(kernel.scalars(), maxScalars, "scalars", name);
  index(kernel.space(), kernel.operands_size() + 1, "operand", name);
  count(kernel.uses_size(), maxScalars, "scalars", name);
  for (int use : kernel.uses())
    if (!pb::Kernel::Scalar_IsValid(use))
      add("{}: an unknown use of a scalar", name);
  for (const pb::Operand &operand : kernel.operands()) {
    if (!pb::DataType_IsValid(operand.type()) || !pb::Operand::Access_IsValid(operand.access()))
      add("{}: an operand of unknown type or access", name);
    for (uint32_t factor : operand.reach())
      index(factor, int64_t(kernel.scalars()) + 1, "scalar", name);
    for (uint32_t other : operand.over())
      index(other, kernel.operands_size(), "operand", name);
    index(operand.unless(), int64_t(kernel.scalars()) + 1, "scalar", name);
    index(operand.walk(), int64_t(kernel.scalars()) + 1, "scalar", name);
    index(operand.slot(), int64_t(ScalarSlotCount) + 1, "slot", name);
    count(operand.reach_size(), maxFactors, "factors", name);
    if (operand.values_size() != kernel.operands(0).values_size())
      add("{}: its operands have {} and {} uses", name, kernel.operands(0).values_size(), operand.values_size());
    for (uint32_t value : operand.values())
      index(value, plan.values_size(), "value", name);
  }
}

/// Checks that the plan has code for each level exactly once. If a level were missing, a machine would run another
/// level, which rounds differently.
void Structure::checkLevels() {
  std::vector<std::string_view> levels;
  for (const pb::Object &object : plan.objects())
    levels.push_back(object.level());
  bool isWhole = plan.target() == "cuda" ? levels.size() == 1 : std::ranges::equal(levels, cpuLevels);
  if (!plan.kernels().empty() && !isWhole)
    add("the plan has {} kernels for [{}], for {} it has them for [{}]", plan.kernels_size(), fmt::join(levels, ", "),
        plan.target(), plan.target() == "cuda" ? "one sm_" : fmt::format("{}", fmt::join(cpuLevels, ", ")));
}

void Structure::checkObject(const pb::Object &object) {
  bool isCuda = plan.target() == "cuda";
  if (isCuda ? !object.level().starts_with("sm_") : levelNumber(object.level()) == 0)
    add("a kernel object has the unknown level '{}'", object.level());
  if (!isCuda && plan.kernels_size() > 0) {
    std::set<std::string_view> symbols;
    for (const pb::Kernel &kernel : plan.kernels())
      symbols.insert(kernel.symbol());
    if (std::string fault = codeFault(object.code(), symbols); !fault.empty())
      add("the kernel object for {} {}: this compiler does not emit such code", object.level(), fault);
  }
  if (object.geometry_size() != (isCuda ? plan.kernels_size() : 0))
    return add("a kernel object has {} geometries for {} kernels", object.geometry_size(), plan.kernels_size());
  for (int i = 0; i < object.geometry_size(); ++i) {
    const pb::Geometry &geometry = object.geometry(i);
    if (geometry.threads() == 0 || geometry.threads() > maxThreads || geometry.extent_per_block() == 0)
      add("kernel {} has blocks of {} threads over {} iterations", plan.kernels(i).symbol(), geometry.threads(),
          geometry.extent_per_block());
  }
}

void Structure::checkBucket(const pb::Bucket &bucket) {
  std::string name = fmt::format("bucket '{}'", bucket.name());
  if (!pb::DataType_IsValid(bucket.type()) || bucket.type() == pb::I32)
    add("{}: has no floating-point type", name);
  number(bucket.elements(), maxBytes / 16, "size", name);
  index(bucket.rate_group(), plan.settings().rate_groups_size() + 1, "rate group", name);
  checkAxes(bucket.partial(), name);
  checkAxes(bucket.share(), name);
  checkStageList(bucket.holders(), name);
  checkBuffer(bucket.stored(), name);
  if (bucket.has_gradient())
    checkBuffer(bucket.gradient(), name);
  if (bucket.has_whole_gradient())
    checkBuffer(bucket.whole_gradient(), name);
  if (bucket.has_whole_stored())
    checkBuffer(bucket.whole_stored(), name);
  for (const pb::Buffer &buffer : bucket.state())
    checkBuffer(buffer, name);
  for (const pb::Parameter &parameter : bucket.parameters())
    checkParameter(parameter, fmt::format("{}, parameter '{}'", name, parameter.name()));
}

void Structure::checkParameter(const pb::Parameter &parameter, const std::string &name) {
  int rank = parameter.shape_size();
  if (parameter.padded_shape_size() != rank || parameter.split_size() != rank)
    return add("{}: has {} dimensions, {} padded ones and {} splits", name, rank, parameter.padded_shape_size(),
               parameter.split_size());
  if (parameter.slow_size() != 0 && parameter.slow_size() != rank)
    return add("{}: has {} dimensions, and {} orders of their axes", name, rank, parameter.slow_size());
  uint64_t elements = 1;
  for (int i = 0; i < rank; ++i) {
    if (parameter.slow_size() != 0 && (parameter.slow(i) & ~parameter.split(i)) != 0)
      add("{}: orders axes that do not split dimension {}", name, i);
    uint64_t size = parameter.shape(i), padded = parameter.padded_shape(i);
    if (size == 0 || padded < size || padded > maxBytes / elements)
      return add("{}: has size {} padded to {} in dimension {}", name, size, padded, i);
    elements *= padded;
    checkAxes(parameter.split(i), name);
  }
  if (!pb::Initialization::Kind_IsValid(parameter.initialization().kind()))
    add("{}: has an unknown initialization", name);
  number(parameter.first(), maxBytes / 16, "first element", name);
}

void Structure::checkSubprogram(const pb::Subprogram &subprogram) {
  for (int i = 0; i < subprogram.instructions_size(); ++i) {
    const pb::Instruction &instruction = subprogram.instructions(i);
    std::string name = fmt::format("{}, instruction {}", subprogram.name(), i);
    if (!plan.locations().empty())
      index(instruction.location(), plan.locations_size(), "location", name);
    checkInstruction(instruction, name);
  }
}

void Structure::checkInstruction(const pb::Instruction &instruction, const std::string &name) {
  if (instruction.has_start())
    return index(instruction.start(), plan.transfers_size(), "transfer", name);
  if (instruction.has_wait())
    return index(instruction.wait(), plan.transfers_size(), "transfer", name);
  if (!instruction.has_launch() && !instruction.has_call())
    return add("{}: neither launch, call, start nor wait", name);
  const pb::Launch &launch = instruction.launch();
  const pb::LibraryCall &call = instruction.call();
  if (instruction.has_launch()) {
    index(launch.kernel(), plan.kernels_size(), "kernel", name);
    if (launch.extent() < 0 || launch.extent() > int64_t(maxBytes) || launch.grain() < 1)
      add("{}: extent {} in grains of {}", name, launch.extent(), launch.grain());
  } else {
    if (!pb::LibraryCall::Function_IsValid(call.function()) || !pb::Store_IsValid(call.store()) ||
        !pb::LibraryCall::Epilogue_IsValid(call.epilogue()))
      add("{}: unknown library function, store or epilogue", name);
    if (!call.algorithm().empty())
      index(call.library(), plan.libraries_size(), "library", name);
    if (call.has_workspace())
      checkBuffer(call.workspace(), name);
  }
  count(launch.buffers_size() + call.buffers_size(), maxOperands, "operands", name);
  count(launch.scalars_size() + call.scalars_size(), maxScalars, "scalars", name);
  for (const auto *buffers : {&launch.buffers(), &call.buffers()})
    for (const pb::Buffer &buffer : *buffers)
      checkBuffer(buffer, name);
  for (const auto *scalars : {&launch.scalars(), &call.scalars()})
    for (const pb::Affine &scalar : *scalars)
      checkAffine(scalar, name);
}

void Structure::checkBuffer(const pb::Buffer &buffer, const std::string &name) {
  index(buffer.region(), plan.regions_size(), "region", name);
  index(buffer.value(), plan.values_size(), "value", name);
  if (buffer.bytes() > maxBytes || buffer.offset() > maxBytes)
    add("{}: a buffer of {} bytes at {}", name, buffer.bytes(), buffer.offset());
  if (std::abs(static_cast<int64_t>(buffer.layer())) > int64_t(maxRanks))
    add("{}: a buffer of layer {}", name, buffer.layer());
  checkAxes(buffer.part(), name);
  checkAffine(buffer.reads_at(), name);
  number(static_cast<uint64_t>(std::abs(buffer.reads_at().constant())), maxBytes, "place", name);
  if (buffer.reads_at().first() || buffer.reads_at().seed())
    add("{}: a buffer's place depends on the seed, or on the first micro-batch", name);
}

void Structure::checkAffine(const pb::Affine &affine, const std::string &name) {
  auto check = [&](int64_t step) {
    if (step > maxCoefficient || step < -maxCoefficient)
      add("{}: a step of {} is out of range", name, step);
  };
  check(affine.micro_batch());
  check(affine.layer());
  std::ranges::for_each(axisFields(affine), check);
  index(affine.first(), plan.buckets_size() + 1, "bucket", name);
  pb::Affine alone;
  alone.set_first(affine.first());
  if (affine.first() && affine.SerializeAsString() != alone.SerializeAsString())
    add("{}: asks for the first micro-batch and counts something", name);
}

void Structure::checkEntries() {
  for (const pb::Entry &entry : plan.entries()) {
    std::string name = fmt::format("entry '{}'", entry.name());
    if (entry.micro_batches() == 0 || entry.micro_batches() > maxMicroBatches)
      add("{}: has {} micro-batches, needs 1 to {}", name, entry.micro_batches(), maxMicroBatches);
    for (const auto *regions : {&entry.finds(), &entry.writes()})
      for (uint32_t region : *regions)
        index(region, plan.regions_size(), "region", name);
  }
}

} // namespace

void verifyStructure(const pb::Plan &plan, PlanErrors &errors) { Structure(plan, errors).check(); }

} // namespace espalier::rt::verify
