// exec ops to protobuf messages, field by field.
#include "compiler/codegen/emit_subprograms.h"

#include "compiler/codegen/cpu/emit_cpu.h"
#include "compiler/codegen/cuda/emit_cuda.h"
#include "compiler/codegen/guards.h"
#include "compiler/passes.h"
#include "dialects/dist/dialect.h"

#include "mlir/Transforms/Passes.h"
#include "llvm/ADT/TypeSwitch.h"

#include <map>

using namespace mlir;

namespace espalier {

namespace pb = rt::pb;

namespace {

pb::DataType dataType(Type type) {
  return type.isBF16() ? pb::BF16 : type.isF16() ? pb::F16 : type.isInteger() ? pb::I32 : pb::F32;
}

void addCoordinates(Attribute attribute, google::protobuf::RepeatedPtrField<pb::AxisTerm> &terms) {
  auto origin = dyn_cast_or_null<dist::OriginAttr>(attribute);
  if (!origin)
    return;
  for (auto [axis, stride] : llvm::zip_equal(origin.getAxes(), origin.getStrides())) {
    pb::AxisTerm *term = terms.Add();
    term->set_axis(axis.str());
    term->set_coefficient(stride);
  }
}

void fillScalar(Attribute attribute, pb::Scalar &message) {
  auto scalar = cast<exec::ScalarAttr>(attribute);
  message.set_constant(scalar.getConstant());
  message.set_step(scalar.getStep());
  message.set_micro_batch(scalar.getMicroBatch());
  message.set_layer(scalar.getLayer());
  message.set_seed(scalar.getSeed());
  addCoordinates(scalar.getCoordinates(), *message.mutable_coordinates());
}

pb::LibraryCall::Function functionOf(StringRef name) {
  return static_cast<pb::LibraryCall::Function>(exec::functionNumber(name));
}

/// Emits the programs of one module into a plan.
class Emitter {
public:
  Emitter(ModuleOp module, pb::Plan &plan) : module(module), plan(plan) {}

  LogicalResult emit(bool withObjects);

private:
  LogicalResult emitObjects();
  LogicalResult emitText();
  void emitProgram(exec::ProgramOp program);
  void emitLaunch(exec::LaunchOp launch, pb::Launch &message);
  void emitCall(exec::CallOp call, pb::LibraryCall &message);
  void emitStart(exec::StartOp start, pb::Collective &message);
  void fillBuffer(exec::BufferAttr buffer, bool isWritten, pb::BufferRef &message);
  uint32_t locationOf(Operation *op);

  ModuleOp module;
  pb::Plan &plan;
  pb::Subprogram *subprogram = nullptr;
  std::map<std::string, uint32_t> kernels, locations;
};

/// The first file position in a location: a fused one names the op that it was derived from first.
FileLineColLoc findPosition(Location loc) {
  FileLineColLoc found;
  loc->walk([&](Location part) {
    if (auto position = dyn_cast<FileLineColLoc>(part))
      found = position;
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

/// What an instruction does, in the words of the plan.
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
  auto [entry, isNew] = locations.try_emplace(location.SerializeAsString(), plan.locations_size());
  if (isNew)
    *plan.add_locations() = location;
  return entry->second;
}

/// Also widens the subprogram's reach into the region, over all ranks.
void Emitter::fillBuffer(exec::BufferAttr buffer, bool isWritten, pb::BufferRef &message) {
  int region = exec::regionNumber(buffer.getRegion());
  message.set_region(static_cast<pb::Region>(region));
  message.set_offset(buffer.getOffset());
  message.set_bytes(buffer.getBytes());
  message.set_written(isWritten);
  addCoordinates(buffer.getCoordinates(), *message.mutable_coordinates());
  uint64_t end = buffer.getOffset() + buffer.getBytes();
  auto mesh = module->getAttrOfType<dist::MeshAttr>("dist.mesh");
  for (const pb::AxisTerm &term : message.coordinates())
    end += term.coefficient() * (mesh ? mesh.size(term.axis()) - 1 : 0);
  subprogram->set_region_bytes(region, std::max<uint64_t>(subprogram->region_bytes(region), end));
}

void Emitter::emitLaunch(exec::LaunchOp launch, pb::Launch &message) {
  message.set_kernel(kernels.at(launch.getKernel().str()));
  exec::visitBuffers(
      launch, [&](exec::BufferAttr buffer, bool isWritten) { fillBuffer(buffer, isWritten, *message.add_buffers()); });
  for (Attribute scalar : launch.getScalars())
    fillScalar(scalar, *message.add_scalars());
  message.set_extent(launch.getExtent());
  message.set_grain(launch.getGrain());
}

void Emitter::emitCall(exec::CallOp call, pb::LibraryCall &message) {
  message.set_function(functionOf(call.getFunction()));
  exec::visitBuffers(
      call, [&](exec::BufferAttr buffer, bool isWritten) { fillBuffer(buffer, isWritten, *message.add_buffers()); });
  for (Type type : call.getTypes().getAsValueRange<TypeAttr>())
    message.add_types(dataType(type));
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
  message.set_accumulate(call.getAccumulate());
  message.set_always_adds(call.getAlwaysAdds());
  message.set_causal(call.getCausal());
}

void Emitter::emitStart(exec::StartOp start, pb::Collective &message) {
  message.set_kind(start.getKind() == "all_reduce"   ? pb::Collective::ALL_REDUCE
                   : start.getKind() == "all_gather" ? pb::Collective::ALL_GATHER
                                                     : pb::Collective::REDUCE_SCATTER);
  message.set_reduction(start.getReduction() == "max" ? pb::Collective::MAX : pb::Collective::SUM);
  for (int64_t stage : start.getStages().value_or(ArrayRef<int64_t>()))
    message.add_stages(stage);
  for (StringRef axis : start.getAxes().getAsValueRange<StringAttr>())
    if (!start.getStages())
      message.add_axes(axis.str());
  message.set_type(dataType(start.getType()));
  fillBuffer(start.getFrom(), /*isWritten=*/false, *message.add_from());
  fillBuffer(start.getTo(), /*isWritten=*/true, *message.add_to());
  message.add_elements(start.getElements());
  message.set_id(start.getId());
}

void Emitter::emitProgram(exec::ProgramOp program) {
  subprogram = plan.add_subprograms();
  subprogram->set_name(program.getSymName().str());
  subprogram->set_workspace_bytes(program.getWorkspaceBytes().value_or(0));
  for (int region = 0; region <= pb::SCALARS; ++region)
    subprogram->add_region_bytes(0);
  auto guards = program->getAttrOfType<DenseI64ArrayAttr>("exec.guards");
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
      emitCall(call, *instruction->mutable_call());
    else if (auto start = dyn_cast<exec::StartOp>(op))
      emitStart(start, *instruction->mutable_start());
    else
      instruction->mutable_wait()->set_id(cast<exec::WaitOp>(op).getId());
    instruction->set_location(locationOf(&op));
  }
}

LogicalResult Emitter::emit(bool withObjects) {
  plan.set_guard_bytes(guardBytes(module));
  for (auto kernel : module.getOps<exec::KernelOp>()) {
    kernels[kernel.getSymName().str()] = plan.kernels_size();
    pb::Kernel *message = plan.add_kernels();
    message->set_symbol(kernel.getSymName().str());
    message->set_shape(kernel.getShape().str());
    if (auto geometry = kernel.getGeometry()) {
      message->set_threads(geometry->getThreads());
      message->set_extent_per_block(geometry->getExtentPerBlock());
      message->set_columns_per_block(geometry->getColumnsPerBlock());
      message->set_shared_bytes(geometry->getSharedBytes());
    }
    auto parameters = kernel.getParameters();
    if (parameters && kernel.getShape() == "add_squares")
      message->set_norm_weight(cast<FloatAttr>(parameters->get("weight")).getValueAsDouble());
    message->set_always_adds(parameters && parameters->contains("always_adds"));
  }
  for (auto program : module.getOps<exec::ProgramOp>())
    emitProgram(program);
  if (kernels.empty() || !withObjects)
    return success();
  return exec::isCuda(module) ? emitText() : emitObjects();
}

LogicalResult Emitter::emitText() {
  auto text = codegen::cuda::emitPtx(module);
  if (failed(text))
    return failure();
  pb::KernelObject *message = plan.add_objects();
  message->set_level(codegen::cuda::architecture);
  message->set_code(std::move(*text));
  return success();
}

LogicalResult Emitter::emitObjects() {
  auto objects = codegen::emitCpuObjects(module);
  if (failed(objects))
    return failure();
  for (codegen::CpuObject &object : *objects) {
    pb::KernelObject *message = plan.add_objects();
    message->set_level(object.level);
    message->set_code(std::move(object.bytes));
  }
  return success();
}

} // namespace

void addFusionPasses(OpPassManager &passes) {
  // Derivatives repeat subexpressions of the forward part; a group should see each once.
  passes.addPass(createCSEPass());
  passes.addPass(createFuseKernels());
  // Groups are what moves; once buffers are shared, their reuse would forbid it.
  passes.addPass(createOverlapCommunication());
}

void addCodegenPasses(OpPassManager &passes) {
  addFusionPasses(passes);
  // Buffers only exist once groups are known: what lives inside of a kernel needs none.
  passes.addPass(createLowerToExec());
  passes.addPass(createPlanBuffers());
}

LogicalResult emitSubprograms(ModuleOp module, pb::Plan &plan, bool emitObjects) {
  return Emitter(module, plan).emit(emitObjects);
}

} // namespace espalier
