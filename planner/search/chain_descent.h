// How splits are gone through that no chain rules out (chunk_player.h): position by position, which are stages or their
// chunks in model order, a number of layers and a choice of what they repeat. What is left of a chain behind the
// positions that are chosen is tabulated.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <utility>
#include <vector>

namespace espalier::planner {

/// Layers of each position, and which of the choices that end there it takes.
struct Split {
  std::vector<int> counts;
  std::vector<size_t> choices;
};

/// A `Space` has:
/// - chains(): how many are looked at, of those that isWithin(target) made tables of; that is false when it finds
///   nothing that may end by `target`
/// - rest(chain, position, used): what a chain takes from a position on, behind so many layers, at least
/// - counts(position, used): fewest and most layers of a position
/// - choices(split, used): how many there are of what is repeated up to the last position of `split`, which ends behind
///   so many layers; isChosenAt(position) is false where nothing is, and hasAllChoices() where some are left out
/// - seconds(chain, split, used): what a chain takes on the last position at least, under any choice, left out or not
/// - seconds(chain, split, used, choice): under one
template <typename Space> class ChainDescent {
public:
  /// Each chain that is looked at takes one from `budget`.
  ChainDescent(Space &space, int positions, int64_t &budget) : space(space), positions(positions), budget(budget) {}

  /// The next split, nearest to `split`, that no chain rules out below `best`. With `rises`, targets rise from `low` to
  /// `best`: what lies far below is ruled out by few chains. False when there is none, or the budget ends; no split
  /// ends by `low` then.
  bool next(double best, double &low, bool rises, Split &split) {
    while (budget > 0 && low < best) {
      target = rises && best - low > kFineGap * best ? (low + best) / 2 : best;
      bool mayEnd = space.isWithin(target);
      if (mayEnd && find(split))
        return true;
      if (mayEnd && budget <= 0)
        break;
      if (!mayEnd || space.hasAllChoices())
        low = target;
      else if (target == best) // what is left out may end earlier
        break;
      else
        rises = false;
    }
    return false;
  }

private:
  static constexpr double kFineGap = 1e-3; // behind which targets do not rise step by step

  bool find(Split &split) {
    found = {};
    strictest = space.chains() - 1;
    sums.assign(positions + 1, std::vector<double>(space.chains()));
    if (!descend(split, 0))
      return false;
    split = std::move(found);
    return true;
  }

  bool descend(const Split &near, int used) {
    auto position = static_cast<int>(found.counts.size());
    if (budget <= 0)
      return false;
    if (position == positions)
      return true;
    auto [fewest, most] = space.counts(position, used);
    std::vector<int> order(std::max(most - fewest + 1, 0));
    std::iota(order.begin(), order.end(), fewest);
    std::ranges::sort(order, {}, [&](int count) { return std::pair(std::abs(count - near.counts[position]), count); });
    for (int count : order) {
      found.counts.push_back(count);
      int end = used + count;
      if (mayFollow(end, [&](size_t chain) { return space.seconds(chain, found, end); }))
        for (size_t choice = 0, all = space.choices(found, end); choice < all; ++choice) {
          if (space.isChosenAt(position) &&
              !mayFollow(end, [&](size_t chain) { return space.seconds(chain, found, end, choice); }))
            continue;
          found.choices.push_back(choice);
          if (descend(near, end))
            return true;
          found.choices.pop_back();
        }
      found.counts.pop_back();
    }
    return false;
  }

  // Whether no chain is too long that takes so much at the last position; notes what they take down to its end.
  template <typename Seconds> bool mayFollow(int end, Seconds seconds) {
    size_t position = found.counts.size();
    const std::vector<double> &above = sums[position - 1];
    std::vector<double> &with = sums[position];
    auto isTooLong = [&](size_t chain) {
      --budget;
      with[chain] = above[chain] + seconds(chain);
      return with[chain] + space.rest(chain, static_cast<int>(position), end) > target;
    };
    if (!with.empty() && isTooLong(strictest))
      return false;
    for (size_t chain = 0; chain < with.size(); ++chain)
      if (isTooLong(chain)) {
        strictest = chain;
        return false;
      }
    return true;
  }

  Space &space;
  int positions;
  int64_t &budget;
  double target = 0;
  Split found;
  std::vector<std::vector<double>> sums; // of each chain down to each position
  size_t strictest = 0;                  // the chain that ruled the last one out
};

} // namespace espalier::planner
