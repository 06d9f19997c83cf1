// The best plans found so far. The plans to report bound the rest of the search.
#pragma once

#include "planner/search/space.h"
#include "planner/search/split.h"

#include <map>
#include <tuple>
#include <vector>

namespace espalier::planner {

/// Steps with a smaller relative difference count as equal.
inline constexpr double kSameStep = 1e-9;

/// A config with its best split.
struct Incumbent {
  ParallelConfig config;
  SplitResult result;
  std::pair<uint32_t, uint32_t> place; ///< choice and schedule, in the order of enumeration
};

/// The best plan of each mesh. At most two plans of a family are reported, and other plans must beat the last of them.
class Incumbents {
public:
  /// `wanted` is the number of plans to report, at least 1. Plans must be faster than `limitSeconds`.
  Incumbents(int wanted, double limitSeconds) : wanted(std::max(wanted, 1)), best(limitSeconds) {}

  /// Adds a plan. Of equally fast plans of a mesh, keeps the first in the order of enumeration.
  void offer(const ParallelConfig &config, const SplitResult &result, const Candidate &candidate);

  /// Returns the time that a plan must beat: the plan of its mesh, the last reported plan, and the last of its family.
  double limitFor(const ParallelConfig &config) const;

  /// Step of the fastest plan; the limit if there is none.
  double bestSeconds() const { return best; }
  /// Returns the step of the last reported plan, and at most a quarter above the best.
  double lastSeconds() const { return last; }

  /// Returns all plans, fastest first. Ties keep the order of enumeration.
  std::vector<Incumbent> sorted() const;

  /// Shortens a list to the wanted number, with at most two plans of a family. Keeps the first and the fastest plan,
  /// and then the others in their order.
  void shorten(std::vector<Incumbent> &list) const;

  static constexpr double mostSlower = 1.25; ///< reported plans take at most this much of the fastest step

private:
  static constexpr int mostOfFamily = 2;
  using Mesh = std::tuple<int, int, int, int, int>;
  static Mesh meshOf(const ParallelConfig &plan) { return {plan.dp, plan.tp, plan.pp, plan.cp, plan.ep}; }
  void bound();

  int wanted;
  std::map<Mesh, Incumbent> meshes;
  double best, last = best;
  std::map<int, double> lastOfFamily; ///< set when two plans of the family are known
};

} // namespace espalier::planner
