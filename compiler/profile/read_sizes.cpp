#include "compiler/profile/read_sizes.h"

#include "dialects/interfaces.h"

#include <algorithm>
#include <cmath>

using namespace mlir;

namespace espalier {

using planner::Monomial;

namespace {

constexpr int dpSymbol = static_cast<int>(planner::Axis::Dp), cpSymbol = static_cast<int>(planner::Axis::Cp),
              epSymbol = static_cast<int>(planner::Axis::Ep), tpSymbol = static_cast<int>(planner::Axis::Tp);

} // namespace

Monomial product(Monomial a, const Monomial &b) {
  a.coefficient *= b.coefficient;
  for (const planner::Power &power : b.powers) {
    auto same = std::find_if(a.powers.begin(), a.powers.end(),
                             [&](const planner::Power &other) { return other.symbol == power.symbol; });
    if (same == a.powers.end())
      a.powers.push_back(power);
    else
      same->exponent += power.exponent;
  }
  std::erase_if(a.powers, [](const planner::Power &power) { return power.exponent == 0; });
  std::sort(a.powers.begin(), a.powers.end(),
            [](const planner::Power &x, const planner::Power &y) { return x.symbol < y.symbol; });
  return a;
}

Monomial scaled(Monomial a, double factor) {
  a.coefficient *= factor;
  return a;
}

Monomial replicaSamples() { return {1, {{dpSymbol, -1}, {epSymbol, -1}, {planner::kBatchSymbol, 1}}}; }

Monomial shareOfReplicas() { return {1, {{dpSymbol, -1}, {cpSymbol, -1}, {epSymbol, -1}}}; }

void add(planner::Size &sum, const Monomial &part) {
  auto samePowers = [&](const Monomial &other) {
    return std::equal(other.powers.begin(), other.powers.end(), part.powers.begin(), part.powers.end(),
                      [](const planner::Power &x, const planner::Power &y) {
                        return x.symbol == y.symbol && x.exponent == y.exponent;
                      });
  };
  auto same = std::find_if(sum.begin(), sum.end(), samePowers);
  if (same == sum.end())
    sum.push_back(part);
  else
    same->coefficient += part.coefficient;
}

SizeReader::SizeReader(const ModelDescription &model, const std::vector<planner::Dimension> &dimensions,
                       ProfilePoint point)
    : model(model), point(point) {
  for (size_t i = 0; i < dimensions.size(); ++i) {
    symbols[dimensions[i].name] = planner::kFirstDimension + static_cast<int>(i);
    dimensionSizes.push_back(static_cast<double>(dimensions[i].size));
  }
}

Monomial SizeReader::dimension(llvm::StringRef name, int64_t localSize) const {
  if (name == "batch" && localSize == point.samples)
    return replicaSamples();
  if (name == "batch" && localSize == point.samples * point.ep) // if experts are split over ep
    return {1, {{dpSymbol, -1}, {planner::kBatchSymbol, 1}}};
  auto known = model.dims.find(name.str());
  if (known == model.dims.end())
    return {static_cast<double>(localSize), {}};
  Monomial whole{1, {{symbols.at(name.str()), 1}}};
  if (name == "expert")
    return expertsOf(std::move(whole), known->second, localSize);
  if (known->second == localSize)
    return whole;
  if ((name == "seq" || name == "capacity") && point.cp > 1) {
    whole = product(std::move(whole), {1, {{cpSymbol, -1}}});
    localSize *= point.cp;
    if (known->second == localSize)
      return whole;
  }
  if (known->second == localSize * point.tp)
    return product(std::move(whole), {1, {{tpSymbol, -1}}});
  return {static_cast<double>(localSize), {}};
}

/// Experts are sharded over tp, then cp, then ep. A collective over an inner axis leaves them sharded over the outer
/// ones.
Monomial SizeReader::expertsOf(Monomial whole, int64_t experts, int64_t localSize) const {
  std::vector<std::pair<int, int64_t>> axes; // symbol and ranks
  if (!point.splitsExperts && point.tp > 1)
    axes.emplace_back(tpSymbol, point.tp);
  if (point.expertsOverContext)
    axes.emplace_back(cpSymbol, point.cp);
  if (point.ep > 1)
    axes.emplace_back(epSymbol, point.ep);
  for (;; axes.pop_back()) {
    int64_t parts = 1;
    Monomial share{1, {}};
    for (auto [symbol, ranks] : axes) {
      parts *= ranks;
      share = product(std::move(share), {1, {{symbol, -1}}});
    }
    if (experts == localSize * parts)
      return product(std::move(whole), share);
    if (axes.empty())
      return {static_cast<double>(localSize), {}};
  }
}

Monomial SizeReader::elements(Type type) const {
  auto tensor = cast<RankedTensorType>(type);
  Monomial count{1, {}};
  if (tensor.getRank() == 0)
    return count;
  for (auto [name, size] : llvm::zip_equal(dimNames(tensor), tensor.getShape()))
    count = product(std::move(count), dimension(name.getValue(), size));
  return count;
}

Monomial SizeReader::bytes(Type type) const {
  return scaled(elements(type), cast<RankedTensorType>(type).getElementTypeBitWidth() / 8.0);
}

Monomial SizeReader::bytesAtTensorRanks(Type type) const {
  Monomial whole = bytes(type), rest{whole.coefficient, {}};
  for (const planner::Power &power : whole.powers)
    if (power.symbol == tpSymbol)
      rest.coefficient *= std::pow(point.tp, power.exponent);
    else if (power.symbol >= planner::kFirstDimension)
      rest.coefficient *= std::pow(dimensionSizes[power.symbol - planner::kFirstDimension], power.exponent);
    else
      rest.powers.push_back(power);
  return rest;
}

} // namespace espalier
