// Routes tokens to experts and moves token rows to the experts and back.
#include "compiler/interpret/evaluators.h"
#include "dialects/model/dialect.h"

#include <algorithm>

using namespace mlir;

namespace espalier {

namespace {

/// Clears `isOpen` for experts outside of the `kept` groups with the highest sums of their two highest scores.
void keepGroups(const double *score, int64_t groups, int64_t kept, std::vector<bool> &isOpen) {
  auto experts = static_cast<int64_t>(isOpen.size()), size = experts / groups;
  std::vector<std::pair<double, int64_t>> sums;
  for (int64_t group = 0; group < groups; ++group) {
    std::vector<double> own(score + group * size, score + (group + 1) * size);
    std::sort(own.rbegin(), own.rend());
    sums.emplace_back(-(own[0] + (size > 1 ? own[1] : 0)), group);
  }
  std::sort(sums.begin(), sums.end());
  for (int64_t i = kept; i < groups; ++i)
    std::fill_n(isOpen.begin() + sums[i].second * size, size, false);
}

Results evalRoute(model::RouteOp op, Operands x, EvalContext &) {
  const Tensor &scores = *x[0];
  Tensor ids(cast<RankedTensorType>(op.getIds().getType())), slots(cast<RankedTensorType>(op.getSlots().getType()));
  int64_t batch = scores.shape()[0], seq = scores.shape()[1], experts = scores.shape()[2];
  int64_t choices = ids.shape()[0], capacity = op.getCapacity();
  for (int64_t token = 0; token < batch * seq; ++token) {
    const double *score = scores.values.data() + token * experts;
    std::vector<bool> isOpen(experts, true);
    keepGroups(score, op.getGroups().value_or(1), op.getKeptGroups().value_or(1), isOpen);
    for (int64_t choice = 0; choice < choices; ++choice) {
      int64_t best = -1;
      for (int64_t expert = 0; expert < experts; ++expert)
        if (isOpen[expert] && (best < 0 || score[expert] > score[best]))
          best = expert;
      isOpen[best] = false;
      ids.values[choice * batch * seq + token] = static_cast<double>(best);
    }
  }
  for (int64_t sample = 0; sample < batch; ++sample) {
    std::vector<int64_t> taken(experts, 0);
    for (int64_t choice = 0; choice < choices; ++choice)
      for (int64_t position = 0; position < seq; ++position) {
        int64_t at = (choice * batch + sample) * seq + position;
        int64_t slot = taken[static_cast<int64_t>(ids.values[at])]++;
        slots.values[at] = static_cast<double>(slot < capacity ? slot : -1);
      }
  }
  std::vector<Tensor> results;
  results.push_back(std::move(ids));
  results.push_back(std::move(slots));
  return results;
}

/// Calls move(first element of the token's row, of the expert's row, weight) for each choice that has a slot.
template <typename Move> void forEachRow(Operands x, ArrayRef<int64_t> tokens, ArrayRef<int64_t> experts, Move move) {
  const Tensor &ids = *x[0], &slots = *x[1];
  const Tensor *weights = x.size() > 3 ? x[3] : nullptr;
  int64_t batch = ids.shape()[1], seq = ids.shape()[2], hidden = tokens.back(), perChoice = batch * seq;
  bool hasChoice = tokens.size() == 4;
  for (int64_t at = 0; at < static_cast<int64_t>(ids.values.size()); ++at) {
    auto expert = static_cast<int64_t>(ids.values[at]), slot = static_cast<int64_t>(slots.values[at]);
    if (expert < 0 || expert >= experts[0] || slot < 0 || slot >= experts[2])
      continue;
    int64_t token = hasChoice ? at : at % perChoice, sample = at % perChoice / seq;
    move(token * hidden, ((expert * batch + sample) * experts[2] + slot) * hidden, weights ? weights->values[at] : 1.0);
  }
}

void evalDispatch(model::DispatchOp, Operands x, const EvalContext &, Tensor &y) {
  int64_t hidden = y.shape().back();
  forEachRow(x, x[2]->shape(), y.shape(), [&](int64_t token, int64_t expert, double weight) {
    for (int64_t h = 0; h < hidden; ++h)
      y.values[expert + h] += weight * x[2]->values[token + h];
  });
}

void evalCombine(model::CombineOp, Operands x, const EvalContext &, Tensor &y) {
  int64_t hidden = y.shape().back();
  forEachRow(x, y.shape(), x[2]->shape(), [&](int64_t token, int64_t expert, double weight) {
    for (int64_t h = 0; h < hidden; ++h)
      y.values[token + h] += weight * x[2]->values[expert + h];
  });
}

} // namespace

void addMixtureOfExperts(EvaluatorTable &table) {
  table.add(evalRoute);
  table.add(evalDispatch);
  table.add(evalCombine);
}

} // namespace espalier
