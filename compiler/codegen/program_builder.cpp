// Assigns buffers to values and lowers fused bodies to launches. Arguments and results use the regions of their roles.
// A result that updates an argument is written in place if nothing reads the argument afterwards. Else the result is
// copied at the end.
#include "compiler/codegen/program_builder.h"

#include "compiler/codegen/fusion_graph.h"
#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"

#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// Smallest number of elements that is worth a thread, in a row kernel and in a flat kernel.
constexpr int64_t rowGrainElements = 8192, flatGrainElements = 4096;

StringRef textOf(DictionaryAttr attributes, StringRef name) {
  auto text = attributes ? attributes.getAs<StringAttr>(name) : StringAttr();
  return text ? text.getValue() : StringRef();
}

StringRef regionOf(StringRef role, bool isResult) {
  return llvm::StringSwitch<StringRef>(role)
      .Case("stream", isResult ? "stream_out" : "stream_in")
      .Case("cotangent", isResult ? "cotangent_in" : "cotangent_out")
      .Case("input", "inputs")
      .Case("parameter", "parameters")
      .Case("accumulator", "gradients")
      .Case("state", "state")
      .Case("saved", "saved")
      .Case("saved_for_weights", "saved_for_weights")
      .Case("saved_by_backward", "saved_by_backward")
      .Case("statistic", "scalars")
      .Cases("cache", "counter", "cache")
      .Case("logits", "logits")
      .Default("");
}

/// Returns whether values with this role pass between programs.
bool isPassing(StringRef role) {
  return role == "stream" || role == "cotangent" || role == "input" || role == "cache" || role == "counter" ||
         role == "logits" || role.starts_with("saved");
}

/// Returns whether a result with this role replaces the argument of the same name.
bool isUpdated(StringRef role) {
  return role == "parameter" || role == "accumulator" || role == "state" || role == "statistic" || role == "cache" ||
         role == "counter";
}

/// Returns the last pass over a row that reads `argument` at a column.
int lastRead(const KernelShape &shape, Value argument) {
  auto yielded = shape.body->getTerminator()->getOperands();
  int last = 0;
  auto visit = [&](auto &&self, Value value, int pass) -> void {
    if (value == argument)
      last = std::max(last, pass);
    Operation *op = value.getDefiningOp();
    if (!op || shape.levels.lookup(value) != Level::Full)
      return;
    if (llvm::is_contained(yielded, value) && shape.passes.lookup(value) < pass)
      return; // later passes read the stored output
    for (Value operand : op->getOperands())
      self(self, operand, pass);
  };
  for (Operation &op : shape.body->without_terminator())
    if (isa<model::ReduceSumOp, model::ReduceMaxOp, model::PickOp>(op))
      visit(visit, op.getOperand(0), shape.passes.lookup(op.getOperand(0)));
  for (Value value : yielded)
    visit(visit, value, shape.passes.lookup(value));
  return last;
}

} // namespace

Type partialSums(Type result, int64_t parts) {
  MLIRContext *context = result.getContext();
  SmallVector<int64_t> shape = {parts};
  SmallVector<StringAttr> names = {StringAttr::get(context, partDim)};
  llvm::append_range(shape, cast<RankedTensorType>(result).getShape());
  llvm::append_range(names, dimNames(result));
  return namedTensor(shape, names, Float32Type::get(context));
}

bool mayShare(const KernelShape &shape, unsigned output, unsigned input) {
  const Access &to = shape.outputs[output], &from = shape.operands[input];
  Value stored = shape.body->getTerminator()->getOperand(output), argument = shape.body->getArgument(input);
  auto bits = [](Value value) {
    return cast<RankedTensorType>(value.getType()).getElementType().getIntOrFloatBitWidth();
  };
  if (shape.isSummed(output) || bits(stored) != bits(argument) || to.columns != from.columns ||
      to.isDense != from.isDense || !to.terms.empty() || !from.terms.empty())
    return false;
  // A row value is stored before the columns that later outputs still read.
  if (!to.columns && shape.outputs.size() > 1)
    return false;
  return lastRead(shape, argument) <= shape.passes.lookup(stored);
}

/// Returns whether an output accumulates into this input in place.
static bool addsTo(const KernelShape &shape, unsigned output, unsigned input) {
  return llvm::any_of(shape.accumulations,
                      [&](const Accumulation &sum) { return sum.output == output && sum.operand == input; });
}

int64_t tensorBytes(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * tensor.getElementType().getIntOrFloatBitWidth() / 8;
}

exec::KernelOp KernelTable::add(Location loc, const std::string &shape, int64_t split, const KernelLayout &layout) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  std::string name = shape + "_" + std::to_string(kernels.size() - 1);
  return builder.create<exec::KernelOp>(loc, name, shape, split, layout.geometry, layout.parameters);
}

exec::KernelOp KernelTable::kernelFor(exec::FusedOp fused, const KernelShape &shape, const KernelLayout &layout) {
  std::string key = shape.key();
  llvm::raw_string_ostream stream(key);
  if (layout.geometry)
    stream << " on " << layout.geometry << layout.parameters;
  exec::KernelOp &kernel = kernels[key];
  if (!kernel) {
    kernel = add(fused.getLoc(), shape.kind, shape.split, layout);
    IRMapping mapping;
    fused.getBody().cloneInto(&kernel.getBody(), mapping);
  }
  return kernel;
}

exec::KernelOp KernelTable::special(const SpecialLaunch &launch) {
  KernelLayout layout = {launch.geometry, launch.parameters.getDictionary(module.getContext())};
  std::string key;
  llvm::raw_string_ostream(key) << launch.shape << " on " << layout.geometry << layout.parameters;
  exec::KernelOp &kernel = kernels[key];
  if (!kernel) {
    kernel = add(module.getLoc(), launch.shape.str(), 0, layout);
    OpBuilder builder = OpBuilder::atBlockBegin(&kernel.getBody().emplaceBlock());
    builder.create<exec::YieldOp>(module.getLoc(), ValueRange());
  }
  return kernel;
}

ProgramBuilder::ProgramBuilder(func::FuncOp function, KernelTable &kernels, KeptShapes &kept, SourcePositions *sources)
    : function(function), kernels(kernels), sources(sources), builder(function.getLoc(), function.getContext()),
      target(targetOf(function->getParentOfType<ModuleOp>())), shapes(function, kept) {}

exec::BufferAttr ProgramBuilder::newBuffer(Type tensor) {
  int64_t number = static_cast<int64_t>(bufferTypes.size());
  bufferTypes.push_back(tensor);
  return bufferAt("virtual", number, tensorBytes(tensor), "%" + std::to_string(number),
                  cast<RankedTensorType>(tensor).getElementType());
}

exec::BufferAttr ProgramBuilder::newParts(Type tensor, RankedTensorType part, int64_t parts, const ValueShape &whole) {
  exec::BufferAttr buffer = newBuffer(tensor);
  shapes.set(buffer.getValue(), shapes.partsOf(part, parts, whole));
  return buffer;
}

exec::BufferAttr ProgramBuilder::bufferAt(StringRef region, int64_t offset, int64_t bytes, const Twine &value,
                                          Type element, const BufferTraits &traits) {
  return exec::BufferAttr::get(builder.getContext(), region, offset, bytes, /*within=*/0, /*coordinates=*/{},
                               builder.getStringAttr(value), element, traits.layer, traits.part, traits.bucket);
}

exec::BufferAttr ProgramBuilder::scalarAt(int64_t slot) {
  Type element = slot == rt::Step ? Type(builder.getI32Type()) : Type(builder.getF32Type());
  return bufferAt("scalars", 4 * slot, 4, scalarName(slot), element);
}

exec::BufferAttr ProgramBuilder::place(Value value) {
  exec::BufferAttr &buffer = places[value];
  if (!buffer)
    buffer = newBuffer(value.getType());
  return buffer;
}

FailureOr<exec::BufferAttr> ProgramBuilder::placeOf(DictionaryAttr attributes, Type type, bool isResult, Location loc) {
  StringRef role = textOf(attributes, model::roleAttr), name = textOf(attributes, model::nameAttr);
  StringRef region = textOf(attributes, exec::regionAttr);
  if (region.empty())
    region = regionOf(role, isResult);
  if (region.empty())
    return emitError(loc) << "'" << function.getSymName() << "' needs a known model.role on every argument and result, "
                          << "got '" << role << "' at '" << name << "'";
  if (role == "statistic") {
    int64_t slot = scalarSlot(name);
    if (slot < 0)
      return emitError(loc) << "'" << function.getSymName() << "' has an unknown statistic, '" << name << "'";
    return scalarAt(slot);
  }
  auto number = [&](StringRef attribute) {
    auto given = attributes.getAs<IntegerAttr>(attribute);
    return given ? given.getInt() : 0;
  };
  StringRef segment = function.getSymName().split('.').first, value = textOf(attributes, exec::valueAttr);
  // An input stream belongs to the call's layer, an output stream to the next layer.
  BufferTraits traits{region == "stream_out" || region == "cotangent_out" ? 1 : 0, number(exec::partAttr),
                      number(exec::bucketAttr)};
  exec::BufferAttr buffer = bufferAt(region, number(exec::offsetAttr), tensorBytes(type),
                                     value.empty() ? segment + "." + region + "." + name : Twine(value),
                                     cast<RankedTensorType>(type).getElementType(), traits);
  if (isPassing(role))
    passing.insert(buffer);
  return buffer;
}

LogicalResult ProgramBuilder::placeArguments() {
  for (BlockArgument argument : function.getArguments()) {
    auto buffer = placeOf(function.getArgAttrDict(argument.getArgNumber()), argument.getType(), /*isResult=*/false,
                          argument.getLoc());
    if (failed(buffer))
      return failure();
    places[argument] = *buffer;
    shapes.addArgument(argument, buffer->getValue());
  }
  shapes.follow();
  return success();
}

/// Returns the shapes of the program's values. For an in-place all-reduce, the value of the partial sums is the
/// operand's.
DictionaryAttr ProgramBuilder::shapesOfPlaces() {
  auto add = [&](Value value) {
    if (auto place = places.find(value); place != places.end())
      shapes.set(place->second.getValue(), shapes.of(value));
  };
  for (auto [value, target] : copies)
    shapes.set(target.getValue(), shapes.of(value));
  for (BlockArgument argument : function.getArguments())
    add(argument);
  for (Operation &op : function.getBody().front().without_terminator())
    llvm::for_each(op.getResults(), add);
  // Buffers between kernels are not values of the function.
  for (auto [number, type] : llvm::enumerate(bufferTypes)) {
    auto tensor = cast<RankedTensorType>(type);
    shapes.set("%" + std::to_string(number), {tensor, SmallVector<int64_t>(tensor.getRank(), 0)});
  }
  return shapes.all();
}

bool ProgramBuilder::isLastUse(Value argument, Operation *producer, unsigned result) {
  for (OpOperand &use : argument.getUses()) {
    Operation *user = use.getOwner();
    bool isReducedInPlace = user == producer && isa<dist::AllReduceOp>(user);
    bool isKeptInPlace =
        user == producer &&
        isa<model::AttendCacheOp, model::KeepMaximaOp, model::CarriedRecurrenceOp, model::CarriedConvOp>(user);
    if (isa<func::ReturnOp>(user) || isReducedInPlace || isKeptInPlace)
      continue;
    if (user == producer) {
      auto fused = dyn_cast<exec::FusedOp>(user);
      if (!fused && !isa<model::AccumulateOp>(user))
        return false;
      auto shape = fused ? analyzeKernel(fused.getBody().front(), fused.getShape(), fused.getSplit())
                         : FailureOr<KernelShape>(failure());
      if (fused && (failed(shape) || !(addsTo(*shape, result, use.getOperandNumber()) ||
                                       mayShare(*shape, result, use.getOperandNumber()))))
        return false;
    } else if (!user->isBeforeInBlock(producer)) {
      return false;
    }
  }
  return true;
}

LogicalResult ProgramBuilder::placeResults() {
  Operation *terminator = function.getBody().front().getTerminator();
  for (OpOperand &operand : terminator->getOpOperands()) {
    Value value = operand.get();
    DictionaryAttr attributes = function.getResultAttrDict(operand.getOperandNumber());
    auto target = placeOf(attributes, value.getType(), /*isResult=*/true, terminator->getLoc());
    if (failed(target))
      return failure();
    Value updated;
    for (BlockArgument argument : function.getArguments())
      if (isUpdated(textOf(attributes, model::roleAttr)) && places[argument] == *target)
        updated = argument;
    Operation *producer = value.getDefiningOp();
    bool isPlaced = places.contains(value);
    if (isPlaced && places[value] == *target)
      continue;
    if (!isPlaced && producer && (!updated || isLastUse(updated, producer, cast<OpResult>(value).getResultNumber())))
      places[value] = *target;
    else
      copies.push_back({value, *target});
  }
  return success();
}

/// Returns the buffer of a sum under the name of its partial sums.
static exec::BufferAttr termsOf(exec::BufferAttr sum) {
  return sum.holding(StringAttr::get(sum.getContext(), sum.getValue().getValue() + ".terms"));
}

/// Makes an all-reduce work in place if nothing else reads its operand.
void ProgramBuilder::shareAllReduces() {
  for (Operation &op : llvm::reverse(function.getBody().front())) {
    auto reduce = dyn_cast<dist::AllReduceOp>(op);
    if (!reduce || !reduce.getX().getDefiningOp() || !reduce.getX().hasOneUse() || places.contains(reduce.getX()))
      continue;
    StringRef region = place(reduce.getResult()).getRegion();
    if (region == "virtual" || region == "stream_out" || region == "cotangent_in")
      places[reduce.getX()] = termsOf(place(reduce.getResult()));
  }
}

/// Accumulates chained sums in one buffer if each is only continued by the next. Example: norms of many gradients end
/// in one statistic.
void ProgramBuilder::shareSums() {
  for (Operation &op : llvm::reverse(function.getBody().front())) {
    auto sum = dyn_cast<model::AccumulateOp>(op);
    if (!sum || !isAccumulatedByProducer(sum) || places.contains(sum.getAccumulator()))
      continue;
    if (sum.getAccumulator().getDefiningOp<model::AccumulateOp>() && sum.getAccumulator().hasOneUse())
      places[sum.getAccumulator()] = place(sum.getResult());
  }
}

/// Assigns an operand to the saved buffer of a kernel's result, if only this kernel reads the operand and may overwrite
/// it.
void ProgramBuilder::shareKept() {
  for (auto fused : function.getBody().front().getOps<exec::FusedOp>()) {
    auto shape = analyzeKernel(fused.getBody().front(), fused.getShape(), fused.getSplit());
    for (auto [index, result] : llvm::enumerate(fused.getResults())) {
      auto kept = places.find(result);
      if (failed(shape) || kept == places.end() || kept->second.getRegion() != "saved")
        continue;
      exec::BufferAttr target = kept->second;
      for (auto [input, value] : llvm::enumerate(fused.getInputs()))
        if (value.getDefiningOp() && value.hasOneUse() && !places.contains(value) && mayShare(*shape, index, input)) {
          Type element = cast<RankedTensorType>(value.getType()).getElementType();
          places[value] = bufferAt("saved", target.getOffset(), target.getBytes(),
                                   target.getValue().getValue() + ".before", element);
          break;
        }
    }
  }
}

exec::BufferAttr ProgramBuilder::destination(Value result, NamedAttrList &flags) {
  if (result.hasOneUse())
    if (auto accumulate = dyn_cast<model::AccumulateOp>(*result.user_begin())) {
      flags.set(accumulate.getAlways() ? "always_adds" : "accumulate", builder.getUnitAttr());
      return place(accumulate.getResult());
    }
  return place(result);
}

void ProgramBuilder::emit(exec::KernelOp kernel, const Launch &launch) {
  SmallVector<Attribute> values;
  for (Attribute buffer : launch.buffers)
    values.push_back(builder.getStringAttr(nameInPlan(function.getSymName(), cast<exec::BufferAttr>(buffer))));
  Attribute use = builder.getArrayAttr(values);
  auto known = exec::usesAttr.of(kernel);
  SmallVector<Attribute> uses(known ? known.getValue() : ArrayRef<Attribute>());
  if (!llvm::is_contained(uses, use))
    uses.push_back(use);
  exec::usesAttr.set(kernel, builder.getArrayAttr(uses));
  waitFor(builder.create<exec::LaunchOp>(
      FlatSymbolRefAttr::get(kernel.getSymNameAttr()), builder.getArrayAttr(launch.buffers),
      builder.getI64IntegerAttr(launch.outputs), builder.getArrayAttr(launch.scalars),
      builder.getI64IntegerAttr(launch.extent), builder.getI64IntegerAttr(launch.grain),
      launch.inPlace.empty() ? nullptr : builder.getDenseI64ArrayAttr(launch.inPlace)));
}

void ProgramBuilder::addSum(std::vector<Call> &calls, exec::BufferAttr parts, Value result, ArrayRef<int64_t> sizes) {
  Call call;
  call.function = "reduce_parts";
  call.sizes.assign(sizes.begin(), sizes.end());
  exec::BufferAttr sum = destination(result, call.flags);
  auto alike = llvm::find_if(calls, [&](const Call &other) {
    return target.addsManySums() && other.flags == call.flags && other.sizes == call.sizes &&
           other.buffers.back().getBucket() == sum.getBucket() && other.buffers.back().getElement() == sum.getElement();
  });
  if (alike == calls.end())
    alike = calls.insert(alike, std::move(call));
  auto middle = static_cast<std::ptrdiff_t>(alike->buffers.size() / 2); // all parts, then all sums
  alike->buffers.insert(alike->buffers.begin() + middle, parts);
  alike->elements.insert(alike->elements.begin() + middle, builder.getF32Type());
  alike->add(sum, sum.getElement());
}

/// Emits the second phase of column sums, which adds the partial rows for each result of `sums`.
void ProgramBuilder::sumParts(exec::FusedOp op, ArrayRef<unsigned> sums, ArrayRef<exec::BufferAttr> outputs,
                              int64_t blocks, int64_t columns) {
  std::vector<Call> calls;
  for (unsigned sum : sums)
    addSum(calls, outputs[sum], op.getResult(sum), {blocks, columns});
  for (const Call &call : calls)
    emit(call);
}

LogicalResult ProgramBuilder::lowerFused(exec::FusedOp op) {
  auto analyzed = analyzeKernel(op.getBody().front(), op.getShape(), op.getSplit());
  if (failed(analyzed))
    return op.emitOpError("is not a kernel of shape ") << op.getShape();
  KernelShape &shape = *analyzed;
  SmallVector<exec::BufferAttr> inputs, outputs;
  SmallVector<Attribute> all;
  SmallVector<int64_t> numbers; // buffer indices of the inputs; -1 for an accumulator, which uses its result's buffer
  for (auto [index, input] : llvm::enumerate(op.getInputs())) {
    inputs.push_back(place(input));
    bool isRead = !shape.isAccumulator(index);
    numbers.push_back(isRead ? static_cast<int64_t>(all.size()) : -1);
    if (isRead)
      all.push_back(inputs.back());
  }
  for (int64_t slot : shape.slots)
    all.push_back(scalarAt(slot));
  int64_t extent = shape.rows, grain = std::clamp<int64_t>(rowGrainElements / shape.columns, 1, shape.rows);
  if (shape.kind == "flat") {
    extent = shape.columns;
    grain = std::min(flatGrainElements, extent);
  } else if (shape.kind == "column") {
    int64_t blocks = target.columnBlocks(shape);
    int64_t blockRows = llvm::divideCeil(shape.rows, blocks);
    extent = llvm::divideCeil(shape.rows, blockRows);
    grain = 1;
    shape.scalars[2].value = constantScalar(builder.getContext(), blockRows);
  }
  SmallVector<int64_t> inPlace;
  SmallVector<unsigned> sums;
  for (auto [index, result] : llvm::enumerate(op.getResults())) {
    if (shape.isSummed(index)) {
      sums.push_back(index);
      auto type = cast<RankedTensorType>(result.getType());
      outputs.push_back(newBuffer(partialSums(type, extent)));
      shapes.set(outputs.back().getValue(),
                 shapes.partsOf(withElement(type, builder.getF32Type()), extent, shapes.of(result)));
      continue;
    }
    outputs.push_back(place(result));
    for (auto [input, number] : llvm::enumerate(numbers))
      if (number >= 0 && mayShare(shape, index, input))
        llvm::append_values(inPlace, static_cast<int64_t>(all.size() + index), number);
  }
  for (const Accumulation &sum : shape.accumulations) {
    exec::BufferAttr from = inputs[sum.operand], to = outputs[sum.output];
    if (from != to)
      copy(from, to, from.getElement(), {1, from.getBytes(), from.getBytes()});
    if (sum.scalar >= 0)
      shape.scalars[sum.scalar].value = firstScalar(builder.getContext(), from.getBucket());
  }
  KernelLayout layout = target.layoutFor(shape, inputs, outputs, builder.getContext());
  llvm::append_range(all, outputs);
  auto scalars = llvm::map_to_vector(shape.scalars, [](const KernelScalar &scalar) { return Attribute(scalar.value); });
  auto outputCount = static_cast<int64_t>(outputs.size());
  emit(kernels.kernelFor(op, shape, layout), {all, outputCount, scalars, extent, grain, inPlace});
  sumParts(op, sums, outputs, extent, shape.columns);
  return success();
}

LogicalResult ProgramBuilder::lowerOp(Operation *op) {
  if (auto fused = dyn_cast<exec::FusedOp>(op))
    return lowerFused(fused);
  if (isa<model::AccumulateOp>(op)) // the producer accumulates, see destination()
    return success();
  return llvm::TypeSwitch<Operation *, LogicalResult>(op)
      .Case<model::ContractOp, exec::ProductOp>([&](auto) { return lowerContract(op); })
      .Case<model::AttentionOp, model::AttentionGradOp>([&](auto) { return lowerAttention(op); })
      .Case<model::EmbedOp, model::EmbedGradOp>([&](auto) { return lowerEmbed(op); })
      .Case<model::AttendCacheOp>([&](auto) { return lowerAttendCache(op); })
      .Case<model::KeepMaximaOp>([&](auto) { return lowerKeepMaxima(op); })
      .Case<model::TakeRowOp>([&](auto) { return lowerTakeRow(op); })
      .Case<model::ViewOp>([&](auto) { return lowerView(op); })
      .Case<model::RopeOp>([&](auto) { return lowerRope(op); })
      .Case<model::ConcatOp, model::ColumnsOp>([&](auto) { return lowerColumns(op); })
      .Case<model::SquaredNormOp>([&](auto) { return lowerSquaredNorm(op); })
      .Case<model::RouteOp>([&](auto) { return lowerRoute(op); })
      .Case<model::DispatchOp, model::CombineOp>([&](auto) { return lowerMoves(op); })
      .Case<model::RecurrenceOp, model::RecurrenceGradOp, model::CarriedRecurrenceOp, model::CausalConvOp,
            model::CausalConvGradOp, model::CarriedConvOp>([&](auto) { return lowerState(op); })
      .Case<dist::AllReduceOp>([&](auto) { return lowerAllReduce(op); })
      .Case<dist::AllGatherOp>([&](auto) { return lowerAllGather(op); })
      .Case<dist::ReduceScatterOp>([&](auto) { return lowerReduceScatter(op); })
      .Case<dist::AllToAllOp>([&](auto) { return lowerAllToAll(op); })
      .Case<dist::SliceOp>([&](auto) { return lowerSlice(op); })
      .Default([](Operation *other) { return other->emitOpError("has no lowering to exec"); });
}

LogicalResult ProgramBuilder::build() {
  if (failed(placeArguments()) || failed(placeResults()))
    return failure();
  shareAllReduces();
  shareSums();
  shareKept();
  builder.setInsertionPoint(function);
  auto program = builder.create<exec::ProgramOp>(function.getSymName(), nullptr, nullptr, nullptr);
  Block &instructions = program.getBody().emplaceBlock();
  builder.setInsertionPointToStart(&instructions);
  Operation *before = nullptr; // last instruction of the previous ops
  auto takeNote = [&](int source) {
    Operation *made = before ? before->getNextNode() : instructions.empty() ? nullptr : &instructions.front();
    for (; sources && made; made = made->getNextNode())
      sources->try_emplace(made, source);
    before = instructions.empty() ? nullptr : &instructions.back();
  };
  for (Operation &op : function.getBody().front().without_terminator()) {
    builder.setLoc(op.getLoc());
    if (failed(lowerOp(&op)))
      return failure();
    takeNote(position++);
  }
  for (const Call &call : lastSums)
    emit(call);
  takeNote(lastSum);
  builder.setLoc(function.getBody().front().getTerminator()->getLoc());
  for (auto &[value, target] : copies) {
    int64_t bytes = tensorBytes(value.getType());
    copy(place(value), target, cast<RankedTensorType>(value.getType()).getElementType(), {1, bytes, bytes});
  }
  if (auto norm = exec::maxGradNormAttr.of(function))
    updateScalars(norm.getValueAsDouble(), exec::limitsNormAttr.isOn(function));
  waitForAll();
  if (!passing.empty())
    program.setPassingAttr(builder.getArrayAttr(passing.getArrayRef()));
  program.setBufferTypesAttr(builder.getTypeArrayAttr(bufferTypes));
  exec::shapesAttr.set(program, shapesOfPlaces());
  function.erase();
  return success();
}

} // namespace espalier::codegen
