// Registers the exec dialect and verifies its ops. A comment at each check names the constraint in ops.td.
#include "dialects/attributes.h"
#include "dialects/exec/dialect.h"

#include "format/optimizers.h"

#include "format/axes.h"
#include "format/functions.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

#include "dialects/exec/dialect.cpp.inc"
#include "dialects/exec/enums.cpp.inc"

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

bool isShape(StringRef shape) { return shape == "row" || shape == "column" || shape == "flat"; }

bool areBuffers(ArrayAttr buffers) {
  return llvm::all_of(buffers, [](Attribute buffer) { return isa<BufferAttr>(buffer); });
}

} // namespace

FailureOr<F64> parseF64(AsmParser &parser) {
  double value = 0;
  if (parser.parseFloat(value))
    return failure();
  return F64(value);
}

FailureOr<OptimizerType> parseOptimizer(AsmParser &parser) {
  std::string name;
  SMLoc place = parser.getCurrentLocation();
  if (parser.parseString(&name))
    return failure();
  if (OptimizerType row = rt::findOptimizer(name))
    return row;
  return parser.emitError(place) << "'" << name << "' is no optimizer of format/optimizers.h";
}

void printOptimizer(AsmPrinter &printer, OptimizerType type) { printer.printString(type->name); }

bool generates(ModuleOp module) {
  ModeAttr mode = modeAttr.of(module);
  return mode && mode.getValue() == Mode::Generate;
}

bool trains(ModuleOp module) {
  ModeAttr mode = modeAttr.of(module);
  return !mode || mode.getValue() == Mode::Train;
}

uint32_t axisBit(StringRef axis) { return meshAxisBit(std::string_view(axis)); }

uint32_t axisBits(ArrayAttr axes) { return axes ? axisBits(llvm::to_vector(axes.getAsRange<StringAttr>())) : 0; }

uint32_t axisBits(ArrayRef<StringAttr> axes) {
  uint32_t bits = 0;
  for (StringAttr axis : axes)
    bits |= axisBit(axis);
  return bits;
}

ArrayAttr axisNames(MLIRContext *context, uint32_t bits) {
  SmallVector<StringRef> names;
  for (StringRef axis : meshAxes)
    if (bits & axisBit(axis))
      names.push_back(axis);
  if (bits & axisBit(replicateAxis))
    names.push_back(replicateAxis);
  return Builder(context).getStrArrayAttr(names);
}

std::optional<DataType> dataType(Type element) {
  return llvm::TypeSwitch<Type, std::optional<DataType>>(element)
      .Case<Float32Type>([](Type) { return DataType::F32; })
      .Case<BFloat16Type>([](Type) { return DataType::BF16; })
      .Case<Float16Type>([](Type) { return DataType::F16; })
      .Case<IntegerType>(
          [](IntegerType type) { return type.getWidth() == 32 ? std::optional(DataType::I32) : std::nullopt; })
      .Default([](Type) { return std::nullopt; });
}

void visitBuffers(Operation *instruction, function_ref<void(BufferAttr, bool)> visit) {
  auto visitList = [&](ArrayRef<Attribute> buffers, int64_t outputs) {
    int64_t firstOutput = static_cast<int64_t>(buffers.size()) - outputs;
    for (auto [index, buffer] : llvm::enumerate(buffers))
      visit(cast<BufferAttr>(buffer), static_cast<int64_t>(index) >= firstOutput);
  };
  if (auto launch = dyn_cast<LaunchOp>(instruction)) {
    visitList(launch.getBuffers().getValue(), launch.getOutputs());
  } else if (auto call = dyn_cast<CallOp>(instruction)) {
    for (auto [buffer, operand] : llvm::zip(call.getBuffers(), call.operands()))
      visit(cast<BufferAttr>(buffer), operand->isWritten());
  } else if (auto start = dyn_cast<StartOp>(instruction)) {
    visit(start.getFrom(), false);
    visit(start.getTo(), true);
  }
}

BufferAttr BufferAttr::holding(StringAttr value) const {
  return get(getContext(), getRegion(), getOffset(), getBytes(), getWithin(), getCoordinates(), value, getElement(),
             getLayer(), getPart(), getBucket());
}

BufferAttr BufferAttr::slice(int64_t start, int64_t bytes, Attribute coordinates) const {
  return get(getContext(), getRegion(), getOffset() + (isVirtual() ? 0 : start), bytes,
             getWithin() + (isVirtual() ? start : 0), coordinates, getValue(), getElement(), getLayer(), getPart(),
             getBucket());
}

BufferAttr BufferAttr::placedAt(int64_t offset) const {
  return get(getContext(), "workspace", offset + getWithin(), getBytes(), 0, getCoordinates(), getValue(), getElement(),
             getLayer(), getPart(), getBucket());
}

LogicalResult BufferAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef region, int64_t offset,
                                 int64_t bytes, int64_t, Attribute, StringAttr, Type, int64_t, int64_t, int64_t) {
  if (region != "virtual" && !symbolizeRegion(region))
    return emitError() << "needs a region of plan.proto or virtual, got " << region;
  if (offset < 0 || bytes < 0)
    return emitError() << "needs an offset and bytes of at least 0, got " << offset << " and " << bytes;
  return success();
}

LogicalResult StageAttr::verify(function_ref<InFlightDiagnostic()> emitError, int firstLayer, int layers,
                                ArrayAttr recompute) {
  if (!recompute.empty() && static_cast<int>(recompute.size()) != layers)
    return emitError() << "a stage of " << layers << " layers needs as many policies, got " << recompute.size();
  if (llvm::any_of(recompute, [](Attribute policy) { return !llvm::isa<StringAttr>(policy); }))
    return emitError() << "the policies of a stage are strings, got " << recompute;
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

LogicalResult ProductOp::verify() {
  const rt::EpilogueSignature *known = rt::findEpilogue(getEpilogue());
  if (!known || known->operands.empty()) // product_c1
    return emitOpError("needs an epilogue of functions.def, got ") << getEpilogue();
  size_t others = llvm::count_if(known->operands, [](const auto &operand) { return operand.isRead(); });
  bool mayHaveExtra = others < known->operands.size();
  bool hasExtra = mayHaveExtra && (getExtra() || !known->operands.back().isOptional);
  if (getOthers().size() != others || (getExtra() != nullptr) != hasExtra) // product_c2
    return emitOpError("needs ") << others + 2 << " operands and " << 1 + hasExtra << " results for " << getEpilogue();
  return success();
}

LogicalResult KernelOp::verify() {
  if (!isShape(getShape()) && !getParameters()) // kernel_c1
    return emitOpError("needs shape row, column or flat, or parameters, got ") << getShape();
  return success();
}

LogicalResult ProgramOp::verify() {
  for (Attribute attribute : getPassing().value_or(ArrayAttr::get(getContext(), {}))) {
    auto buffer = dyn_cast<BufferAttr>(attribute);
    if (!buffer || !buffer.getValue() || !buffer.getElement() || !dataType(buffer.getElement())) // program_c1
      return emitOpError("needs passing buffers with a value and an element type of the plan, got ") << attribute;
  }
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

std::vector<const rt::OperandSignature *> CallOp::operands() {
  const rt::FunctionSignature *function = rt::findFunction(getFunction());
  const rt::EpilogueSignature *epilogue = getEpilogue() ? rt::findEpilogue(*getEpilogue()) : nullptr;
  return rt::operandsOf(*function, epilogue, getBuffers().size(), getSizes());
}

/// Returns the type that an operand with this type letter requires, for errors. Returns an empty string if `type` is
/// valid. `ofAll` is the type of the first operand with the letter e.
static std::string wantedFor(char letter, Type type, Type ofAll) {
  bool isFloat = isa<FloatType>(type);
  switch (letter) {
  case 's':
    return type.isF32() ? "" : "f32";
  case 'i':
    return type.isInteger(32) ? "" : "i32";
  case 'f':
    return isFloat ? "" : "a float";
  case 'e':
    return isFloat && type == ofAll ? "" : "the float type of the other buffers";
  default:
    return "";
  }
}

LogicalResult CallOp::verify() {
  const rt::FunctionSignature *function = rt::findFunction(getFunction());
  if (!function) // call_c1
    return emitOpError("needs a function of functions.def, got ") << getFunction();
  if (getTypes().size() != getBuffers().size()) // call_c2
    return emitOpError("needs one type per buffer, got ") << getTypes().size() << " for " << getBuffers().size();
  if (!areBuffers(getBuffers())) // call_c3
    return emitOpError("needs buffers, got ") << getBuffers();
  if (getEpilogue() && (!rt::findEpilogue(*getEpilogue()) || !function->hasFlag("epilogue"))) // call_c4
    return emitOpError("needs an epilogue of functions.def, which only a matmul has, got ") << *getEpilogue();
  std::vector<const rt::OperandSignature *> wanted = operands();
  if (getTypes().size() != wanted.size()) // call_c5
    return emitOpError("needs ") << wanted.size() << " buffers for " << getFunction() << ", got " << getTypes().size();
  Type ofAll;
  for (auto [index, attribute, operand] : llvm::enumerate(getTypes(), wanted)) {
    Type type = getElementTypeOrSelf(cast<TypeAttr>(attribute).getValue());
    if (operand->type == 'e' && !ofAll)
      ofAll = type;
    if (std::string want = wantedFor(operand->type, type, ofAll); !want.empty())
      return emitOpError("needs ") << want << " in buffer " << index << " (" << operand->name << ") of "
                                   << getFunction() << ", got " << type;
  }
  return success();
}

LogicalResult StartOp::verify() {
  if (!symbolizeCollectiveKind(getKind())) // start_c1
    return emitOpError("needs kind all_reduce, all_gather, reduce_scatter or all_to_all, got ") << getKind();
  if (!symbolizeReduction(getReduction())) // start_c2
    return emitOpError("needs reduction sum or max, got ") << getReduction();
  return success();
}

LogicalResult WaitOp::verify() {
  for (Operation *op = (*this)->getPrevNode(); op; op = op->getPrevNode())
    if (auto start = dyn_cast<StartOp>(op); start && start.getId() == getId())
      return success();
  return emitOpError("needs a start of id ") << getId() << " before it"; // wait_c1
}

LogicalResult RegionOp::verify() {
  if (!symbolizeRegion(getRegion())) // region_c1
    return emitOpError("needs a region of plan.proto, got ") << getRegion();
  auto offset = static_cast<int64_t>(getOffset()), bytes = static_cast<int64_t>(getBytes());
  if (offset < 0 || bytes < 0) // region_c2
    return emitOpError("needs an offset and bytes of at least 0, got ") << offset << " and " << bytes;
  return success();
}

} // namespace espalier::exec
