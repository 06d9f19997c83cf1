// The exec dialect's registration and its verifiers. A comment before each check names the constraint of ops.td.
#include "dialects/exec/dialect.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialects/exec/dialect.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialects/exec/attrs.cpp.inc"

#define GET_OP_CLASSES
#include "dialects/exec/ops.cpp.inc"

namespace espalier::exec {

void ExecDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialects/exec/attrs.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialects/exec/ops.cpp.inc"
      >();
}

namespace {

int numberOf(StringRef name, ArrayRef<StringRef> names) {
  const auto *found = llvm::find(names, name);
  return found == names.end() ? -1 : found - names.begin();
}

bool isShape(StringRef shape) { return shape == "row" || shape == "column" || shape == "flat"; }

bool areBuffers(ArrayAttr buffers) {
  return llvm::all_of(buffers, [](Attribute buffer) { return isa<BufferAttr>(buffer); });
}

} // namespace

bool isCuda(ModuleOp module) {
  auto target = module->getAttrOfType<StringAttr>("exec.target");
  return target && target == "cuda";
}

int regionNumber(StringRef region) {
  return numberOf(region, {"parameters", "gradients", "state", "saved", "stream_in", "stream_out", "cotangent_out",
                           "cotangent_in", "inputs", "workspace", "scalars"});
}

int functionNumber(StringRef function) {
  return numberOf(function,
                  {"matmul", "attention_forward", "attention_backward", "embed", "embed_gradient", "rope",
                   "squared_norm", "copy", "zero", "reduce_parts", "update_scalars", "route", "dispatch", "combine"});
}

void visitBuffers(Operation *instruction, function_ref<void(BufferAttr, bool)> visit) {
  auto visitList = [&](ArrayAttr buffers, int64_t outputs) {
    int64_t firstOutput = static_cast<int64_t>(buffers.size()) - outputs;
    for (auto [index, buffer] : llvm::enumerate(buffers))
      visit(cast<BufferAttr>(buffer), static_cast<int64_t>(index) >= firstOutput);
  };
  if (auto launch = dyn_cast<LaunchOp>(instruction)) {
    visitList(launch.getBuffers(), launch.getOutputs());
  } else if (auto call = dyn_cast<CallOp>(instruction)) {
    visitList(call.getBuffers(), call.getOutputs());
  } else if (auto start = dyn_cast<StartOp>(instruction)) {
    visit(start.getFrom(), false);
    visit(start.getTo(), true);
  }
}

LogicalResult BufferAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef region, int64_t offset,
                                 int64_t bytes, int64_t, Attribute) {
  if (region != "virtual" && regionNumber(region) < 0)
    return emitError() << "needs a region of plan.proto or virtual, got " << region;
  if (offset < 0 || bytes < 0)
    return emitError() << "needs an offset and bytes of at least 0, got " << offset << " and " << bytes;
  return success();
}

LogicalResult FusedOp::verify() {
  Block &block = getBody().front();
  auto yield = dyn_cast<YieldOp>(block.back());
  if (!yield || block.getArgumentTypes() != getInputs().getTypes() ||
      yield.getValues().getTypes() != getResultTypes()) // fused_c1
    return emitOpError("needs a body from the inputs' types to the results' types");
  if (!isShape(getShape())) // fused_c2
    return emitOpError("needs shape row, column or flat, got ") << getShape();
  return success();
}

LogicalResult KernelOp::verify() {
  if (!isShape(getShape()) && !getParameters()) // kernel_c1
    return emitOpError("needs shape row, column or flat, or parameters, got ") << getShape();
  return success();
}

LogicalResult LaunchOp::verify() {
  auto module = (*this)->getParentOfType<ModuleOp>();
  if (!module || !module.lookupSymbol<KernelOp>(getKernel())) // launch_c1
    return emitOpError("needs a kernel of the module, got ") << getKernelAttr();
  if (static_cast<int64_t>(getExtent()) < 1 || static_cast<int64_t>(getGrain()) < 1) // launch_c2
    return emitOpError("needs a positive extent and grain, got ") << getExtent() << " and " << getGrain();
  if (!areBuffers(getBuffers()) || getOutputs() > getBuffers().size())
    return emitOpError("needs buffers, of which the last ") << getOutputs() << " are written";
  return success();
}

LogicalResult CallOp::verify() {
  if (functionNumber(getFunction()) < 0) // call_c1
    return emitOpError("needs a function of plan.proto, got ") << getFunction();
  if (getTypes().size() != getBuffers().size()) // call_c2
    return emitOpError("needs one type per buffer, got ") << getTypes().size() << " for " << getBuffers().size();
  if (!areBuffers(getBuffers()) || getOutputs() > getBuffers().size()) // call_c3
    return emitOpError("needs buffers, of which the last ") << getOutputs() << " are written";
  return success();
}

LogicalResult StartOp::verify() {
  StringRef kind = getKind();
  if (kind != "all_reduce" && kind != "all_gather" && kind != "reduce_scatter" && kind != "all_to_all") // start_c1
    return emitOpError("needs kind all_reduce, all_gather, reduce_scatter or all_to_all, got ") << kind;
  if (getReduction() != "sum" && getReduction() != "max") // start_c2
    return emitOpError("needs reduction sum or max, got ") << getReduction();
  return success();
}

LogicalResult WaitOp::verify() {
  for (Operation *op = (*this)->getPrevNode(); op; op = op->getPrevNode())
    if (auto start = dyn_cast<StartOp>(op); start && start.getId() == getId())
      return success();
  return emitOpError("needs a start of id ") << getId() << " before it"; // wait_c1
}

} // namespace espalier::exec
