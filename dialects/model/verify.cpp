// Verifiers of the model dialect. A comment before each check names the constraint of ops.td.
#include "dialects/model/dialect.h"

using namespace mlir;

namespace espalier::model {

namespace {

ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

Type elementOf(Value value) { return cast<RankedTensorType>(value.getType()).getElementType(); }

/// Checks that every tensor names its dimensions.
LogicalResult verifyNamed(Operation *op) {
  for (Value value : llvm::concat<Value>(SmallVector<Value>(op->getOperands()), SmallVector<Value>(op->getResults())))
    if (dimNames(value.getType()).size() != shapeOf(value).size())
      return op->emitOpError("needs tensors with named dimensions, got ") << value.getType();
  return success();
}

/// Returns whether the dimensions of `part` occur in `whole` in the same order with the same sizes.
bool isSubsequence(Value part, Value whole) {
  ArrayRef<StringAttr> wholeNames = dimNames(whole.getType());
  size_t position = 0;
  for (auto [name, size] : llvm::zip_equal(dimNames(part.getType()), shapeOf(part))) {
    while (position < wholeNames.size() && wholeNames[position] != name)
      ++position;
    if (position == wholeNames.size() || shapeOf(whole)[position] != size)
      return false;
    ++position;
  }
  return true;
}

bool sameDims(Value a, Value b) { return dimNames(a.getType()) == dimNames(b.getType()) && shapeOf(a) == shapeOf(b); }

LogicalResult verifyElementwise(Operation *op) {
  if (failed(verifyNamed(op)))
    return failure();
  Value result = op->getResult(0);
  for (Value operand : op->getOperands())
    if (!isSubsequence(operand, result)) // elementwise_c1
      return op->emitOpError("needs operands whose dimensions are a subsequence of the result's, got ")
             << operand.getType() << " for " << result.getType();
  return success();
}

LogicalResult verifyUnary(Operation *op) {
  if (failed(verifyNamed(op)))
    return failure();
  if (!sameDims(op->getOperand(0), op->getResult(0))) // unary_c1
    return op->emitOpError("needs a result with the operand's dimensions, got ")
           << op->getResult(0).getType() << " for " << op->getOperand(0).getType();
  return success();
}

LogicalResult verifyReduce(Operation *op) {
  if (failed(verifyNamed(op)))
    return failure();
  if (!isSubsequence(op->getResult(0), op->getOperand(0))) // reduce_c1
    return op->emitOpError("needs a result whose dimensions are a subsequence of the operand's, got ")
           << op->getResult(0).getType() << " for " << op->getOperand(0).getType();
  return success();
}

/// Returns whether `whole` has the dimensions of `part` and then exactly one more.
bool isOneMore(Value part, Value whole) {
  return shapeOf(whole).size() == shapeOf(part).size() + 1 && isSubsequence(part, whole) &&
         dimNames(whole.getType()).drop_back() == dimNames(part.getType());
}

LogicalResult verifyIntegers(Operation *op, Value ids, StringRef what) {
  if (!elementOf(ids).isInteger(32))
    return op->emitOpError("needs ") << what << " of type i32, got " << elementOf(ids);
  return success();
}

/// Checks that localization's attributes have one entry per dimension of the value.
LogicalResult verifyPart(Operation *op, Value whole, ArrayAttr origins, std::optional<ArrayRef<int64_t>> unsplit) {
  size_t rank = shapeOf(whole).size();
  if ((origins && origins.size() != rank) || (unsplit && unsplit->size() != rank))
    return op->emitOpError("needs one entry per dimension in origins and unsplit, tensor has ") << rank;
  return success();
}

LogicalResult verifyAttention(Operation *op, Value q, Value k, Value v) {
  if (failed(verifyNamed(op)))
    return failure();
  bool isOneLast = dimNames(k.getType()).back() == dimNames(v.getType()).back();
  if (shapeOf(k).size() != 4 || shapeOf(v).size() != 4 || elementOf(k) != elementOf(v) ||
      dimNames(k.getType()).drop_back() != dimNames(v.getType()).drop_back() ||
      shapeOf(k).drop_back() != shapeOf(v).drop_back() ||
      (isOneLast && shapeOf(k).back() != shapeOf(v).back())) // attention_c1
    return op->emitOpError("needs k [batch, seq, heads, head_dim] and v of one type, or v with another last dimension, "
                           "got ")
           << k.getType() << " and " << v.getType();
  size_t rank = shapeOf(q).size();
  bool grouped = rank == 5;
  // The number of positions is checked separately.
  auto sizesMatch = [&] {
    return shapeOf(q)[0] == shapeOf(k)[0] && shapeOf(q)[2] == shapeOf(k)[2] && shapeOf(q).back() == shapeOf(k).back();
  };
  if ((rank != 4 && !grouped) || dimNames(q.getType()).back() != dimNames(k.getType()).back() ||
      dimNames(q.getType()).take_front(3) != dimNames(k.getType()).take_front(3) || !sizesMatch()) // attention_c2
    return op->emitOpError("needs q with the dimensions of k and at most a group before the last, got ")
           << q.getType() << " for " << k.getType();
  return success();
}

/// Returns whether `out` has the dimensions of q, but the last one of v.
bool isAttended(Value out, Value q, Value v) {
  ArrayRef<StringAttr> names = dimNames(out.getType());
  return names.size() == shapeOf(q).size() && names.drop_back() == dimNames(q.getType()).drop_back() &&
         names.back() == dimNames(v.getType()).back() && shapeOf(out).drop_back() == shapeOf(q).drop_back() &&
         shapeOf(out).back() == shapeOf(v).back();
}

/// Returns whether `columns` has the dimensions of `whole` but the last, whose name differs. It may lack the dimension
/// before the last if `isShared` is set.
bool isPartOfColumns(Value columns, Value whole, bool isShared) {
  ArrayRef<StringAttr> names = dimNames(columns.getType()), all = dimNames(whole.getType());
  ArrayRef<int64_t> sizes = shapeOf(columns), allSizes = shapeOf(whole);
  if (names.empty() || all.size() < 2 || llvm::is_contained(all, names.back()) ||
      elementOf(columns) != elementOf(whole))
    return false;
  size_t dropped = isShared && names.size() + 1 == all.size() ? 2 : 1;
  return names.drop_back() == all.drop_back(dropped) && sizes.drop_back() == allSizes.drop_back(dropped);
}

/// Checks the options that limit which keys a query sees and how large a score is.
template <typename Op> LogicalResult verifyScores(Op op, bool isCausal) {
  std::optional<uint64_t> window = op.getWindow();
  if (window && (!isCausal || static_cast<int64_t>(*window) < 1)) // attention_c6
    return op.emitOpError("needs a window of at least 1 under a causal mask, got ") << static_cast<int64_t>(*window);
  if (auto cap = op.getSoftCap(); cap && !(cap->convertToDouble() > 0)) // attention_c6
    return op.emitOpError("needs a soft_cap above 0, got ") << cap->convertToDouble();
  return success();
}

/// Checks the first visible keys of an attention.
template <typename Op> LogicalResult verifyVisibleFrom(Op op) {
  Value from = op.getVisibleFrom();
  if (!from)
    return success();
  ArrayRef<StringAttr> dims = dimNames(from.getType());
  if (!op.getCausal() || shapeOf(from) != shapeOf(op.getQ()).take_front(2) ||
      dims != dimNames(op.getQ().getType()).take_front(2)) // attention_c7
    return op.emitOpError("needs visible_from with the first two dimensions of q, and a causal mask, got ")
           << from.getType();
  return verifyIntegers(op, from, "visible_from");
}

/// Checks the origins of an attention and the number of its queries.
LogicalResult verifyQueries(Operation *op, Value q, Value k, ArrayAttr origins,
                            std::optional<ArrayRef<int64_t>> unsplit) {
  if (failed(verifyPart(op, q, origins, unsplit))) // attention_c4
    return failure();
  int64_t all = unsplit ? (*unsplit)[1] : shapeOf(q)[1];
  if (all != shapeOf(k)[1]) // attention_c5
    return op->emitOpError("needs keys of all ") << all << " positions, got " << shapeOf(k)[1];
  return success();
}

/// Checks that ids and slots have one type.
LogicalResult verifyPlaces(Operation *op, Value ids, Value slots) {
  if (ids.getType() != slots.getType() || shapeOf(ids).size() != 3)
    return op->emitOpError("needs ids and slots of one type [choice, batch, seq], got ")
           << ids.getType() << " and " << slots.getType();
  return verifyIntegers(op, ids, "ids and slots");
}

/// Checks `tokens` as rows [(choice,) batch, seq, hidden] and `experts` as rows [expert, batch, capacity, hidden].
LogicalResult verifyMoved(Operation *op, Value ids, Value slots, Value weights, Value tokens, Value experts) {
  if (failed(verifyNamed(op)) || failed(verifyPlaces(op, ids, slots))) // moved_c1
    return failure();
  if (weights && !sameDims(weights, ids)) // moved_c1
    return op->emitOpError("needs weights with the dimensions of ids, got ") << weights.getType();
  ArrayRef<StringAttr> places = dimNames(ids.getType()), rows = dimNames(tokens.getType());
  ArrayRef<int64_t> sizes = shapeOf(ids);
  size_t first = rows.size() == 4 ? 0 : 1;
  if (rows.size() + first != 4 || rows.drop_back() != places.drop_front(first) ||
      shapeOf(tokens).drop_back() != sizes.drop_front(first)) // moved_c2
    return op->emitOpError("needs rows of tokens with the dimensions of ids, with or without the choice, then one "
                           "more; got ")
           << tokens.getType() << " for " << ids.getType();
  ArrayRef<StringAttr> slotted = dimNames(experts.getType());
  if (slotted.size() != 4 || slotted[1] != places[1] || slotted[3] != rows.back() || shapeOf(experts)[1] != sizes[1] ||
      shapeOf(experts)[3] != shapeOf(tokens).back()) // moved_c3
    return op->emitOpError("needs rows of experts [expert, batch, capacity, hidden], got ")
           << experts.getType() << " for " << tokens.getType();
  return success();
}

} // namespace

#define UNARY(Op)                                                                                                      \
  LogicalResult Op::verify() { return verifyUnary(*this); }
UNARY(NegOp)
UNARY(ExpOp)
UNARY(LogOp)
UNARY(TanhOp)
UNARY(ErfOp)
UNARY(LogisticOp)
UNARY(RsqrtOp)
UNARY(SqrtOp)
UNARY(StepOp)
UNARY(GeluOp)
UNARY(ConvertOp)
#undef UNARY

LogicalResult BroadcastOp::verify() { return verifyElementwise(*this); }
LogicalResult AddOp::verify() { return verifyElementwise(*this); }
LogicalResult SubOp::verify() { return verifyElementwise(*this); }
LogicalResult MulOp::verify() { return verifyElementwise(*this); }
LogicalResult DivOp::verify() { return verifyElementwise(*this); }
LogicalResult GeluGradOp::verify() { return verifyElementwise(*this); }
LogicalResult SelectOp::verify() { return verifyElementwise(*this); }
LogicalResult ReduceSumOp::verify() { return verifyReduce(*this); }
LogicalResult ReduceMaxOp::verify() { return verifyReduce(*this); }

LogicalResult ConstantOp::verify() {
  if (!shapeOf(getResult()).empty())
    return emitOpError("needs a result without dimensions, got ") << getType();
  return success();
}

LogicalResult ScalarOp::verify() {
  static constexpr StringRef slots[] = {"loss_scale",       "learning_rate", "gradient_scale", "bias_correction1",
                                        "bias_correction2", "apply",         "group_rate1",    "group_rate2",
                                        "group_rate3",      "group_rate4"};
  if (!llvm::is_contained(slots, getSlot())) // scalar_c1
    return emitOpError("needs one of loss_scale, learning_rate, gradient_scale, bias_correction1, "
                       "bias_correction2, apply, group_rate1 to group_rate4; got ")
           << getSlot();
  if (!shapeOf(getResult()).empty() || !elementOf(getResult()).isF32()) // scalar_c2
    return emitOpError("needs a result of type tensor<f32>, got ") << getType();
  return success();
}

LogicalResult ContractOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  Type a = getA().getType(), b = getB().getType(), result = getType();
  auto sizeIn = [](Type type, StringAttr dim) { return cast<RankedTensorType>(type).getDimSize(dimIndex(type, dim)); };
  for (StringAttr dim : dimNames(result)) // contract_c1
    if ((dimIndex(a, dim) >= 0 && sizeIn(a, dim) != sizeIn(result, dim)) ||
        (dimIndex(b, dim) >= 0 && sizeIn(b, dim) != sizeIn(result, dim)) ||
        (dimIndex(a, dim) < 0 && dimIndex(b, dim) < 0))
      return emitOpError("needs each result dimension from an operand with equal size, got ") << dim;
  for (auto [own, other] : {std::pair(a, b), std::pair(b, a)})
    for (StringAttr dim : dimNames(own)) {
      if (dimIndex(other, dim) < 0 && dimIndex(result, dim) < 0) // contract_c1
        return emitOpError("needs a dimension of only one operand in the result, lacks ") << dim;
      if (dimIndex(other, dim) >= 0 && sizeIn(own, dim) != sizeIn(other, dim)) // contract_c2
        return emitOpError("needs equal sizes of the shared dimension ")
               << dim << ", got " << sizeIn(own, dim) << " and " << sizeIn(other, dim);
    }
  return success();
}

LogicalResult AccumulateOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (!sameDims(getAccumulator(), getX()) || getAccumulator().getType() != getType() ||
      !isa<FloatType>(elementOf(getAccumulator()))) // accumulate_c1
    return emitOpError("needs an accumulator of floats with the dimensions of x, got ")
           << getAccumulator().getType() << " and " << getX().getType();
  return success();
}

LogicalResult KeepMaximaOp::verify() {
  auto x = cast<RankedTensorType>(getX().getType()), maxima = cast<RankedTensorType>(getType());
  constexpr int64_t heads = 2; // the dimension of x
  if (x.getRank() <= heads || getMaxima().getType() != maxima || !elementOf(getX()).isF32() ||
      maxima != namedTensor({x.getDimSize(heads)}, {dimNames(x)[heads]}, elementOf(getX()))) // keep_maxima_c1
    return emitOpError("needs f32 maxima with the third dimension of x, got ") << maxima << " for " << x;
  return success();
}

LogicalResult SquaredNormOp::verify() {
  if (!shapeOf(getResult()).empty() || !elementOf(getResult()).isF32()) // squared_norm_c1
    return emitOpError("needs a result of type tensor<f32>, got ") << getType();
  return success();
}

LogicalResult EmbedOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (shapeOf(getTable()).size() != 2 || !isOneMore(getIds(), getResult()) ||
      dimNames(getType()).back() != dimNames(getTable().getType()).back() ||
      shapeOf(getResult()).back() != shapeOf(getTable()).back()) // embed_c1
    return emitOpError("needs a table [rows, hidden] and a result [ids.., hidden], got ")
           << getTable().getType() << " and " << getType();
  return verifyIntegers(*this, getIds(), "ids"); // embed_c2
}

LogicalResult EmbedGradOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (shapeOf(getResult()).size() != 2 || !elementOf(getResult()).isF32() || !isOneMore(getIds(), getCotangent()) ||
      dimNames(getCotangent().getType()).back() != dimNames(getType()).back() ||
      shapeOf(getCotangent()).back() != shapeOf(getResult()).back()) // embed_grad_c1
    return emitOpError("needs a cotangent [ids.., hidden] and an f32 result [rows, hidden], got ")
           << getCotangent().getType() << " and " << getType();
  return verifyIntegers(*this, getIds(), "ids");
}

LogicalResult PickOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (!isOneMore(getLabels(), getX()) || !sameDims(getLabels(), getResult())) // pick_c1
    return emitOpError("needs labels and a result with the dimensions of x but the last, got ")
           << getLabels().getType() << " for " << getX().getType();
  return verifyIntegers(*this, getLabels(), "labels");
}

LogicalResult PickGradOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (!isOneMore(getLabels(), getResult()) || !isSubsequence(getCotangent(), getLabels()) ||
      !sameDims(getLike(), getResult())) // pick_grad_c1
    return emitOpError("needs a result with the dimensions of labels and one more, got ")
           << getType() << " for " << getLabels().getType();
  return verifyIntegers(*this, getLabels(), "labels");
}

LogicalResult MaskTailOp::verify() {
  if (failed(verifyUnary(*this))) // mask_tail_c1
    return failure();
  if (shapeOf(getResult()).empty()) // mask_tail_c1
    return emitOpError("needs a tensor with a dimension, got ") << getType();
  return success();
}

LogicalResult DropoutOp::verify() {
  if (failed(verifyUnary(*this))) // dropout_c1
    return failure();
  if (dimNames(getType()).empty() || dimNames(getType()).front() != "batch") // dropout_c1
    return emitOpError("needs batch as first dimension, got ") << getType();
  double rate = getRate().convertToDouble();
  if (!(rate > 0 && rate < 1)) // dropout_c2
    return emitOpError("needs a rate between 0 and 1, got ") << rate;
  return verifyPart(*this, getX(), getOriginsAttr(), getUnsplit()); // dropout_c3
}

LogicalResult RopeOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  ArrayRef<StringAttr> prefix = dimNames(getPositions().getType());
  if (!sameDims(getX(), getResult()) || prefix.size() >= shapeOf(getX()).size() ||
      dimNames(getType()).take_front(prefix.size()) != prefix || !isSubsequence(getPositions(), getX()) ||
      shapeOf(getX()).back() % 2) // rope_c1
    return emitOpError("needs x with the dimensions of positions first and an even last one, got ") << getX().getType();
  if (std::optional<uint64_t> rotary = getRotary();
      rotary && (*rotary < 2 || *rotary % 2 || static_cast<int64_t>(*rotary) > shapeOf(getX()).back())) // rope_c3
    return emitOpError("needs an even number of rotary columns from 2 to ")
           << shapeOf(getX()).back() << ", got " << static_cast<int64_t>(*rotary);
  int64_t first = static_cast<int64_t>(getFirst().value_or(0)), columns = shapeOf(getX()).back();
  if (first < 0 || first > columns || first % 2 ||
      static_cast<int64_t>(getRotary().value_or(columns)) > columns - first) // rope_c3
    return emitOpError("needs an even first column, and the rotary columns from it on among the ")
           << columns << " columns, got " << first;
  auto isAboveZero = [](std::optional<APFloat> number) { return !number || number->convertToDouble() > 0; };
  if (!isAboveZero(getFactor()) || !isAboveZero(getOriginalContext()) || !isAboveZero(getAmplitude())) // rope_c4
    return emitOpError("needs factor, original_context and amplitude above 0");
  bool hasRamp = getSlow() && getFast() && !(*getSlow() == *getFast());
  if ((getSlow() || getFast() || getOriginalContext()) && !(getFactor() && hasRamp)) // rope_c4
    return emitOpError("needs factor, and slow and fast that differ, to scale some positions less");
  return verifyIntegers(*this, getPositions(), "positions"); // rope_c2
}

LogicalResult AttentionOp::verify() {
  if (failed(verifyAttention(*this, getQ(), getK(), getV())))
    return failure();
  if (!isAttended(getOut(), getQ(), getV()) || !isOneMore(getLogSumExp(), getQ())) // attention_c3
    return emitOpError("needs out like q with the last dimension of v and log_sum_exp like q without its last "
                       "dimension, got ")
           << getOut().getType() << " and " << getLogSumExp().getType();
  if (getLargest() && getLargest().getType() != getLogSumExp().getType()) // attention_c3
    return emitOpError("needs largest of the type of log_sum_exp, got ") << getLargest().getType();
  if (failed(verifyScores(*this, getCausal())) || failed(verifyVisibleFrom(*this)))
    return failure();
  return verifyQueries(*this, getQ(), getK(), getOriginsAttr(), getUnsplit());
}

LogicalResult SinkAttentionOp::verify() {
  if (failed(verifyAttention(*this, getQ(), getK(), getV())))
    return failure();
  if (!isAttended(getOut(), getQ(), getV()) || !isOneMore(getLogSumExp(), getQ())) // sink_attention_c1
    return emitOpError("needs out like q with the last dimension of v and log_sum_exp like q without its last "
                       "dimension, got ")
           << getOut().getType() << " and " << getLogSumExp().getType();
  auto heads = [](auto list) { return list.drop_front(2).drop_back(); };
  if (shapeOf(getSinks()) != heads(shapeOf(getQ())) ||
      dimNames(getSinks().getType()) != heads(dimNames(getQ().getType()))) // sink_attention_c2
    return emitOpError("needs sinks with q's dimensions of heads, got ") << getSinks().getType();
  if (failed(verifyScores(*this, getCausal())) || failed(verifyVisibleFrom(*this)))
    return failure();
  return verifyQueries(*this, getQ(), getK(), getOriginsAttr(), getUnsplit());
}

LogicalResult AttentionGradOp::verify() {
  if (failed(verifyAttention(*this, getQ(), getK(), getV())))
    return failure();
  if (!sameDims(getDq(), getQ()) || !sameDims(getDk(), getK()) || !sameDims(getDv(), getV())) // attention_grad_c1
    return emitOpError("needs results with the dimensions of q, k and v");
  if (!isAttended(getOut(), getQ(), getV()) || !isAttended(getCotangent(), getQ(), getV()) ||
      !isOneMore(getLogSumExp(), getQ())) // attention_grad_c2
    return emitOpError("needs out and cotangent like q with the last dimension of v and log_sum_exp like q without its "
                       "last dimension");
  if (failed(verifyScores(*this, getCausal())) || failed(verifyVisibleFrom(*this)))
    return failure();
  return verifyQueries(*this, getQ(), getK(), getOriginsAttr(), getUnsplit()); // attention_grad_c3
}

LogicalResult AttendCacheOp::verify() {
  if (failed(verifyAttention(*this, getQ(), getK(), getV()))) // attend_cache_c1
    return failure();
  if (!isAttended(getOut(), getQ(), getV())) // attend_cache_c2
    return emitOpError("needs out like q with the last dimension of v, got ")
           << getOut().getType() << " for " << getQ().getType();
  ArrayRef<StringAttr> names = dimNames(getK().getType());
  ArrayRef<int64_t> k = shapeOf(getK());
  if (!elementOf(getPositions()).isInteger(32) || dimNames(getPositions().getType()) != names.take_front(2) ||
      shapeOf(getPositions()) != k.take_front(2)) // attend_cache_c3
    return emitOpError("needs i32 positions with the first two dimensions of k, got ")
           << getPositions().getType() << " for " << getK().getType();
  for (auto [given, before, after] :
       {std::tuple(getK(), getKeys(), getNewKeys()), {getV(), getValues(), getNewValues()}}) {
    ArrayRef<int64_t> cache = shapeOf(before);
    ArrayRef<StringAttr> cacheNames = dimNames(before.getType());
    if (before.getType() != after.getType() || cache.size() != 4 || cacheNames[0] != names[0] ||
        cacheNames[1] != names[2] || cacheNames[3] != dimNames(given.getType()).back() || cache[0] != k[0] ||
        cache[1] != k[2] || cache[3] != shapeOf(given).back() || cache[2] < k[1] || cache[2] != shapeOf(getKeys())[2] ||
        elementOf(before) != elementOf(given)) // attend_cache_c4
      return emitOpError("needs a cache and its result of one type [batch, heads, context, columns], got ")
             << before.getType() << " for " << given.getType();
  }
  if (getLogSumExp() && (!isOneMore(getLogSumExp(), getQ()) || !elementOf(getLogSumExp()).isF32())) // attend_cache_c6
    return emitOpError("needs an f32 log_sum_exp like q without its last dimension, got ") << getLogSumExp().getType();
  return verifyScores(*this, /*isCausal=*/true); // attend_cache_c5
}

LogicalResult ConcatOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (!isPartOfColumns(getA(), getResult(), /*isShared=*/false)) // concat_c1
    return emitOpError("needs a with the dimensions of the result but the last, got ")
           << getA().getType() << " for " << getType();
  if (!isPartOfColumns(getB(), getResult(), /*isShared=*/true)) // concat_c2
    return emitOpError(
               "needs b with the dimensions of the result but the last, with or without the one before it, got ")
           << getB().getType() << " for " << getType();
  int64_t columnsOfA = shapeOf(getA()).back(), columnsOfB = shapeOf(getB()).back();
  bool areAlike = dimNames(getA().getType()).back() == dimNames(getB().getType()).back();
  if (columnsOfA + columnsOfB != shapeOf(getResult()).back() || (areAlike && columnsOfA != columnsOfB)) // concat_c3
    return emitOpError("needs a result with the columns of a and b, whose sizes differ only with their names, got ")
           << getA().getType() << ", " << getB().getType() << " and " << getType();
  return success();
}

LogicalResult ColumnsOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (!isPartOfColumns(getResult(), getX(), /*isShared=*/true)) // columns_c1
    return emitOpError("needs a result with the dimensions of x but the last, with or without the one before it, got ")
           << getType() << " for " << getX().getType();
  int64_t first = static_cast<int64_t>(getFirst());
  if (first < 0 || first > shapeOf(getX()).back() - shapeOf(getResult()).back()) // columns_c2
    return emitOpError("needs columns within x, got ")
           << shapeOf(getResult()).back() << " from " << first << " on of " << shapeOf(getX()).back();
  return success();
}

LogicalResult TakeRowOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  ArrayRef<int64_t> x = shapeOf(getX()), result = shapeOf(getResult());
  if (x.size() != 3 || dimNames(getResult().getType()) != dimNames(getX().getType()) || result[0] != x[0] ||
      result[1] != 1 || result[2] != x[2]) // take_row_c1
    return emitOpError("needs x [batch, seq, hidden] and a result with one position of it, got ")
           << getX().getType() << " and " << getResult().getType();
  if (!elementOf(getRows()).isInteger(32) ||
      dimNames(getRows().getType()) != dimNames(getX().getType()).take_front(1) ||
      shapeOf(getRows()) != x.take_front(1)) // take_row_c2
    return emitOpError("needs i32 rows with the first dimension of x, got ") << getRows().getType();
  return success();
}

LogicalResult ViewOp::verify() {
  if (failed(verifyNamed(*this)))
    return failure();
  if (cast<RankedTensorType>(getX().getType()).getNumElements() !=
          cast<RankedTensorType>(getResult().getType()).getNumElements() ||
      elementOf(getX()) != elementOf(getResult())) // view_c1
    return emitOpError("needs a result with the elements of x, got ")
           << getX().getType() << " and " << getResult().getType();
  return success();
}

LogicalResult RouteOp::verify() {
  if (failed(verifyNamed(*this)) || failed(verifyPlaces(*this, getIds(), getSlots()))) // route_c1
    return failure();
  ArrayRef<int64_t> scores = shapeOf(getScores()), ids = shapeOf(getIds());
  if (scores.size() != 3 || dimNames(getScores().getType()).drop_back() != dimNames(getIds().getType()).drop_front() ||
      scores.drop_back() != ids.drop_front()) // route_c1
    return emitOpError("needs scores with the batch and seq of ids and then experts, got ")
           << getScores().getType() << " for " << getIds().getType();
  if (ids.front() > scores.back()) // route_c2
    return emitOpError("needs at most as many choices as experts, got ") << ids.front() << " of " << scores.back();
  if (static_cast<int64_t>(getCapacity()) < 1) // route_c3
    return emitOpError("needs a capacity of at least 1, got ") << static_cast<int64_t>(getCapacity());
  auto groups = static_cast<int64_t>(getGroups().value_or(1)), kept = static_cast<int64_t>(getKeptGroups().value_or(1));
  if (groups < 1 || groups > 32 || scores.back() % groups != 0 || kept < 1 || kept > groups ||
      kept * (scores.back() / groups) < ids.front()) // route_c4
    return emitOpError("needs 1 to 32 equal groups of experts whose kept groups have an expert for each choice, got ")
           << kept << " of " << groups << " groups of " << scores.back() << " experts for " << ids.front()
           << " choices";
  return success();
}

LogicalResult DispatchOp::verify() {
  return verifyMoved(*this, getIds(), getSlots(), getWeights(), getX(), getResult());
}
LogicalResult CombineOp::verify() {
  return verifyMoved(*this, getIds(), getSlots(), getWeights(), getResult(), getX());
}

LogicalResult CotangentOp::verify() {
  if (!sameDims(getStream(), getResult())) // cotangent_c1
    return emitOpError("needs a result with the dimensions of the stream, got ") << getType();
  return success();
}

} // namespace espalier::model
