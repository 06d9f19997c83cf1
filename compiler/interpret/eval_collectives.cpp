// Collectives of the dist dialect. A group consists of the ranks that differ only on the op's axes. The position of a
// rank in its group is counted with the first of these axes slowest. Every rank adds terms in the order of positions.
#include "compiler/interpret/evaluators.h"
#include "compiler/interpret/ranks.h"
#include "dialects/attributes.h"
#include "format/zigzag.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace espalier {

namespace {

llvm::Error makeError(const llvm::Twine &text) { return llvm::createStringError(llvm::inconvertibleErrorCode(), text); }

/// Returns this rank's position among the ranks that differ only on `axes`.
Rendezvous::Call groupOf(Operation *op, ArrayAttr axes, const EvalContext &context) {
  Rendezvous::Call call{"", 0, 1, ""};
  for (auto axis : axes.getAsRange<StringAttr>()) {
    call.position = static_cast<int>(call.position * context.axisSize(axis) + context.coordinate(axis));
    call.members *= static_cast<int>(context.axisSize(axis));
    call.group += axis.str() + " ";
  }
  for (const MeshPlace &place : context.mesh)
    if (!llvm::is_contained(axes.getAsValueRange<StringAttr>(), place.axis))
      call.group += place.axis + "=" + std::to_string(place.coordinate) + " ";
  llvm::raw_string_ostream(call.operation) << op->getName().getStringRef() << " " << op->getOperand(0).getType();
  return call;
}

llvm::Expected<Rendezvous::Parts> exchange(const Rendezvous::Call &call, const Tensor &part, EvalContext &context) {
  if (call.members == 1)
    return Rendezvous::Parts{std::make_shared<const Tensor>(part)};
  if (!context.rendezvous)
    return makeError("needs the other " + llvm::Twine(call.members - 1) + " ranks of its group, but runs alone");
  return context.rendezvous->exchange(call, part);
}

llvm::Error checkFactor(int64_t large, int64_t small, int members) {
  if (large == small * members)
    return llvm::Error::success();
  return makeError("sizes " + llvm::Twine(large) + " and " + llvm::Twine(small) + " do not fit a group of " +
                   llvm::Twine(members));
}

/// Calls copy(element of whole, element of part) for the part of `whole` that begins at `begin` along `dim`.
template <typename Copy>
void forEachInPart(const Tensor &whole, const Tensor &part, int64_t dim, int64_t begin, Copy copy) {
  SmallVector<int64_t> inWhole = rowMajorStrides(whole.shape());
  int64_t offset = begin * inWhole[dim];
  forEachIndex(part.shape(), {inWhole, rowMajorStrides(part.shape())},
               [&](ArrayRef<int64_t> at) { copy(at[0] + offset, at[1]); });
}

/// Calls copy(element of whole, element of part) for the part of member `position`. In zigzag order the part has two
/// chunks of `whole`.
template <typename Copy>
void forEachInPart(Operation *op, const Tensor &whole, const Tensor &part, int64_t dim, int64_t position, Copy copy) {
  int64_t size = part.shape()[dim], chunk = size / 2;
  if (!dist::zigzagAttr.isOn(op))
    return forEachInPart(whole, part, dim, position * size, copy);
  SmallVector<int64_t> inWhole = rowMajorStrides(whole.shape()), inPart = rowMajorStrides(part.shape()),
                       shape(part.shape());
  shape[dim] = chunk;
  for (int64_t half : {0, 1}) {
    int64_t begin = rt::zigzagChunk(position, half, whole.shape()[dim] / size) * chunk;
    forEachIndex(shape, {inWhole, inPart},
                 [&](ArrayRef<int64_t> at) { copy(at[0] + begin * inWhole[dim], at[1] + half * chunk * inPart[dim]); });
  }
}

void takePart(Operation *op, const Tensor &whole, Tensor &part, int64_t dim, int64_t position) {
  forEachInPart(op, whole, part, dim, position,
                [&](int64_t from, int64_t to) { part.values[to] = whole.values[from]; });
}

Tensor sumOf(const Rendezvous::Parts &parts) {
  Tensor sum = *parts.front();
  for (const auto &part : ArrayRef(parts).drop_front())
    for (size_t i = 0; i < sum.values.size(); ++i)
      sum.values[i] += part->values[i];
  return sum;
}

Tensor maximumOf(const Rendezvous::Parts &parts) {
  Tensor maximum = *parts.front();
  for (const auto &part : ArrayRef(parts).drop_front())
    for (size_t i = 0; i < maximum.values.size(); ++i)
      maximum.values[i] = std::max(maximum.values[i], part->values[i]);
  return maximum;
}

Results evalAllReduce(dist::AllReduceOp op, Operands x, EvalContext &context) {
  auto parts = exchange(groupOf(op, op.getAxes(), context), *x[0], context);
  if (!parts)
    return parts.takeError();
  return std::vector<Tensor>{op.getReduction() == "max" ? maximumOf(*parts) : sumOf(*parts)};
}

Results evalAllGather(dist::AllGatherOp op, Operands x, EvalContext &context) {
  Rendezvous::Call call = groupOf(op, op.getAxes(), context);
  std::vector<Tensor> results;
  Tensor &y = results.emplace_back(cast<RankedTensorType>(op.getType()));
  int64_t dim = op.getDim(), size = x[0]->shape()[dim];
  if (llvm::Error error = checkFactor(y.shape()[dim], size, call.members))
    return error;
  auto parts = exchange(call, *x[0], context);
  if (!parts)
    return parts.takeError();
  for (auto [position, part] : llvm::enumerate(*parts))
    forEachInPart(op, y, *part, dim, static_cast<int64_t>(position),
                  [&, part = part](int64_t to, int64_t from) { y.values[to] = part->values[from]; });
  return results;
}

Results evalReduceScatter(dist::ReduceScatterOp op, Operands x, EvalContext &context) {
  Rendezvous::Call call = groupOf(op, op.getAxes(), context);
  std::vector<Tensor> results;
  Tensor &y = results.emplace_back(cast<RankedTensorType>(op.getType()));
  int64_t dim = op.getDim();
  if (llvm::Error error = checkFactor(x[0]->shape()[dim], y.shape()[dim], call.members))
    return error;
  auto parts = exchange(call, *x[0], context);
  if (!parts)
    return parts.takeError();
  takePart(op, sumOf(*parts), y, dim, call.position);
  return results;
}

Results evalAllToAll(dist::AllToAllOp op, Operands x, EvalContext &context) {
  Rendezvous::Call call = groupOf(op, op.getAxes(), context);
  std::vector<Tensor> results;
  Tensor &y = results.emplace_back(cast<RankedTensorType>(op.getType()));
  int64_t split = op.getSplit(), concat = op.getConcat(), size = x[0]->shape()[concat];
  if (llvm::Error error = checkFactor(x[0]->shape()[split], y.shape()[split], call.members))
    return error;
  auto parts = exchange(call, *x[0], context);
  if (!parts)
    return parts.takeError();
  SmallVector<int64_t> shape(y.shape());
  shape[concat] = size;
  for (auto [position, whole] : llvm::enumerate(*parts)) {
    Tensor mine(RankedTensorType::get(shape, y.type.getElementType()));
    takePart(op, *whole, mine, split, call.position);
    forEachInPart(y, mine, concat, static_cast<int64_t>(position) * size,
                  [&](int64_t to, int64_t from) { y.values[to] = mine.values[from]; });
  }
  return results;
}

Results evalSlice(dist::SliceOp op, Operands x, EvalContext &context) {
  Rendezvous::Call call = groupOf(op, op.getAxes(), context);
  std::vector<Tensor> results;
  Tensor &y = results.emplace_back(cast<RankedTensorType>(op.getType()));
  int64_t dim = op.getDim();
  if (llvm::Error error = checkFactor(x[0]->shape()[dim], y.shape()[dim], call.members))
    return error;
  takePart(op, *x[0], y, dim, call.position);
  return results;
}

/// A reshard does not change values, and on global shapes placement is not visible.
void evalReshard(dist::ReshardOp, Operands x, const EvalContext &, Tensor &y) { y.values = x[0]->values; }

} // namespace

void addCollectives(EvaluatorTable &table) {
  table.add(evalAllReduce);
  table.add(evalAllGather);
  table.add(evalReduceScatter);
  table.add(evalAllToAll);
  table.add(evalSlice);
  table.add(evalReshard);
}

} // namespace espalier
