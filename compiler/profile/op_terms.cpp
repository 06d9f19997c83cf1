#include "compiler/profile/op_terms.h"

#include "dialects/exec/dialect.h"
#include "dialects/model/dialect.h"
#include "format/axes.h"

using namespace mlir;

namespace espalier {

using planner::CollectiveKind;
using planner::CollectiveTerm;
using planner::ComputeClass;
using planner::ComputeTerm;
using planner::Monomial;
using planner::Phase;
using planner::Size;

bool isCollective(Operation *op) {
  return isa<dist::AllReduceOp, dist::AllGatherOp, dist::ReduceScatterOp, dist::AllToAllOp>(op);
}

bool isProduct(Operation *op) { return isa<model::ContractOp, exec::ProductOp>(op); }

bool isSingle(Operation *op) {
  return isCollective(op) || isProduct(op) ||
         isa<model::AttentionOp, model::AttentionGradOp, model::RecurrenceOp, model::RecurrenceGradOp>(op);
}

bool movesBytes(Operation *op) {
  if (isSingle(op) || op->getNumResults() == 0 || op->getNumOperands() == 0)
    return false;
  if (auto accumulate = dyn_cast<model::AccumulateOp>(op))
    return !isa_and_nonnull<model::ContractOp, exec::ProductOp, model::EmbedGradOp, model::CausalConvGradOp>(
        accumulate.getX().getDefiningOp());
  return llvm::any_of(op->getResultTypes(), [](Type type) { return isa<RankedTensorType>(type); });
}

planner::Axis axisNamed(StringRef name) {
  return static_cast<planner::Axis>(llvm::find(meshAxes, name) - meshAxes.begin());
}

Positions positionsIn(func::FuncOp function) {
  Positions positions;
  for (auto [index, op] : llvm::enumerate(function.getBody().front()))
    positions[&op] = static_cast<int>(index);
  return positions;
}

ComputeTerm memoryTerm(const std::string &name, Phase phase, Size bytes) {
  ComputeTerm term;
  term.name = name;
  term.kind = ComputeClass::Memory;
  term.phase = phase;
  term.bytes = std::move(bytes);
  return term;
}

namespace {

CollectiveKind kindOf(Operation *op) {
  if (isa<dist::AllReduceOp>(op))
    return CollectiveKind::AllReduce;
  if (isa<dist::AllToAllOp>(op))
    return CollectiveKind::AllToAll;
  return isa<dist::AllGatherOp>(op) ? CollectiveKind::AllGather : CollectiveKind::ReduceScatter;
}

ArrayAttr axesOf(Operation *op) { return op->getAttrOfType<ArrayAttr>("axes"); }

/// Returns the outermost axis of the group.
planner::Axis axisOf(Operation *op) { return axisNamed(cast<StringAttr>(axesOf(op)[0]).getValue()); }

/// Returns whether the instruction computes a product, by the library or by a kernel.
bool isOfProduct(const EmittedPiece &piece) { return piece.name == "matmul" || piece.name == "few_rows"; }

} // namespace

std::vector<EmittedPiece> OpTerms::piecesOf(Operation *op) const {
  if (emitted)
    return emitted->of(op).vec();
  return {{op->getName().stripDialect().str(), trafficOf(op)}};
}

std::vector<EmittedPiece> OpTerms::memoryPiecesOf(Operation *op) const {
  if (!movesBytes(op) && !(emitted && isProduct(op)))
    return {};
  std::vector<EmittedPiece> pieces = piecesOf(op);
  if (isProduct(op))
    llvm::erase_if(pieces, isOfProduct);
  return pieces;
}

Size OpTerms::trafficOf(Operation *op) const {
  Size bytes;
  if (emitted) {
    for (const EmittedPiece &piece : emitted->of(op))
      if (!isProduct(op) || isOfProduct(piece))
        for (const Monomial &part : piece.bytes)
          add(bytes, part);
    return bytes;
  }
  for (Value operand : op->getOperands())
    if (!isa<model::EmbedOp>(op))
      add(bytes, sizes.bytes(operand.getType()));
  for (Type type : op->getResultTypes())
    add(bytes, scaled(sizes.bytes(type), isa<model::EmbedOp>(op) ? 2 : 1));
  return bytes;
}

/// Returns the term of a product. m and n are dimensions of one operand and the result, k those that the result
/// lacks, count those of all three.
ComputeTerm OpTerms::productTerm(Operation *op, Phase phase) const {
  ComputeTerm term;
  term.kind = ComputeClass::MatMul;
  Monomial m{1, {}}, n{1, {}}, k{1, {}}, count{1, {}};
  auto read = [&](Value operand, Value other, Monomial &alone) {
    auto type = cast<RankedTensorType>(operand.getType());
    for (auto [name, size] : llvm::zip_equal(dimNames(type), type.getShape())) {
      bool shared = dimIndex(other.getType(), name) >= 0, kept = dimIndex(op->getResult(0).getType(), name) >= 0;
      Monomial &target = !shared ? alone : kept ? count : k;
      if (!shared || operand == op->getOperand(0))
        target = product(target, sizes.dimension(name, size));
    }
  };
  read(op->getOperand(0), op->getOperand(1), m);
  read(op->getOperand(1), op->getOperand(0), n);
  term.m = {m}, term.n = {n}, term.k = {k}, term.count = {count};
  bool isWeight = llvm::all_of(op->getUsers(), [](Operation *user) { return isa<model::AccumulateOp>(user); });
  term.phase = phase == Phase::Backward && isWeight ? Phase::Weight : phase;
  return term;
}

/// Returns the operations of attention on the rank with the most work. Under the causal mask this is the last context
/// rank: its queries attend to all keys except half of as many keys as it has queries. With a window they attend to a
/// window of keys; the whole sequence lacks the keys before its begin. Within documents they attend to the expected
/// number of keys (`model::keysSeen`). The result is exact for one context rank and for one query on each context rank.
Size OpTerms::attentionOperations(Operation *op) const {
  constexpr int cp = static_cast<int>(planner::Axis::Cp);
  auto positions = [&](unsigned operand) {
    return static_cast<double>(cast<RankedTensorType>(op->getOperand(operand).getType()).getDimSize(1));
  };
  double queries = positions(0), keys = positions(1), unseen = op->hasAttr("causal") ? queries / keys / 2 : 0;
  auto window = op->getAttrOfType<IntegerAttr>("window");
  double most = window ? std::min(keys, static_cast<double>(window.getInt())) : keys;
  double unseenByOne = 0.5 * most / keys; // by the queries of a whole sequence
  double document = model::documentTokensOf(op);
  if (document > 0 && document < keys) {
    auto seenBy = [=, limit = most](double last) {
      return model::keysSeen(last, keys, /*isCausal=*/true, limit, document);
    };
    most = seenBy(1);
    unseen = 1 - seenBy(queries) / most;
    unseenByOne = 1 - seenBy(keys) / most;
  } else if (most < keys) {
    unseen = 1 - model::keysSeen(queries, keys, /*isCausal=*/true, most) / most;
  }
  double allQueries = cast<CostedOp>(op).flops() / (1 - unseen) * keys / queries;
  Monomial every =
      product(scaled(replicaSamples(), allQueries / static_cast<double>(sizes.at().samples)), {1, {{cp, -1}}});
  if (unseen == 0)
    return {every};
  return {every, product(scaled(every, -unseenByOne), {1, {{cp, -1}}})};
}

ComputeTerm OpTerms::singleTerm(Operation *op, Phase phase) const {
  ComputeTerm term;
  if (isProduct(op)) {
    term = productTerm(op, phase);
  } else {
    term.kind = ComputeClass::Attention;
    term.phase = phase;
    term.operations = attentionOperations(op);
  }
  term.name = isProduct(op) ? "contract" : op->getName().stripDialect().str();
  term.bytes = trafficOf(op);
  return term;
}

CollectiveTerm OpTerms::collectiveTerm(Operation *op, Phase phase) const {
  CollectiveTerm term;
  term.name = op->getName().stripDialect().str();
  term.kind = kindOf(op);
  term.axis = axisOf(op);
  term.phase = phase;
  bool isGather = term.kind == CollectiveKind::AllGather;
  term.bytes = {sizes.bytes(isGather ? op->getResult(0).getType() : op->getOperand(0).getType())};
  return term;
}

CollectiveTerm OpTerms::collectiveTerm(Operation *op, Phase phase, const Positions &positions) const {
  CollectiveTerm term = collectiveTerm(op, phase);
  term.start = positions.lookup(op);
  term.wait = positions.lookup(op->getBlock()->getTerminator());
  for (Operation *user : op->getUsers())
    term.wait = std::min(term.wait, positions.lookup(user));
  return term;
}

} // namespace espalier
