// Analyzes fused bodies: access of operands, levels and passes of values, run-time scalars, and the key that decides
// which bodies share a kernel.
#include "compiler/codegen/kernel_shape.h"

#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/dialect.h"

#include "llvm/ADT/Sequence.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace espalier::codegen {

using rt::pb::Kernel;

namespace {

int64_t product(ArrayRef<int64_t> sizes) {
  int64_t result = 1;
  for (int64_t size : sizes)
    result *= size;
  return result;
}

RankedTensorType tensorOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// Returns the operands whose elements an op reads. pick_grad reads only the type of `like`.
OperandRange readOperands(Operation *op) {
  return isa<model::PickGradOp>(op) ? op->getOperands().take_front(2) : op->getOperands();
}

/// Computes levels and passes in one traversal. Fails on ops that no kernel can contain.
LogicalResult placeValues(KernelShape &shape) {
  for (auto [argument, access] : llvm::zip_equal(shape.body->getArguments(), shape.operands)) {
    shape.levels[argument] = access.isScalar() ? Level::Scalar : access.columns ? Level::Full : Level::Row;
    shape.passes[argument] = 0;
  }
  for (Operation &op : shape.body->without_terminator()) {
    int pass = 0;
    Level level = Level::Scalar;
    for (Value operand : readOperands(&op)) {
      pass = std::max(pass, shape.passes.lookup(operand));
      level = std::max(level, shape.levels[operand]);
    }
    auto space = accessOf(op.getResult(0).getType(), shape.space, shape.split);
    if (!space)
      return failure();
    if (isa<model::ReduceSumOp, model::ReduceMaxOp>(op)) {
      bool isColumn = reducesLeading(&op);
      int64_t kept = tensorOf(op.getResult(0)).getRank();
      // A sum over rows is complete only after all blocks of rows, so this kernel cannot read it.
      bool isReadHere = isColumn && llvm::any_of(op.getUsers(), [](Operation *user) {
                          return !user->hasTrait<OpTrait::IsTerminator>();
                        });
      if (isReadHere || iterationSpace(&op) != withElement(shape.space, iterationSpace(&op).getElementType()) ||
          kept != (isColumn ? shape.space.getRank() - shape.split : shape.split) ||
          (isColumn && shape.kind != "column"))
        return failure();
      level = isColumn ? Level::Full : Level::Row;
      pass += isColumn ? 0 : 1;
    } else if (isa<model::PickOp>(op)) {
      level = Level::Row;
    } else if (space->columns) {
      level = Level::Full;
    } else if (!space->isScalar()) {
      level = std::max(level, Level::Row);
    }
    if (isa<model::MaskTailOp>(op) && level != Level::Full) // it compares columns
      return failure();
    if (isa<model::DropoutOp>(op) &&
        iterationSpace(&op) != withElement(shape.space, tensorOf(op.getResult(0)).getElementType()))
      return failure();
    shape.levels[op.getResult(0)] = level;
    shape.passes[op.getResult(0)] = pass;
    shape.lastPass = std::max(shape.lastPass, pass);
  }
  return success();
}

/// Adds the scalars of a dropout in zigzag order.
LogicalResult addZigzagScalars(KernelShape &shape, model::DropoutOp op, ArrayRef<int64_t> local,
                               ArrayRef<int64_t> whole) {
  MLIRContext *context = op.getContext();
  for (auto [d, attribute] : llvm::enumerate(op.getOriginsAttr())) {
    auto origin = dyn_cast<dist::OriginAttr>(attribute);
    auto *cp = origin ? llvm::find(origin.getAxes(), "cp") : nullptr;
    if (!origin || cp == origin.getAxes().end())
      continue;
    if (static_cast<int64_t>(d) >= shape.split)
      return failure();
    int64_t chunk = origin.getStrides()[cp - origin.getAxes().begin()], step = product(whole.drop_front(d + 1));
    auto ofContext = [&](int64_t stride) {
      return originScalar(context, dist::OriginAttr::get(context, {*cp}, {stride}));
    };
    exec::ScalarAttr rows = constantScalar(context, product(local.slice(d + 1, shape.split - d - 1))),
                     first = addScalars(originScalar(context, attribute), ofContext(-chunk)),
                     distance = constantScalar(context, (whole[d] - 2 * chunk) * step);
    shape.dropouts[op].zigzag = {.stepRows = shape.add(rows, Kernel::DIVISOR),
                                 .stepSize = shape.add(constantScalar(context, local[d]), Kernel::DIVISOR),
                                 .first = shape.add(first, Kernel::NUMBER),
                                 .chunk = shape.add(constantScalar(context, chunk), Kernel::DIVISOR),
                                 .distance =
                                     shape.add(addScalars(distance, ofContext(-2 * chunk * step)), Kernel::NUMBER)};
    return success();
  }
  return failure();
}

/// Adds the scalars of dropout. Its sample and element numbers depend on the local tensor's position in the unsharded
/// tensor.
LogicalResult addDropoutScalars(KernelShape &shape, model::DropoutOp op) {
  MLIRContext *context = op.getContext();
  ArrayRef<int64_t> local = tensorOf(op.getX()).getShape();
  SmallVector<int64_t> whole(op.getUnsplit() ? *op.getUnsplit() : local);
  int64_t rank = local.size(), split = shape.split;
  if (split < 1 || static_cast<int64_t>(whole.size()) != rank)
    return failure();
  for (int64_t d = split + 1; d < rank; ++d)
    if (whole[d] != local[d])
      return failure();
  ArrayAttr origins = op.getOriginsAttr();
  auto originOf = [&](int64_t d) { return origins ? origins[d] : Attribute(); };
  exec::ScalarAttr element = constantScalar(context, 0);
  for (int64_t d = 1; d < rank; ++d)
    element = addScalars(element, originScalar(context, originOf(d), product(ArrayRef(whole).drop_front(d + 1))));
  SmallVector<Term> terms;
  for (int64_t d = 1; d < split; ++d) {
    int64_t stride = product(ArrayRef(whole).drop_front(d + 1));
    int64_t inner = product(local.slice(d + 1, split - d - 1));
    if (d > 1 && whole[d] == local[d])
      terms.back() = {inner, terms.back().modulus * local[d], stride};
    else
      terms.push_back({inner, local[d], stride});
  }
  if (!llvm::is_contained(shape.slots, rt::Step))
    shape.slots.push_back(rt::Step);
  shape.dropouts[op] = {.seed = shape.add(exec::ScalarAttr::get(context, 0, 0, 0, /*seed=*/1, {}, 0), Kernel::NUMBER),
                        .stream = shape.add(randomStream(context, op.getId()), Kernel::NUMBER),
                        .firstSample = shape.add(originScalar(context, originOf(0)), Kernel::NUMBER),
                        .rowsPerSample =
                            shape.add(constantScalar(context, product(local.slice(1, split - 1))), Kernel::DIVISOR),
                        .firstElement = shape.add(element, Kernel::NUMBER),
                        .terms = shape.add(terms, Kernel::DIVISOR, Kernel::NUMBER),
                        .elements = terms,
                        .zigzag = {}};
  return dist::zigzagAttr.isOn(op) ? addZigzagScalars(shape, op, local, whole) : success();
}

/// Adds the scalars that an op needs.
LogicalResult addScalarsOf(KernelShape &shape, Operation *op) {
  MLIRContext *context = op->getContext();
  if (auto mask = dyn_cast<model::MaskTailOp>(op))
    shape.scalarOf[op] = shape.add(
        addScalars(constantScalar(context, mask.getValid()), originScalar(context, mask.getFirstColumnAttr(), -1)),
        Kernel::NUMBER);
  else if (isa<model::PickOp, model::PickGradOp>(op))
    shape.scalarOf[op] = shape.add(originScalar(context, op->getAttr("first_column")), Kernel::NUMBER);
  else if (auto accumulate = dyn_cast<model::AccumulateOp>(op); accumulate && !accumulate.getAlways())
    shape.scalarOf[op] = shape.add(firstScalar(context, /*bucket=*/0), Kernel::FIRST); // the launch sets the bucket
  else if (auto dropout = dyn_cast<model::DropoutOp>(op))
    return addDropoutScalars(shape, dropout);
  return success();
}

/// Pairs the body's sums with their accumulators. Fails if an accumulator has another use, or if a sum is not a result.
LogicalResult findAccumulations(KernelShape &shape) {
  auto yielded = shape.body->getTerminator()->getOperands();
  for (auto accumulate : shape.body->getOps<model::AccumulateOp>()) {
    auto accumulator = dyn_cast<BlockArgument>(accumulate.getAccumulator());
    auto output = llvm::find(yielded, accumulate.getResult());
    if (!accumulator || !accumulator.hasOneUse() || output == yielded.end())
      return failure();
    shape.accumulations.push_back({accumulator.getArgNumber(), static_cast<unsigned>(output - yielded.begin()),
                                   accumulate.getAlways() ? -1 : shape.scalarOf.lookup(accumulate)});
  }
  return success();
}

/// Returns whether an attribute is passed as a run-time scalar and is therefore not part of the code.
bool isRunTime(StringRef attribute) {
  return attribute == "origins" || attribute == "unsplit" || attribute == "first_column" || attribute == "valid" ||
         attribute == "id" || attribute == "slot";
}

void printAccess(llvm::raw_ostream &stream, const Access &access) {
  stream << (access.isDense ? "d" : "t") << access.terms.size() << (access.columns ? "c" : "r");
}

} // namespace

RankedTensorType iterationSpace(Operation *op) {
  bool readsMore = isa<model::ReduceSumOp, model::ReduceMaxOp, model::PickOp>(op);
  return tensorOf(readsMore ? op->getOperand(0) : op->getResult(0));
}

bool reducesTrailing(Operation *op) {
  if (!isa<model::ReduceSumOp, model::ReduceMaxOp>(op))
    return false;
  ArrayRef<StringAttr> all = dimNames(op->getOperand(0).getType()), kept = dimNames(op->getResult(0).getType());
  return all.take_front(kept.size()) == kept;
}

bool reducesLeading(Operation *op) {
  if (!isa<model::ReduceSumOp>(op) || reducesTrailing(op))
    return false;
  ArrayRef<StringAttr> all = dimNames(op->getOperand(0).getType()), kept = dimNames(op->getResult(0).getType());
  return all.take_back(kept.size()) == kept;
}

std::optional<Access> accessOf(Type type, RankedTensorType space, int64_t split) {
  ArrayRef<StringAttr> names = dimNames(type), all = dimNames(space);
  ArrayRef<int64_t> sizes = space.getShape();
  int64_t rank = all.size();
  SmallVector<bool> has(rank, false);
  size_t position = 0;
  for (int64_t d = 0; d < rank; ++d)
    if (position < names.size() && names[position] == all[d] &&
        cast<RankedTensorType>(type).getDimSize(position) == sizes[d]) {
      has[d] = true;
      ++position;
    }
  if (position != names.size())
    return std::nullopt;
  ArrayRef<bool> rowDims = ArrayRef(has).take_front(split), columnDims = ArrayRef(has).drop_front(split);
  Access access;
  access.columns = !columnDims.empty() && llvm::all_of(columnDims, [](bool b) { return b; });
  if (!access.columns && llvm::is_contained(columnDims, true))
    return std::nullopt;
  if (llvm::all_of(rowDims, [](bool b) { return b; }) && (access.columns || split > 0)) {
    access.isDense = true;
    return access;
  }
  int64_t stride = access.columns ? product(sizes.drop_front(split)) : 1, inner = 1;
  for (int64_t d = split - 1; d >= 0; --d) {
    bool continues = d + 1 < split && has[d] && has[d + 1];
    if (continues)
      access.terms.back().modulus *= sizes[d];
    else if (has[d])
      access.terms.push_back({inner, sizes[d], stride});
    if (has[d])
      stride *= sizes[d];
    inner *= sizes[d];
  }
  return access;
}

exec::ScalarAttr constantScalar(MLIRContext *context, int64_t value) {
  return exec::ScalarAttr::get(context, value, 0, 0, 0, {}, 0);
}

exec::ScalarAttr firstScalar(MLIRContext *context, int64_t bucket) {
  return exec::ScalarAttr::get(context, 0, 0, 0, 0, {}, bucket);
}

constexpr int64_t opsOfALayer = 256; ///< largest number of ops with random streams per layer

exec::ScalarAttr randomStream(MLIRContext *context, int64_t id) {
  return exec::ScalarAttr::get(context, id, 0, opsOfALayer, 0, {}, 0);
}

exec::ScalarAttr originScalar(MLIRContext *context, Attribute attribute, int64_t factor) {
  auto origin = dyn_cast_or_null<dist::OriginAttr>(attribute);
  if (!origin)
    return constantScalar(context, 0);
  int64_t microBatch = 0;
  SmallVector<StringAttr> axes;
  SmallVector<int64_t> strides;
  for (auto [axis, stride] : llvm::zip_equal(origin.getAxes(), origin.getStrides())) {
    if (axis == "micro_batch") {
      microBatch += stride * factor;
      continue;
    }
    axes.push_back(axis);
    strides.push_back(stride * factor);
  }
  Attribute coordinates = axes.empty() ? Attribute() : dist::OriginAttr::get(context, axes, strides);
  return exec::ScalarAttr::get(context, 0, microBatch, 0, 0, coordinates, 0);
}

exec::ScalarAttr addScalars(exec::ScalarAttr a, exec::ScalarAttr b) {
  SmallVector<StringAttr> axes;
  SmallVector<int64_t> strides;
  for (Attribute part : {a.getCoordinates(), b.getCoordinates()})
    if (auto origin = dyn_cast_or_null<dist::OriginAttr>(part))
      for (auto [axis, stride] : llvm::zip_equal(origin.getAxes(), origin.getStrides())) {
        auto *found = llvm::find(axes, axis);
        if (found != axes.end()) {
          strides[found - axes.begin()] += stride;
          continue;
        }
        axes.push_back(axis);
        strides.push_back(stride);
      }
  Attribute coordinates = axes.empty() ? Attribute() : dist::OriginAttr::get(a.getContext(), axes, strides);
  return exec::ScalarAttr::get(a.getContext(), a.getConstant() + b.getConstant(), a.getMicroBatch() + b.getMicroBatch(),
                               a.getLayer() + b.getLayer(), a.getSeed() + b.getSeed(), coordinates, 0);
}

int64_t scalarSlot(StringRef name) {
  for (auto [known, slot] : scalarSlots)
    if (name == known)
      return slot;
  return -1;
}

StringRef scalarName(int64_t slot) {
  for (auto [name, known] : scalarSlots)
    if (slot == known)
      return name;
  llvm_unreachable("a slot of the scalars without a name");
}

std::string agreedName(int64_t slot) { return scalarName(slot).str() + ".agreed"; }

/// The number of sums over rows that a GPU thread, or the L1 cache of a CPU, can hold beside a row reduction.
constexpr int64_t mostSumsBesideRow = 8192;

/// Returns whether a column kernel can do its row work: full dense results, and row reductions with few enough sums
/// beside them.
static bool canSumRows(const KernelShape &shape) {
  int64_t sums = 0;
  for (unsigned output = 0; output < shape.outputs.size(); ++output) {
    if (!shape.isSummed(output) && !(shape.outputs[output].isDense && shape.outputs[output].columns))
      return false;
    sums += shape.isSummed(output);
  }
  bool picks = llvm::any_of(shape.body->without_terminator(), [](Operation &op) { return isa<model::PickOp>(op); });
  return !picks && (shape.lastPass == 0 || sums * shape.columns <= mostSumsBesideRow);
}

FailureOr<KernelShape> analyzeKernel(Block &body, StringRef kind, int64_t split) {
  KernelShape shape;
  shape.body = &body;
  shape.kind = kind.str();
  for (Operation &op : body.without_terminator())
    if (RankedTensorType space = iterationSpace(&op); !shape.space || space.getRank() > shape.space.getRank())
      shape.space = space;
  if (!shape.space || split < 0 || split > shape.space.getRank())
    return failure();
  shape.split = split;
  shape.rows = product(shape.space.getShape().take_front(split));
  shape.columns = product(shape.space.getShape().drop_front(split));
  MLIRContext *context = shape.space.getContext();
  if (kind != "flat")
    shape.add(constantScalar(context, shape.columns), Kernel::SIZE);
  if (kind == "column") {
    shape.add(constantScalar(context, shape.rows), Kernel::SIZE);
    shape.add(constantScalar(context, 0), Kernel::BLOCK_ROWS);
  }
  for (BlockArgument argument : body.getArguments()) {
    auto access = accessOf(argument.getType(), shape.space, split);
    bool isOnlyLike = llvm::all_of(argument.getUses(), [](OpOperand &use) {
      return isa<model::PickGradOp>(use.getOwner()) && use.getOperandNumber() == 2;
    });
    if (!access || (kind == "flat" && !access->isScalar() && !access->isDense && !isOnlyLike))
      return failure();
    shape.operands.push_back(*access);
    shape.operandScalar.push_back(shape.add(access->terms, Kernel::SIZE, Kernel::SIZE));
  }
  if (failed(placeValues(shape)))
    return failure();
  for (Operation &op : body.without_terminator()) {
    if (auto scalar = dyn_cast<model::ScalarOp>(op))
      if (!llvm::is_contained(shape.slots, scalarSlot(scalar.getSlot())))
        shape.slots.push_back(scalarSlot(scalar.getSlot()));
    if (failed(addScalarsOf(shape, &op)))
      return failure();
  }
  for (Value value : body.getTerminator()->getOperands()) {
    auto access = accessOf(value.getType(), shape.space, split);
    bool isOnce = access && !access->isDense && shape.rows == 1 && kind != "flat";
    bool isReduced = access && kind == "column" && value.getDefiningOp() && reducesLeading(value.getDefiningOp());
    bool isNumber = access && access->isScalar() && shape.rows == 1 && (kind != "flat" || shape.columns == 1);
    if (!access || (!access->isDense && !isOnce && !isReduced && !isNumber))
      return failure();
    shape.outputs.push_back(*access);
  }
  if (failed(findAccumulations(shape)) || (kind == "column" && !canSumRows(shape)))
    return failure();
  return shape;
}

int KernelShape::add(exec::ScalarAttr value, Kernel::Scalar use) {
  scalars.push_back({value, use});
  return static_cast<int>(scalars.size()) - 1;
}

int KernelShape::add(ArrayRef<Term> terms, Kernel::Scalar modulus, Kernel::Scalar stride) {
  auto first = static_cast<int>(scalars.size());
  MLIRContext *context = space.getContext();
  for (const Term &term : terms) {
    add(constantScalar(context, term.divisor), Kernel::DIVISOR);
    add(constantScalar(context, term.modulus), modulus);
    add(constantScalar(context, term.stride), stride);
  }
  return first;
}

bool KernelShape::isAccumulator(unsigned operand) const {
  return llvm::any_of(accumulations, [&](const Accumulation &sum) { return sum.operand == operand; });
}

unsigned KernelShape::bufferCount() const {
  return operands.size() - accumulations.size() + slots.size() + outputs.size();
}

bool KernelShape::isSummed(unsigned output) const {
  Operation *op = body->getTerminator()->getOperand(output).getDefiningOp();
  return kind == "column" && op && reducesLeading(op);
}

bool KernelShape::hasRowWork() const {
  return kind == "column" && (lastPass > 0 || llvm::any_of(llvm::seq<unsigned>(0, outputs.size()),
                                                           [&](unsigned output) { return !isSummed(output); }));
}

std::string KernelShape::key() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << kind;
  llvm::DenseMap<Value, unsigned> numbers;
  for (auto [argument, access] : llvm::zip_equal(body->getArguments(), operands)) {
    numbers[argument] = numbers.size();
    stream << " " << cast<RankedTensorType>(argument.getType()).getElementType();
    printAccess(stream, access);
  }
  for (Operation &op : body->without_terminator()) {
    stream << " ; " << op.getName();
    for (Value operand : readOperands(&op))
      stream << " " << numbers.lookup(operand);
    for (NamedAttribute attribute : op.getAttrs())
      if (!isRunTime(attribute.getName()))
        stream << " " << attribute.getName().getValue() << "=" << attribute.getValue();
    if (auto scalar = dyn_cast<model::ScalarOp>(op))
      stream << " slot " << scalar.getSlot();
    if (auto dropout = dropouts.find(&op); dropout != dropouts.end())
      stream << " slot " << llvm::find(slots, rt::Step) - slots.begin() << " terms " << dropout->second.elements.size();
    numbers[op.getResult(0)] = numbers.size();
    stream << " " << cast<RankedTensorType>(op.getResult(0).getType()).getElementType() << " "
           << static_cast<int>(levels.lookup(op.getResult(0)));
  }
  stream << " >";
  for (auto [value, access] : llvm::zip_equal(body->getTerminator()->getOperands(), outputs)) {
    stream << " " << numbers.lookup(value);
    printAccess(stream, access);
  }
  return text;
}

} // namespace espalier::codegen
