// Products at the full rate of the machine and what is bound by memory are polynomials in the sizes of axes, and so are
// bytes of collectives: those of a thousand kinds add up to a few monomials.
#include "planner/search/merge_layers.h"

#include "planner/search/parallel.h"

#include <algorithm>
#include <array>
#include <map>
#include <tuple>

namespace espalier::planner {

namespace {

// A sum of monomials that has each product of powers once.
class Polynomial {
public:
  // Adds coefficient * the product of `factors`.
  void add(std::initializer_list<const Size *> factors, double coefficient) {
    std::vector<Monomial> product = {{coefficient, {}}};
    for (const Size *factor : factors) {
      std::vector<Monomial> next;
      for (const Monomial &left : product)
        for (const Monomial &right : *factor) {
          next.push_back({left.coefficient * right.coefficient, left.powers});
          next.back().powers.insert(next.back().powers.end(), right.powers.begin(), right.powers.end());
        }
      product = std::move(next);
    }
    for (const Monomial &part : product)
      parts[exponentsOf(part)] += part.coefficient;
  }

  // Adds count * a size that is at most each of `sizes`, whatever the sizes of axes: the least coefficients.
  void addLeast(const std::array<Size, 3> &sizes, double count) {
    std::map<Exponents, std::array<double, 3>> coefficients;
    for (size_t i = 0; i < sizes.size(); ++i)
      for (const Monomial &part : sizes[i])
        coefficients[exponentsOf(part)][i] += part.coefficient;
    for (const auto &[powers, each] : coefficients)
      parts[powers] += count * *std::ranges::min_element(each);
  }

  Size size() const {
    Size sum;
    for (const auto &[powers, coefficient] : parts) {
      sum.push_back({coefficient, {}});
      for (const auto &[symbol, exponent] : powers)
        sum.back().powers.push_back({symbol, exponent});
    }
    return sum;
  }

private:
  using Exponents = std::vector<std::pair<int, int>>; // with their symbols

  static Exponents exponentsOf(const Monomial &part) {
    std::map<int, int> exponents;
    for (const Power &power : part.powers)
      exponents[power.symbol] += power.exponent;
    std::erase_if(exponents, [](const auto &power) { return power.second == 0; });
    return {exponents.begin(), exponents.end()};
  }

  std::map<Exponents, double> parts; // -> coefficient
};

// Terms of many kinds under one pattern.
class MergedTerms {
public:
  explicit MergedTerms(const Machine &machine) : machine(machine) {}

  // Products at the full rate. Collectives that run beside some compute of their program do so beside all: programs of
  // length L take 0.9 L + 0.1 (compute + communication), and the sum of L is at least that of either. Those that may be
  // without bytes are left out, and those beside another program.
  void add(const PatternTerms &terms, double count) {
    for (const ComputeTerm &term : terms.compute)
      if (term.phase != Phase::Repeat)
        addSeconds(term, count);
    for (const CollectiveTerm &term : terms.collectives) {
      bool isBeside = machine.transfersBesideCompute() && term.wait > term.start;
      bool isElsewhere = machine.transfersBesideCompute() && term.besideLastBackward;
      bool isPositive = std::ranges::all_of(term.bytes, [](const Monomial &part) { return part.coefficient > 0; });
      if (isElsewhere || !isPositive || term.bytes.empty() || term.phase == Phase::Repeat)
        continue;
      auto &[bytes, calls] = collectives[{term.kind, term.axis, term.overExperts, term.phase, isBeside}];
      bytes.add({&term.bytes}, count);
      calls += count * term.calls;
    }
    saved.addLeast(terms.savedBytes, count);
    for (const ParameterTerm &term : terms.parameters)
      parameters[{term.parameterBytes, term.gradientBytes, term.optimizerBytes, term.expert}].add({&term.elements},
                                                                                                  count);
  }

  PatternTerms terms(const Pattern &pattern) const {
    PatternTerms merged;
    merged.pattern = pattern;
    for (Phase phase : {Phase::Forward, Phase::Backward, Phase::Weight, Phase::Step})
      if (double count = launches[static_cast<int>(phase)]; count > 0) {
        ComputeTerm term;
        term.phase = phase;
        Polynomial sum = bytes[static_cast<int>(phase)]; // the term's own launch is one of them
        sum.add({}, (count - 1) * machine.launchSeconds * machine.memoryBytesPerSecond);
        term.bytes = sum.size();
        merged.compute.push_back(term);
      }
    for (const auto &[key, sum] : collectives) {
      CollectiveTerm term;
      bool isBeside = false;
      std::tie(term.kind, term.axis, term.overExperts, term.phase, isBeside) = key;
      term.wait = isBeside; // all compute stands at 0
      term.bytes = sum.first.size();
      term.calls = sum.second;
      merged.collectives.push_back(term);
    }
    merged.savedBytes.fill(saved.size());
    for (const auto &[key, elements] : parameters) {
      ParameterTerm term;
      std::tie(term.parameterBytes, term.gradientBytes, term.optimizerBytes, term.expert) = key;
      term.elements = elements.size();
      merged.parameters.push_back(term);
    }
    return merged;
  }

private:
  // As bytes that take as long.
  void addSeconds(const ComputeTerm &term, double count) {
    int phase = static_cast<int>(term.phase);
    double perOperation = machine.memoryBytesPerSecond / machine.peakFlops;
    double attention = machine.attentionEfficiency > 0 ? machine.attentionEfficiency : machine.matmulEfficiency;
    launches[phase] += count;
    switch (term.kind) {
    case ComputeClass::MatMul:
      bytes[phase].add({&term.m, &term.n, &term.k, &term.count}, 2 * count * perOperation / machine.matmulEfficiency);
      break;
    case ComputeClass::Attention:
      bytes[phase].add({&term.operations}, count * perOperation / attention);
      break;
    case ComputeClass::Memory:
      bytes[phase].add({&term.bytes}, count);
      break;
    }
  }

  const Machine &machine;
  std::array<Polynomial, 4> bytes; // by phase
  std::array<double, 4> launches{};
  Polynomial saved;
  std::map<std::tuple<CollectiveKind, Axis, bool, Phase, bool>, std::pair<Polynomial, double>>
      collectives; // bytes, calls
  std::map<std::tuple<double, double, double, bool>, Polynomial> parameters;
};

} // namespace

Problem mergeLayers(const Problem &problem, int threads) {
  std::vector<double> counts(problem.kinds.size());
  for (const LayerRun &run : problem.layers)
    counts[run.kind] += run.count;
  std::vector<std::vector<int>> groups; // kinds with the same patterns
  for (size_t kind = 0; kind < counts.size(); ++kind) {
    if (counts[kind] == 0)
      continue;
    auto isAlike = [&](const std::vector<int> &group) {
      return std::ranges::equal(problem.kinds[group.front()].patterns, problem.kinds[kind].patterns, {},
                                &PatternTerms::pattern, &PatternTerms::pattern);
    };
    auto group = std::ranges::find_if(groups, isAlike);
    if (group == groups.end())
      group = groups.insert(group, std::vector<int>());
    group->push_back(static_cast<int>(kind));
  }
  Problem merged; // what sums of work depend on
  merged.dimensions = problem.dimensions;
  merged.machine = problem.machine;
  merged.pins = problem.pins;
  merged.boundaryBytes = problem.boundaryBytes;
  merged.boundaryScatters = problem.boundaryScatters;
  for (auto [edge, mergedEdge] : {std::pair(problem.embed, &merged.embed), std::pair(problem.head, &merged.head)})
    if (edge >= 0) {
      *mergedEdge = static_cast<int>(merged.kinds.size());
      merged.kinds.push_back(problem.kinds[edge]);
    }
  for (const std::vector<int> &group : groups) {
    SegmentKind kind{"layers", problem.kinds[group.front()].patterns};
    forEachParallel(kind.patterns.size(), threads, [&](size_t i) {
      MergedTerms sum(problem.machine);
      for (int member : group)
        sum.add(problem.kinds[member].patterns[i], counts[member]);
      kind.patterns[i] = sum.terms(kind.patterns[i].pattern);
    });
    merged.layers.push_back({static_cast<int>(merged.kinds.size()), 1});
    merged.kinds.push_back(std::move(kind));
  }
  return merged;
}

} // namespace espalier::planner
