// Converts exec ops to protobuf messages, field by field.
#include "compiler/link/emit_programs.h"

#include "compiler/codegen/describe_kernel.h"
#include "compiler/codegen/guards.h"
#include "compiler/codegen/target.h"
#include "compiler/codegen/value_shapes.h"
#include "compiler/import/run/cluster_file.h"
#include "compiler/link/plan_numbers.h"
#include "compiler/link/plan_tables.h"
#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "format/axes.h"
#include "format/functions.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;

namespace espalier {

namespace pb = rt::pb;

namespace {

static_assert(isSame(exec::CollectiveKind::AllReduce, pb::Transfer::ALL_REDUCE) &&
              isSame(exec::CollectiveKind::AllGather, pb::Transfer::ALL_GATHER) &&
              isSame(exec::CollectiveKind::ReduceScatter, pb::Transfer::REDUCE_SCATTER) &&
              isSame(exec::CollectiveKind::AllToAll, pb::Transfer::ALL_TO_ALL));
static_assert(isSame(exec::Reduction::Sum, pb::SUM) && isSame(exec::Reduction::Max, pb::MAX) &&
              exec::getMaxEnumValForReduction() == pb::Reduction_MAX);
static_assert(isSame(exec::DataType::F32, pb::F32) && isSame(exec::DataType::BF16, pb::BF16) &&
              isSame(exec::DataType::F16, pb::F16) && isSame(exec::DataType::I32, pb::I32) &&
              exec::getMaxEnumValForDataType() == pb::DataType_MAX);
static_assert(exec::getMaxEnumValForStore() == pb::Store_MAX);
static_assert(isSame(exec::Store::Overwrite, pb::OVERWRITE) && isSame(exec::Store::Add, pb::ADD) &&
              isSame(exec::Store::AddUnlessFirst, pb::ADD_UNLESS_FIRST));

void addCoordinates(Attribute attribute, pb::Affine &affine) {
  auto origin = dyn_cast_or_null<dist::OriginAttr>(attribute);
  if (!origin)
    return;
  for (auto [axis, stride] : llvm::zip_equal(origin.getAxes(), origin.getStrides())) {
    if (axis == "pp")
      affine.set_pp(stride);
    else if (axis == replicateAxis || axis == "dp") // dp is inside, so its stride counts the ranks of both axes
      affine.set_dp(stride);
    else if (axis == "cp")
      affine.set_cp(stride);
    else if (axis == "ep")
      affine.set_ep(stride);
    else if (axis == "tp")
      affine.set_tp(stride);
  }
}

void fillScalar(Attribute attribute, pb::Affine &message) {
  auto scalar = cast<exec::ScalarAttr>(attribute);
  message.set_constant(scalar.getConstant());
  message.set_micro_batch(scalar.getMicroBatch());
  message.set_layer(scalar.getLayer());
  message.set_seed(scalar.getSeed());
  message.set_first(scalar.getFirst());
  addCoordinates(scalar.getCoordinates(), message);
}

/// Emits the programs of one module into a plan.
class Emitter {
public:
  Emitter(ModuleOp module, pb::Plan &plan)
      : module(module), plan(plan), tables(plan), describedValues(plan.values_size()) {}

  void emit();

private:
  void emitKernel(exec::KernelOp kernel, pb::Kernel &message);
  void emitUses(exec::KernelOp kernel, pb::Kernel &message);
  void emitProgram(exec::ProgramOp program);
  void emitLaunch(exec::LaunchOp launch, pb::Launch &message);
  void emitLibraryCall(exec::CallOp call, pb::LibraryCall &message);
  uint32_t emitStart(exec::StartOp start);
  void fillBuffer(exec::BufferAttr buffer, pb::Buffer &message);
  uint32_t valueOf(exec::BufferAttr buffer);
  void setDims(const codegen::ValueShape &shape, bool isListed, pb::Value &value);
  void emitAxes(exec::ProgramOp program);
  void addMatmulAlgorithms();
  uint32_t locationOf(Operation *op);

  ModuleOp module;
  pb::Plan &plan;
  PlanTables tables;
  int describedValues; ///< number of values that the plan had before; their sizes are already set
  pb::Subprogram *subprogram = nullptr;
  DictionaryAttr shapes;                 ///< shapes of the current program, by name
  std::map<int64_t, uint32_t> transfers; ///< transfers of the current program, by the id of the start
  std::map<std::string, uint32_t> kernels;
};

/// Returns the first file position in a location. A fused location lists first the op that it was derived from.
FileLineColLoc findPosition(Location loc) {
  FileLineColLoc found;
  loc->walk([&](Location part) {
    if (auto position = dyn_cast<FileLineColLoc>(part))
      found = position;
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

/// Returns the plan's name for an instruction's operation.
std::string nameOf(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::string>(op)
      .Case<exec::LaunchOp>([](auto launch) { return launch.getKernel().str(); })
      .Case<exec::CallOp>([](auto call) { return call.getFunction().str(); })
      .Case<exec::StartOp>([](auto start) { return start.getKind().str(); })
      .Default([](Operation *) { return std::string("wait"); });
}

uint32_t Emitter::locationOf(Operation *op) {
  pb::Location location;
  if (FileLineColLoc position = findPosition(op->getLoc())) {
    location.set_file(position.getFilename().str());
    location.set_line(position.getLine());
    location.set_column(position.getColumn());
  }
  location.set_op(nameOf(op));
  return tables.location(location);
}

uint32_t Emitter::valueOf(exec::BufferAttr buffer) {
  pb::Value value;
  value.set_name(codegen::nameInPlan(subprogram->name(), buffer));
  value.set_type(codegen::dataType(buffer.getElement()));
  uint32_t number = tables.value(value);
  pb::Value &known = *plan.mutable_values(static_cast<int>(number));
  uint64_t elements = buffer.getBytes() * 8 / buffer.getElement().getIntOrFloatBitWidth();
  if (static_cast<int>(number) >= describedValues)
    known.set_elements(std::max<uint64_t>(known.elements(), elements));
  std::optional<codegen::ValueShape> shape = codegen::shapeIn(shapes, buffer.getValue());
  if (shape)
    setDims(*shape, /*isListed=*/static_cast<int>(number) < describedValues, known);
  // propagate-value-axes describes only what a collective sums, not counters and saved terms of a parameter's gradient.
  bool isSaved = buffer.getRegion().starts_with("saved");
  if (shape && (isSaved || buffer.getRegion() == exec::stringifyRegion(exec::Region::Cache)))
    known.set_partial(known.partial() | static_cast<uint32_t>(shape->partial));
  return number;
}

/// Sets the dims of a value. Skips buffers that hold only a part of the value, and buckets, which are flat.
void Emitter::setDims(const codegen::ValueShape &shape, bool isListed, pb::Value &value) {
  bool isFlat = shape.tensor.getRank() == 1 && llvm::is_contained(dimNames(shape.tensor), "element");
  bool isBucket = isListed && isFlat && value.whole() == 0;
  if (isBucket || value.dims_size() > 0 || static_cast<int64_t>(value.elements()) != shape.tensor.getNumElements())
    return;
  for (auto [dim, name] : llvm::enumerate(dimNames(shape.tensor))) {
    int64_t split = dim < shape.split.size() ? shape.split[dim] : 0;
    value.add_dims(tables.dim(name.str(), shape.tensor.getDimSize(dim), static_cast<uint32_t>(split)));
  }
  value.set_zigzag(shape.isZigzag);
  if (!isListed)
    value.set_partial(value.partial() | static_cast<uint32_t>(shape.partial));
}

void Emitter::fillBuffer(exec::BufferAttr buffer, pb::Buffer &message) {
  message.set_region(numberOf<uint32_t>(exec::symbolizeRegion(buffer.getRegion())));
  message.set_offset(buffer.getOffset());
  message.set_bytes(buffer.getBytes());
  message.set_value(valueOf(buffer));
  message.set_layer(static_cast<int32_t>(buffer.getLayer()));
  message.set_part(static_cast<uint32_t>(buffer.getPart()));
  if (buffer.getCoordinates())
    addCoordinates(buffer.getCoordinates(), *message.mutable_reads_at());
}

void Emitter::emitLaunch(exec::LaunchOp launch, pb::Launch &message) {
  message.set_kernel(kernels.at(launch.getKernel().str()));
  exec::visitBuffers(launch, [&](exec::BufferAttr buffer, bool) { fillBuffer(buffer, *message.add_buffers()); });
  for (Attribute scalar : launch.getScalars())
    fillScalar(scalar, *message.add_scalars());
  message.set_extent(launch.getExtent());
  message.set_grain(launch.getGrain());
}

void Emitter::emitLibraryCall(exec::CallOp call, pb::LibraryCall &message) {
  message.set_function(static_cast<pb::LibraryCall::Function>(rt::findFunction(call.getFunction())->number));
  exec::visitBuffers(call, [&](exec::BufferAttr buffer, bool) { fillBuffer(buffer, *message.add_buffers()); });
  for (int64_t size : call.getSizes())
    message.add_sizes(size);
  if (auto floats = call.getFloats())
    for (double number : *floats)
      message.add_floats(number);
  if (auto scalars = call.getScalars())
    for (Attribute scalar : *scalars)
      fillScalar(scalar, *message.add_scalars());
  message.set_transpose_a(call.getTransposeA());
  message.set_transpose_b(call.getTransposeB());
  message.set_store(call.getAlwaysAdds() ? pb::ADD : call.getAccumulate() ? pb::ADD_UNLESS_FIRST : pb::OVERWRITE);
  message.set_causal(call.getCausal());
  if (std::optional<StringRef> epilogue = call.getEpilogue())
    message.set_epilogue(static_cast<pb::LibraryCall::Epilogue>(rt::findEpilogue(*epilogue)->number));
}

uint32_t Emitter::emitStart(exec::StartOp start) {
  uint32_t axes = 0;
  for (StringRef axis : start.getAxes().getAsValueRange<StringAttr>())
    axes |= exec::axisBit(axis);
  pb::Transfer transfer;
  transfer.set_name(subprogram->name() + "." + std::to_string(transfers.size()));
  transfer.set_kind(numberOf<pb::Transfer::Kind>(exec::symbolizeCollectiveKind(start.getKind())));
  transfer.set_reduction(numberOf<pb::Reduction>(exec::symbolizeReduction(start.getReduction())));
  transfer.set_queue(tables.queue("collectives"));
  transfer.set_group(tables.group(axes));
  fillBuffer(start.getFrom(), *transfer.add_from());
  fillBuffer(start.getTo(), *transfer.add_to());
  transfer.set_location(locationOf(start));
  return transfers[start.getId()] = tables.transfer(std::move(transfer));
}

void Emitter::emitProgram(exec::ProgramOp program) {
  subprogram = plan.add_subprograms();
  shapes = exec::shapesAttr.of(program);
  subprogram->set_name(program.getSymName().str());
  transfers.clear();
  auto guards = exec::guardsAttr.of(program);
  for (ArrayRef<int64_t> left = guards ? guards.asArrayRef() : ArrayRef<int64_t>(); left.size() >= 3;
       left = left.drop_front(3)) {
    pb::Guard *guard = subprogram->add_guards();
    guard->set_offset(left[0]);
    guard->set_first(left[1]);
    guard->set_last(left[2]);
  }
  for (Operation &op : program.getBody().front()) {
    pb::Instruction *instruction = subprogram->add_instructions();
    if (auto launch = dyn_cast<exec::LaunchOp>(op))
      emitLaunch(launch, *instruction->mutable_launch());
    else if (auto call = dyn_cast<exec::CallOp>(op))
      emitLibraryCall(call, *instruction->mutable_call());
    else if (auto start = dyn_cast<exec::StartOp>(op))
      instruction->set_start(emitStart(start));
    else
      instruction->set_wait(transfers.at(cast<exec::WaitOp>(op).getId()));
    instruction->set_location(locationOf(&op));
  }
  emitAxes(program);
}

/// Adds the axes that propagate-value-axes has found for the operands and results of the program's collectives.
void Emitter::emitAxes(exec::ProgramOp program) {
  auto axes = exec::axesAttr.of(program);
  for (NamedAttribute entry : axes ? axes.getValue() : ArrayRef<NamedAttribute>()) {
    int64_t number = tables.findValue(codegen::nameInPlan(subprogram->name(), entry.getName()));
    pb::Value &value = *plan.mutable_values(static_cast<int>(number));
    auto found = cast<DictionaryAttr>(entry.getValue());
    value.set_split(value.split() | exec::axisBits(found.getAs<ArrayAttr>("split")));
    value.set_partial(value.partial() | exec::axisBits(found.getAs<ArrayAttr>("partial")));
    if (auto reduction = found.getAs<StringAttr>("reduction"))
      value.set_reduction(numberOf<pb::Reduction>(exec::symbolizeReduction(reduction.getValue())));
  }
}

void Emitter::emitKernel(exec::KernelOp kernel, pb::Kernel &message) {
  message.set_symbol(kernel.getSymName().str());
  message.set_shape(kernel.getShape().str());
  codegen::describeKernel(kernel, message);
}

/// Sets the measured matmul algorithms from the cluster file.
void Emitter::addMatmulAlgorithms() {
  auto measured = exec::matmulAlgorithmsAttr.of(module);
  if (!measured || !codegen::targetOf(module).hasMatmulAlgorithms())
    return;
  DictionaryAttr products = measured.getProducts();
  for (pb::Subprogram &program : *plan.mutable_subprograms())
    for (pb::Instruction &instruction : *program.mutable_instructions()) {
      if (!instruction.has_call() || instruction.call().function() != pb::LibraryCall::MATMUL)
        continue;
      pb::LibraryCall &call = *instruction.mutable_call();
      if (auto algorithm = products.getAs<StringAttr>(productName(plan, call)))
        call.set_algorithm(llvm::fromHex(algorithm.getValue()));
      if (!call.algorithm().empty() && plan.libraries_size() == 0)
        plan.add_libraries(measured.getLibrary().str());
    }
}

/// Lists the values that each kernel's launches pass. Must run after all programs, because only then do values have
/// indices. A kernel that was not made by lowering has no launches.
void Emitter::emitUses(exec::KernelOp kernel, pb::Kernel &message) {
  auto uses = exec::usesAttr.of(kernel);
  for (Attribute use : uses ? uses.getValue() : ArrayRef<Attribute>())
    for (auto [operand, value] : llvm::zip_equal(*message.mutable_operands(), cast<ArrayAttr>(use).getValue()))
      operand.add_values(static_cast<uint32_t>(tables.findValue(cast<StringAttr>(value).str())));
}

void Emitter::emit() {
  plan.set_guard_bytes(guardBytes(module));
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    kernels[kernel.getSymName().str()] = plan.kernels_size();
    emitKernel(kernel, *plan.add_kernels());
  }
  for (auto program : module.getOps<exec::ProgramOp>())
    emitProgram(program);
  for (auto kernel : module.getOps<exec::KernelOp>())
    emitUses(kernel, *plan.mutable_kernels(static_cast<int>(kernels.at(kernel.getSymName().str()))));
  addMatmulAlgorithms();
}

} // namespace

void emitPrograms(ModuleOp module, pb::Plan &plan) { Emitter(module, plan).emit(); }

} // namespace espalier
