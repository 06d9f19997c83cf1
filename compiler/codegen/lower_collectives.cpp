// Lowers a collective to a start after its operand is ready and a wait before the first instruction that accesses its
// buffers. The instructions in between hide it. The runtime gathers and scatters contiguous buffers. Along an inner
// dimension, shards are packed before the start, or unpacked before the first use of the result.
#include "compiler/codegen/program_builder.h"

#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"

using namespace mlir;

namespace espalier::codegen {

namespace {

/// A tensor split along `dim` into `parts` shards. In each of `outer` blocks, every shard has `bytes` contiguous bytes.
struct Cut {
  int64_t outer = 1, parts = 1, bytes = 1;
};

Cut cutOf(Type large, Type small, int64_t dim) {
  auto whole = cast<RankedTensorType>(large), part = cast<RankedTensorType>(small);
  Cut cut;
  for (int64_t d = 0; d < dim; ++d)
    cut.outer *= whole.getDimSize(d);
  cut.parts = whole.getDimSize(dim) / part.getDimSize(dim);
  cut.bytes = tensorBytes(part) / cut.outer;
  return cut;
}

Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

bool overlap(exec::BufferAttr a, exec::BufferAttr b) {
  if (a.getRegion() != b.getRegion() || (a.isVirtual() && a.getOffset() != b.getOffset()))
    return false;
  if (a.getCoordinates() || b.getCoordinates() || a.getPart() || b.getPart())
    return true;
  int64_t startA = a.isVirtual() ? a.getWithin() : a.getOffset(),
          startB = b.isVirtual() ? b.getWithin() : b.getOffset();
  return startA < startB + b.getBytes() && startB < startA + a.getBytes();
}

/// All-gathers and reduce-scatters over cp alone know the zigzag order.
LogicalResult checkZigzag(Operation *op) {
  bool isKnown = isa<dist::AllGatherOp, dist::ReduceScatterOp>(op) && op->getAttrOfType<ArrayAttr>("axes").size() == 1;
  return isKnown || !dist::zigzagAttr.isOn(op) ? success() : op->emitOpError("cannot keep the zigzag order over cp");
}

} // namespace

/// Checks that axes are in mesh order. Members of a group are ordered by rank, and therefore by coordinates in mesh
/// order.
LogicalResult ProgramBuilder::checkAxes(Operation *op, ArrayAttr axes) {
  auto mesh = dist::meshAttr.of(function->getParentOfType<ModuleOp>());
  if (!mesh)
    return axes.size() == 1 ? success() : op->emitOpError("over several axes needs the module's dist.mesh");
  int64_t last = -1;
  for (Attribute axis : axes) {
    int64_t position = llvm::find(mesh.getAxes(), axis) - mesh.getAxes().begin();
    if (position == static_cast<int64_t>(mesh.getAxes().size()))
      return op->emitOpError("names an axis that the mesh does not have, ") << axis;
    if (position < last)
      return op->emitOpError("needs its axes in the order of the mesh, got ") << axes;
    last = position;
  }
  return success();
}

/// Returns the distance, in bytes, from the first shard to this rank's shard.
FailureOr<Attribute> ProgramBuilder::shareOrigin(Operation *op, ArrayAttr axes, int64_t bytes) {
  if (failed(checkAxes(op, axes)))
    return failure();
  auto mesh = dist::meshAttr.of(function->getParentOfType<ModuleOp>());
  SmallVector<StringAttr> names;
  SmallVector<int64_t> strides;
  for (Attribute axis : llvm::reverse(axes)) {
    names.push_back(cast<StringAttr>(axis));
    strides.push_back(bytes);
    bytes *= mesh ? mesh.size(names.back().getValue()) : 1;
  }
  std::reverse(names.begin(), names.end());
  std::reverse(strides.begin(), strides.end());
  return Attribute(dist::OriginAttr::get(op->getContext(), names, strides));
}

void ProgramBuilder::start(StringRef kind, StringRef reduction, ArrayAttr axes, Type element, exec::BufferAttr from,
                           exec::BufferAttr to, int64_t elements) {
  int64_t id = collectives++;
  auto op = builder.create<exec::StartOp>(builder.getI64IntegerAttr(id), builder.getStringAttr(kind),
                                          builder.getStringAttr(reduction), axes, TypeAttr::get(element), from, to,
                                          builder.getI64IntegerAttr(elements));
  waitFor(op);
  pending.push_back({id, from, to});
}

void ProgramBuilder::waitFor(Operation *instruction) {
  exec::visitBuffers(instruction, [&](exec::BufferAttr buffer, bool) {
    auto touched = llvm::find_if(unpacks, [&](const Unpack &unpack) { return overlap(buffer, unpack.result); });
    if (touched == unpacks.end())
      return;
    Unpack unpack = std::move(*touched);
    unpacks.erase(touched);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPoint(instruction);
    unpack.copy(); // also waits for the collective
  });
  exec::visitBuffers(instruction, [&](exec::BufferAttr buffer, bool isWritten) {
    for (size_t i = 0; i < pending.size();) {
      if (!overlap(buffer, pending[i].to) && !(isWritten && overlap(buffer, pending[i].from))) {
        ++i;
        continue;
      }
      OpBuilder before(instruction);
      before.create<exec::WaitOp>(instruction->getLoc(), pending[i].id);
      pending.erase(pending.begin() + i);
    }
  });
}

void ProgramBuilder::waitForAll() {
  for (const Unpack &unpack : std::exchange(unpacks, {}))
    unpack.copy();
  for (const Pending &collective : pending)
    builder.create<exec::WaitOp>(collective.id);
  pending.clear();
}

LogicalResult ProgramBuilder::lowerAllReduce(Operation *op) {
  auto reduce = cast<dist::AllReduceOp>(op);
  if (failed(checkAxes(op, reduce.getAxes())))
    return failure();
  start("all_reduce", reduce.getReduction(), reduce.getAxes(), elementOf(reduce.getX()), place(reduce.getX()),
        place(reduce.getResult()), cast<RankedTensorType>(reduce.getType()).getNumElements());
  return success();
}

LogicalResult ProgramBuilder::lowerAllGather(Operation *op) {
  auto gather = cast<dist::AllGatherOp>(op);
  if (failed(checkAxes(op, gather.getAxes())) || failed(checkZigzag(op)))
    return failure();
  Cut cut = cutOf(gather.getType(), gather.getX().getType(), gather.getDim());
  exec::BufferAttr result = place(gather.getResult());
  bool isZigzag = dist::zigzagAttr.isOn(op), isInPlace = cut.outer == 1 && !isZigzag;
  ValueShape shape = shapes.of(gather.getResult());
  shape.isZigzag |= isZigzag;
  exec::BufferAttr gathered =
      isInPlace ? result
                : newParts(gather.getType(), cast<RankedTensorType>(gather.getX().getType()), cut.parts, shape);
  Type element = elementOf(gather.getX());
  start("all_gather", "sum", gather.getAxes(), element, place(gather.getX()), gathered,
        cast<RankedTensorType>(gather.getType()).getNumElements());
  if (isInPlace)
    return success();
  unpacks.push_back({result, [this, cut, gathered, result, element, isZigzag, loc = op->getLoc()] {
                       builder.setLoc(loc);
                       rearrange(gathered, result, element, {cut.parts, cut.outer, cut.bytes},
                                 isZigzag ? rt::Zigzag::From : rt::Zigzag::None);
                     }});
  return success();
}

LogicalResult ProgramBuilder::lowerReduceScatter(Operation *op) {
  auto scatter = cast<dist::ReduceScatterOp>(op);
  if (failed(checkAxes(op, scatter.getAxes())) || failed(checkZigzag(op)))
    return failure();
  Cut cut = cutOf(scatter.getX().getType(), scatter.getType(), scatter.getDim());
  exec::BufferAttr whole = place(scatter.getX());
  bool isZigzag = dist::zigzagAttr.isOn(op), isInPlace = cut.outer == 1 && !isZigzag;
  ValueShape shape = shapes.of(scatter.getX());
  shape.isZigzag |= isZigzag;
  exec::BufferAttr packed =
      isInPlace
          ? whole
          : newParts(scatter.getX().getType(), cast<RankedTensorType>(scatter.getResult().getType()), cut.parts, shape);
  Type element = elementOf(scatter.getX());
  if (!isInPlace)
    rearrange(whole, packed, element, {cut.outer, cut.parts, cut.bytes}, isZigzag ? rt::Zigzag::To : rt::Zigzag::None);
  start("reduce_scatter", "sum", scatter.getAxes(), element, packed, place(scatter.getResult()),
        cast<RankedTensorType>(scatter.getX().getType()).getNumElements());
  return success();
}

/// Shards are contiguous during the transfer: they are packed as for a reduce-scatter and unpacked as for an
/// all-gather.
LogicalResult ProgramBuilder::lowerAllToAll(Operation *op) {
  auto exchange = cast<dist::AllToAllOp>(op);
  if (failed(checkAxes(op, exchange.getAxes())) || failed(checkZigzag(op)))
    return failure();
  auto from = cast<RankedTensorType>(exchange.getX().getType()), to = cast<RankedTensorType>(exchange.getType());
  SmallVector<int64_t> shape(from.getShape());
  shape[exchange.getSplit()] = to.getDimSize(exchange.getSplit());
  RankedTensorType one = namedTensor(shape, dimNames(from), from.getElementType());
  Cut sent = cutOf(from, one, exchange.getSplit()), received = cutOf(to, one, exchange.getConcat());
  exec::BufferAttr x = place(exchange.getX()), result = place(exchange.getResult());
  exec::BufferAttr packed = sent.outer == 1 ? x : newParts(from, one, sent.parts, shapes.of(exchange.getX()));
  exec::BufferAttr arrived =
      received.outer == 1 ? result : newParts(to, one, received.parts, shapes.of(exchange.getResult()));
  Type element = elementOf(exchange.getX());
  if (sent.outer > 1)
    rearrange(x, packed, element, {sent.outer, sent.parts, sent.bytes});
  start("all_to_all", "sum", exchange.getAxes(), element, packed, arrived, from.getNumElements());
  if (received.outer > 1)
    rearrange(arrived, result, element, {received.parts, received.outer, received.bytes});
  return success();
}

LogicalResult ProgramBuilder::lowerSlice(Operation *op) {
  auto slice = cast<dist::SliceOp>(op);
  Cut cut = cutOf(slice.getX().getType(), slice.getType(), slice.getDim());
  auto origin = shareOrigin(op, slice.getAxes(), cut.bytes);
  if (failed(origin) || failed(checkZigzag(op)))
    return failure();
  int64_t stride = cut.parts * cut.bytes;
  copy(place(slice.getX()).slice(0, (cut.outer - 1) * stride + cut.bytes, *origin), place(slice.getResult()),
       elementOf(slice.getX()), {cut.outer, stride, cut.bytes});
  return success();
}

} // namespace espalier::codegen
