// DeepSeek-V3 (DeepSeek-AI 2024) scores experts by sigmoids and balances them by a bias. The load-balancing loss is
// that of Switch Transformers (Fedus et al. 2021) within a sample, and the z-loss that of ST-MoE (Zoph et al. 2022).
#include "compiler/import/model/build_routing.h"

using namespace mlir;

namespace espalier {

namespace {

bool isSigmoid(const OpDescription &op) {
  auto score = op.strings.find("score");
  return score != op.strings.end() && score->second == "sigmoid";
}

int64_t sizeOf(Value value, int64_t dim) { return cast<RankedTensorType>(value.getType()).getDimSize(dim); }

/// Returns the type [choice, batch, seq, router].
RankedTensorType perChoice(Value ids, Value router, Type element) {
  auto places = cast<RankedTensorType>(ids.getType());
  SmallVector<StringAttr> dims(dimNames(places));
  SmallVector<int64_t> shape(places.getShape());
  auto experts = cast<RankedTensorType>(router.getType());
  dims.push_back(dimNames(experts).back());
  shape.push_back(experts.getShape().back());
  return namedTensor(shape, dims, element);
}

RankedTensorType withoutFirst(RankedTensorType type) {
  return namedTensor(type.getShape().drop_front(), dimNames(type).drop_front(), type.getElementType());
}

Value ones(PrimitiveBuilder &p, ArrayRef<int64_t> shape, ArrayRef<StringAttr> dims) {
  return p.b.create<model::BroadcastOp>(p.loc, namedTensor(shape, dims, p.f32), p.constant(1));
}

/// Returns [batch, seq, router]: 1 for the chosen experts of a token, else 0. `like` has the dimension `router`. A
/// token selects an expert at most once, so `step` does not change the value. It only stops the derivative, because a
/// choice has none.
Value chosenExperts(PrimitiveBuilder &p, Value ids, Value like) {
  RankedTensorType type = perChoice(ids, like, p.f32);
  Value repeated = p.b.create<model::BroadcastOp>(p.loc, type, like);
  auto places = cast<RankedTensorType>(ids.getType());
  Value hot = p.b.create<model::PickGradOp>(p.loc, type, ids, ones(p, places.getShape(), dimNames(places)), repeated,
                                            Attribute());
  return p.unary<model::StepOp>(p.b.create<model::ReduceSumOp>(p.loc, withoutFirst(type), hot));
}

/// Returns [batch, router]: the tokens of each sample that chose the expert. `chosen` is [batch, seq, router].
Value choicesOfSamples(PrimitiveBuilder &p, Value ids, Value chosen) {
  auto places = withoutFirst(cast<RankedTensorType>(ids.getType())), all = cast<RankedTensorType>(chosen.getType());
  Type perSample = namedTensor({all.getDimSize(0), all.getDimSize(2)}, {dimNames(all)[0], dimNames(all)[2]}, p.f32);
  return p.b.create<model::ContractOp>(p.loc, perSample, chosen, ones(p, places.getShape(), dimNames(places)));
}

} // namespace

Value choiceScores(PrimitiveBuilder &p, const OpDescription &op, Value scores, Value bias) {
  if (!bias && number(op, "groups") <= 1)
    return scores;
  Value probabilities = isSigmoid(op) ? p.unary<model::LogisticOp>(scores) : p.softmax(scores);
  return bias ? p.binary<model::AddOp>(probabilities, bias) : probabilities;
}

Value expertWeights(PrimitiveBuilder &p, const OpDescription &op, Value scores, Value ids) {
  Value maximum = isSigmoid(op) ? Value() : p.reduceLast<model::ReduceMaxOp>(scores);
  Type element = cast<RankedTensorType>(scores.getType()).getElementType();
  Value repeated = p.b.create<model::BroadcastOp>(p.loc, perChoice(ids, scores, element), scores);
  Type type = withElement(ids.getType(), p.f32);
  Value chosen = p.b.create<model::PickOp>(p.loc, type, repeated, ids, Attribute());
  bool isNormalized = number(op, "normalize") != 0;
  auto sumOfChosen = [&](Value of) -> Value {
    return p.b.create<model::ReduceSumOp>(p.loc, withoutFirst(cast<RankedTensorType>(of.getType())), of);
  };
  Value weights;
  if (isSigmoid(op)) {
    weights = p.unary<model::LogisticOp>(chosen);
    if (isNormalized)
      weights = p.binary<model::DivOp>(weights,
                                       p.binary<model::AddOp>(sumOfChosen(weights), p.constant(number(op, "epsilon"))));
  } else {
    Value powers = p.unary<model::ExpOp>(p.binary<model::SubOp>(chosen, maximum));
    Value total =
        isNormalized ? sumOfChosen(powers)
                     : p.reduceLast<model::ReduceSumOp>(p.unary<model::ExpOp>(p.binary<model::SubOp>(scores, maximum)));
    weights = p.binary<model::DivOp>(powers, total);
  }
  double scale = number(op, "scale");
  return scale == 1 ? weights : p.binary<model::MulOp>(weights, p.constant(scale));
}

Value balanceLoss(PrimitiveBuilder &p, const OpDescription &op, Value scores, Value ids, Value weights) {
  Value counts = choicesOfSamples(p, ids, chosenExperts(p, ids, scores));
  double perShare = number(op, "factor") * sizeOf(scores, 2) / (sizeOf(ids, 0) * sizeOf(ids, 2));
  Value probabilities;
  if (isSigmoid(op)) {
    Value sigmoids = p.unary<model::LogisticOp>(scores);
    probabilities = p.binary<model::DivOp>(sigmoids, p.reduceLast<model::ReduceSumOp>(sigmoids));
  } else {
    probabilities = p.softmax(scores);
  }
  Value losses = p.reduceLast<model::ReduceSumOp>(
      p.binary<model::MulOp>(probabilities, p.binary<model::MulOp>(counts, p.constant(perShare))));
  return p.sumAll(p.binary<model::MulOp>(losses, weights));
}

// The excess is subtracted per token, so that ranks with different tokens only sum the gradient of the bias.
Value balanceBias(PrimitiveBuilder &p, Value ids, Value bias) {
  auto experts = static_cast<double>(sizeOf(bias, 0)), choices = static_cast<double>(sizeOf(ids, 0));
  Value chosen = p.binary<model::MulOp>(chosenExperts(p, ids, bias), p.constant(experts));
  Value excess = p.binary<model::SubOp>(chosen, p.constant(choices));
  return p.sumAll(p.binary<model::MulOp>(excess, bias));
}

// A sample drops the choices of an expert beyond the capacity, so no sum over slots is needed.
ExpertLoads expertLoads(PrimitiveBuilder &p, Value ids, Value scores, int64_t capacity) {
  Value counts = choicesOfSamples(p, ids, chosenExperts(p, ids, scores));
  ExpertLoads loads;
  loads.chosen = p.b.create<model::ReduceSumOp>(p.loc, withoutFirst(cast<RankedTensorType>(counts.getType())), counts);
  if (capacity >= sizeOf(ids, 2))
    return loads;
  Value excess = p.binary<model::SubOp>(counts, p.constant(static_cast<double>(capacity)));
  loads.dropped = p.sumAll(p.binary<model::MulOp>(excess, p.unary<model::StepOp>(excess)));
  return loads;
}

Value zLoss(PrimitiveBuilder &p, const OpDescription &op, Value scores, Value weights) {
  Value maximum = p.reduceLast<model::ReduceMaxOp>(scores);
  Value powers = p.unary<model::ExpOp>(p.binary<model::SubOp>(scores, maximum));
  Value logSum = p.binary<model::AddOp>(p.unary<model::LogOp>(p.reduceLast<model::ReduceSumOp>(powers)), maximum);
  Value losses = p.binary<model::MulOp>(p.binary<model::MulOp>(logSum, logSum), p.constant(number(op, "factor")));
  return p.sumAll(p.binary<model::MulOp>(losses, weights));
}

} // namespace espalier
