// The best plans that a search has found so far, of which those that are reported bound the others.
#pragma once

#include "planner/search/space.h"
#include "planner/search/split.h"

#include <limits>
#include <map>
#include <tuple>
#include <vector>

namespace espalier::planner {

/// Steps that differ by less, relatively, are the same.
inline constexpr double kSameStep = 1e-9;

/// A config with its best split.
struct Incumbent {
  ParallelConfig config;
  SplitResult result;
  std::pair<uint32_t, uint32_t> place; ///< choice and schedule in the order of enumeration
};

/// The best plan of each mesh. At most two of a family are reported; others must beat the last one that is.
class Incumbents {
public:
  explicit Incumbents(int wanted) : wanted(std::max(wanted, 1)) {}

  /// Of equally fast plans of a mesh the first in the order of enumeration is kept.
  void offer(const ParallelConfig &config, const SplitResult &result, const Candidate &candidate);

  /// A plan must beat that of its mesh, or of a new mesh the last one that is reported, of all and of its family.
  double limitFor(const ParallelConfig &config) const;

  double bestSeconds() const { return best; }
  /// Of the last one that is reported; where there are fewer than wanted, a quarter above the best.
  double lastSeconds() const { return last; }

  /// Fastest first; of equally fast plans the order of enumeration decides.
  std::vector<Incumbent> sorted() const;

  /// Leaves the wanted number of a list in its order, at most two of a family. The first and the fastest come before
  /// others.
  void shorten(std::vector<Incumbent> &list) const;

private:
  static constexpr int mostOfFamily = 2;
  static constexpr double mostSlower = 1.25;
  using Mesh = std::tuple<int, int, int, int, int>;
  static Mesh meshOf(const ParallelConfig &plan) { return {plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}; }
  void bound();

  int wanted;
  std::map<Mesh, Incumbent> meshes;
  double best = std::numeric_limits<double>::infinity(), last = best;
  std::map<int, double> lastOfFamily; ///< where two of it are known
};

} // namespace espalier::planner
