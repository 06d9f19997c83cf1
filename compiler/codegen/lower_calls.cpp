// Lowers ops to library calls, with buffers, sizes, floats, scalars and flags as defined by the rows of
// format/functions.def.
#include "compiler/codegen/matrix_product.h"
#include "compiler/codegen/program_builder.h"

#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"
#include "format/functions.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

int64_t sizeOf(Type type, ArrayRef<StringAttr> names) {
  int64_t product = 1;
  for (StringAttr name : names)
    product *= cast<RankedTensorType>(type).getDimSize(dimIndex(type, name));
  return product;
}

Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

/// Returns batch, seq, kv_heads, group and head_dim of attention. If q holds only a shard of the queries, appends the
/// unsharded sequence length.
SmallVector<int64_t> attentionSizes(Value q, Value k) {
  auto queries = cast<RankedTensorType>(q.getType()), keys = cast<RankedTensorType>(k.getType());
  int64_t heads = 1;
  for (int64_t d = 2; d + 1 < queries.getRank(); ++d)
    heads *= queries.getDimSize(d);
  int64_t kvHeads = keys.getDimSize(2);
  SmallVector<int64_t> sizes = {queries.getDimSize(0), queries.getDimSize(1), kvHeads, heads / kvHeads,
                                queries.getDimSize(queries.getRank() - 1)};
  if (keys.getDimSize(1) != queries.getDimSize(1))
    sizes.push_back(keys.getDimSize(1));
  return sizes;
}

/// Returns random stream, first sample, first head, sequence length of the unsharded model, and position of the first
/// query.
LogicalResult attentionScalars(Operation *op, Value q, int64_t id, double rate, SmallVectorImpl<Attribute> &scalars) {
  MLIRContext *context = op->getContext();
  auto type = cast<RankedTensorType>(q.getType());
  auto origins = op->getAttrOfType<ArrayAttr>("origins");
  auto unsplit = op->getAttrOfType<DenseI64ArrayAttr>("unsplit");
  ArrayRef<int64_t> whole = unsplit ? unsplit.asArrayRef() : type.getShape();
  if (static_cast<int64_t>(whole.size()) != type.getRank() ||
      (origins && static_cast<int64_t>(origins.size()) != type.getRank()))
    return op->emitOpError("needs one origin and unsplit size per dimension of q");
  auto originOf = [&](int64_t d) { return origins ? origins[d] : Attribute(); };
  exec::ScalarAttr head = constantScalar(context, 0);
  int64_t stride = 1;
  for (int64_t d = type.getRank() - 2; d >= 2; --d) {
    bool isInner = d > 2;
    if (rate > 0 && isInner && whole[d] != type.getDimSize(d) && type.getDimSize(2) != 1)
      return op->emitOpError("with dropout needs the query group whole or one key-value head per device, so that "
                             "the heads of a device are neighbours");
    head = addScalars(head, originScalar(context, originOf(d), stride));
    stride *= whole[d];
  }
  scalars.assign({randomStream(context, id), originScalar(context, originOf(0)), head,
                  constantScalar(context, whole[1]), originScalar(context, originOf(1))});
  return success();
}

/// Appends the size zigzag if the queries are in zigzag order.
void addZigzag(Operation *op, Call &call) {
  if (!dist::zigzagAttr.isOn(op))
    return;
  const rt::FunctionSignature &row = *rt::findFunction(call.function);
  std::vector<int64_t> all = *rt::allSizes(row, call.sizes);
  all[*row.findSize("zigzag")] = 1;
  call.sizes.assign(all.begin(), all.end());
}

/// Returns the op that keeps the maxima of an attention's scores, and sets the size keeps_maxima. Returns null if there
/// is none, as for recomputed attention.
model::KeepMaximaOp keptMaxima(model::AttentionOp op, Call &call) {
  if (!op.getLargest() || op.getLargest().use_empty())
    return nullptr;
  const rt::FunctionSignature &row = *rt::findFunction(call.function);
  std::vector<int64_t> all = *rt::allSizes(row, call.sizes);
  all[*row.findSize("keeps_maxima")] = 1;
  call.sizes.assign(all.begin(), all.end());
  return cast<model::KeepMaximaOp>(*op.getLargest().user_begin());
}

/// Appends the size value_dim if the values do not have as many columns as the keys.
void addValueColumns(Value v, Call &call) {
  const rt::FunctionSignature &row = *rt::findFunction(call.function);
  size_t index = *row.findSize("value_dim");
  int64_t columns = cast<RankedTensorType>(v.getType()).getShape().back();
  std::vector<int64_t> all = *rt::allSizes(row, call.sizes);
  if (columns == all[*row.findSize("head_dim")])
    return;
  all[index] = columns;
  call.sizes.assign(all.begin(), all.begin() + static_cast<int64_t>(index) + 1);
}

/// Appends the remaining sizes, floats and flags of the function's row: the op's attributes of the same names, else
/// initial values. The call leaves out the numbers behind the last one that the op gives.
void addAttributes(Operation *op, Call &call) {
  const rt::FunctionSignature &row = *rt::findFunction(call.function);
  auto attribute = [&](StringRef name) { return op->getInherentAttr(name).value_or(Attribute()); };
  size_t given = call.sizes.size();
  for (const rt::NumberSignature &size : ArrayRef(row.sizes).drop_front(given)) {
    Attribute own = attribute(size.name);
    if (own)
      call.sizes.push_back(isa<UnitAttr>(own) ? 1 : cast<IntegerAttr>(own).getInt());
    else if (std::optional<size_t> other = row.findSize(size.initial))
      call.sizes.push_back(call.sizes[*other]);
    else
      call.sizes.push_back(size.isFlag ? 0 : std::stoll(size.initial));
    given = own || size.initial.empty() ? call.sizes.size() : given;
  }
  call.sizes.resize(given);
  given = call.floats.size();
  for (const rt::NumberSignature &number : ArrayRef(row.floats).drop_front(given)) {
    Attribute own = attribute(number.name);
    call.floats.push_back(own ? cast<FloatAttr>(own).getValueAsDouble() : std::stod(number.initial));
    given = own ? call.floats.size() : given;
  }
  call.floats.resize(given);
  for (const std::string &flag : row.flags)
    if (Attribute own = attribute(flag))
      call.flags.set(flag, own);
}

} // namespace

void ProgramBuilder::emit(const Call &call) {
  auto launches = target.launchesOf(call, builder.getContext(), [this](Type type) { return newBuffer(type); });
  for (const SpecialLaunch &launch : launches)
    emit(kernels.special(launch), {{launch.buffers.begin(), launch.buffers.end()},
                                   launch.outputs,
                                   launch.scalars,
                                   launch.extent,
                                   /*grain=*/1,
                                   /*inPlace=*/{}});
  if (!launches.empty())
    return;
  SmallVector<Attribute> places(call.buffers.begin(), call.buffers.end());
  OperationState state(builder.getLoc(), exec::CallOp::getOperationName());
  state.addAttribute("function", builder.getStringAttr(call.function));
  state.addAttribute("buffers", builder.getArrayAttr(places));
  state.addAttribute("types", builder.getTypeArrayAttr(call.elements));
  state.addAttribute("sizes", builder.getDenseI64ArrayAttr(call.sizes));
  if (!call.floats.empty())
    state.addAttribute("floats", builder.getDenseF64ArrayAttr(call.floats));
  if (!call.scalars.empty())
    state.addAttribute("scalars", builder.getArrayAttr(call.scalars));
  for (NamedAttribute flag : call.flags)
    state.addAttribute(flag.getName(), flag.getValue());
  waitFor(builder.create(state));
}

void ProgramBuilder::copy(exec::BufferAttr from, exec::BufferAttr to, Type element, ArrayRef<int64_t> sizes) {
  Call call;
  call.function = "copy";
  call.add(from, element);
  call.add(to, element);
  call.sizes.assign(sizes.begin(), sizes.end());
  emit(call);
}

void ProgramBuilder::rearrange(exec::BufferAttr from, exec::BufferAttr to, Type element, ArrayRef<int64_t> sizes,
                               rt::Zigzag zigzag) {
  Call call;
  call.function = "rearrange";
  call.add(from, element);
  call.add(to, element);
  call.sizes.assign(sizes.begin(), sizes.end());
  if (zigzag != rt::Zigzag::None)
    call.sizes.push_back(static_cast<int64_t>(zigzag));
  emit(call);
}

/// Emits the update of the scalars that depend on the all-reduced sums. With `limitsNorm`, a step with a norm above the
/// limit that the host sets is skipped.
void ProgramBuilder::updateScalars(double maxGradNorm, bool limitsNorm) {
  Call call;
  call.function = "update_scalars";
  auto mesh = dist::meshAttr.of(function->getParentOfType<ModuleOp>());
  bool isAlone = !mesh || llvm::all_of(mesh.getSizes(), [](int64_t size) { return size == 1; });
  for (int64_t slot : {rt::LossSum, rt::TokenCount, rt::SquaredNorm})
    call.add(isAlone ? scalarAt(slot) : scalarAt(slot).holding(builder.getStringAttr(agreedName(slot))),
             builder.getF32Type());
  SmallVector<int64_t, 4> others = {rt::LossScale, rt::GradientScale, rt::Apply};
  if (limitsNorm)
    others.insert(others.begin() + 1, rt::NormLimit);
  for (int64_t slot : others)
    call.add(scalarAt(slot), builder.getF32Type());
  call.floats = {maxGradNorm};
  emit(call);
}

LogicalResult ProgramBuilder::lowerContract(Operation *op) {
  std::optional<MatrixProduct> product = collapse(op);
  if (!product)
    return op->emitOpError("is no matrix product of dense rows: the dimensions of ")
           << op->getOperand(0).getType() << " and " << op->getOperand(1).getType() << " do not stand in the order of "
           << op->getResult(0).getType() << "; order them as [batch, rows, contracted]";
  Call call;
  call.function = "matmul";
  call.add(place(product->a), elementOf(product->a));
  call.add(place(product->b), elementOf(product->b));
  exec::BufferAttr target = destination(op->getResult(0), call.flags);
  call.add(target, target.getElement());
  call.sizes = {sizeOf(product->a.getType(), product->m), sizeOf(product->b.getType(), product->n),
                sizeOf(product->a.getType(), product->k), sizeOf(product->a.getType(), product->batch)};
  if (product->transposeA)
    call.flags.set("transpose_a", builder.getUnitAttr());
  if (product->transposeB)
    call.flags.set("transpose_b", builder.getUnitAttr());
  if (auto folded = dyn_cast<exec::ProductOp>(op)) {
    lowerEpilogue(folded, call);
    return success();
  }
  emit(call);
  return success();
}

/// Emits a product with its epilogue. The library overwrites its bias-gradient output, so a separate call adds it to
/// the accumulator. That call runs at the end of the program if nothing in the program reads the accumulator.
void ProgramBuilder::lowerEpilogue(exec::ProductOp op, Call &call) {
  call.flags.set("epilogue", op.getEpilogueAttr());
  for (Value other : op.getOthers())
    call.add(place(other), elementOf(other));
  Value extra = op.getExtra();
  auto sum = extra && extra.hasOneUse() ? dyn_cast<model::AccumulateOp>(*extra.user_begin()) : model::AccumulateOp();
  if (!sum) {
    if (extra)
      call.add(place(extra), elementOf(extra));
    return emit(call);
  }
  auto type = cast<RankedTensorType>(extra.getType());
  exec::BufferAttr once = newParts(partialSums(type, 1), type, 1, shapes.of(extra));
  call.add(once, elementOf(extra));
  emit(call);
  std::vector<Call> sums;
  bool isLast = llvm::all_of(sum->getUsers(), [](Operation *user) { return isa<func::ReturnOp>(user); });
  addSum(isLast ? lastSums : sums, once, extra, {1, type.getNumElements()});
  lastSum = isLast ? position : lastSum;
  for (const Call &addition : sums)
    emit(addition);
}

LogicalResult ProgramBuilder::lowerAttention(Operation *op) {
  Call call;
  auto setUp = [&](auto attention) {
    call.sizes = attentionSizes(attention.getQ(), attention.getK());
    addAttributes(op, call);
    addValueColumns(attention.getV(), call);
    addZigzag(op, call);
    return attentionScalars(op, attention.getQ(), attention.getId(), attention.getRate().convertToDouble(),
                            call.scalars);
  };
  bool isForward = isa<model::AttentionOp>(op);
  call.function = isForward ? "attention_forward" : "attention_backward";
  if (failed(isForward ? setUp(cast<model::AttentionOp>(op)) : setUp(cast<model::AttentionGradOp>(op))))
    return failure();
  auto addAll = [&](auto values) {
    for (Value value : values)
      call.add(place(value), elementOf(value));
  };
  auto addStep = [&] { call.add(scalarAt(rt::Step), builder.getI32Type()); };
  addAll(op->getOperands());
  if (!isForward)
    addStep();
  addAll(isForward ? op->getResults().take_front(2) : op->getResults());
  if (model::KeepMaximaOp keep = isForward ? keptMaxima(cast<model::AttentionOp>(op), call) : nullptr)
    call.add(place(keep.getResult()), elementOf(keep.getResult()));
  if (isForward)
    addStep();
  for (unsigned operand : {1, 2}) // k and v
    if (int64_t columns = cast<RankedTensorType>(op->getOperand(operand).getType()).getShape().back();
        !target.headFault(columns).empty())
      return op->emitOpError("on ") << target.name() << " needs " << target.headFault(columns) << ", got " << columns;
  emit(call);
  return success();
}

/// The call of the attention updates the maxima in place.
LogicalResult ProgramBuilder::lowerKeepMaxima(Operation *op) {
  auto keep = cast<model::KeepMaximaOp>(op);
  if (!keep.getX().getDefiningOp<model::AttentionOp>() || !keep.getX().hasOneUse() ||
      place(keep.getMaxima()) != place(keep.getResult()))
    return op->emitOpError("needs the largest scores of an attention, which nothing else reads, and maxima that are an "
                           "argument and a result of its function");
  return success();
}

/// The caches are updated in place.
LogicalResult ProgramBuilder::lowerAttendCache(Operation *op) {
  auto attend = cast<model::AttendCacheOp>(op);
  for (auto [before, after] :
       {std::pair(attend.getKeys(), attend.getNewKeys()), std::pair(attend.getValues(), attend.getNewValues())})
    if (place(before) != place(after))
      return op->emitOpError("needs caches that are arguments and results of its function, nothing else");
  Call call;
  call.function = "attend_cache";
  for (Value value : {attend.getQ(), attend.getK(), attend.getV(), attend.getPositions()})
    call.add(place(value), elementOf(value));
  for (Value value : op->getResults())
    call.add(place(value), elementOf(value));
  call.sizes = attentionSizes(attend.getQ(), attend.getK());
  call.sizes.resize(5);
  call.sizes.push_back(cast<RankedTensorType>(attend.getKeys().getType()).getDimSize(2));
  addAttributes(op, call);
  addValueColumns(attend.getV(), call);
  emit(call);
  return success();
}

LogicalResult ProgramBuilder::lowerTakeRow(Operation *op) {
  auto take = cast<model::TakeRowOp>(op);
  auto type = cast<RankedTensorType>(take.getX().getType());
  Call call;
  call.function = "take_row";
  for (Value value : {take.getX(), take.getRows(), take.getResult()})
    call.add(place(value), elementOf(value));
  call.sizes = {type.getDimSize(0), type.getDimSize(1), tensorBytes(type) / type.getDimSize(0) / type.getDimSize(1)};
  emit(call);
  return success();
}

/// Concatenates columns, or takes them apart.
LogicalResult ProgramBuilder::lowerColumns(Operation *op) {
  Call call;
  call.function = op->getName().stripDialect();
  for (Value value : llvm::concat<Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults())))
    call.add(place(value), elementOf(value));
  auto columnsOf = [](Value value) { return cast<RankedTensorType>(value.getType()).getShape().back(); };
  bool isConcat = isa<model::ConcatOp>(op);
  Value whole = isConcat ? op->getResult(0) : op->getOperand(0), part = isConcat ? op->getOperand(1) : op->getResult(0);
  auto type = cast<RankedTensorType>(whole.getType());
  int64_t heads = type.getDimSize(type.getRank() - 2);
  call.sizes = {type.getNumElements() / heads / columnsOf(whole), heads};
  if (isConcat)
    llvm::append_values(call.sizes, columnsOf(op->getOperand(0)), columnsOf(part), columnsOf(whole));
  else
    llvm::append_values(call.sizes, columnsOf(whole), columnsOf(part),
                        static_cast<int64_t>(cast<model::ColumnsOp>(op).getFirst()));
  call.sizes.push_back(cast<RankedTensorType>(part.getType()).getRank() == type.getRank() ? 1 : 0);
  emit(call);
  return success();
}

LogicalResult ProgramBuilder::lowerView(Operation *op) {
  Value x = op->getOperand(0), result = op->getResult(0);
  int64_t bytes = tensorBytes(cast<RankedTensorType>(x.getType()));
  copy(place(x), place(result), elementOf(x), {1, bytes, bytes});
  return success();
}

LogicalResult ProgramBuilder::lowerEmbed(Operation *op) {
  bool isForward = isa<model::EmbedOp>(op);
  Value result = op->getResult(0), ids = op->getOperand(isForward ? 1 : 0);
  auto table = cast<RankedTensorType>(isForward ? op->getOperand(0).getType() : result.getType());
  Call call;
  call.function = isForward ? "embed" : "embed_gradient";
  for (Value operand : op->getOperands())
    call.add(place(operand), elementOf(operand));
  exec::BufferAttr target = destination(result, call.flags);
  call.add(target, target.getElement());
  call.sizes = {cast<RankedTensorType>(ids.getType()).getNumElements(), table.getDimSize(0), table.getDimSize(1)};
  call.scalars = {originScalar(builder.getContext(), op->getAttr("first_row"))};
  emit(call);
  return success();
}

LogicalResult ProgramBuilder::lowerRope(Operation *op) {
  auto rope = cast<model::RopeOp>(op);
  auto type = cast<RankedTensorType>(rope.getX().getType());
  int64_t tokens = cast<RankedTensorType>(rope.getPositions().getType()).getNumElements();
  int64_t headDim = type.getDimSize(type.getRank() - 1);
  Call call;
  call.function = "rope";
  call.add(place(rope.getX()), elementOf(rope.getX()));
  call.add(place(rope.getPositions()), elementOf(rope.getPositions()));
  call.add(place(rope.getResult()), elementOf(rope.getResult()));
  call.sizes = {tokens, type.getNumElements() / tokens / headDim, headDim};
  addAttributes(op, call);
  emit(call);
  return success();
}

LogicalResult ProgramBuilder::lowerRoute(Operation *op) {
  auto route = cast<model::RouteOp>(op);
  Call call;
  call.function = "route";
  call.add(place(route.getScores()), elementOf(route.getScores()));
  call.add(place(route.getIds()), elementOf(route.getIds()));
  call.add(place(route.getSlots()), elementOf(route.getSlots()));
  llvm::append_range(call.sizes, cast<RankedTensorType>(route.getScores().getType()).getShape());
  call.sizes.push_back(cast<RankedTensorType>(route.getIds().getType()).getDimSize(0));
  call.sizes.push_back(route.getCapacity());
  addAttributes(op, call);
  emit(call);
  return success();
}

/// Moves rows of tokens to experts, or back.
LogicalResult ProgramBuilder::lowerMoves(Operation *op) {
  Call call;
  call.function = op->getName().stripDialect();
  for (Value value : llvm::concat<Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults())))
    call.add(place(value), elementOf(value));
  auto from = cast<RankedTensorType>(op->getOperand(2).getType());
  auto to = cast<RankedTensorType>(op->getResult(0).getType());
  RankedTensorType tokens = isa<model::DispatchOp>(op) ? from : to, experts = tokens == from ? to : from;
  llvm::append_range(call.sizes, cast<RankedTensorType>(op->getOperand(0).getType()).getShape());
  llvm::append_values(call.sizes, experts.getDimSize(3), experts.getDimSize(0), experts.getDimSize(2),
                      tokens.getRank() == 4 ? 1 : 0);
  emit(call);
  return success();
}

/// Emits a norm, which always adds. A norm without accumulator starts from zero.
LogicalResult ProgramBuilder::lowerSquaredNorm(Operation *op) {
  auto norm = cast<model::SquaredNormOp>(op);
  Call call;
  exec::BufferAttr target = destination(norm.getResult(), call.flags);
  if (call.flags.empty()) {
    Call zero;
    zero.function = "zero";
    zero.add(target, builder.getF32Type());
    zero.sizes = {4};
    emit(zero);
  }
  call.function = "squared_norm";
  call.add(place(norm.getX()), elementOf(norm.getX()));
  call.add(target, builder.getF32Type());
  call.sizes = {cast<RankedTensorType>(norm.getX().getType()).getNumElements()};
  call.floats = {norm.getWeight().convertToDouble()};
  call.flags.assign({builder.getNamedAttr("always_adds", builder.getUnitAttr())});
  emit(call);
  return success();
}

} // namespace espalier::codegen
