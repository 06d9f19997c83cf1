#include "planner/search/range_costs.h"

#include <algorithm>
#include <bit>

namespace espalier::planner {

namespace {

// Calls visit(a's, b's) for every entry that adds up over layers.
template <typename Visit> void visitSums(SegmentCost &a, const SegmentCost &b, Visit visit) {
  auto array = [&](auto &x, const auto &y) {
    for (size_t i = 0; i < x.size(); ++i)
      visit(x[i], y[i]);
  };
  auto phase = [&](PhaseSeconds &x, const PhaseSeconds &y) {
    visit(x.compute, y.compute);
    array(x.communication, y.communication);
    visit(x.hostTransfer, y.hostTransfer);
  };
  phase(a.forward, b.forward);
  phase(a.backward, b.backward);
  phase(a.weight, b.weight);
  phase(a.step, b.step);
  for (size_t i = 0; i < a.recompute.size(); ++i)
    phase(a.recompute[i], b.recompute[i]);
  visit(a.parameterBytes, b.parameterBytes);
  visit(a.gradientBytes, b.gradientBytes);
  visit(a.optimizerBytes, b.optimizerBytes);
  visit(a.elements, b.elements);
  array(a.savedBytes, b.savedBytes);
  array(a.forwardTransfer, b.forwardTransfer);
  array(a.weightTransfer, b.weightTransfer);
  array(a.hideableStep, b.hideableStep);
}

template <size_t Size>
std::array<double, Size> larger(const std::array<double, Size> &a, const std::array<double, Size> &b) {
  std::array<double, Size> both{};
  for (size_t i = 0; i < Size; ++i)
    both[i] = std::max(a[i], b[i]);
  return both;
}

} // namespace

RangeCosts::RangeCosts(const CostTable &table) {
  sums.resize(1);
  maxima.resize(1);
  for (int kind : table.layerKinds) {
    const SegmentCost &cost = table.kinds[kind];
    sums.push_back(sums.back());
    visitSums(sums.back(), cost, [](double &sum, double part) { sum += part; });
    std::array<double, kMaxima> own{};
    for (int i = 0; i < 3; ++i)
      own[i] = peakBytes(cost, i);
    own[3] = cost.gatheredBytes;
    own[4] = cost.optimizerBufferBytes;
    own[5] = cost.parameterBufferBytes;
    std::copy_n(cost.savedBufferBytes.begin(), 3, own.begin() + 6);
    maxima[0].push_back(own);
  }
  size_t layers = table.layerKinds.size();
  for (size_t width = 2; width <= layers; width *= 2) {
    const auto &halves = maxima.back();
    std::vector<std::array<double, kMaxima>> level(layers - width + 1);
    for (size_t i = 0; i < level.size(); ++i)
      level[i] = larger(halves[i], halves[i + width / 2]);
    maxima.push_back(std::move(level));
  }
}

SegmentCost RangeCosts::of(int first, int count) const {
  SegmentCost cost = sums[first + count];
  visitSums(cost, sums[first], [](double &sum, double part) { sum -= part; });
  int level = std::bit_width(static_cast<unsigned>(count)) - 1;
  std::array<double, kMaxima> most = larger(maxima[level][first], maxima[level][first + count - (1 << level)]);
  std::copy_n(most.begin(), 3, cost.forwardPeakBytes.begin());
  cost.gatheredBytes = most[3];
  cost.optimizerBufferBytes = most[4];
  cost.parameterBufferBytes = most[5];
  std::copy_n(most.begin() + 6, 3, cost.savedBufferBytes.begin());
  return cost;
}

} // namespace espalier::planner
