// Lowers recurrences, causal convolutions and their derivatives to library calls.
#include "compiler/codegen/program_builder.h"

#include "dialects/attributes.h"
#include "dialects/dist/dialect.h"
#include "dialects/model/shards.h"
#include "format/functions.h"

#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;

namespace espalier::codegen {

static int64_t elementsBetween(RankedTensorType type, int64_t first, int64_t end) {
  int64_t product = 1;
  for (int64_t d = first; d < end; ++d)
    product *= type.getDimSize(d);
  return product;
}

/// Returns the sizes of a recurrence or its derivative.
static SmallVector<int64_t> recurrenceSizes(Operation *op) {
  auto typeOf = [&](unsigned operand) { return cast<RankedTensorType>(op->getOperand(operand).getType()); };
  RankedTensorType q = typeOf(0), v = typeOf(2);
  SmallVector<int64_t> sizes(q.getShape().take_front(3));
  llvm::append_values(sizes, elementsBetween(v, 3, v.getRank() - 1), q.getShape().back(), v.getShape().back(),
                      model::recurrenceChunk(op), typeOf(3).getRank() > typeOf(4).getRank() ? 1 : 0,
                      op->hasAttr("delta") ? 1 : 0);
  if (isa<model::CarriedRecurrenceOp>(op))
    sizes.push_back(1);
  if (auto states = dyn_cast<model::ShardStatesOp>(op)) {
    auto result = cast<RankedTensorType>(states.getType());
    llvm::append_values(sizes, states.getBackward() ? 1 : 0, result.getDimSize(1), result.getShape().back());
  }
  return sizes;
}

static SmallVector<int64_t> edgesSizes(model::ShardEdgesOp op) {
  auto x = cast<RankedTensorType>(op.getX().getType());
  return {x.getDimSize(0), x.getDimSize(1), tensorBytes(x) / x.getDimSize(0) / x.getDimSize(1),
          cast<RankedTensorType>(op.getType()).getDimSize(1), op.getFirst() ? 1 : 0};
}

/// Returns the sizes of a convolution or of the derivative of its weight.
static SmallVector<int64_t> convolutionSizes(Operation *op) {
  auto x = cast<RankedTensorType>(op->getOperand(0).getType());
  bool isGradient = isa<model::CausalConvGradOp, model::ShardConvGradOp>(op);
  auto weight = cast<RankedTensorType>((isGradient ? op->getResult(0) : op->getOperand(1)).getType());
  SmallVector<int64_t> sizes = {x.getDimSize(0), x.getDimSize(1), elementsBetween(x, 2, x.getRank()),
                                weight.getShape().back()};
  if (op->hasAttr("transposed"))
    sizes.push_back(1);
  if (isa<model::CarriedConvOp>(op))
    llvm::append_values(sizes, 0, 1, weight.getShape().back() - 1);
  return sizes;
}

/// Adds the sizes and scalars of an op on a shard of a sequence.
static void addShard(Operation *op, Call &call) {
  auto first = op->getAttrOfType<dist::OriginAttr>("first_position");
  if (!first)
    return;
  const rt::FunctionSignature &row = *rt::findFunction(call.function);
  SmallVector<std::pair<StringRef, int64_t>> named = {{"zigzag", dist::zigzagAttr.isOn(op) ? 1 : 0}};
  auto passing = [&](StringRef name, Value gathered) {
    auto type = cast<RankedTensorType>(gathered.getType());
    named.append({{"parts", 1}, {name, type.getDimSize(1)}});
    if (name == "borders")
      named.push_back({"columns", type.getShape().back()});
  };
  llvm::TypeSwitch<Operation *>(op)
      .Case<model::ShardRecurrenceOp, model::ShardRecurrenceGradOp>(
          [&](auto onShard) { passing("borders", onShard.getBorders()); })
      .Case<model::ShardConvOp, model::ShardConvGradOp>([&](auto onShard) { passing("edges", onShard.getEdges()); });
  if (auto conv = dyn_cast<model::ShardConvOp>(op))
    named.push_back({"limited", conv.getLimits().size() == 2 ? 1 : 0});
  std::vector<int64_t> all = *rt::allSizes(row, call.sizes);
  size_t given = call.sizes.size();
  for (auto [name, value] : named) {
    size_t index = *row.findSize(name);
    all[index] = value;
    given = value != 0 ? std::max(given, index + 1) : given;
  }
  call.sizes.assign(all.begin(), all.begin() + static_cast<int64_t>(given));
  if (row.scalars.empty())
    return;
  call.scalars.push_back(originScalar(op->getContext(), first));
  if (auto states = dyn_cast<model::ShardStatesOp>(op))
    call.scalars.push_back(constantScalar(op->getContext(), static_cast<int64_t>(states.getWhole())));
}

/// Returns the library function of an op and its sizes as an op on whole sequences.
static std::pair<StringRef, SmallVector<int64_t>> functionOf(Operation *op) {
  using Function = std::pair<StringRef, SmallVector<int64_t>>;
  return llvm::TypeSwitch<Operation *, Function>(op)
      .Case<model::RecurrenceOp, model::CarriedRecurrenceOp, model::ShardRecurrenceOp>(
          [&](auto) { return Function("recurrence", recurrenceSizes(op)); })
      .Case<model::RecurrenceGradOp, model::ShardRecurrenceGradOp>(
          [&](auto) { return Function("recurrence_gradient", recurrenceSizes(op)); })
      .Case<model::ShardStatesOp>([&](auto) { return Function("shard_states", recurrenceSizes(op)); })
      .Case<model::ShardEdgesOp>([&](auto edges) { return Function("shard_edges", edgesSizes(edges)); })
      .Case<model::CausalConvGradOp, model::ShardConvGradOp>(
          [&](auto) { return Function("causal_conv_gradient", convolutionSizes(op)); })
      .Default([&](auto) { return Function("causal_conv", convolutionSizes(op)); });
}

LogicalResult ProgramBuilder::lowerState(Operation *op) {
  bool isCarried = isa<model::CarriedRecurrenceOp, model::CarriedConvOp>(op);
  SmallVector<Value> operands(op->getOperands());
  if (isCarried && place(operands.pop_back_val()) != place(op->getResult(1)))
    return op->emitOpError("needs a carried value that is an argument and a result of its function, nothing else");
  Call call;
  std::tie(call.function, call.sizes) = functionOf(op);
  addShard(op, call);
  constexpr int64_t mostColumns = 1024; // of keys, for the blocks of GPUs
  std::optional<size_t> columns = rt::findFunction(call.function)->findSize("key_dim");
  if (!target.isHost() && columns && call.sizes[*columns] > mostColumns)
    return op->emitOpError("needs keys of at most ")
           << mostColumns << " columns for " << target.name() << ", got " << call.sizes[*columns]
           << "; choose a cluster of CPUs, such as --cluster cpu_local";
  for (Value operand : operands)
    call.add(place(operand), cast<RankedTensorType>(operand.getType()).getElementType());
  bool isOfWeight = isa<model::CausalConvGradOp, model::ShardConvGradOp>(op); // the call adds to the accumulator
  for (Value result : op->getResults()) {
    exec::BufferAttr target = isOfWeight ? destination(result, call.flags) : place(result);
    call.add(target, isOfWeight ? target.getElement() : cast<RankedTensorType>(result.getType()).getElementType());
  }
  emit(call);
  return success();
}

} // namespace espalier::codegen
